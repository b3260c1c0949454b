/* internal.h - what the round*.c files share; nobody else includes it.
 *
 *   round.c         the life of an attempt: begin, contribute, freeze
 *   round/ready.c   contributions offered
 *   round/ready_of.c   those that a plan is made of, asked for
 *   round/plan.c    who takes part, in which order
 *   round/rollback.c   a plan that takes back an earlier round
 *   round/idle.c    who may be to blame for attempts that failed
 *   round/lease_share.c   and who holds which part of the text after it
 *   round/reduce.c  the exchange, its end, and what a failed one leaves
 *   round/vote.c    votes and the commit
 *   round/time.c    deadlines and repetition
 */
#ifndef LOCO_P2P_ROUND_INTERNAL_H
#define LOCO_P2P_ROUND_INTERNAL_H

#include <assert.h>

#include "p2p/round/round.h"

#define BIT(i)    (1ULL << (i))
#define RESEND_MS 1000 /* READY, PLAN and VOTE are said again after this */

/* ---- round.c ---------------------------------------------------------- */

static inline const struct view_body *round_view(const struct round *r)
{
    return &r->ballot->cert.body;
}

static inline uint32_t round_self(const struct round *r)
{
    assert(r->ballot->self_index >= 0);
    return (uint32_t)r->ballot->self_index;
}

static inline uint64_t round_attempt(uint64_t epoch, uint64_t round)
{
    return epoch << 32 | (round & 0xffffffff);
}

/* Index in the view of the peer in that row; -1: no member. */
int round_member(const struct round *r, int peer);

/* To the members of the view in `mask`. */
void round_broadcast(struct round *r,
                     struct out *out,
                     uint64_t mask,
                     enum message_type type,
                     const void *msg);

/* Ask for a change of view; the attempt has no more deadlines. */
void round_change(struct round *r, const char *why);

/* End all attempts up to this one. */
void round_cancel(uint64_t attempt, struct out *out);

/* ---- round/ready.c ---------------------------------------------------- */

/* Whether a contribution of so many tokens can be of these steps: tokens are
 * its weight, and who could claim any number would outweigh all others. Fewer
 * are honest: a GPU that breaks in the middle of a step makes it twice, and it
 * counts as two steps with the tokens of one. */
bool round_work_fair(const struct run_terms *t,
                     uint64_t tokens,
                     uint64_t first_step,
                     uint64_t last_step);

/* Whether what a member of a run with audits announces is complete; in other
 * runs it announces nothing. `work`: it contributes. */
bool round_offer_fair(const struct run_terms *t,
                      bool work,
                      const struct hash32 *offer);

/* Whether these are moments of a lease that somebody could make again, or none.
 */
bool round_moments_fair(const struct run_terms *t,
                        uint64_t tokens,
                        uint32_t n_moments);
/* Our offer to this attempt, as it was made. */
void round_ready_send(struct round *r, uint64_t mask, struct out *out);

/* Whether what it says can be honest. */
bool round_ready_valid(const struct round *r, const struct ready_body *m);

/* Offer the contribution to this attempt. */
void round_offer(struct round *r, uint64_t now_ms, struct out *out);

/* The READYs that came before this round began count for probation now. */
void round_count_early(struct round *r);

/* astray.c: `last` is the newest commit: note who rests after it. */
void round_note_astray(struct round *r);

/* Of this view, who rests (bits); whether all that know the newest commit know
 * that, too; whether a plan of these members is to be refused for it. */
uint64_t round_astray(const struct round *r);
bool round_shows_astray(const struct round *r);
bool round_has_astray(const struct round *r, uint64_t mask);

/* ---- round/ready_of.c ------------------------------------------------- */

/* Whether that READY is what the plan has of its member. */
bool round_is_true_of(const struct plan_member *m, const struct ready_body *c);

/* Whether the READY of that member which the plan is made of is here. */
bool round_ready_stays(const struct round *r, uint32_t index);

/* Whether the READY that the plan has of its member number `rank` is not here,
 * or is another one here. */
bool round_lacks_ready(const struct round *r, uint32_t rank);

/* Ask who made the plan for the READYs of it that are not here. */
void round_ready_ask(struct round *r, struct out *out);

/* ---- round/idle.c ------------------------------------------------------- */

/* A rest is at most of 2^4 rounds; of who was drawn at least of 2^2. */
#define IDLE_MOST_LOG2   4
#define DRAWN_LEAST_LOG2 2

/* The plan was taken. */
void round_idle_follow(struct round *r);

/* Whether the plan has other figures of a member than its READY here, or that
 * READY is not here. */
bool round_doubts(const struct round *r);

/* Members of the plan, by rank, whose contributions this attempt waits for; 0:
 * it does not stand still, or nobody can tell. */
uint64_t round_idle(const struct round *r);

/* Those of the view that are to be told the plan for it, once. */
uint64_t round_idle_untold(struct round *r);

/* The attempt failed: name them. */
void round_note_idle(struct round *r, struct out *out);

/* Of those of the view (bits) that a plan could have, whom it is to have: after
 * too many failed attempts not all. */
uint64_t round_without_drawn(const struct round *r, uint64_t mask);

/* The plan that is followed is committed. After so many failed attempts, name
 * who is not in it. */
void round_note_stuck(struct round *r);

/* Full members whose READY starts from our state. */
uint64_t round_ready_mask(const struct round *r);

/* Note since when a plan is possible: everybody is ready, or more than half
 * has been for grace_ms. */
void round_watch_ready(struct round *r, uint64_t now_ms);

/* ---- round/plan.c ----------------------------------------------------- */

/* The members of `mask` that fit into one exchange. */
uint64_t round_fitting(const struct round *r, uint64_t mask);

/* Whether a plan of these could be: more than half, and something to add. */
bool round_is_enough(const struct round *r, uint64_t mask);

/* What is drawn for the order of an attempt; all members draw alike. */
uint64_t round_order_seed(const struct round *r);

void round_make_plan(struct round *r, uint64_t now_ms, struct out *out);

/* ---- round/lease_share.c ------------------------------------------------ */

/* Put the ledger into a plan that is complete but for it. False: the record of
 * the commit that it builds on is not here. */
bool round_ledger_make(const struct round *r, struct plan_body *p);

/* Whether it has the ledger that we would make, as far as we can. */
bool round_ledger_valid(const struct round *r, const struct plan_body *p);

/* ---- round/reduce.c --------------------------------------------------- */

/* A ring is given up for a butterfly that is faster by this factor. */
#define ROUND_BUTTERFLY_GAIN 1.25

/* Begin to reduce by the plan that we are in. */
void round_reduce(struct round *r, uint64_t now_ms, struct out *out);

/* The attempt that ends here failed: what of it is final stays, unless the next
 * one would inherit what made this one fail. */
void round_keep(struct round *r);

/* ---- round/vote.c ----------------------------------------------------- */

/* Whether member number `rank` of the plan voted for it as we did. */
bool round_voted_alike(const struct round *r, uint32_t rank);

/* Complete? Every member of the plan voted for this plan and one result. */
void round_try_commit(struct round *r);

/* Our vote in the plan that we follow: all of its result is here. */
void round_vote(struct round *r,
                const struct hash32 *result,
                uint64_t now_ms,
                struct out *out);

/* Tell all that this plan, in which we have no part, is the one that we follow:
 * a vote without a result. */
void round_witness(struct round *r, uint64_t now_ms, struct out *out);

/* Whether members voted for different bytes, or for another plan: nobody knows
 * whose are right. */
bool round_votes_differ(const struct round *r);

/* ---- round/time.c ----------------------------------------------------- */

/* How long members may take until all hold what is inherited. */
uint64_t round_fill_limit_ms(const struct round *r);

#endif
