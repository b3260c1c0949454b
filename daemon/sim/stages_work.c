/* stages_work.c - what commits of a stage are made of; see stages.h, T.
 *
 * A host whose steps came too late for a round offers them for the next one
 * with those that it makes then. So a commit may have more tokens than its
 * round has, and what a micro-batch is in cannot be told by rounds: a
 * contribution is the steps of a process, a step is the micro-batches of its
 * sum, and those of all commits that led to one are compared.
 */
#include <inttypes.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/stages.h"
#include "daemon/sim/world/internal.h"

static void on_packed(void *self, const struct local_contribution *k)
{
    struct stages *s = self;

    s->work = stages_grow(s->work, s->n_work, &s->cap_work, sizeof *s->work);
    s->work[s->n_work++] = (struct stages_work){
        k->peer, s->c.peers[k->peer].lives, k->first_step, k->last_step};
}

void stages_watch_work(struct stages *s)
{
    const struct local_watch watch = {.self = s, .contributed = on_packed};

    local_set_watch(s->c.local, &watch);
}

static struct stages_commit *find(struct stages *s, const struct hash32 *hash)
{
    for (uint32_t i = 0; i < s->n_commits; i++) {
        if (hash32_eq(&s->commits[i].hash, hash)) {
            return &s->commits[i];
        }
    }
    return NULL;
}

/* The newest that fits: processes of one machine may number their steps alike.
 * An attempt that failed and the one that inherits from it name the same. */
static void add_work(struct stages *s,
                     struct stages_commit *c,
                     const struct peer_id *id,
                     uint64_t first,
                     uint64_t last)
{
    uint32_t peer = world_find(s->c.world, id), at = s->n_work;

    while (at > 0 &&
           (s->work[at - 1].peer != peer || s->work[at - 1].first != first ||
            s->work[at - 1].last != last)) {
        at--;
    }
    if (at == 0) {
        sim_fail(s->c.r,
                 "T: round %" PRIu64 " of stage %u has steps %" PRIu64
                 "..%" PRIu64 " of peer %u, which never packed these",
                 c->round, c->stage, first, last, peer);
        return;
    }
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->in[i].peer == peer && c->in[i].life == s->work[at - 1].life &&
            c->in[i].first == first && c->in[i].last == last) {
            return;
        }
    }
    if (c->n < sizeof c->in / sizeof c->in[0]) {
        c->in[c->n++] = s->work[at - 1];
    }
}

static bool is_in(const struct stages_work *w, const struct stages_count *c)
{
    return c->peer == w->peer && c->life == w->life && c->inner >= w->first &&
           c->inner < w->last;
}

static bool is_same(const struct stages_count *a, const struct stages_count *b)
{
    return a->stage == b->stage && a->round == b->round && a->step == b->step &&
           a->origin == b->origin;
}

/* Micro-batches of `w`, which is in `c`, that are in `old` too. */
static void compare(struct stages *s,
                    const struct stages_commit *c,
                    const struct stages_work *w,
                    const struct stages_commit *before,
                    const struct stages_work *old)
{
    for (uint32_t i = 0; i < s->n_counts; i++) {
        for (uint32_t k = 0; is_in(w, &s->counts[i]) && k < s->n_counts; k++) {
            const struct stages_count *a = &s->counts[i], *b = &s->counts[k];

            if (is_in(old, b) && is_same(a, b)) {
                sim_fail(s->c.r,
                         "T: stage %u counts micro-batch %x of step %u, round "
                         "%" PRIu64 ", twice: of peer %u in round %" PRIu64
                         ", of peer %u in round %" PRIu64,
                         c->stage, a->origin, a->step, a->round, b->peer,
                         before->round, a->peer, c->round);
                return;
            }
        }
    }
}

/* Micro-batches that were offered for an earlier round, too late for it. */
static uint32_t n_carried(const struct stages *s, const struct stages_commit *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_counts; i++) {
        for (uint32_t k = 0; k < c->n; k++) {
            n += is_in(&c->in[k], &s->counts[i]) &&
                 s->counts[i].round != c->round;
        }
    }
    return n;
}

/* With itself and all that led to it. */
static void check_work(struct stages *s, const struct stages_commit *c)
{
    const struct stages_commit *at = c;

    while (at != NULL) {
        for (uint32_t i = 0; i < c->n; i++) {
            for (uint32_t k = 0; k < (at == c ? i : at->n); k++) {
                compare(s, c, &c->in[i], at, &at->in[k]);
            }
        }
        at = find(s, &at->base);
    }
}

void stages_note_commit(struct stages *s, uint32_t peer)
{
    const struct node *n = s->c.peers[peer].node;
    const struct node_commit *m = node_last_commit(n);
    const struct round *r = node_parts(n).round;
    struct stages_commit *c;

    if (m == NULL || !r->has_last || r->last.plan.body.round != m->round ||
        !hash32_eq(&r->last.result, &m->result_hash) ||
        find(s, &r->last_hash) != NULL) {
        return;
    }
    s->commits = stages_grow(s->commits, s->n_commits, &s->cap_commits,
                             sizeof *s->commits);
    c = &s->commits[s->n_commits++];
    *c = (struct stages_commit){.hash = r->last_hash,
                                .base = r->last.plan.body.base,
                                .stage = node_parts(n).stages->own + 1,
                                .round = m->round};
    for (uint32_t k = 0; k < m->n; k++) {
        add_work(s, c, &m->member[k], m->first_step[k], m->last_step[k]);
    }
    for (uint32_t i = 0; i < m->n_ranges; i++) {
        for (uint32_t k = 0; k < m->ranges[i].n_contributors; k++) {
            const struct contributor *x = &m->ranges[i].contributors[k];

            add_work(s, c, &x->peer, x->first_step, x->last_step);
        }
    }
    check_work(s, c);
    s->n_carried += n_carried(s, c);
}
