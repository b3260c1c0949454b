/* check.c - see check.h: open and close, what is looked at after every step,
 * and whether a run has come to its end. */
#include "daemon/sim/check_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"

#define STATUS_EVERY 8 /* steps of one peer between two looks */

void *check_reserve(void *p, uint32_t n, uint32_t *cap, size_t size)
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
        c->peers[i].state = c->peers[i].sum_of = -1;
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
    for (uint32_t s = 0; s < c->n_states; s++) {
        free(c->states[s].trained);
    }
    free(c->states);
    free(c->views);
    free(c->oracle);
    free(c);
}

void check_set_local(struct check *c, struct local *local)
{
    const struct local_watch watch = {.self = c,
                                      .contributed = check_contributed,
                                      .applied = check_applied,
                                      .loaded = check_loaded};

    c->local = local;
    local_set_watch(local, &watch);
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
    c->views =
        check_reserve(c->views, c->n_views, &c->cap_views, sizeof *c->views);
    c->views[c->n_views++] =
        (struct view_seen){s->view_hash, now->round, now->params};
}

/* D: between two applications nothing writes to the anchor. Hashed once for
 * each state; after that a sum says whether it is still the same. */
static void check_anchor(struct check *c, uint32_t peer)
{
    struct checked_peer *p = &c->peers[peer];
    uint64_t sum = local_params_sum(c->local, peer);
    struct hash32 params;

    if (p->sum_of != p->state || p->sum != sum) {
        local_params_hash(c->local, peer, &params);
        if (!hash32_eq(&params, &c->states[p->state].params)) {
            check_fail(c, "D: the anchor of peer %u was touched", peer);
        }
        p->sum_of = p->state;
        p->sum = sum;
    }
}

static void check_status(struct check *c, uint32_t peer)
{
    struct node_status s;

    node_status(c->opt.nodes[peer], &s);
    c->count += 3;
    if (s.fork && !c->forks_allowed) {
        check_fail(c, "G: peer %u says fork without a cut", peer);
    }
    check_view(c, peer, &s);
    if (c->peers[peer].state >= 0 && c->local != NULL) {
        check_anchor(c, peer);
        check_tokens(c, peer, s.tokens_dropped);
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
    check_note_commit(c, peer);
    if (c->peers[peer].steps++ % STATUS_EVERY == 0) {
        check_status(c, peer);
    }
}

/* ---- the end --------------------------------------------------------------*/

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
