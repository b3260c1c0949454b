/* work_plan.c - see work_internal.h. What a commit says of its makers: whose
 * lease can be made again, and who works without one.
 */
#include <string.h>

#include "p2p/round/lease.h"
#include "p2p/round/work_internal.h"

uint32_t work_place(const struct repeat_commit *c, const struct peer_id *id)
{
    uint32_t i = 0;

    while (i < c->n && !id_eq(&c->member[i], id)) {
        i++;
    }
    return i;
}

/* ---- what a plan says -----------------------------------------------------
 */

/* Whose work was of the front of its lease. */
static bool is_front(const struct work_maker *m, uint64_t lease)
{
    return m->lease.n_ranges > 0 && m->lease.ranges[0].first + 1 == lease;
}

bool work_describe(struct work_maker *m,
                   const struct plan_member *p,
                   const struct lease *lease,
                   uint64_t most)
{
    const uint64_t steps = p->last_step - p->first_step;

    m->lease = lease == NULL ? (struct lease){0} : *lease;
    m->works = p->tokens > 0;
    m->owes = m->works && lease != NULL;
    m->offer = p->offer;
    m->steps = steps <= most ? (uint32_t)steps : 0;
    if (p->n_moments > 0) {
        m->moments = p->moments[0].root;
        m->moment_steps = p->moments[0].steps;
    }
    return m->owes && m->steps > 0 && lease_count(&m->lease) >= m->steps &&
           is_front(m, p->lease) && !hash32_is_zero(&m->moments);
}

/* ---- who is silent ------------------------------------------------------- */

void work_name_silent(struct work *w, const struct peer_id *id)
{
    if (w->n_silent < VIEW_MEMBERS_MAX) {
        w->silent[w->n_silent++] = *id;
    }
}

/* Whether that member is excused in that round; then not again soon. All that
 * this rests on is in commits, so that members who saw them say the same. */
static bool excuse(struct work *w, const struct peer_id *id, uint64_t round)
{
    uint32_t place = 0;

    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        if (w->excused[i].round > 0 && id_eq(&w->excused[i].id, id)) {
            place = i;
            break;
        }
        place = w->excused[i].round < w->excused[place].round ? i : place;
    }
    if (w->excused[place].round > 0 && id_eq(&w->excused[place].id, id) &&
        round < w->excused[place].round + WORK_EXCUSE) {
        return false;
    }
    w->excused[place].id = *id;
    w->excused[place].round = round;
    return true;
}

/* ---- commits ------------------------------------------------------------- */

/* The maker's part of the commit before; NULL: it had none, or there was a
 * break since. */
static const struct work_maker *
before(const struct work *w, const struct work_commit *c, uint32_t i)
{
    const struct work_commit *old = &w->commit[0];
    uint32_t k;

    if (w->n_commits == 0 || old->what.round + 1 != c->what.round) {
        return NULL;
    }
    k = work_place(&old->what, &c->what.member[i]);
    return k < old->what.n && old->maker[k].works &&
                   old->maker[k].joined == c->maker[i].joined
               ? &old->maker[k]
               : NULL;
}

/* As many steps of its optimizer as the lease before had, if that is known; or
 * it began anew. */
static bool goes_on(const struct work_maker *m, const struct work_maker *old)
{
    return hash32_is_zero(&old->moments) || m->moment_steps == 0 ||
           m->moment_steps == old->moment_steps + old->steps;
}

/* Whether it needs an excuse: its lease cannot be made again. */
static bool is_loose(const struct work_commit *c, uint32_t i)
{
    return c->maker[i].again && c->maker[i].owes && !(c->what.lease >> i & 1);
}

/* What follows for each maker from its work before. How many need an excuse. */
static uint32_t follow_work(const struct work *w, struct work_commit *c)
{
    uint32_t n_loose = 0;

    for (uint32_t i = 0; i < c->what.n; i++) {
        const struct work_maker *old = before(w, c, i);
        struct work_maker *m = &c->maker[i];

        m->again = m->works && old != NULL;
        if (m->again && !goes_on(m, old)) {
            c->what.lease &= ~(1ULL << i);
        }
        n_loose += is_loose(c, i);
    }
    return n_loose;
}

void work_fill_in(struct work *w, struct work_commit *c)
{
    const uint32_t self = work_place(&c->what, &w->self);
    const uint32_t n_full = (uint32_t)__builtin_popcountll(c->what.full);

    if (2 * follow_work(w, c) > n_full) {
        return; /* a state was taken back, or the like: nobody is to blame */
    }
    for (uint32_t i = 0; i < c->what.n; i++) {
        if (i != self && is_loose(c, i) &&
            !excuse(w, &c->what.member[i], c->what.round)) {
            work_name_silent(w, &c->what.member[i]);
        }
    }
}
