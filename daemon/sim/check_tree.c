/* check_tree.c - the state tree: every state that an anchor ever was.
 *
 * A node of the tree is (round, parameters); its parent is the state that the
 * outer step began from and its edge the commit that was applied. Machines
 * report what they really computed, nodes only name commits. See check.h, A to
 * D.
 */
#include "daemon/sim/check_internal.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/hash.h"

/* ---- commits ------------------------------------------------------------- */

static int
find_commit(const struct check *c, uint64_t round, const struct hash32 *result)
{
    for (uint32_t k = c->n_commits; k-- > 0;) {
        if (c->commits[k].commit.round == round &&
            hash32_eq(&c->commits[k].commit.result_hash, result)) {
            return (int)k;
        }
    }
    return -1;
}

/* T: what a node tells people of this commit. */
static void check_timeline(struct check *c, uint32_t peer, uint64_t round)
{
    const struct timeline *t = node_timeline(c->opt.nodes[peer]);
    const struct timeline_attempt *a;

    for (uint32_t back = 0; (a = timeline_at(t, back)) != NULL; back++) {
        if (a->round == round && a->outcome == TIMELINE_COMMITTED) {
            return;
        }
    }
    check_fail(c,
               "T: the timeline of peer %u knows no commit of round %" PRIu64,
               peer, round);
}

void check_note_commit(struct check *c, uint32_t peer)
{
    const struct node_commit *m = node_last_commit(c->opt.nodes[peer]);

    if (m == NULL || hash32_eq(&m->plan_hash, &c->peers[peer].last_plan)) {
        return;
    }
    c->peers[peer].last_plan = m->plan_hash;
    check_timeline(c, peer, m->round);
    if (find_commit(c, m->round, &m->result_hash) < 0) {
        c->commits = check_reserve(c->commits, c->n_commits, &c->cap_commits,
                                   sizeof *c->commits);
        memset(&c->commits[c->n_commits], 0, sizeof *c->commits);
        c->commits[c->n_commits++].commit = *m;
    }
}

/* ---- states -------------------------------------------------------------- */

/* Contributor of `a` whose steps, of one life, are in `b` too; NULL: none. */
static const struct contributor *overlap(const struct part *a,
                                         const struct part *b)
{
    for (uint32_t i = 0; i < a->n; i++) {
        for (uint32_t j = 0; j < b->n; j++) {
            const struct contributor *x = &a->in[i], *y = &b->in[j];

            if (x->tokens > 0 && y->tokens > 0 && id_eq(&x->peer, &y->peer) &&
                a->life[i] == b->life[j] && x->first_step < y->last_step &&
                y->first_step < x->last_step) {
                return x;
            }
        }
    }
    return NULL;
}

static void
check_apart(struct check *c, struct commit_seen *a, struct commit_seen *b)
{
    for (uint32_t i = 0; i < a->n_parts; i++) {
        for (uint32_t j = 0; j < b->n_parts; j++) {
            const struct contributor *x = overlap(&a->parts[i], &b->parts[j]);

            if (x != NULL) {
                check_fail(c,
                           "C: rounds %" PRIu64 " and %" PRIu64
                           " of one branch both use the steps of peer %u up "
                           "to %" PRIu64,
                           b->commit.round, a->commit.round,
                           world_find(c->opt.world, &x->peer), x->last_step);
            }
        }
    }
}

static void check_once(struct check *c, int state)
{
    struct commit_seen *own = &c->commits[c->states[state].commit];

    for (int s = c->states[state].parent; s >= 0; s = c->states[s].parent) {
        if (c->states[s].commit >= 0) {
            check_apart(c, own, &c->commits[c->states[s].commit]);
        }
    }
}

static bool is_ancestor(const struct check *c, int old, int state)
{
    while (state >= 0 && state != old) {
        state = c->states[state].parent;
    }
    return state == old;
}

/* A: somebody alive is on another branch from the same parent. */
static void check_siblings(struct check *c, uint32_t peer, int state)
{
    for (uint32_t s = 0; s < c->n_states && !c->forks_allowed; s++) {
        if ((int)s == state || c->states[s].parent != c->states[state].parent ||
            c->states[s].commit < 0) {
            continue;
        }
        for (uint32_t q = 0; q < c->opt.n_peers; q++) {
            if (q != peer && world_alive(c->opt.world, q) &&
                is_ancestor(c, (int)s, c->peers[q].state)) {
                check_fail(c,
                           "A: peers %u and %u committed different results "
                           "for round %" PRIu64,
                           peer, q, c->states[state].round);
            }
        }
    }
}

static int find_state(const struct check *c,
                      uint64_t round,
                      const struct hash32 *params,
                      int parent)
{
    for (uint32_t s = c->n_states; s-- > 0;) {
        if (c->states[s].round == round &&
            hash32_eq(&c->states[s].params, params) &&
            (parent < -1 || c->states[s].parent == parent)) {
            return (int)s;
        }
    }
    return -1;
}

static int add_state(struct check *c,
                     uint64_t round,
                     const struct hash32 *params,
                     int parent,
                     int commit)
{
    c->states = check_reserve(c->states, c->n_states, &c->cap_states,
                              sizeof *c->states);
    c->states[c->n_states] = (struct state){
        .round = round, .params = *params, .parent = parent, .commit = commit};
    return (int)c->n_states++;
}

void check_applied(void *self, uint32_t peer, const struct local_applied *a)
{
    struct check *c = self;
    struct checked_peer *p = &c->peers[peer];
    struct hash32 result;
    int commit, state;

    c->count += 4;
    hash_tree(a->bytes, a->len, &result);
    check_note_commit(c, peer);
    commit = find_commit(c, a->round, &result);
    if (commit < 0) {
        check_fail(c,
                   "B: peer %u applies bytes as round %" PRIu64
                   " that no commit names",
                   peer, a->round);
        return;
    }
    if (!c->commits[commit].verified) {
        check_replay(c, &c->commits[commit], a->bytes);
    }
    if (p->state < 0 || !hash32_eq(&c->states[p->state].params, &a->before)) {
        check_fail(c,
                   "D: the anchor of peer %u was touched between two outer "
                   "steps before round %" PRIu64,
                   peer, a->round);
        return;
    }
    if (c->states[p->state].round + 1 != a->round) {
        check_fail(c,
                   "A: peer %u applies round %" PRIu64
                   " onto the state of round %" PRIu64,
                   peer, a->round, c->states[p->state].round);
    }
    state = find_state(c, a->round, &a->after, p->state);
    if (state < 0) {
        state = add_state(c, a->round, &a->after, p->state, commit);
        check_once(c, state);
        check_leases(c, state);
    }
    p->state = state;
    p->untold++;
    check_spent(c, peer, commit, a->rebase);
    check_siblings(c, peer, state);
}

/* The state of a commit that takes back what came after an earlier one: the
 * parameters of an ancestor. -1: there is none. */
static int taken_back(struct check *c,
                      uint32_t peer,
                      uint64_t round,
                      const struct hash32 *params)
{
    int from = c->peers[peer].state;

    check_note_commit(c, peer);
    for (uint32_t k = c->n_commits; k-- > 0;) {
        const struct node_commit *m = &c->commits[k].commit;

        if (m->round != round || !m->takes_back) {
            continue;
        }
        for (int s = from; s >= 0; s = c->states[s].parent) {
            if (c->states[s].round == m->rollback.round &&
                hash32_eq(&c->states[s].params, params)) {
                s = add_state(c, round, params, from, (int)k);
                check_leases(c, s);
                return s;
            }
        }
    }
    return -1;
}

void check_loaded(void *self,
                  uint32_t peer,
                  uint64_t round,
                  const struct hash32 *params)
{
    struct check *c = self;
    int state = find_state(c, round, params, -2);

    c->count++;
    if (state < 0 && c->peers[peer].state >= 0) {
        state = taken_back(c, peer, round, params);
    }
    if (state < 0 && round > 0) {
        check_fail(c,
                   "A: peer %u loads a state of round %" PRIu64
                   " that nobody ever reached",
                   peer, round);
    }
    if (state < 0) {
        state = add_state(c, round, params, -1, -1);
    }
    c->peers[peer].state = state;
    c->peers[peer].untold++;
}

void check_died(struct check *c, uint32_t peer)
{
    c->peers[peer].state = -1;
    c->peers[peer].spent = 0;
    c->peers[peer].untold = 0;
    memset(&c->peers[peer].last_plan, 0, sizeof c->peers[peer].last_plan);
}
