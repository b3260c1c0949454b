/* state_dir.h - the names of the files in a daemon's state directory.
 *
 *   identity.key     this peer's Ed25519 key, mode 0600
 *   lock             held by the daemon that runs on this directory, which
 *                    writes STATE_DIR_LOCK_HEAD bytes: its process id, a word
 *                    (its version; "again", about to become another program;
 *                    "ending", told to end), blanks and a newline; then its
 *                    program's file and its arguments, a NUL behind each. In
 *                    an emulator /proc tells neither of these two
 *   control          where that daemon listens for commands: "HOST:PORT" or
 *                    "unix:PATH" and a newline; removed at a clean exit
 *   control.tokens   who may ask it from other machines, mode 0600
 *                    (control_tokens.h)
 *   run.manifest     the run, in wire form (manifest_pack), verified
 *   consent          what of this machine its owner gives the run
 *                    (cli/join_terms.h)
 *   peers            whom to dial after a restart (p2p/swarm/peers.h)
 *   view.chain       proof that it is the run's (p2p/round/chain.h)
 *   run.revoked      invitations that no longer hold (REVOCATION)
 *   incoming.state   a state that is being fetched; gone when it is loaded
 *   view.record      what an acceptor must remember (p2p/round/ballot.h)
 *   traffic          bytes of this month (courtesy.h)
 *   shards/          the data, named as in the manifest, verified
 *   rounds/          reduced bytes of the last rounds (machine/past.c); may be
 *                    deleted at any time
 *   evidence/        proofs that members lied (daemon/jobs/evidence.h); who is
 *                    named there gets in no view with our signature
 *   checkpoints/     train/replica/checkpoint.h
 *   stages/K/checkpoints/  those of stage K, which `loco stages` fetched; may
 *                    be deleted at any time
 *   upgrade.json     what `loco upgrade` remembers (cli/upgrade.h); beside it
 *                    its log, and the file that it downloads
 *   cuda-tuning      choices of matrix products on this GPU
 *
 * `locod` writes them, `loco` reads them; both through these names only.
 */
#ifndef LOCO_DAEMON_SETTINGS_STATE_DIR_H
#define LOCO_DAEMON_SETTINGS_STATE_DIR_H

/* Beside run.yaml. */
#define RUN_INVITATION  "run.invitation"  /* of who starts the run, 0600 */
#define RUN_INVITATIONS "run.invitations" /* a line for each: see loco run */

#define STATE_DIR_KEY         "identity.key"
#define STATE_DIR_LOCK        "lock"
#define STATE_DIR_LOCK_HEAD   64
#define STATE_DIR_LOCK_AGAIN  "again"
#define STATE_DIR_LOCK_ENDING "ending"
#define STATE_DIR_CONTROL     "control"
#define STATE_DIR_TOKENS      "control.tokens"
#define STATE_DIR_MANIFEST    "run.manifest"
#define STATE_DIR_CONSENT     "consent"
#define STATE_DIR_PEERS       "peers"
#define STATE_DIR_RECORD      "view.record"
#define STATE_DIR_CHAIN       "view.chain"
#define STATE_DIR_REVOKED     "run.revoked"
#define STATE_DIR_TRAFFIC     "traffic"
#define STATE_DIR_SHARDS      "shards"
#define STATE_DIR_INCOMING    "incoming.state"
#define STATE_DIR_ROUNDS      "rounds"
#define STATE_DIR_EVIDENCE    "evidence"
#define STATE_DIR_CHECKPOINTS "checkpoints"
#define STATE_DIR_STAGES      "stages"
#define STATE_DIR_TUNING      "cuda-tuning"
#define STATE_DIR_UPGRADE     "upgrade.json"
#define STATE_DIR_UPGRADE_LOG "upgrade.log"
#define STATE_DIR_RELEASE     "upgrade.tar.gz" /* until it is installed */

#endif
