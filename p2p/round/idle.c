/* idle.c - members that end attempts rest from the next plans.
 *
 * An exchange needs all members of its plan, so one that offers work and then
 * gives nothing ends each attempt that has it. To give its contribution is a
 * duty without condition, and in a butterfly each owner of a slice sees who did
 * not. So where an attempt stood still, each owner names in READY, as it does
 * silent members (rests.h), whose contribution is missing: for the round that
 * is being made and 2 more, later up to 16. Whom more than half of all full
 * members name is left out. After two attempts that failed a plan is a
 * butterfly in which all own as much, where it can be one (plan.c): a ring
 * shows nobody but a neighbour, and who owns nothing sees nothing. Where all
 * others are missing the fault is here.
 *
 * A coordinator could show a plan to some members only, or one that is not true
 * of a member, which then follows none. So who waits for a member passes the
 * plan on to it; who sees two plans of an attempt names who made them, and
 * nobody else; and with whom a plan has otherwise than its READY, its
 * coordinator is named.
 *
 * Whose sum or vote is missing is not named: it may wait for another one that
 * keeps something from it alone, and that one would have others named for free.
 * A vote is not needed of all (ballot_value.c).
 *
 * What else a member may do to end attempts, such as to send each other one
 * another sum, shows nobody who it was. So after STUCK_TRIES of a round in
 * which nobody of the plan died, left or is named, or STUCK_AGAIN where it came
 * to that in one of the last STUCK_ROUNDS, members are drawn that stay out, as
 * many as may lie: first those whose sums the coordinator lacked, then, each
 * second time, any of the others. Nobody's word counts for that. Those who are
 * out when the round is made at last are named, so that they rest for 4 rounds,
 * later 8, then 16: an honest one, too, where a liar ends all attempts but
 * those without it, but it loses no work. Nobody is named where a coordinator
 * left out more than are drawn. One member of n that ends all attempts is left
 * out in one of three draws or four, two at a time in one of nine or more.
 */
#include "p2p/round/internal.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"

/* After so many failed attempts whoever may be to blame is drawn. */
#define STUCK_TRIES  4
#define STUCK_AGAIN  2 /* in the next rounds, so many: */
#define STUCK_ROUNDS 32

static uint32_t n_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

bool round_doubts(const struct round *r)
{
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        if (round_lacks_ready(r, k)) {
            return true;
        }
    }
    return false;
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

/* Whose sums are missing: kept for the plans that we make. */
static void note_unheard(struct round *r)
{
    uint64_t mask;

    if (!r->in_plan || !r->idle.late || r->phase != ROUND_REDUCING ||
        r->plan.body.n_rollback > 0 ||
        round_kind(&r->plan.body) != EXCHANGE_BUTTERFLY) {
        return;
    }
    mask = butterfly_unheard(&r->exchange.butterfly);
    r->idle.n_unheard = 0;
    for (; mask != 0; mask &= mask - 1) {
        r->idle.unheard[r->idle.n_unheard++] =
            id_of_public(r->plan_keys[__builtin_ctzll(mask)]);
    }
}

/* Members of the mask whose sums were missing (bits). */
static uint64_t unheard(const struct round *r, uint64_t mask)
{
    uint64_t out = 0;

    for (uint32_t i = 0; i < r->idle.n_unheard; i++) {
        int at = view_index(round_view(r), &r->idle.unheard[i]);

        out |= at >= 0 ? BIT(at) : 0;
    }
    return out & mask;
}

/* Attempts that must have failed: fewer where it came to that before. */
static uint32_t most_tries(const struct round *r)
{
    uint64_t last = r->idle.stuck_round;

    return last != 0 && r->round > last && r->round - last <= STUCK_ROUNDS
               ? STUCK_AGAIN
               : STUCK_TRIES;
}

static bool is_stuck(const struct round *r)
{
    return r->n_unexplained >= most_tries(r);
}

/* How many members are left out by lot. */
static uint32_t n_drawn(const struct round *r)
{
    uint32_t n = view_n_full(round_view(r));

    return n > 3 ? (n - 1) / 3 : 1;
}

uint64_t round_without_drawn(const struct round *r, uint64_t mask)
{
    uint64_t may = mask & ~BIT(round_self(r));
    uint64_t seen = r->n_unexplained % 2 == 0 ? unheard(r, may) : 0, out = 0;
    uint32_t away = n_of(view_full(round_view(r)) & ~mask);
    uint32_t most = n_drawn(r) > away ? n_drawn(r) - away : 1;
    uint32_t order[VIEW_MEMBERS_MAX], n = round_view(r)->n_members;

    if (!is_stuck(r)) {
        return mask;
    }
    may = seen != 0 ? seen : may;
    rng_perm(order, n, round_order_seed(r));
    for (uint32_t k = 0; k < n && n_of(out) < most; k++) {
        uint64_t one = BIT(order[k]) & may, left = mask & ~out & ~one;

        out |= round_is_enough(r, round_fitting(r, left)) ? one : 0;
    }
    return mask & ~out;
}

/* Whom the plan leaves out that offers work. If it is more than are drawn, its
 * maker chose them. */
static void note_out(struct round *r)
{
    uint64_t out = round_ready_mask(r) & ~r->plan_mask;

    r->idle.n_out = 0;
    r->idle.n_away = n_of(view_full(round_view(r)) & ~r->plan_mask);
    if (r->idle.n_away > n_drawn(r)) {
        return;
    }
    for (; out != 0; out &= out - 1) {
        r->idle.out[r->idle.n_out++] = r->ballot->ids[__builtin_ctzll(out)];
    }
}

void round_idle_follow(struct round *r)
{
    uint32_t maker = view_coordinator(round_view(r), r->round);

    r->idle.two_plans = r->idle.late = false;
    r->idle.untrue = r->idle.told = 0;
    r->idle.maker = r->ballot->ids[maker];
    note_out(r);
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        const struct plan_member *m = &r->plan.body.members[k];

        if ((r->ready >> m->index & 1) &&
            !round_is_true_of(m, &r->readies[m->index])) {
            r->idle.untrue |= BIT(k);
        }
    }
}

void round_note_stuck(struct round *r)
{
    if (!is_stuck(r) || r->plan.body.n_rollback > 0) {
        return;
    }
    if (r->idle.n_away > 0) {
        r->idle.stuck_round = r->round;
    }
    for (uint32_t k = 0; k < r->idle.n_out; k++) {
        if (!id_eq(&r->idle.out[k], &r->opt.self)) {
            rests_add(&r->idle.drawn, &r->idle.out[k], r->round);
        }
    }
}

void round_note_idle(struct round *r, struct out *out)
{
    note_unheard(r);
    if (r->n_unexplained == most_tries(r)) {
        out_log(out, LOG_WARN,
                "round %llu: %u attempts failed; from now on some members are "
                "left out by lot",
                (unsigned long long)r->round, r->n_unexplained);
    }
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
