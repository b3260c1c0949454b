/* stage_fetch.h - the other stages of a model, from the hosts that serve them.
 *
 * A state directory of a run with stages has the checkpoints of one. While the
 * run goes on, or its daemons still serve, a command can get the parameters of
 * the others: it visits the peers in the directory's cache, by an identity made
 * for the occasion, and takes the newest round that the directory has a
 * checkpoint of and that hosts of each other stage still hold.
 *
 * What is believed, for each stage: a view whose chain of certificates is that
 * of the stage's group (p2p/round/chain.h); of round r, the record of commit r
 * + 1, with the votes of the view, names the state that it began with, and
 * where r is the newest one its record has the votes, and more than half of the
 * hosts that prove that view name the same state. Every byte has that hash, or
 * the host is passed over: the same as a joining daemon asks for.
 *
 * In a run for invited peers hosts speak to nobody who shows no invitation: one
 * is needed then, and is used for the identity of the occasion.
 *
 * What it writes: DIR/stages/K/checkpoints, which model/stages.h finds by
 * itself. The whole state of a stage is in memory for the time (with the outer
 * momentum: its hash is one of both). Blocking, no threads. How it fails: a
 * sentence that says which stage, and why; nothing half is left.
 */
#ifndef LOCO_DAEMON_VISIT_STAGE_FETCH_H
#define LOCO_DAEMON_VISIT_STAGE_FETCH_H

#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/invite.h"

struct stage_fetch {
    uint64_t round;   /* that the directory now has of all stages */
    uint32_t stages;  /* of the model */
    uint32_t fetched; /* of them now; the others were here */
    uint64_t bytes;
};

/* `invite`: NULL, there is none. */
int stage_fetch(struct stage_fetch *f,
                const char *state_dir,
                const struct invite *invite,
                char errmsg[ERRMSG_SIZE]);

#endif
