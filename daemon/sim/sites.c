/* sites.c - runs with sites: slow edges between them, and a gateway that dies.
 *
 * `sites-gateway` lets the elected member of a site die before one of its
 * actions in or around a round that is under way, drawn from the seed: while it
 * trains, waits, reduces, hashes, votes or applies (the figures died_* count
 * it). The site's others elect another one, in the middle of the round; what is
 * averaged is checked as ever (check.h). With odd seeds nobody says where it
 * stands, and the sites come from measured round trips. Any other scenario runs
 * with sites by
 * `--exchange sites`.
 */
#include <inttypes.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "proto/base/rng.h"

#define SLOWER        4   /* times, between two sites */
#define NEAR_MS       3   /* at most, one way, inside a site */
#define FAR_MS        12  /* at least, between two */
#define ROUND_ACTIONS 700 /* of a gateway, about: a round and a half */

static const char *const phase_names[ROUND_PHASE_COUNT] = {
    "died_training", "died_ready", "died_reducing",
    "died_hashing",  "died_voted", "died_committed"};

/* Two sites for few peers, more for many; the first is the largest. */
uint32_t sim_site(const struct sim *s, uint32_t peer)
{
    return peer % (2 + s->n / 6) + 1;
}

uint64_t sim_sites_rate(const struct sim *s, uint32_t from, uint32_t to)
{
    uint64_t rate = s->world_opt.bytes_per_s;

    return sim_site(s, from) == sim_site(s, to) ? rate : rate / SLOWER;
}

static uint32_t latency(void *self, uint32_t from, uint32_t to)
{
    const struct sim *s = self;
    uint64_t words[] = {s->opt.seed, 0x6e656172, from, to};
    uint32_t draw = (uint32_t)(rng_mix(words, 4) % 1000);

    return sim_site(s, from) == sim_site(s, to) ? 1 + draw % NEAR_MS
                                                : FAR_MS + draw % 50;
}

void sim_sites_options(struct sim *s)
{
    s->local_opt.exchange = EXCHANGE_SITES;
    if (s->opt.seed % 2 == 1) { /* nobody names a site: they are measured */
        s->local_opt.site_rtt_us = 2000 * NEAR_MS;
        s->world_opt.latency = latency;
    }
    s->local_opt.min_peers = s->n > 2 ? s->n - 1 : 1;
}

static const struct round *any_round(const struct sim *s, uint32_t *who)
{
    for (*who = 0; *who < s->n; ++*who) {
        if (s->nodes[*who] != NULL && world_alive(s->world, *who)) {
            return node_parts(s->nodes[*who]).round;
        }
    }
    return NULL;
}

/* The k-th gateway of the last commit, from 0; n: there is none. */
static uint32_t gateway(const struct sim *s, uint32_t k)
{
    uint32_t who;
    const struct round *r = any_round(s, &who);

    for (uint32_t i = 0; r != NULL && i < r->order.n; i++) {
        if (r->order.leads[i] && k-- == 0) {
            return world_find(s->world, &r->order.peer[i]);
        }
    }
    return s->n;
}

static void strike(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint32_t who = gateway(s, (uint32_t)(s->opt.seed % 2));

    if (who == s->n) { /* no round yet */
        world_call(s->world, world_now(s->world) + SIM_ROUND_MS, strike, s,
                   arg);
        return;
    }
    s->gateway.peer = who;
    world_kill_at_action(s->world, who, world_actions(s->world, who) + arg);
}

void sim_sites_setup(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, 3);

    s->gateway.peer = s->n;
    s->gateway.elects = true;
    world_call(s->world, at, strike, s, sim_draw(s, 1, ROUND_ACTIONS));
    s->calm_ms = at + 20 * SIM_ROUND_MS;
    s->restart_after_ms = s->opt.seed % 3 == 0 ? sim_draw(s, 100, 20000) : 0;
    s->fork_fine = s->restart_after_ms == 0 && s->n <= 3;
    if (s->n <= 3) {
        check_allow_forks(s->check);
    }
}

void sim_sites_died(struct sim *s, uint32_t peer)
{
    if (s->gateway.elects && peer == s->gateway.peer &&
        s->gateway.n_struck == 0) {
        const struct round *r = node_parts(s->nodes[peer]).round;

        s->gateway.n_struck = 1;
        s->gateway.struck_phase = r->phase;
        s->gateway.struck_round = r->round;
    }
}

/* Sites that the last plan's members are of, and its gateways. */
static void
count_last(const struct sim *s, uint32_t *n_sites, uint32_t *n_leads)
{
    uint64_t seen = 0;
    uint32_t who;
    const struct round *r = any_round(s, &who);

    *n_sites = *n_leads = 0;
    for (uint32_t i = 0; r != NULL && i < r->order.n; i++) {
        seen |= 1ULL << sim_site(s, world_find(s->world, &r->order.peer[i]));
        *n_leads += r->order.leads[i];
    }
    *n_sites = (uint32_t)__builtin_popcountll(seen);
}

void sim_sites_judge(struct sim *s, struct sim_result *r)
{
    uint32_t n_sites, n_leads, who;
    const struct round *round = any_round(s, &who);

    if (!s->gateway.elects) {
        return;
    }
    for (uint32_t k = 0; k < ROUND_PHASE_COUNT; k++) {
        sim_figure(r, phase_names[k],
                   s->gateway.n_struck > 0 && s->gateway.struck_phase == k,
                   SIM_SUM);
    }
    count_last(s, &n_sites, &n_leads);
    if (round == NULL || round->order.n < 3 || n_sites == round->order.n ||
        n_sites < 2) {
        return; /* a ring is all that is left */
    }
    if (round->ballot->cert.body.n_edges > 0) {
        return; /* three with a broken edge have no ring inside their site */
    }
    if (n_leads != n_sites) {
        check_fail(s->check,
                   "S: the last plan has %u gateways for %u sites of %u "
                   "members, %" PRIu64 " rounds after one died",
                   n_leads, n_sites, round->order.n,
                   round->round - s->gateway.struck_round);
    }
}
