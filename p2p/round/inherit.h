/* inherit.h - what failed attempts at a round leave for the next one.
 *
 * When an attempt fails, the elements [0, final) of its wire buffer are final
 * at some members: inherited ones and whole stripes (ring.h). They need not be
 * reduced again, and a dead member's contribution stays in them.
 *
 *   keep     a member remembers them as *ranges*, one per plan that made some
 *   claims   its READY of the next attempt says which it holds
 *   choose   the coordinator takes the longest claim that it can name the
 *            contributors of, and notes for each member how much it has
 *   fits     a member checks that the plan is true about itself
 *
 * Two claims agree as far as the same plans made the same elements. A claim is
 * believed as partial sums are: what a liar serves is in the result for all,
 * and the vote over the bytes shows whether all got the same.
 *
 * Pure functions; no failure but a false plan.
 */
#ifndef LOCO_P2P_ROUND_INHERIT_H
#define LOCO_P2P_ROUND_INHERIT_H

#include "proto/messages.h"

struct inherit {
    uint32_t n;
    /* The last one may be empty: it only says who took part in that plan. */
    struct plan_range ranges[ROUND_RANGES_MAX];
    uint64_t epochs[ROUND_RANGES_MAX]; /* of the views of these plans */
    uint64_t attempt;                  /* whose wire buffer holds them */
};

/* The attempt under this plan failed with elements [0, final) in its buffer.
 * `members`: ids in plan order. */
void inherit_keep(struct inherit *h,
                  const struct plan_body *plan,
                  const struct hash32 *plan_hash,
                  const struct peer_id *members,
                  uint64_t final,
                  uint64_t attempt);

/* Only elements [0, final) are left, now in the buffer of that attempt. */
void inherit_move(struct inherit *h, uint64_t final, uint64_t attempt);

/* Fill in the claims. */
void inherit_claims(const struct inherit *h, struct ready_body *ready);

/* Whether claims from outside name increasing parts of such a vector. */
bool inherit_claims_valid(const struct ready_body *ready,
                          uint64_t elements,
                          uint32_t block);

/* Fill in the ranges of a plan. `ready`: bit i for member i of the view, whose
 * READY (with valid claims) and id are readies[i] and ids[i]. Returns who may
 * be in such a plan: those whose contribution is in every range. For the others
 * a part of their work would be lost, so they wait for the next round. So does
 * who joined the view after that plan: it may name the same steps, but those in
 * the range were made by the process that it was before. */
uint64_t inherit_choose(const struct inherit *h,
                        const struct ready_body *readies,
                        const struct peer_id *ids,
                        const struct view_member *members,
                        uint64_t ready,
                        struct plan_body *plan);

/* Fill in `holds` of a plan whose members are set. */
void inherit_holds(const struct ready_body *readies, struct plan_body *plan);

/* Elements that a plan inherits. */
uint64_t inherit_total(const struct plan_body *plan);

/* Whether the ranges are well formed, somebody holds all of them, our own
 * contribution is in each and they say nothing that we know to be false.
 * `rank`: ours in the plan, or UINT32_MAX. */
bool inherit_fits(const struct inherit *h,
                  const struct plan_body *plan,
                  const struct peer_id *self,
                  uint32_t rank,
                  uint64_t elements,
                  uint32_t block);

/* How many elements of the result of `plan` contain steps of this peer that
 * are in [first_step, last_step). `in_members`: it is a member of the plan,
 * with such steps. */
uint64_t inherit_share(const struct plan_body *plan,
                       bool in_members,
                       const struct peer_id *peer,
                       uint64_t first_step,
                       uint64_t last_step,
                       uint64_t elements);

#endif
