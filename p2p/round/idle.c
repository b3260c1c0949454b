/* idle.c - members that give nothing to an attempt rest from the next plans.
 *
 * A plan needs all its members, so one that offers work and then gives nothing
 * ends each attempt that has it. To give its contribution is a duty without
 * condition, and in a butterfly each owner of a slice sees who did not. So
 * where an attempt stood still, each owner names in READY, as it does silent
 * members (rests.h), whose contribution is missing: for the round that is being
 * made and 2 more, later up to 16. Whom more than half of all full members name
 * is left out. After two attempts that failed a plan is a butterfly in which
 * all own as much, where it can be one (plan.c): a ring shows nobody but a
 * neighbour, and who owns nothing sees nothing. Where all others are missing
 * the fault is here.
 *
 * A coordinator could show a plan to some members only, or one that is not true
 * of a member, which then follows none. So who waits for a member passes the
 * plan on to it; who sees two plans of an attempt names who made them, and
 * nobody else; and with whom a plan has otherwise than its READY, its
 * coordinator is named.
 *
 * Whose sum or vote is missing is not named: it may wait for another one that
 * keeps something from it alone, and that one would have others named for free.
 */
#include "p2p/round/internal.h"
#include "proto/base/log.h"

static uint32_t n_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

/* Whether that READY is what the plan has of its member. */
static bool is_true_of(const struct plan_member *m, const struct ready_body *c)
{
    return m->tokens == c->tokens && m->first_step == c->first_step &&
           m->last_step == c->last_step && m->lease == c->lease &&
           m->astray == c->astray && m->text.first == c->text.first &&
           m->text.end == c->text.end && hash32_eq(&m->offer, &c->offer) &&
           m->n_moments == c->n_moments;
}

void round_idle_follow(struct round *r)
{
    uint32_t maker = view_coordinator(round_view(r), r->round);

    r->idle.two_plans = r->idle.late = false;
    r->idle.untrue = r->idle.told = 0;
    r->idle.maker = r->ballot->ids[maker];
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        const struct plan_member *m = &r->plan.body.members[k];

        if ((r->ready >> m->index & 1) &&
            !is_true_of(m, &r->readies[m->index])) {
            r->idle.untrue |= BIT(k);
        }
    }
}

uint64_t round_idle(const struct round *r)
{
    uint64_t mask;

    if (!r->has_plan || !r->in_plan || !r->idle.late ||
        r->phase != ROUND_REDUCING || r->plan.body.n_rollback > 0 ||
        round_kind(&r->plan.body) != EXCHANGE_BUTTERFLY) {
        return 0;
    }
    mask = butterfly_missing(&r->exchange.butterfly);
    return n_of(mask) + 1 >= r->plan.body.n_members ? 0 : mask;
}

uint64_t round_idle_untold(struct round *r)
{
    uint64_t mask = 0;

    for (uint64_t left = round_idle(r); left != 0; left &= left - 1) {
        mask |= BIT(r->plan.body.members[__builtin_ctzll(left)].index);
    }
    mask &= ~r->idle.told;
    r->idle.told |= mask;
    return mask;
}

/* Who is no longer in the view left or died, and rests anyway. */
static void name(struct round *r,
                 const char *what,
                 const struct peer_id *id,
                 struct out *out)
{
    char text[ID_SHORT_MAX];

    if (id_eq(id, &r->opt.self) || view_index(round_view(r), id) < 0) {
        return;
    }
    rests_add(&r->idle.rests, id, r->round);
    id_short(id, text);
    out_log(out, LOG_INFO,
            "round %llu: %s %s; if most say so, the next rounds are made "
            "without it",
            (unsigned long long)r->round, what, text);
}

void round_note_idle(struct round *r, struct out *out)
{
    if (r->idle.two_plans) { /* members of both wait for each other */
        name(r, "two plans were made by", &r->idle.maker, out);
        return;
    }
    for (uint64_t left = round_idle(r); left != 0; left &= left - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(left);
        struct peer_id id = id_of_public(r->plan_keys[k]);

        name(r, "this peer waited in vain for", &id, out);
        if (r->idle.untrue >> k & 1) {
            name(r, "a plan that may not be true was made by", &r->idle.maker,
                 out);
        }
    }
}
