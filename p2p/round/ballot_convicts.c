/* ballot_convicts.c - a proof that a member lied becomes a view without it.
 *
 * A member cannot know who else holds the proof, so it asks for a change of
 * view when it gets one, after a moment in which others get it, too; then its
 * promise has the bit. If the convict is in the view that follows although our
 * word was in its making, fewer than enough said so: each of the others asks in
 * turn when it gets the proof, and the one that makes them more than half is
 * enough. So we do not ask again but where those who said so would be more than
 * half of the new view, because others left, or we came into it anew.
 *
 * What it costs where too few hold the proof: each holder pays for one question
 * (asking.h), and it asks only while its own account allows. One that nobody
 * hears is asked again ever more rarely.
 */
#include "p2p/round/ballot_internal.h"

#define ASK_SHIFT_MAX 6 /* at most 64 rounds between two questions */

void ballot_convict(struct ballot *b, const struct peer_id *id)
{
    (void)convicts_add(&b->convicts, id);
}

bool ballot_is_convict(const struct ballot *b, const struct peer_id *id)
{
    return convicts_has(&b->convicts, id);
}

uint64_t ballot_convict_mask(const struct ballot *b)
{
    return b->have || b->restored
               ? convicts_mask(&b->convicts, b->ids, b->cert.body.n_members)
               : 0;
}

/* ---- asking ------------------------------------------------------------- */

/* Whether that member's going is still to be asked for: `full`, at once, or
 * between two rounds. Nobody asks against itself. */
static bool is_open(const struct ballot *b, const struct convict *c, bool full)
{
    int at = c->heard ? -1 : ballot_index(b, &c->id);

    return at >= 0 && at != b->self_index &&
           view_is_full(&b->cert.body, (uint32_t)at) == full;
}

bool ballot_convict_waits(const struct ballot *b)
{
    for (uint32_t k = 0; k < b->convicts.n; k++) {
        if (is_open(b, &b->convicts.row[k], false)) {
            return true;
        }
    }
    return false;
}

void ballot_convicts_tick(struct ballot *b, const struct ballot_context *ctx)
{
    uint64_t now = ctx->now_ms, round = ctx->closing.round;

    for (uint32_t k = 0; k < b->convicts.n; k++) {
        struct convict *c = &b->convicts.row[k];

        if (!is_open(b, c, true)) {
            continue;
        }
        c->due_ms = c->due_ms == 0 ? now + b->opt.ballot_ms : c->due_ms;
        if (now < c->due_ms || round < c->next_round || b->frozen ||
            b->want == BALLOT_WANT_CHANGE ||
            !view_is_full(&b->cert.body, (uint32_t)b->self_index) ||
            !ballot_may_ask(b, ctx)) {
            continue;
        }
        c->n_asked++;
        c->next_round =
            round +
            (1ULL << (c->n_asked < ASK_SHIFT_MAX ? c->n_asked : ASK_SHIFT_MAX));
        b->asks.noted |= BIT(b->self_index); /* we pay as others charge us */
        ballot_want(b, BALLOT_WANT_CHANGE, now);
    }
}

/* ---- what came of it ---------------------------------------------------- */

/* Whether those in `who` (bits of the view before) who are full members of
 * `next` are more than half of these. */
static bool are_most(const struct view_body *old,
                     const struct view_body *next,
                     uint64_t who)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < old->n_members; i++) {
        int at = who >> i & 1 ? view_index_key(next, old->members[i].public_key)
                              : -1;

        n += at >= 0 && view_is_full(next, (uint32_t)at);
    }
    return 2 * n > view_n_full(next);
}

/* Who said in that proposal that member i of our view lied. */
static uint64_t
accusers(const struct view_body *v, const struct proposal *p, uint32_t i)
{
    uint64_t who = 0;

    for (uint32_t k = 0; k < p->n_promises; k++) {
        uint32_t by = p->promises[k].member;

        if (by < v->n_members && view_is_full(v, by) &&
            (p->promises[k].said.convicted >> i & 1)) {
            who |= BIT(by);
        }
    }
    return who;
}

void ballot_convicts_heard(struct ballot *b, const struct view_body *next)
{
    const struct proposal *p = &b->accepted.proposal;
    const struct view_body *v = &b->cert.body;
    int self = view_index_key(next, b->opt.public_key);
    bool anew = !b->have || next->members[self].joined == next->epoch;
    struct hash32 made, entered;

    view_hash(&p->value, &made);
    view_hash(next, &entered);
    for (uint32_t k = 0; k < b->convicts.n; k++) {
        struct convict *c = &b->convicts.row[k];
        int at = ballot_index(b, &c->id);
        uint64_t who;

        if (anew || view_index(next, &c->id) < 0) {
            c->heard = false; /* others are in it; if it is in one day */
        } else if (at >= 0 && b->has_accepted && hash32_eq(&made, &entered)) {
            who = accusers(v, p, (uint32_t)at);
            c->heard = (who >> b->self_index & 1) && !are_most(v, next, who);
        }
    }
}
