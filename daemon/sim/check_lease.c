/* check_lease.c - which text was trained, from what the machines read. See
 * check.h, W.
 *
 * A state knows who trained each position of the text in its branch first: what
 * its parent knows, and what the contributions of its commit read. That is held
 * against the ledger that the commit's plan has.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/check_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/lease.h"

#define WAITS_MAX                                                              \
    8 /* commits in a row in which nobody needs what is returned */

uint64_t check_twice(const struct check *c)
{
    return c->twice;
}

uint64_t check_unleased(const struct check *c)
{
    return c->unleased;
}

/* What was trained before, with room for the positions of this commit. */
static void take_over(struct check *c, struct state *s, uint64_t next)
{
    const struct state *parent = &c->states[s->parent];
    uint64_t n = next > parent->n_trained ? next : parent->n_trained;

    s->n_trained = (uint32_t)n;
    s->trained = world_alloc((n + 1) * sizeof *s->trained);
    if (parent->trained != NULL) {
        memcpy(s->trained, parent->trained,
               parent->n_trained * sizeof *s->trained);
    }
}

static const struct lease *
lease_in(const struct ledger *l, uint64_t holder, uint64_t at)
{
    for (uint32_t i = 0; i < l->n_held; i++) {
        for (uint32_t k = 0; k < l->held[i].n_ranges; k++) {
            const struct lease_range *r = &l->held[i].ranges[k];

            if (l->held[i].holder == holder && at >= r->first &&
                at < r->first + r->n) {
                return &l->held[i];
            }
        }
    }
    return NULL;
}

/* Whether it was held for this contribution (by the name of its maker, or of
 * the slot that it had), and given back after nine commits without its maker.
 */
static bool gave_back(const struct check *c,
                      const struct state *s,
                      uint32_t peer,
                      const struct contribution *in,
                      uint64_t at)
{
    uint64_t holder = id_u64(&world_identity(c->opt.world, peer)->id);
    uint64_t slot = ~in->lease.ranges[0].first;

    for (int k = s->parent; k >= 0 && c->states[k].commit >= 0;
         k = c->states[k].parent) {
        const struct ledger *l = &c->commits[c->states[k].commit].commit.ledger;
        const struct lease *own = lease_in(l, holder, at);
        const struct lease *lease = own != NULL ? own : lease_in(l, slot, at);

        if (lease != NULL) {
            return lease->missed == LEASE_MISSED_MAX - 1;
        }
    }
    return false;
}

/* After a fork somebody else may have read the same; a process that dies with
 * its contribution in inherited chunks, and is back before they are committed,
 * reads it again; and who was away for nine commits may come with what it
 * trained before. */
static bool may_repeat(const struct check *c, uint16_t before, uint16_t now)
{
    return c->forks_allowed || ((before | now) & CHECK_LATE) != 0 ||
           (before == now && local_life(c->local, now - 1U) > 0);
}

static void read_at(struct check *c, struct state *s, uint16_t who, uint64_t at)
{
    uint16_t before;

    if (at >= s->n_trained) { /* given out in another branch, at most */
        if (!c->forks_allowed) {
            check_fail(c,
                       "W: peer %u trained position %" PRIu64
                       ", which nobody was given",
                       (who & ~CHECK_LATE) - 1U, at);
        }
        return;
    }
    before = s->trained[at];
    if (before == 0) {
        s->trained[at] = who;
        return;
    }
    c->twice++;
    if (!may_repeat(c, before, who)) {
        check_fail(c,
                   "W: position %" PRIu64 " of the text, of peer %u in round "
                   "%" PRIu64 ", was trained by peer %u before in this branch",
                   at, (who & ~CHECK_LATE) - 1U, s->round, before - 1U);
    }
}

static void train(struct check *c,
                  struct state *s,
                  uint32_t peer,
                  const struct contribution *in)
{
    uint64_t at;

    for (uint64_t k = 0;
         k < in->last - in->first && lease_at(&in->lease, k, &at); k++) {
        bool late = gave_back(c, s, peer, in, at);

        read_at(c, s, (uint16_t)((peer + 1) | (late ? CHECK_LATE : 0)), at);
    }
}

/* Whether an earlier part of the commit names it too. */
static bool named_before(const struct commit_seen *s, uint32_t i, uint32_t k)
{
    const struct contributor *x = &s->parts[i].in[k];

    for (uint32_t j = 0; j < i; j++) {
        for (uint32_t q = 0; q < s->parts[j].n; q++) {
            const struct contributor *y = &s->parts[j].in[q];

            if (id_eq(&x->peer, &y->peer) &&
                s->parts[i].life[k] == s->parts[j].life[q] &&
                x->last_step == y->last_step) {
                return true;
            }
        }
    }
    return false;
}

/* What the commit says of it is what it read. */
static void check_name(struct check *c,
                       const struct state *s,
                       uint32_t peer,
                       const struct contributor *x,
                       const struct contribution *in)
{
    uint64_t first = in->lease.n_ranges > 0 ? in->lease.ranges[0].first + 1 : 0;

    if (x->lease != first) {
        check_fail(c,
                   "W: the commit of round %" PRIu64 " says that peer %u read "
                   "from position %" PRIu64 " on; it was %" PRIu64,
                   s->round, peer, x->lease - 1, first - 1);
    }
}

static void train_all(struct check *c, struct state *s)
{
    const struct commit_seen *commit = &c->commits[s->commit];

    for (uint32_t i = 0; i < commit->n_parts; i++) {
        const struct part *p = &commit->parts[i];

        for (uint32_t k = 0; k < p->n; k++) {
            uint32_t peer = world_find(c->opt.world, &p->in[k].peer);
            const struct contribution *in = NULL;

            for (uint32_t older = 0; peer < c->opt.n_peers; older++) {
                in = check_contribution(c, peer, p->in[k].last_step, older);
                if (in == NULL || in->life == p->life[k]) {
                    break;
                }
            }
            if (in == NULL || p->in[k].tokens == 0 ||
                named_before(commit, i, k)) {
                continue;
            }
            c->unleased += p->in[k].lease == 0;
            check_name(c, s, peer, &p->in[k], in);
            train(c, s, peer, in);
        }
    }
}

static void mark(uint8_t *seen, const struct lease_range *r, uint64_t next)
{
    for (uint64_t at = r->first; at < r->first + r->n && at < next; at++) {
        seen[at] = (uint8_t)(seen[at] < 2 ? seen[at] + 1 : 2);
    }
}

/* Whether what was trained may be held all the same. */
static bool may_hold(const struct check *c, uint16_t who)
{
    return c->forks_allowed || (who & CHECK_LATE) != 0 ||
           local_life(c->local, who - 1U) > 0;
}

/* Everything that was given out is trained, held by one, or returned. */
static void
check_whole(struct check *c, const struct state *s, const struct ledger *l)
{
    uint8_t *seen = world_alloc(l->next + 1);

    for (uint32_t i = 0; i < l->n_held; i++) {
        for (uint32_t k = 0; k < l->held[i].n_ranges; k++) {
            mark(seen, &l->held[i].ranges[k], l->next);
        }
    }
    for (uint32_t i = 0; i < l->n_returned; i++) {
        mark(seen, &l->returned[i], l->next);
    }
    for (uint64_t at = 0; at < l->next; at++) {
        bool trained = s->trained[at] != 0;

        if (!trained && seen[at] == 0) {
            check_fail(c,
                       "W: position %" PRIu64 " of the text is lost in round "
                       "%" PRIu64,
                       at, s->round);
        }
        if (seen[at] > 1 ||
            (trained && seen[at] > 0 && !may_hold(c, s->trained[at]))) {
            check_fail(c,
                       "W: position %" PRIu64 " of the text is held though "
                       "%s, in round %" PRIu64,
                       at, trained ? "trained" : "another holds it", s->round);
        }
    }
    free(seen);
}

/* Nothing new while something returned could be: a lease has one range less for
 * returned text than it may have. */
static void
check_grants(struct check *c, struct state *s, const struct ledger *l)
{
    const struct state *parent = &c->states[s->parent];
    const struct ledger *before =
        parent->commit < 0 ? NULL : &c->commits[parent->commit].commit.ledger;
    bool full = false;

    for (uint32_t i = 0; i < l->n_held; i++) {
        full = full || l->held[i].n_ranges >= LEASE_RANGES_MAX - 1;
    }
    s->waits = before != NULL && l->n_returned > 0 && before->n_returned > 0 &&
                       l->returned[0].first == before->returned[0].first
                   ? parent->waits + 1
                   : 0;
    if (s->waits > WAITS_MAX && !full) {
        check_fail(c, "W: position %" PRIu64 " waits since round %" PRIu64,
                   l->returned[0].first, s->round - s->waits);
    }
}

void check_leases(struct check *c, int state)
{
    struct state *s = &c->states[state];
    const struct commit_seen *commit = &c->commits[s->commit];

    if (!commit->commit.has_ledger) {
        return;
    }
    c->count += 3;
    take_over(c, s, commit->commit.ledger.next);
    train_all(c, s);
    check_whole(c, s, &commit->commit.ledger);
    check_grants(c, s, &commit->commit.ledger);
}
