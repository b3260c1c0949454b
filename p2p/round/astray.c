/* astray.c - members that at least half of all others see go astray rest from
 * plans. See rests.h.
 *
 * READY says whom a member names, and a plan repeats it of each of its members,
 * as it does their tokens: a member follows no plan that says something else of
 * its own. So a commit shows the words of all that made it, the same to
 * everybody, and who rests in the next round follows from it. If the words of
 * the READYs of that round counted, a member that says one thing to the
 * coordinator and another to the others could have every plan refused.
 *
 * A plan with a member that rests is refused, but only in the view that made
 * the commit: so by all that have it or by nobody. A failed attempt has another
 * view, which lifts it, and so does any other change of the view. Then a
 * coordinator that lies cannot keep its friends in as long as nobody changes
 * the view, and no words can stop the run. Nor are so many left out that the
 * others are too few for a plan.
 */
#include "p2p/round/internal.h"

#define LEAST_WORDS 2

/* Members of that plan, which this view made, that name member i of the view;
 * what it says of itself does not count. */
static uint32_t n_words(const struct plan_body *p, uint32_t i)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        n += p->members[k].index != i && (p->members[k].astray >> i & 1);
    }
    return n;
}

void round_note_astray(struct round *r)
{
    const struct plan_body *p = &r->last.plan.body;
    const struct view_body *v = round_view(r);
    uint64_t full = view_full(v), left = full;
    uint32_t least = (view_n_full(v) + 1) / 2;

    least = least < LEAST_WORDS ? LEAST_WORDS : least;
    if (!hash32_eq(&p->view, &r->ballot->hash)) {
        return; /* its indexes are of another view: who rested still does */
    }
    r->n_astray = 0;
    /* Whom more members name goes first. */
    for (uint32_t n = p->n_members; n >= least; n--) {
        for (uint32_t i = 0; i < v->n_members; i++) {
            if ((left >> i & 1) && n_words(p, i) == n &&
                view_quorum(v, left & ~BIT(i), 0)) {
                left &= ~BIT(i);
                r->astray[r->n_astray++] = r->ballot->ids[i];
            }
        }
    }
}

uint64_t round_astray(const struct round *r)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        for (uint32_t k = 0; k < r->n_astray; k++) {
            mask |= id_eq(&r->astray[k], &r->ballot->ids[i]) ? BIT(i) : 0;
        }
    }
    return mask;
}

bool round_shows_astray(const struct round *r)
{
    return r->has_last && hash32_eq(&r->last_hash, &r->base) &&
           hash32_eq(&r->last.plan.body.view, &r->ballot->hash);
}

bool round_has_astray(const struct round *r, uint64_t mask)
{
    return round_shows_astray(r) && (mask & round_astray(r)) != 0;
}
