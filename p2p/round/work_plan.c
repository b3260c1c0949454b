/* work_plan.c - see work_internal.h. What a commit says of its makers: whose
 * lease can be made again, and who works without one.
 */
#include <string.h>

#include "p2p/round/lease.h"
#include "p2p/round/work_internal.h"
#include "proto/blocks.h"

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
        m->ends = p->moments[0].ends;
        m->moment_steps = p->moments[0].steps;
    }
    return m->owes && m->steps > 0 && lease_count(&m->lease) >= m->steps &&
           is_front(m, p->lease) && !hash32_is_zero(&m->moments) &&
           !hash32_is_zero(&m->ends);
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

/* Where the moments of that member are; NULL: it did not work yet, or long ago.
 * Whoever leaves and joins again goes on: else it would choose some each time.
 */
static const struct work_chain *
chain_of(const struct work *w, const struct work_commit *c, uint32_t i)
{
    for (uint32_t k = 0; k < w->n_chains; k++) {
        if (id_eq(&w->chain[k].id, &c->what.member[i])) {
            return &w->chain[k];
        }
    }
    return NULL;
}

static bool begins_at(const struct work_maker *m,
                      const struct hash32 *moments,
                      uint64_t steps)
{
    return m->moment_steps == steps && hash32_eq(&m->moments, moments);
}

/* Where its last lease ended. Or where that began, but not twice in a row: it
 * may have slept, and not know that this was taken. Whose moments are not known
 * may begin with any. */
static bool goes_on(const struct work_maker *m, const struct work_chain *old)
{
    return hash32_is_zero(&old->ended) ||
           begins_at(m, &old->ended, old->ended_steps) ||
           (!old->again && begins_at(m, &old->began, old->began_steps));
}

/* Moments of no step are nothing. */
static bool begins_with_nothing(const struct work_commit *c, uint32_t i)
{
    struct hash32 nothing;

    blocks_offer(&c->what.member[i], 0, &c->zeros, &nothing);
    return hash32_eq(&nothing, &c->maker[i].moments);
}

/* Whether an auditor can begin where its lease began, and that is where it may
 * begin. */
static bool
begins_well(const struct work *w, const struct work_commit *c, uint32_t i)
{
    const struct work_chain *old = chain_of(w, c, i);
    const struct work_maker *m = &c->maker[i];

    return m->moment_steps > 0 ? old == NULL || goes_on(m, old)
                               : begins_with_nothing(c, i);
}

/* Whether it began anew, and has moments to go on with. */
static bool
is_anew(const struct work *w, const struct work_commit *c, uint32_t i)
{
    const struct work_chain *old = chain_of(w, c, i);

    return !c->anew && c->maker[i].moment_steps == 0 && old != NULL &&
           !hash32_is_zero(&old->ended) &&
           (old->again || old->began_steps > 0); /* or it slept, too */
}

/* Whether it needs an excuse: its lease cannot be made again, or not without
 * moments that it chose. */
static bool
is_loose(const struct work *w, const struct work_commit *c, uint32_t i)
{
    return c->maker[i].owes && (!(c->what.lease >> i & 1) || is_anew(w, c, i));
}

/* What follows for each maker from its work before. How many need an excuse. */
static uint32_t follow_work(const struct work *w, struct work_commit *c)
{
    uint32_t n_loose = 0;

    for (uint32_t i = 0; i < c->what.n; i++) {
        if (!begins_well(w, c, i)) {
            c->what.lease &= ~(1ULL << i);
        }
        n_loose += is_loose(w, c, i);
    }
    return n_loose;
}

/* A place for that member: its own, a free one, or that of who worked longest
 * ago. */
static struct work_chain *place_for(struct work *w, const struct peer_id *id)
{
    struct work_chain *least = &w->chain[0];

    for (uint32_t k = 0; k < w->n_chains; k++) {
        if (id_eq(&w->chain[k].id, id)) {
            return &w->chain[k];
        }
        least = w->chain[k].round < least->round ? &w->chain[k] : least;
    }
    return w->n_chains < WORK_CHAINS ? &w->chain[w->n_chains++] : least;
}

static void follow_chains(struct work *w, const struct work_commit *c)
{
    for (uint32_t i = 0; i < c->what.n; i++) {
        const struct work_chain *old = chain_of(w, c, i);
        const struct work_maker *m = &c->maker[i];
        const bool again =
            old != NULL && begins_at(m, &old->began, old->began_steps);

        if (m->works) {
            *place_for(w, &c->what.member[i]) =
                (struct work_chain){.id = c->what.member[i],
                                    .round = c->what.round,
                                    .began = m->moments,
                                    .ended = m->ends,
                                    .began_steps = m->moment_steps,
                                    .ended_steps = m->moment_steps + m->steps,
                                    .again = again};
        }
    }
}

/* Who cannot be made again, and has no excuse. */
static void name_loose(struct work *w, const struct work_commit *c)
{
    const uint32_t self = work_place(&c->what, &w->self);

    for (uint32_t i = 0; i < c->what.n; i++) {
        if (i != self && is_loose(w, c, i) &&
            !excuse(w, &c->what.member[i], c->what.round)) {
            work_name_silent(w, &c->what.member[i]);
        }
    }
}

void work_follow(struct work *w, struct work_commit *c)
{
    const uint32_t n_full = (uint32_t)__builtin_popcountll(c->what.full);

    if (c->takes_back || !hash32_eq(&c->before, &w->followed)) {
        w->n_chains = 0; /* who knows what they contributed meanwhile? */
    }
    w->followed = c->what.hash;
    if (c->takes_back) {
        c->what.lease = 0;
        return;
    }
    if (2 * follow_work(w, c) <= n_full) { /* else nobody is to blame */
        name_loose(w, c);
    }
    follow_chains(w, c);
    if (c->inherits) {
        c->what.lease = 0;
    }
}
