/* check.c - see check.h. */
#include "tests/sim/check.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "p2p/ring.h"
#include "proto/base/err.h"
#include "proto/hash.h"
#include "tests/sim/world_internal.h"
#include "train/sync/codec.h"

#define CONTRIBUTIONS_KEPT 64 /* per peer */
#define STATUS_EVERY       8  /* steps of one peer between two looks */

struct contribution {
    bool used;
    uint32_t life;
    uint64_t first, last, tokens;
    float *values;
};

struct commit_seen {
    struct node_commit commit;
    uint32_t life[VIEW_MEMBERS_MAX]; /* of each contribution */
    bool verified;
};

struct state {
    uint64_t round;
    struct hash32 params;
    int parent; /* -1: initial */
    int commit; /* in commits; -1: initial */
};

struct view_seen {
    struct hash32 view;
    uint64_t round;
    struct hash32 params;
};

struct checked_peer {
    struct contribution kept[CONTRIBUTIONS_KEPT];
    uint32_t n_kept;
    int state; /* in states; -1: none */
    struct hash32 last_plan;
    uint32_t steps;
};

struct check {
    struct check_options opt;
    struct local *local;
    const struct codec *codec;
    bool forks_allowed;
    uint64_t count;
    char violation[CHECK_TEXT_MAX];
    struct checked_peer *peers;
    struct commit_seen *commits;
    uint32_t n_commits, cap_commits;
    struct state *states;
    uint32_t n_states, cap_states;
    struct view_seen *views;
    uint32_t n_views, cap_views;
    uint8_t *oracle;
};

/* Room for one more element. */
static void *reserve(void *p, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap) {
        return p;
    }
    *cap = *cap == 0 ? 32 : 2 * *cap;
    p = realloc(p, *cap * size);
    assert(p != NULL);
    return p;
}

int check_open(struct check **check, const struct check_options *opt)
{
    struct check *c = calloc(1, sizeof *c);

    if (c == NULL) {
        return LOCO_ENOMEM;
    }
    c->opt = *opt;
    c->codec = codec_get_portable(opt->codec);
    c->peers = world_alloc(opt->n_peers * sizeof *c->peers);
    c->oracle = world_alloc(c->codec->bytes(opt->n_params));
    for (uint32_t i = 0; i < opt->n_peers; i++) {
        c->peers[i].state = -1;
    }
    *check = c;
    return 0;
}

void check_close(struct check *c)
{
    if (c == NULL) {
        return;
    }
    for (uint32_t i = 0; i < c->opt.n_peers; i++) {
        for (uint32_t k = 0; k < CONTRIBUTIONS_KEPT; k++) {
            free(c->peers[i].kept[k].values);
        }
    }
    free(c->peers);
    free(c->commits);
    free(c->states);
    free(c->views);
    free(c->oracle);
    free(c);
}

void check_set_local(struct check *c, struct local *local)
{
    c->local = local;
}

void check_allow_forks(struct check *c)
{
    c->forks_allowed = true;
}

void check_fail(struct check *c, const char *fmt, ...)
{
    va_list ap;

    if (c->violation[0] != '\0') {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(c->violation, sizeof c->violation, fmt, ap);
    va_end(ap);
}

const char *check_violation(const struct check *c)
{
    return c->violation[0] == '\0' ? NULL : c->violation;
}

uint64_t check_count(const struct check *c)
{
    return c->count;
}

uint64_t check_commits(const struct check *c)
{
    return c->n_commits;
}

/* ---- contributions ----------------------------------------------------- */

void check_contributed(void *self, const struct local_contribution *k)
{
    struct check *c = self;
    struct checked_peer *p = &c->peers[k->peer];
    struct contribution *at = &p->kept[p->n_kept++ % CONTRIBUTIONS_KEPT];
    size_t bytes = c->opt.n_params * sizeof *at->values;

    if (at->values == NULL) {
        at->values = world_alloc(bytes);
    }
    memcpy(at->values, k->values, bytes);
    at->used = true;
    at->life = k->life;
    at->first = k->first_step;
    at->last = k->last_step;
    at->tokens = k->tokens;
}

/* Newest first: a restarted process may number its steps anew. `older` names
 * how many that match to pass over. */
static const struct contribution *find_contribution(const struct check *c,
                                                    uint32_t peer,
                                                    uint64_t last,
                                                    uint32_t older)
{
    const struct checked_peer *p = &c->peers[peer];

    for (uint32_t k = 1; k <= CONTRIBUTIONS_KEPT && k <= p->n_kept; k++) {
        const struct contribution *at =
            &p->kept[(p->n_kept - k) % CONTRIBUTIONS_KEPT];

        if (at->used && at->last == last && older-- == 0) {
            return at;
        }
    }
    return NULL;
}

/* ---- B: replay ---------------------------------------------------------- */

/* What member k of a commit put in. NULL: nothing, with weight 0. */
static const float *input_of(struct check *c, struct commit_seen *s, uint32_t k)
{
    uint32_t peer = world_find(c->opt.world, &s->commit.member[k]);
    const struct contribution *in;

    if (peer == c->opt.n_peers) {
        check_fail(c, "B: a commit of round %" PRIu64 " names a stranger",
                   s->commit.round);
        return NULL;
    }
    in = find_contribution(c, peer, s->commit.last_step[k], 0);
    if (in == NULL || s->commit.weight[k] == 0) {
        if (s->commit.weight[k] != 0) {
            check_fail(c,
                       "B: the commit of round %" PRIu64 " names a "
                       "contribution of peer %u up to step %" PRIu64
                       " that it never made",
                       s->commit.round, peer, s->commit.last_step[k]);
        }
        return NULL;
    }
    s->life[k] = in->life;
    if (in->first != s->commit.first_step[k]) {
        check_fail(c,
                   "C: the commit of round %" PRIu64 " names steps %" PRIu64
                   "..%" PRIu64 " of peer %u; they were %" PRIu64 "..%" PRIu64,
                   s->commit.round, s->commit.first_step[k],
                   s->commit.last_step[k], peer, in->first, in->last);
    }
    if (in->tokens != s->commit.weight[k]) {
        check_fail(c,
                   "B: the commit of round %" PRIu64 " weighs peer %u with "
                   "%" PRIu64 " tokens; they were %" PRIu64,
                   s->commit.round, peer, s->commit.weight[k], in->tokens);
    }
    return in->values;
}

static void replay_chunk(struct check *c,
                         const struct node_commit *m,
                         const float *const *in,
                         uint32_t chunk,
                         double total)
{
    uint64_t begin, end;

    ring_chunk(c->opt.n_params, c->opt.block, m->n, chunk, &begin, &end);
    for (uint32_t hop = 0; hop < m->n && begin < end; hop++) {
        uint32_t k = (chunk + hop) % m->n;
        float scale = (float)((double)m->weight[k] / total);
        uint8_t *at = c->oracle + c->codec->bytes(begin);
        int rc = hop == 0
                     ? c->codec->encode(at, in[k] + begin, end - begin, scale)
                     : c->codec->add(at, at, in[k] + begin, end - begin, scale);

        if (rc != 0) {
            check_fail(c, "B: the replay of round %" PRIu64 " fails with %d",
                       m->round, rc);
        }
    }
}

static bool replay_is(struct check *c,
                      const struct node_commit *m,
                      const float *const *in,
                      double total,
                      const uint8_t *bytes)
{
    for (uint32_t chunk = 0; chunk < m->n; chunk++) {
        replay_chunk(c, m, in, chunk, total);
    }
    return memcmp(c->oracle, bytes, c->codec->bytes(c->opt.n_params)) == 0;
}

/* The second newest contribution of member k with these step numbers. */
static const struct contribution *
older_of(const struct check *c, const struct commit_seen *s, uint32_t k)
{
    uint32_t peer = world_find(c->opt.world, &s->commit.member[k]);
    const struct contribution *in = NULL;

    if (peer != c->opt.n_peers) {
        in = find_contribution(c, peer, s->commit.last_step[k], 1);
    }
    return in != NULL && in->first == s->commit.first_step[k] &&
                   in->tokens == s->commit.weight[k]
               ? in
               : NULL;
}

static const float *older_input(const struct check *c,
                                const struct commit_seen *s,
                                uint32_t k,
                                const float *newest)
{
    const struct contribution *in = older_of(c, s, k);

    return in == NULL ? newest : in->values;
}

static void
take_lives(const struct check *c, struct commit_seen *s, uint32_t pick)
{
    for (uint32_t k = 0; k < 8 && k < s->commit.n; k++) {
        const struct contribution *in = older_of(c, s, k);

        if ((pick >> k & 1) && in != NULL) {
            s->life[k] = in->life;
        }
    }
}

static void verify(struct check *c, struct commit_seen *s, const uint8_t *bytes)
{
    const struct node_commit *m = &s->commit;
    const float *in[VIEW_MEMBERS_MAX];
    float *zeros = world_alloc(c->opt.n_params * sizeof *zeros);
    double total = 0;
    bool same;

    memset(in, 0, sizeof in);
    for (uint32_t k = 0; k < m->n; k++) {
        total += (double)m->weight[k];
        in[k] = input_of(c, s, k);
        if (in[k] == NULL) {
            in[k] = zeros;
        }
    }
    same = replay_is(c, m, in, total, bytes);
    /* A commit that waited in a cut may name steps that a restarted process
     * made again since: try the older of the two, in every combination. */
    for (uint32_t pick = 1; pick < 256 && pick >> m->n == 0 && !same; pick++) {
        const float *other[VIEW_MEMBERS_MAX];

        memcpy(other, in, sizeof other);
        for (uint32_t k = 0; k < 8 && k < m->n; k++) {
            if (pick >> k & 1) {
                other[k] = older_input(c, s, k, in[k]);
            }
        }
        same = replay_is(c, m, other, total, bytes);
        if (same) {
            take_lives(c, s, pick);
        }
    }
    if (!same) {
        check_fail(c,
                   "B: the result of round %" PRIu64 " (epoch %" PRIu64
                   ", %u members) is not the replay of its ring",
                   m->round, m->epoch, m->n);
    }
    free(zeros);
    s->verified = true;
}

/* ---- commits and states -------------------------------------------------- */

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

static void note_commit(struct check *c, uint32_t peer)
{
    const struct node_commit *m = node_last_commit(c->opt.nodes[peer]);

    if (m == NULL || hash32_eq(&m->plan_hash, &c->peers[peer].last_plan)) {
        return;
    }
    c->peers[peer].last_plan = m->plan_hash;
    if (find_commit(c, m->round, &m->result_hash) < 0) {
        c->commits = reserve(c->commits, c->n_commits, &c->cap_commits,
                             sizeof *c->commits);
        memset(&c->commits[c->n_commits], 0, sizeof *c->commits);
        c->commits[c->n_commits++].commit = *m;
    }
}

/* Member of `a` whose steps, of one life, are in `b` too; -1: none. */
static int overlap(const struct commit_seen *a, const struct commit_seen *b)
{
    for (uint32_t i = 0; i < a->commit.n; i++) {
        for (uint32_t j = 0; j < b->commit.n; j++) {
            if (a->commit.weight[i] > 0 && b->commit.weight[j] > 0 &&
                id_eq(&a->commit.member[i], &b->commit.member[j]) &&
                a->life[i] == b->life[j] &&
                a->commit.first_step[i] < b->commit.last_step[j] &&
                b->commit.first_step[j] < a->commit.last_step[i]) {
                return (int)i;
            }
        }
    }
    return -1;
}

static void check_once(struct check *c, int state)
{
    const struct commit_seen *own = &c->commits[c->states[state].commit];

    for (int s = c->states[state].parent; s >= 0; s = c->states[s].parent) {
        int k = c->states[s].commit;
        int i = k < 0 ? -1 : overlap(own, &c->commits[k]);

        if (i >= 0) {
            check_fail(c,
                       "C: rounds %" PRIu64 " and %" PRIu64
                       " of one branch both use the steps of peer %u up to "
                       "%" PRIu64,
                       c->states[s].round, c->states[state].round,
                       world_find(c->opt.world, &own->commit.member[i]),
                       own->commit.last_step[i]);
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
    c->states =
        reserve(c->states, c->n_states, &c->cap_states, sizeof *c->states);
    c->states[c->n_states] = (struct state){round, *params, parent, commit};
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
    note_commit(c, peer);
    commit = find_commit(c, a->round, &result);
    if (commit < 0) {
        check_fail(c,
                   "B: peer %u applies bytes as round %" PRIu64
                   " that no commit names",
                   peer, a->round);
        return;
    }
    if (!c->commits[commit].verified) {
        verify(c, &c->commits[commit], a->bytes);
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
    }
    p->state = state;
    check_siblings(c, peer, state);
}

void check_loaded(void *self,
                  uint32_t peer,
                  uint64_t round,
                  const struct hash32 *params)
{
    struct check *c = self;
    int state = find_state(c, round, params, -2);

    c->count++;
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
}

void check_died(struct check *c, uint32_t peer)
{
    c->peers[peer].state = -1;
    memset(&c->peers[peer].last_plan, 0, sizeof c->peers[peer].last_plan);
}

/* ---- per step -------------------------------------------------------------*/

/* A: members of one view that train stand on the same parameters. */
static void
check_view(struct check *c, uint32_t peer, const struct node_status *s)
{
    const struct checked_peer *p = &c->peers[peer];
    const struct state *now;

    if (p->state < 0 || hash32_is_zero(&s->view_hash) ||
        s->state != NODE_TRAINING) {
        return;
    }
    now = &c->states[p->state];
    if (now->round != s->round) {
        return;
    }
    for (uint32_t k = c->n_views; k-- > 0 && k + 64 >= c->n_views;) {
        if (c->views[k].round == now->round &&
            hash32_eq(&c->views[k].view, &s->view_hash)) {
            if (!hash32_eq(&c->views[k].params, &now->params)) {
                check_fail(c,
                           "A: peer %u trains in a view on other parameters "
                           "of round %" PRIu64 " than another member",
                           peer, now->round);
            }
            return;
        }
    }
    c->views = reserve(c->views, c->n_views, &c->cap_views, sizeof *c->views);
    c->views[c->n_views++] =
        (struct view_seen){s->view_hash, now->round, now->params};
}

static void check_status(struct check *c, uint32_t peer)
{
    struct node_status s;
    struct hash32 params;

    node_status(c->opt.nodes[peer], &s);
    c->count += 3;
    if (s.fork && !c->forks_allowed) {
        check_fail(c, "G: peer %u says fork without a cut", peer);
    }
    check_view(c, peer, &s);
    if (c->peers[peer].state >= 0 && c->local != NULL) {
        local_params_hash(c->local, peer, &params);
        if (!hash32_eq(&params, &c->states[c->peers[peer].state].params)) {
            check_fail(c, "D: the anchor of peer %u was touched", peer);
        }
    }
}

void check_step(struct check *c, uint32_t peer)
{
    const struct world_stats *stats = world_stats(c->opt.world);

    c->count++;
    if (stats->dropped > 0) {
        check_fail(c, "F: peer %u: an action did not fit `out`", peer);
    }
    if (stats->broke_rules > 0) {
        check_fail(c, "F: peer %u broke a rule of the shell (see trace)", peer);
    }
    if (stats->queue_max > CHECK_QUEUE_MAX) {
        check_fail(c, "F: peer %u: a queue of %u segments", peer,
                   stats->queue_max);
    }
    if (c->opt.nodes[peer] == NULL) {
        return;
    }
    note_commit(c, peer);
    if (c->peers[peer].steps++ % STATUS_EVERY == 0) {
        check_status(c, peer);
    }
}

/* Why a peer is not done; NULL: it is. The first live peer sets the pattern. A
 * finished peer needs no view: a late joiner of a finished run has none. */
static const char *not_done(const struct node_status *s,
                            const struct node_status *first,
                            uint64_t round,
                            bool fork_fine)
{
    if (s->round < round) {
        return "behind";
    }
    if (s->fork && !fork_fine) {
        return "still marked fork";
    }
    if (!hash32_eq(&s->params_hash, &first->params_hash) ||
        !hash32_eq(&s->commit_hash, &first->commit_hash)) {
        return "on another branch than the first live peer";
    }
    if (s->state != NODE_FINISHED &&
        (hash32_is_zero(&s->view_hash) ||
         !hash32_eq(&s->view_hash, &first->view_hash))) {
        return "in another view than the first live peer";
    }
    return NULL;
}

bool check_finished(struct check *c, uint64_t round, bool fork_fine, char *why)
{
    struct node_status s, first;
    const char *what = NULL;
    bool any = false;

    for (uint32_t q = 0; q < c->opt.n_peers; q++) {
        if (!world_alive(c->opt.world, q)) {
            continue;
        }
        node_status(c->opt.nodes[q], &s);
        if (!any) {
            first = s;
        }
        any = true;
        what = world_frozen(c->opt.world, q)
                   ? "frozen"
                   : not_done(&s, &first, round, fork_fine);
        if (what != NULL) {
            (void)snprintf(why, CHECK_TEXT_MAX,
                           "peer %u is %s: %s at round %" PRIu64 " of %" PRIu64
                           ", epoch %" PRIu64 "; %s",
                           q, what, node_state_name(s.state), s.round, round,
                           s.epoch, s.reason);
            return false;
        }
    }
    (void)snprintf(why, CHECK_TEXT_MAX, any ? "all is well" : "nobody lives");
    return true;
}
