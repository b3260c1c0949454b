/* state.h - where a replica's state lies; the inside of replica.h. Only
 * replica*.c include this file.
 *
 * On a processor the state is one *room* (replica/state_room.h): its vectors
 * one behind the other, as others get them. A commit makes the next state
 *   - beside the old one, in another room (replica_makes_beside()): the rule
 *     reads the old anchor and momentum and writes the new ones there. What is
 *     not finite changes nothing;
 *   - or in place (fragments, moments, quorums, trainers), in a copy where
 *     others hold the old one.
 *
 * Beside a GPU, and where gradients are averaged (the state is theta and live
 * moments), the vectors are the replica's own and others copy them.
 */
#ifndef LOCO_TRAIN_REPLICA_STATE_H
#define LOCO_TRAIN_REPLICA_STATE_H

#include "train/replica/replica.h"

/* Of a replica of this method, with vectors of up to n_wire elements. */
bool replica_makes_beside(const struct replica_options *opt,
                          uint64_t n,
                          uint64_t n_wire);

/* phi and what is behind it, in a room; false: this replica has none. *rv:
 * LOCO_ENOMEM. */
bool replica_take_room(struct replica *r, int *rv);
void replica_free_rooms(struct replica *r);

/* Before the state is changed in place: nobody else holds it. `keep`: what it
 * was is read, too. LOCO_ENOMEM: nothing changed. */
int replica_own_state(struct replica *r, bool keep);

/* Before a commit that makes it beside: the engine's next_phi and next_m lie
 * in another room. LOCO_ENOMEM. */
int replica_begin_next(struct replica *r);

/* Afterwards: the state is what was made, or what it was. */
void replica_end_next(struct replica *r, bool made);

#endif
