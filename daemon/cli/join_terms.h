/* join_terms.h - what joining a run takes of this machine, and the question
 * whether that is all right.
 *
 * The figures are run_needs()'s, what is free doctor's. A yes is kept in the
 * state directory (STATE_DIR_CONSENT) with the figures that it was given to;
 * for the same run and no larger ones nobody is asked again.
 */
#ifndef LOCO_DAEMON_CLI_JOIN_TERMS_H
#define LOCO_DAEMON_CLI_JOIN_TERMS_H

#include <signal.h>

#include "proto/uri.h"

/* No host of the URI gave a manifest, and there is none in the state directory:
 * a run for invited peers, a slow line, nobody there. Nothing was asked. */
#define JOIN_TERMS_NO_RUN (-2)

/* CLI_GO: yes; else an exit code, after a sentence where the machine has not
 * what the run needs; or the above. *stop above 0: somebody wants to leave,
 * which is a no. */
int join_terms_ask(const char *state,
                   const struct uri *u,
                   const volatile sig_atomic_t *stop);

#endif
