/* rollback.c - a round that takes back an earlier one.
 *
 * A member whose state makes the held-out text worse, as it measured itself
 * (daemon/node/judge.h), contributes nothing and names in its READY the earlier
 * state that it would have again. Where a Byzantine quorum of the full members
 * names the same one, the coordinator makes a plan of just these members that
 * reduces nothing: its result is the hash of that state, and its commit a
 * commit like any other, with votes, a record and a successor.
 *
 * Belief. Whoever asks has seen a figure that nobody can prove, so nobody
 * follows another's word: a member is in such a plan only if its own READY
 * names that state, and follows it only where it heard the same of all others
 * in it: some of their votes are enough for a commit (ballot_value.c). Who did
 * not ask does not vote, not as a witness either. So fewer than a third that
 * lie cannot take back a good commit, and can keep a bad one only where they
 * could stop the commits of all rounds. Members that ask while most do not are
 * left out of the plan as if late.
 */
#include "p2p/round/rollback.h"

#include <string.h>

#include "p2p/round/internal.h"

bool rollback_eq(const struct rollback *a, const struct rollback *b)
{
    return a->round == b->round && hash32_eq(&a->state, &b->state);
}

bool rollback_fair(const struct ready_body *m)
{
    return m->n_rollback == 0 ||
           (m->tokens == 0 && m->rollback[0].round + 1 < m->round &&
            !hash32_eq(&m->rollback[0].state, &m->state));
}

uint64_t rollback_asks(const struct round *r)
{
    uint64_t asks = 0;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        asks |=
            (r->ready >> i & 1) && r->readies[i].n_rollback > 0 ? BIT(i) : 0;
    }
    return asks;
}

/* Those of `asks` that name the same state as member i. */
static uint64_t with(const struct round *r, uint64_t asks, uint32_t i)
{
    uint64_t mask = 0;

    for (uint32_t k = 0; k < round_view(r)->n_members; k++) {
        if ((asks >> k & 1) && rollback_eq(&r->readies[k].rollback[0],
                                           &r->readies[i].rollback[0])) {
            mask |= BIT(k);
        }
    }
    return mask;
}

uint64_t rollback_wanted(const struct round *r, struct rollback *to)
{
    uint64_t asks = rollback_asks(r) & round_ready_mask(r), mask;

    for (uint64_t left = asks; left != 0; left &= ~mask) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);

        mask = with(r, asks, i);
        if (view_byzantine_quorum(round_view(r), mask,
                                  r->ballot->departed.mask)) {
            *to = r->readies[i].rollback[0];
            return mask;
        }
    }
    return 0;
}

void rollback_plan(const struct round *r,
                   uint64_t mask,
                   const struct rollback *to,
                   struct plan_body *p)
{
    p->n_rollback = 1;
    p->rollback[0] = *to;
    for (; mask != 0; mask &= mask - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(mask);
        const struct ready_body *c = &r->readies[i];

        p->members[p->n_members++] = (struct plan_member){
            .index = (uint8_t)i,
            .first_step = c->first_step,
            .last_step = c->last_step,
            .lease = c->lease,
            .text = c->text,
            .astray = c->astray,
        };
    }
}

bool rollback_plan_valid(const struct round *r,
                         const struct plan_body *p,
                         uint64_t mask)
{
    bool is_ours = mask >> round_self(r) & 1;

    if (p->n_ranges > 0 || p->rollback[0].round + 1 >= p->round ||
        hash32_eq(&p->rollback[0].state, &p->state) ||
        !view_byzantine_quorum(round_view(r), mask, r->ballot->departed.mask)) {
        return false;
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        const struct plan_member *m = &p->members[k];
        const struct ready_body *c = &r->readies[m->index];

        if (is_ours && (!(r->ready >> m->index & 1) || c->n_rollback == 0 ||
                        !rollback_eq(&c->rollback[0], &p->rollback[0]))) {
            return false; /* it did not ask, as far as is known here */
        }
        if (m->tokens > 0 || m->holds > 0 || m->share > 0 || m->gateway) {
            return false;
        }
    }
    return !is_ours || (r->mine.n_rollback > 0 &&
                        rollback_eq(&r->mine.rollback[0], &p->rollback[0]));
}
