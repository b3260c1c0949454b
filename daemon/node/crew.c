/* crew.c - with whom the steps of a round are made, see pipe.h.
 *
 * Who is a host. Of our own stage: the members of our view. Of other stages we
 * hold no view, and a HEARTBEAT can say anything: a stranger that named a stage
 * and was silent then cost each round the wait for it. So those count with whom
 * steps were made before, and one more is tried in a round, drawn by the
 * round's number, so that all try the same; after k in a row in vain only every
 * 2^k-th round. Where those that are known serve not all stages everybody
 * counts: at the start, and after a stage died.
 *
 * Once in a while, between two rounds, a host moves to the stage that has most
 * work waiting (route_moves()): all see the same heartbeats of the same round,
 * so all agree who.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "proto/base/rng.h"

#define VAIN_MAX         5 /* one is tried every 32 rounds at least */
#define REBALANCE_ROUNDS 8 /* a host moves after every so many, at most */

static bool takes_part(const struct member *p)
{
    return p->beat.has_view && p->beat.state != NODE_PAUSED &&
           p->beat.state != NODE_DRAINING && p->beat.state != NODE_FINISHED;
}

static bool is_level(const struct node *n, const struct member *p)
{
    return p->beat.ready && p->beat.round == n->held.applied.round;
}

bool node_is_silent(const struct node *n, const struct member *p)
{
    return p->lost || p->state >= PEER_DEAD ||
           (p->n_links == 0 && n->now - p->down_ms >= n->t.redial_ms) ||
           n->now - p->heard_ms >= n->t.dead_ms;
}

/* Of a stage, linked, and in a view of it. */
static bool is_host(const struct node *n, int row)
{
    const struct member *p = &n->members.peers[row];

    return p->used && p->has_beat && !node_is_silent(n, p) &&
           p->beat.stage > 0 && p->beat.stage <= n->terms.stages &&
           members_linked(&n->members, row);
}

/* Takes part, as far as rumours and the first heartbeats say; or `soon` will.
 */
static bool is_expected(const struct member *p, bool soon)
{
    bool here = p->used && p->confirmed && !p->lost && p->state <= PEER_SUSPECT;

    return here && p->info.stage != 0 &&
           ((p->info.features & PEER_IN_VIEW) != 0 || soon);
}

void node_crew_add(struct node_crew *c,
                   const struct peer_id *id,
                   uint32_t stage,
                   uint32_t queue)
{
    uint32_t at = c->n;

    if (c->n == PIPELINE_HOSTS_MAX) {
        return;
    }
    while (at > 0 && id_cmp(&c->host[at - 1].id, id) > 0) {
        c->host[at] = c->host[at - 1];
        c->queue[at] = c->queue[at - 1];
        at--;
    }
    c->host[at] = (struct pipeline_host){.id = *id, .stage = stage};
    c->queue[at] = queue;
    c->n++;
    c->level |= 1ULL << stage;
}

static bool is_known(const struct node *n, const struct peer_id *id)
{
    const struct node_known *k = &n->pipe.known;

    for (uint32_t i = 0; i < k->n && i < NODE_HOSTS_KNOWN; i++) {
        if (id_eq(&k->id[i], id)) {
            return true;
        }
    }
    return false;
}

bool node_crew_trusts(const struct node *n, const struct member *p)
{
    return p->beat.stage == n->stages.own + 1
               ? ballot_index(&n->ballot, &p->id) >= 0
               : is_known(n, &p->id);
}

bool node_crew_is_open(const struct node *n)
{
    uint64_t served = 1ULL << n->stages.own;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (is_host(n, (int)i) && takes_part(p) && node_crew_trusts(n, p)) {
            served |= 1ULL << (p->beat.stage - 1U);
        }
    }
    return served != node_all_stages(n);
}

static uint64_t lot(const struct node *n, const struct member *p)
{
    const uint64_t words[2] = {n->held.applied.round, id_u64(&p->id)};

    return rng_mix(words, 2);
}

/* Who is tried this time; -1: nobody. */
static int drawn(const struct node *n)
{
    uint64_t round = n->held.applied.round + 1, least = UINT64_MAX;
    const struct node_known *k = &n->pipe.known;
    int found = -1;

    if (k->vain > 0 && round != k->drawn_for &&
        round - k->drawn_for < 1ULL << k->vain) {
        return -1;
    }
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (is_host(n, (int)i) && takes_part(p) && is_level(n, p) &&
            p->beat.stage != n->stages.own + 1 && !is_known(n, &p->id) &&
            lot(n, p) < least) {
            least = lot(n, p);
            found = (int)i;
        }
    }
    return found;
}

void node_crew_begins(struct node *n, const struct node_crew *c)
{
    struct node_known *k = &n->pipe.known;

    if (c->tries) {
        k->drawn = c->tried;
        k->drawn_for = n->held.applied.round + 1;
    }
}

void node_crew_is_done(struct node *n)
{
    const struct pipeline *core = &n->pipe.core;
    struct node_known *k = &n->pipe.known;
    bool tried = k->drawn_for == core->round, there = false;

    for (uint32_t i = 0; i < core->n; i++) {
        const struct peer_id *id = &core->host[i].id;

        if ((core->layout >> i & 1) == 0) {
            continue;
        }
        there = there || id_eq(id, &k->drawn);
        if (core->host[i].stage != n->stages.own && !is_known(n, id)) {
            k->id[k->n++ % NODE_HOSTS_KNOWN] = *id;
        }
    }
    if (tried) {
        k->vain = there ? 0 : k->vain + (k->vain < VAIN_MAX);
    }
}

/* Stages of which more than half of the hosts name a later round than ours: one
 * of them could say anything. */
static void note_ahead(const struct node *n, struct node_crew *c)
{
    uint32_t here[ROUTE_STAGES_MAX] = {0}, later[ROUTE_STAGES_MAX] = {0};

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct heartbeat *b = &n->members.peers[i].beat;

        if (is_host(n, (int)i) && b->has_view &&
            (c->anybody || node_crew_trusts(n, &n->members.peers[i]))) {
            here[b->stage - 1]++;
            later[b->stage - 1] += b->round > n->held.applied.round;
        }
    }
    for (uint32_t s = 0; s < n->terms.stages; s++) {
        c->ahead |= (uint64_t)(2 * later[s] > here[s]) << s;
    }
}

void node_crew_gather(const struct node *n, struct node_crew *c)
{
    int guest;

    memset(c, 0, sizeof *c);
    c->anybody = node_crew_is_open(n);
    guest = c->anybody ? -1 : drawn(n);
    if (guest >= 0) {
        c->tries = true;
        c->tried = n->members.peers[guest].id;
    }
    node_crew_add(c, &n->opt.self, n->stages.own, n->pipe.queue.mean);
    c->served |= 1ULL << n->stages.own;
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];
        uint32_t stage;

        if (!c->anybody && (int)i != guest && !node_crew_trusts(n, p)) {
            continue;
        }
        if (!is_host(n, (int)i) || !takes_part(p)) {
            c->late =
                c->late || (is_expected(p, n->held.applied.round == 0) &&
                            (!p->has_beat || p->beat.state < NODE_PAUSED));
            continue;
        }
        stage = p->beat.stage - 1U;
        c->served |= 1ULL << stage;
        if (is_level(n, p)) {
            node_crew_add(c, &p->id, stage, p->beat.queue);
        } else {
            c->late = true;
        }
    }
    note_ahead(n, c);
}

uint64_t node_all_stages(const struct node *n)
{
    return n->terms.stages == 64 ? UINT64_MAX : (1ULL << n->terms.stages) - 1;
}

bool node_crew_behind(const struct node *n, const struct node_crew *c)
{
    return (c->ahead & ~(1ULL << n->stages.own)) != 0;
}

/* ---- moving ------------------------------------------------------------- */

/* Somebody is on its way to a stage: who sees it gone from its old one has
 * another table than it had. */
static bool somebody_moves(const struct node *n)
{
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (is_expected(p, true) && p->has_beat && !p->beat.has_view) {
            return true;
        }
    }
    return false;
}

/* Who goes to another stage before this round; ROUTE_NONE. It is worth it where
 * a host of the other stage has twice the work of one of this, and half a
 * micro-batch more. */
static uint32_t
mover(const struct node *n, const struct node_crew *c, uint32_t *to)
{
    struct route_queue q[PIPELINE_HOSTS_MAX];
    uint64_t work[ROUTE_STAGES_MAX] = {0}, hosts[ROUTE_STAGES_MAX] = {0};
    uint32_t who, from;

    for (uint32_t k = 0; k < c->n; k++) {
        q[k].stage = c->host[k].stage;
        q[k].waiting = c->queue[k];
        work[q[k].stage] += q[k].waiting;
        hosts[q[k].stage]++;
    }
    who = route_moves(q, c->n, n->terms.stages, to);
    if (who == ROUTE_NONE) {
        return ROUTE_NONE;
    }
    from = q[who].stage;
    return work[*to] / hosts[*to] >=
                   2 * work[from] / hosts[from] + NODE_QUEUE_UNIT / 2
               ? who
               : ROUTE_NONE;
}

bool node_crew_rebalance(struct node *n, struct node_crew *c)
{
    uint32_t to = 0, who;

    if (n->held.applied.round == 0 ||
        n->held.applied.round % REBALANCE_ROUNDS != 0 ||
        c->level != node_all_stages(n) || !node_stages_balance(n)) {
        return false;
    }
    who = somebody_moves(n) ? ROUTE_NONE : mover(n, c, &to);
    if (who == ROUTE_NONE) {
        return false;
    }
    if (id_eq(&c->host[who].id, &n->opt.self)) {
        if ((n->terms.stage_fits >> to & 1) == 0) {
            return false;
        }
        node_stage_move(n, to);
        return true;
    }
    c->n--;
    memmove(c->host + who, c->host + who + 1, (c->n - who) * sizeof c->host[0]);
    return false;
}
