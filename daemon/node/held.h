/* held.h - the state that this peer holds, as points of a branch.
 *
 * Held is what is in place on the machine; known is the newest commit that this
 * peer is bound by. Between the two stand the APPLY or LOAD under way and what
 * sync.c and follow.c fetch.
 */
#ifndef LOCO_DAEMON_NODE_HELD_H
#define LOCO_DAEMON_NODE_HELD_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/local.h"
#include "proto/messages.h"

/* One committed point of a branch. */
struct node_point {
    uint64_t round, tokens;
    struct hash32 commit;
};

/* Where the sender of that stands. */
struct node_point node_point_of(const struct heartbeat *b);

bool node_point_eq(const struct node_point *a, const struct node_point *b);

/* Whether the first is of the better branch: more committed tokens, then the
 * lower commit hash. */
bool node_point_ahead(const struct node_point *a, const struct node_point *b);

/* How much of our contribution is in the commit that is being applied. Of a
 * part the rest is given up: which elements to keep is not known any more. */
enum node_spent { SPENT_NOT, SPENT_PARTLY, SPENT_WHOLLY };

struct node_held {
    bool loaded;
    bool applying; /* APPLY or LOAD under way */
    bool placed;   /* ... and the target is in place: training goes on from it,
                      its hashes are to come */
    struct node_point applied, known;
    struct hash32 params_hash, momentum_hash, state_hash;
    struct hash32 sample;     /* of that state; told to nobody */
    struct node_point target; /* of the APPLY or LOAD under way */
    enum node_spent target_spent;
    struct hash32 target_result; /* reduced bytes of the APPLY under way */
};

/* The newest commit that this peer is bound by. */
void node_held_know(struct node_held *h, const struct node_point *known);

/* What is to be in place next, and how much of our contribution is in it. */
void node_held_aim(struct node_held *h, const struct node_point *target);
void node_held_spend(struct node_held *h, enum node_spent spent);

/* APPLY or LOAD began; ended, well or not. `result`: the reduced bytes of the
 * commit that is applied, or NULL. */
void node_held_begin(struct node_held *h, const struct hash32 *result);
void node_held_end(struct node_held *h);

/* The target is in place, its hashes are to come. */
void node_held_place(struct node_held *h);

/* Where the next inner steps begin: what is in place. */
const struct node_point *node_held_stand(const struct node_held *h);

/* The target is in place, under the hashes of that report. */
void node_held_take(struct node_held *h, const struct report_state *state);

/* Pairs: what is in place is called by its own hash, and nothing else is known.
 */
void node_held_name(struct node_held *h, uint64_t round, uint64_t tokens);

/* What is in place is of no use: another state must come. */
void node_held_lose(struct node_held *h);

/* Of the group that is left. */
void node_held_forget(struct node_held *h);

#endif
