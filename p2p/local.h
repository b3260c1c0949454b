/* local.h - the jobs of the machine below a node, and its reports.
 *
 * A *job* is what a node asks of the machine that it runs on: of its trainer,
 * its workers, its disk. It leaves the core as an ACTION_JOB (core.h), and the
 * owner of the shell executes it. A *report* comes back as an EVENT_LOCAL: a
 * job has ended, or the operator or the home network said something.
 *
 * Each kind has one payload, the member of the union with its name. A kind
 * without a member says everything by its type; no other member may be read.
 *
 * Ownership: bytes of a job lie in the `out` that carries it and are good
 * until the call returns. Pointers of a report are borrowed until the node has
 * handled it.
 */
#ifndef LOCO_P2P_LOCAL_H
#define LOCO_P2P_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/address.h"
#include "p2p/segment.h"
#include "p2p/terms.h"
#include "proto/id.h"

/* Places of a stage for held-out windows, beside those of its pipeline. */
#define EVAL_SLOTS 2

/* What a stage does with the micro-batches of a step. */
enum pipe_op {
    PIPE_FORWARD,
    PIPE_SCORE,    /* the last stage: forward, loss and backward */
    PIPE_BACKWARD, /* adds to the sum of gradients */
    PIPE_CLEAR,    /* the sum, and what is kept for backward passes */
    PIPE_STEP,     /* the optimizer, with the sum; it is empty then */
    /* Held-out windows through the parameters of the commit `round`, not those
     * that the steps have moved; nothing of it is kept or summed. */
    PIPE_EVAL_FORWARD,
    PIPE_EVAL_SCORE, /* the last stage */
    PIPE_OP_COUNT
};

/* ---- jobs -------------------------------------------------------------- */

enum job_type {
    JOB_CONFIGURE,  /* take over a manifest -> CONFIGURED */
    JOB_LOAD,       /* put a state in place -> LOADED */
    JOB_TRAIN,      /* make inner steps, then pack -> PROGRESS*, TRAINED */
    JOB_APPLY,      /* the outer step with the mean of a round -> APPLIED, or
                       before that PLACED */
    JOB_PAIR,       /* the same with the partner of a turn -> APPLIED */
    JOB_EVAL,       /* -> EVALUATED */
    JOB_HASH,       /* -> HASHED */
    JOB_VERIFY,     /* a fetched piece against its leaf list -> VERIFIED */
    JOB_INHERIT,    /* -> INHERITED, only when it cannot */
    JOB_KEEP,       /* make a fetched and verified shard durable */
    JOB_DOWNLOAD,   /* -> DOWNLOADING*, DOWNLOADED */
    JOB_CHECKPOINT, /* write the state of the last APPLIED or LOADED, and the
                       record of its commit if there is one (node_record()) */
    JOB_PEERS,      /* replace the peers cache (p2p/swarm/peers.h) */
    JOB_CHAIN,      /* replace the chain of views (p2p/round/chain.h) */
    JOB_REVOKED,    /* replace the list of revoked invitations */
    JOB_STAGE,      /* become the machine of a stage -> STAGED */
    JOB_PIPE,       /* -> PIPED, but for CLEAR */
    JOB_AUDIT,      /* repeat the sum of a block -> AUDITED */
    JOB_STRAYS,     /* whose contributions go another way -> STRAYS */
    JOB_REPEAT,     /* make the lease of another member again -> REPEATED */
    JOB_EVIDENCE,   /* write down that the last AUDIT found a wrong sum, or what
                       convicts a member of bad work */
    JOB_OVER,       /* the run has ended: no TRAIN will follow, unless another
                       branch of it has not */
    JOB_PAUSE,      /* stop between two inner steps until TRAIN or RESUME */
    JOB_RESUME,
    JOB_STOP, /* the node is drained */
    JOB_LOG,
    JOB_TYPE_COUNT
};

/* Where bytes lie in the `out` that carries the job or the action. */
struct out_span {
    uint32_t at, len; /* of out->bytes */
};

struct job_load {
    uint64_t round;
    bool from_seed; /* derive it from the manifest's seed */
    bool from_disk; /* the held state of the terms; else BUFFER_STATE */
    bool anew;      /* the inner optimizer begins anew */
    bool from_kept; /* one of the last states, still in memory: */
    uint64_t kept_round, kept_name; /* as struct segment has them; LOCO_ENOENT
                                       where it is gone */
    bool rebase;   /* keep live progress made since the anchor */
    double share;  /* weight of the state, in a mean with the one in place;
                      0: the state takes its place */
    uint64_t undo; /* as in job_apply */
};

/* The steps read their lease from its front on. A LOAD, or an APPLY without
 * rebase, that comes before TRAINED makes them begin at the front again; with
 * terms.audits_work a LOAD without rebase ends the TRAIN, without an answer. */
struct job_train {
    uint64_t round; /* whose contribution is packed */
    uint32_t steps; /* inner steps to make; fewer where some were made beside
                       the round before. 0: of a stage, which made them */
    uint32_t members, rank; /* of the view; the own place in it */
    struct out_span lease;  /* a struct lease; len 0: the peer's own order */
    bool idle; /* no steps: a contribution of nothing, without weight */
};

/* After the steps that were made beside the round. The bytes stay readable as
 * BUFFER_REDUCED `round` afterwards. */
struct job_apply {
    uint64_t round;
    enum buffer_kind buffer; /* RING or REDUCED */
    bool rebase;             /* as in job_load */
    double share;            /* weight of the own contribution; 0 with rebase */
    bool ours; /* the contribution that was packed last is in it, whole */
    uint32_t arrivals, members; /* contributions that weigh anything, of so many
                                   members of the plan */
    /* With terms.audits_work: work that is in no commit is undone. The TRAIN
     * under way ends without an answer, and the inner moments go back to those
     * that the lease of this round began with (where they are not here any
     * more, the report says `broken`). 0: nothing is undone. */
    uint64_t undo;
};

struct job_pair {
    uint64_t turn;
    bool alone; /* a bye: nothing came of a partner */
    bool first; /* our id is the lower one */
};

struct job_eval {
    uint64_t round; /* the parameters of the last APPLIED or LOADED */
    uint64_t draw;  /* a few windows, drawn by it; 0: all of eval.tokens */
};

struct job_hash {
    enum buffer_kind buffer; /* RING, REDUCED; STEP: both payloads of a turn */
    uint64_t index;          /* the round, or the turn */
    uint64_t request;        /* RING, STEP: the attempt */
    bool first;  /* STEP: our id is the lower one, our payload comes first */
    bool encode; /* RING of one member: first encode the own contribution ... */
    uint64_t from; /* ... from this element to the end */
};

struct job_verify {
    enum buffer_kind buffer; /* STATE or SHARD */
    uint64_t index;
    uint64_t request; /* low half: the piece; TRANSFER_LEAVES: the roots of the
                         leaf list */
};

/* BUFFER_RING of attempt `from` becomes that of attempt `to`. */
struct job_inherit {
    uint64_t from, to;
    uint64_t elements; /* so many of them are final here */
};

/* DOWNLOAD: the whole shard from elsewhere than peers, verified and durable;
 * one at a time, and not while peers are asked for it. */
struct job_shard {
    uint64_t index;
};

struct job_checkpoint {
    uint64_t round;
};

/* Before any LOAD of the stage. What the machine had of another stage is
 * dropped. */
struct job_stage {
    uint32_t stage;
};

/* CLEAR: all work of attempts up to its own is void, what is under way too; an
 * answer to such work may still come. EVAL_*: `round` is that of the commit,
 * attempts are counted apart, CLEAR is nothing to them. */
struct job_pipe {
    enum pipe_op op;
    uint64_t attempt;
    uint64_t index; /* the micro-batch */
    uint64_t round;
    uint32_t step;  /* its number in the round, from 0 */
    uint32_t slot;  /* where the micro-batch is kept */
    uint32_t count; /* STEP: micro-batches in the sum; else, on the first stage,
                       the draw that names the tokens */
};

/* The contributions of the others have come as BUFFER_OFFER, LANE; our own one
 * and the result are here. */
struct job_audit {
    uint64_t round, offset;    /* the block's first element */
    uint32_t len, lanes, lane; /* elements; members of the plan; our own */
    double scale;              /* of our own contribution.. */
    struct peer_id maker;      /* ..of which we announced this: another one */
    struct hash32 offer;       /* would make a right sum look wrong */
};

/* A member of a plan, in its order. */
struct local_member {
    struct peer_id id;
    uint64_t tokens; /* 0: it contributed nothing */
};

/* That attempt was committed, and this peer summed a slice in it. Such a job
 * for each commit of a run with terms.watches: what the slices have shown so
 * far tells who strays (train/sync/stray.h). */
struct job_strays {
    uint64_t attempt;
    uint32_t n;
    struct out_span member; /* (n) struct local_member */
};

/* Its moments and blocks have come as BUFFER_MOMENTS and OFFER of STREAM_WORK;
 * the state before `round` and the result are here. */
struct job_repeat {
    bool stop;      /* nothing is wanted any more of that maker's lease of that
                       round and base; no answer */
    uint64_t round; /* the commit that has the contribution */
    uint64_t base;  /* the state before it, as segment.name has it */
    struct peer_id maker;  /* whose it is.. */
    struct out_span lease; /* ..and the struct lease that it read.. */
    uint32_t steps;        /* ..so many positions of */
    uint64_t moment_steps; /* of the maker's optimizer when the lease began */
    bool leads; /* most of the result is its own (p2p/round/repeat.h) */
};

/* Of the same block: messages in wire form, who made the sum. Or, where there
 * is a `conviction`, of bad work in that round, and nothing else. */
struct job_evidence {
    uint64_t round, offset;
    uint32_t accused;                 /* rank in the plan */
    struct out_span view, plan, vote; /* view_body, plan_body, its vote */
    struct out_span conviction;       /* p2p/round/conviction.h */
};

struct job_stop {
    int exit_code;
};

struct job_log {
    int level;            /* as in proto/base/log.h */
    uint32_t event;       /* log_event() */
    struct out_span text; /* without its final zero, which is there */
};

struct job {
    enum job_type type;
    union {
        struct out_span configure; /* a manifest in wire form, hash verified */
        struct job_load load;
        struct job_train train;
        struct job_apply apply;
        struct job_pair pair;
        struct job_eval eval;
        struct job_hash hash;
        struct job_verify verify;
        struct job_inherit inherit;
        struct job_shard keep, download;
        struct job_checkpoint checkpoint;
        struct out_span peers, chain; /* the new file */
        struct out_span revoked;      /* a REVOCATION in wire form */
        struct job_stage stage;
        struct job_pipe pipe;
        struct job_audit audit;
        struct job_strays strays;
        struct job_repeat repeat;
        struct job_evidence evidence;
        struct job_stop stop;
        struct job_log log;
    };
};

/* ---- reports ----------------------------------------------------------- */

enum local_type {
    LOCAL_CONFIGURED, /* manifest accepted and memory ready (or rc) */
    LOCAL_LOADED,     /* parameters in place (or rc) */
    LOCAL_PROGRESS,   /* while training */
    LOCAL_TRAINED,    /* contribution packed */
    LOCAL_PLACED,     /* the new state is in place, its hashes are to come */
    LOCAL_APPLIED,    /* the same with its hashes (or rc) */
    LOCAL_EVALUATED,
    LOCAL_HASHED,      /* (or rc) */
    LOCAL_INHERITED,   /* that buffer is gone (rc) */
    LOCAL_VERIFIED,    /* rc: LOCO_EHASH where the piece is bad */
    LOCAL_DOWNLOADING, /* a DOWNLOAD is under way */
    LOCAL_DOWNLOADED,  /* rc 0: verified and kept */
    LOCAL_PAUSE,
    LOCAL_RESUME,
    LOCAL_DRAIN,    /* finish the commit in flight, say goodbye, stop */
    LOCAL_MAPPED,   /* the router maps a port to us (rc 0), or does not (rc) */
    LOCAL_REVOKED,  /* a REVOCATION that the author, or an earlier life, has */
    LOCAL_NEARBY,   /* somebody of this run is heard on the LAN */
    LOCAL_STAGED,   /* (or rc) */
    LOCAL_PIPED,    /* (or rc; LOCO_EDEVICE: nothing is left to work on;
                       LOCO_EBUSY: the sum and the slots are lost, and there is
                       room to make them again) */
    LOCAL_AUDITED,  /* (or rc: something of it is not here any more) */
    LOCAL_REPEATED, /* (or rc: it could not be made again here) */
    LOCAL_STRAYS,
    LOCAL_TYPE_COUNT
};

struct report_configured {
    const struct run_terms *terms;
    /* The record of terms.held_commit, as CHECKPOINT wrote it; 0: none. */
    uint32_t n_record;
    const uint8_t *record;
};

/* The state that a LOAD or an APPLY put in place. */
struct report_state {
    uint64_t round, inner_step;
    uint64_t tokens; /* trained since the state that it replaced, and taken back
                        with that; 0 where they were kept (rebase) */
    struct hash32 params_hash, momentum_hash;
    struct hash32 sample; /* of that state (proto/sample.h) */
    /* With terms.audits_work: the root of the blocks of the inner moments that
     * the next lease begins with, after so many steps of the optimizer; zeros:
     * not known. */
    struct hash32 moments;
    uint64_t moment_steps;
    bool broken; /* a GPU was lost: none of `moments`, as they are not those
                    with which the steps before ended */
};

/* A TRAIN may follow at once; the hashes are made behind its steps. */
struct report_placed {
    uint64_t round, inner_step, tokens; /* as in APPLIED's report */
};

struct report_progress {
    uint64_t inner_step;
    uint64_t tokens; /* ever */
    float loss, tokens_per_s;
};

struct report_trained {
    uint64_t round; /* of the state in place */
    uint64_t inner_step;
    uint64_t tokens; /* in this contribution */
    float loss;
    struct hash32 blocks; /* with terms.audits: the root of its blocks */
    /* With terms.audits_work: likewise of the inner moments now; zeros: not
     * known. They can be asked for as moments of the round after. */
    struct hash32 ends;
    bool broken; /* it was begun anew meanwhile, as a GPU was lost: with other
                    moments than those announced with the state */
};

struct report_evaluated {
    uint64_t round, draw; /* as in the job */
    double bits_per_byte;
};

struct report_hashed {
    enum buffer_kind buffer; /* these three: as in the job */
    uint64_t index, request;
    struct hash32 hash;
};

struct report_inherited {
    uint64_t request; /* the attempt that was to inherit */
};

struct report_verified {
    enum buffer_kind buffer; /* these three: as in the job */
    uint64_t index, request;
    struct hash32 hash; /* of a shard's leaf list: its root */
    struct hash32 params_hash, momentum_hash; /* of a state's: its roots */
    /* Of a leaf list: bit i, piece i is here already and good; NULL: none. */
    const uint8_t *held;
};

struct report_download {
    uint64_t index;
    uint64_t here_bytes; /* DOWNLOADING */
};

struct report_address {
    struct address address; /* MAPPED: outer one; NEARBY: of that peer */
};

struct report_revoked {
    uint32_t n_bytes;
    const uint8_t *bytes; /* in wire form */
};

struct report_staged {
    uint32_t stage;
    const struct run_terms *terms; /* of that stage */
};

struct report_audited {
    uint64_t round, offset; /* as in the job */
    bool wrong;             /* the sum has other bytes than the result */
};

struct report_strays {
    uint64_t attempt; /* as in the job */
    uint64_t mask;    /* bit k: member k strays, as this machine saw it */
};

struct report_repeated {
    uint64_t round; /* these two: as in the job */
    struct peer_id maker;
    uint8_t verdict;           /* enum repeat_verdict of p2p/round/repeat.h */
    float cosine, own, length; /* what it follows from; the same page */
};

struct report_piped {
    enum pipe_op op; /* these three: as in the job */
    uint64_t attempt, index;
    uint64_t inner_step;  /* STEP */
    uint64_t tokens;      /* that this work trained */
    double bits_per_byte; /* EVAL_SCORE: of the windows of that attempt up to
                             these */
};

struct local_event {
    enum local_type type;
    int rc;
    union {
        struct report_configured configured;
        struct report_placed placed;
        struct report_state loaded, applied;
        struct report_progress progress;
        struct report_trained trained;
        struct report_evaluated evaluated;
        struct report_hashed hashed;
        struct report_inherited inherited;
        struct report_verified verified;
        struct report_download downloading, downloaded;
        struct report_address mapped, nearby;
        struct report_revoked revoked;
        struct report_staged staged;
        struct report_piped piped;
        struct report_audited audited;
        struct report_repeated repeated;
        struct report_strays strays;
    };
};

#endif
