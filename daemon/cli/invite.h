/* invite.h - the author's side of a run for invited peers.
 *
 * Beside run.yaml lie, mode 0600: author.key; run.invitation, the one of the
 * peer that starts the run; run.invitations, a line for each that was given
 * out: number, run id, expiry (seconds since 1970, 0: never), note; and
 * run.revoked, the author's signed list of those that hold no more.
 */
#ifndef LOCO_DAEMON_CLI_INVITE_H
#define LOCO_DAEMON_CLI_INVITE_H

#include "daemon/settings/run_yaml.h"
#include "proto/sign.h"

/* The invitation of who starts that run, beside its file; 0, or an exit code
 * after a sentence. Nothing to do where the run is open to all. */
int cli_invite_own(const struct run_yaml *r,
                   const char *run_yaml,
                   const struct identity *author);

#endif
