/* state_room.h - the memory of one state, which several may hold.
 *
 * A state stays as it is from one commit to the next. So nobody copies it: the
 * replica makes each state in another room, and who serves, hashes or writes
 * one holds the room that it was made in. The last holder gives the pages back.
 *
 * Any thread may hold and drop; who writes is the only holder.
 */
#ifndef LOCO_TRAIN_REPLICA_STATE_ROOM_H
#define LOCO_TRAIN_REPLICA_STATE_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct state_room {
    float *x;   /* (n), in pages of its own */
    uint64_t n; /* elements */
    atomic_uint holders;
};

/* n zeros, with one holder; NULL: no memory. Pages are taken as they are
 * written. */
struct state_room *state_room_take(uint64_t n);

struct state_room *state_room_hold(struct state_room *m);
void state_room_drop(struct state_room *m); /* NULL is allowed */

/* Whether others hold it too. */
bool state_room_is_shared(struct state_room *m);

#endif
