/* nodes.c - one run of whole nodes under a fault of scenarios.c; see sim.h. */
#include "daemon/sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/liars.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "train/sync/codec/codec.h"

#define LINK_BYTES_PER_S (2U << 20) /* of each bulk connection, a direction */
#define POLL_MS          500        /* between two looks whether all is done */
#define LINGER_MS        4000 /* a grace period; all stay finished for that */

uint64_t sim_draw(struct sim *s, uint64_t lo, uint64_t hi)
{
    return lo + rng_below(&s->rng, hi - lo + 1);
}

void sim_fault(struct sim *s)
{
    uint64_t now = world_now(s->world);

    s->calm_ms = s->calm_ms > now ? s->calm_ms : now;
}

uint64_t sim_after_rounds(struct sim *s, uint64_t lo, uint64_t hi)
{
    return SIM_START_MS + 4000 +
           sim_draw(s, lo * SIM_ROUND_MS, hi * SIM_ROUND_MS);
}

uint64_t sim_newest_round(const struct sim *s, uint32_t but)
{
    struct node_status t;
    uint64_t newest = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        if (q != but && world_alive(s->world, q)) {
            node_status(s->nodes[q], &t);
            newest = t.round > newest ? t.round : newest;
        }
    }
    return newest;
}

uint64_t sim_round(const struct sim *s)
{
    struct node_status t;

    node_status(s->nodes[0], &t);
    return t.round;
}

void sim_kill_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    world_kill(s->world, (uint32_t)arg);
}

void sim_strike_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    world_kill(s->world, (uint32_t)arg);
    sim_fault(s);
}

void sim_arm_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    world_kill_at_action(s->world, s->victim, s->at);
}

/* ---- processes ------------------------------------------------------------*/

static void bootstrap(struct sim *s, uint32_t peer, struct node_options *o)
{
    uint32_t first = peer == 0 ? 1 : 0, second = peer <= 1 ? 2 : 1;

    /* The first peer of a run knows nobody; later it has a peers cache. */
    if (peer == 0 && s->lives[0] == 1) {
        return;
    }
    if (first < s->n) {
        o->bootstrap[o->n_bootstrap++] = world_address(s->world, first);
    }
    if (second < s->n) {
        o->bootstrap[o->n_bootstrap++] = world_address(s->world, second);
    }
}

void sim_start(struct sim *s, uint32_t peer)
{
    const struct identity *id = world_identity(s->world, peer);
    uint64_t words[] = {s->opt.seed, 0x6e6f6465, peer, ++s->lives[peer]};
    struct node_options o = {
        .self = id->id,
        .signer = sim_pen(s, peer),
        .run_id = s->run_id,
        .dialable = true,
        .site = s->local_opt.site_rtt_us > 0 ? 0 : sim_site(s, peer),
        .edge_sample_us = 2000, /* vectors are small here */
        .edges = s->n <= VIEW_MEMBERS_MAX ? 4 * s->n * s->n + 16 : 0,
        .timeline =
            s->lines.differ || s->lines.slow_line ? (uint32_t)s->rounds + 1 : 0,
        .listen_port = world_address(s->world, peer).port,
        .relay_bytes_per_hour = 1 << 30,
        .features = s->punch ? HELLO_FEATURES : 0,
        .seed = rng_mix(words, 4),
        .time_scale = 1,
        .audit_every = sim_work_every(s),
    };
    struct core core = {.step = node_step, .deadline = node_deadline};
    int rc;

    memcpy(o.public_key, id->public, sizeof o.public_key);
    if (peer == 0 || s->lives[peer] > 1) {
        o.manifest = s->manifest;
        o.manifest_len = sizeof s->manifest;
    }
    if (s->invited.mixed) { /* every second one is of the release before */
        o.oldest = PROTO_NEWEST - 1;
        o.newest = PROTO_NEWEST - peer % 2;
    }
    bootstrap(s, peer, &o);
    o.record = world_record(s->world, peer, &o.record_len);
    o.peers = local_peers(s->local, peer)->bytes;
    o.peers_len = local_peers(s->local, peer)->len;
    o.chain = local_chain(s->local, peer)->bytes;
    o.chain_len = local_chain(s->local, peer)->len;
    sim_admit(s, peer, &o);
    rc = node_open(&s->nodes[peer], &o, world_now(s->world));
    if (rc != 0) {
        check_fail(s->check, "E: node_open of peer %u: %s", peer,
                   loco_strerror(rc));
        return;
    }
    core.self = s->nodes[peer];
    sim_convicts_started(s, peer);
    sim_work_started(s, peer);
    if (s->liar != NULL && s->liar->who == peer && liars_ask(s->liar)) {
        core = liars_core(s->liar, s->nodes[peer]);
    }
    world_start(s->world, peer, &core);
}

void sim_start_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    if (!world_alive(s->world, (uint32_t)arg)) {
        sim_start(s, (uint32_t)arg);
        sim_fault(s);
    }
}

/* Whether a live peer has a view: otherwise the run itself died. */
static bool run_lives(struct sim *s)
{
    struct node_status status;

    for (uint32_t q = 0; q < s->n; q++) {
        if (world_alive(s->world, q)) {
            node_status(s->nodes[q], &status);
            if (!hash32_is_zero(&status.view_hash)) {
                return true;
            }
        }
    }
    return false;
}

static void on_died(void *self, uint32_t peer)
{
    struct sim *s = self;
    uint64_t back_ms = s->restart_after_ms;

    sim_sites_died(s, peer);
    sim_faults_died(s, peer);
    check_died(s->check, peer);
    node_close(s->nodes[peer]);
    s->nodes[peer] = NULL;
    sim_fault(s);
    if (back_ms == 0 && !run_lives(s)) {
        back_ms = 3000;
    }
    if (back_ms > 0) {
        world_call(s->world, world_now(s->world) + back_ms, sim_start_call, s,
                   peer);
    }
}

static void thaw_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    world_thaw(s->world, (uint32_t)arg);
    sim_fault(s);
}

/* Every other seed of a butterfly has members of unequal speed, who know it
 * from the first round on: as if they had met before. */
static void tell_rates(struct sim *s, uint32_t peer)
{
    struct node *n = s->nodes[peer];
    uint64_t now = world_now(s->world), life = s->lives[peer];
    const struct ballot *b;

    if (s->local_opt.exchange != EXCHANGE_BUTTERFLY || s->opt.seed % 2 == 0 ||
        n == NULL) {
        return;
    }
    b = node_parts(n).ballot;
    if (!b->have || s->lines.told[peer] == (life << 32 | b->cert.body.epoch)) {
        return;
    }
    s->lines.told[peer] = life << 32 | b->cert.body.epoch;
    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        for (uint32_t k = 0; k < b->cert.body.n_members; k++) {
            const struct peer_id *from = &b->ids[i], *to = &b->ids[k];

            node_set_rate(n, from, to,
                          sim_rate(s, world_find(s->world, from),
                                   world_find(s->world, to)),
                          now);
        }
    }
}

static void on_after(void *self,
                     uint32_t peer,
                     const struct event *event,
                     const struct out *out)
{
    struct sim *s = self;

    (void)out;
    if (peer >= s->n) {
        return; /* a stranger */
    }
    if (event->type == EVENT_LOCAL && event->local.rc == 0 &&
        (event->local.type == LOCAL_APPLIED ||
         event->local.type == LOCAL_LOADED)) {
        check_told(s->check, peer);
    }
    check_step(s->check, peer);
    tell_rates(s, peer);
    if (event->type == EVENT_LINK_UP && s->heard_at == 0 &&
        id_eq(&event->link_up.peer, &world_identity(s->world, s->victim)->id)) {
        s->heard_at = world_actions(s->world, s->victim);
    }
    if (s->freeze_ms > 0 && peer == s->victim && !s->frozen_once &&
        world_actions(s->world, peer) >= s->at) {
        s->frozen_once = true;
        world_freeze(s->world, peer);
        world_call(s->world, world_now(s->world) + s->freeze_ms, thaw_call, s,
                   peer);
        s->calm_ms = world_now(s->world) + s->freeze_ms;
    }
}

/* ---- what machines report ----------------------------------------------- */

static const struct node *node_of(void *self, uint32_t peer)
{
    return ((struct sim *)self)->nodes[peer];
}

static void on_stopped(void *self, uint32_t peer, int rc)
{
    struct sim *s = self;

    if (rc != 0 && !sim_may_stop(s, peer, rc) &&
        !sim_twin_may_stop(s, peer, rc)) {
        check_fail(s->check, "E: peer %u stops with code %d", peer, rc);
    }
    world_call(s->world, world_now(s->world), sim_kill_call, s, peer);
}

static void on_logged(void *self, uint32_t peer, int level, const char *text)
{
    struct sim *s = self;

    if (level > 0 || s->opt.print_trace) {
        world_note(s->world, peer, text);
    }
}

/* ---- one run ------------------------------------------------------------ */

static const struct scenario *find_scenario(const char *name)
{
    for (unsigned k = 0; scenarios[k].name != NULL; k++) {
        if (name != NULL && strcmp(scenarios[k].name, name) == 0) {
            return &scenarios[k];
        }
    }
    return NULL;
}

/* Where the type has no blocks, small ones of the ring's; in a butterfly those
 * in which it sums. */
static uint32_t block_of(const struct codec *codec, enum exchange_kind exchange)
{
    return exchange != EXCHANGE_BUTTERFLY && codec->block == 1
               ? 8
               : exchange_block(exchange, codec->block);
}

static void set_defaults(struct sim *s,
                         const struct codec *codec,
                         enum exchange_kind exchange)
{
    static const uint32_t hash_ms[] = {0, 60, 700};
    uint32_t block = block_of(codec, exchange);

    s->world_opt = (struct world_options){
        .seed = s->opt.seed,
        .n_peers = s->n,
        .latency_min_ms = 5,
        .latency_max_ms = 60,
        .jitter_ms = 10,
        .bytes_per_s = LINK_BYTES_PER_S,
        .rate = sim_rate,
        .rate_self = s,
        .dial_timeout_ms = 5000,
        .transport_timeout_ms = 20000,
        .print_trace = s->opt.print_trace,
    };
    s->local_opt = (struct local_options){
        .seed = s->opt.seed,
        .n_peers = s->n,
        .n_params = exchange == EXCHANGE_BUTTERFLY ? 24 * CODEC_PIECE + 100
                    : block > 8                    ? 5 * block + 100
                                                   : 1003,
        .codec = codec->id,
        .block = block,
        .segment_elements = block > 8 ? block : 64,
        .exchange = exchange,
        .period = 5,
        .leases = 1,
        .min_peers = s->n,
        .grace_ms = 3000,
        .fork_after_ms = 30000,
        .eval_every = 1,
        .stop_rounds = s->rounds,
        .n_shards = 2,
        .shard_bytes = 3000,
        .piece_bytes = exchange == EXCHANGE_BUTTERFLY ? 8192 : 512,
        .shards_everywhere = true,
        .step_ms = 100,
        .work_ms = 5,
        /* Seeds take turns; the last one takes longer than a round's steps. */
        .hash_ms = hash_ms[s->opt.seed % 3],
        .save_every = s->opt.seed % 4 == 3 ? 4 : 1,
        .tokens_per_step = 64,
        .lr = 0.7f,
        .mu = 0.9f,
        .manifest = s->manifest,
        .manifest_len = sizeof s->manifest,
    };
    if (exchange == EXCHANGE_BUTTERFLY) { /* seeds take turns */
        s->local_opt.error_feedback = s->opt.seed % 4 >= 2;
        s->local_opt.centred = s->opt.seed % 16 >= 8;
        /* Some of these honest contributions are outside of such a radius. */
        s->local_opt.norm_clip = s->opt.seed % 8 < 4    ? 0
                                 : s->local_opt.centred ? 0.75f
                                                        : 1.5f;
    }
    if (codec_types[codec->id].holds == CODEC_PARTS) { /* rules.def */
        s->local_opt.error_feedback = true;
        s->local_opt.norm_clip = 0;
    }
    s->starters = s->n;
    s->limit_ms = 240000 + s->rounds * 10000;
}

static int settings(struct sim *s, struct sim_result *result)
{
    struct world_options *w = &s->world_opt;
    struct local_options *l = &s->local_opt;
    const struct sim_setting table[] = {
        {"link.latency_min_ms", "", 0, 10000, .u32 = &w->latency_min_ms},
        {"link.latency_max_ms", "", 0, 10000, .u32 = &w->latency_max_ms},
        {"link.jitter_ms", "", 0, 10000, .u32 = &w->jitter_ms},
        {"link.bytes_per_s", "", 1000, 1e11, .u64 = &w->bytes_per_s},
        {"inner.step_ms", "", 1, 1e6, .u32 = &l->step_ms},
        {"disk.save_every", "", 1, 1000, .u32 = &l->save_every},
        {"inner.hash_ms", "", 0, 1e6, .u32 = &l->hash_ms},
        {"sync.period", "", 1, 1e4, .u32 = &l->period},
        {"sync.fragments", "", 1, 16, .u32 = &l->fragments},
        {"sync.overlap", "", 0, 100, .u32 = &l->overlap},
        {"sync.quorum", "", 0, 1, .u32 = &l->quorum},
        {"sync.leases", "", 0, 1, .u32 = &l->leases},
        {"sync.trainers", "", 0, 16, .u32 = &l->trainers},
        {"sync.merge_every", "", 0, 4, .u32 = &l->merge_every},
        {"rollback.misjudge", "", 0, 64, .u32 = &s->misjudge},
        {"sync.rollback_microbits", "", 0, 8e6, .u32 = &l->rollback_microbits},
        {"sync.audit", "", 0, 2, .u32 = &l->audits},
        {"join.state_tenths", "", 1, 1000, .u32 = &s->slow.tenths},
        {"join.shard_tenths", "", 1, 1000, .u32 = &s->shards.tenths},
        {"run.init", "", 0, 1, .u32 = &l->begins},
        {"join.read_tenths", "", 1, 1000, .u32 = &s->shards.read_tenths},
        {"audit.percent", "", 1, 100, .u32 = &l->missum_percent},
        {"work.kind", "", 1, 15, .u32 = &s->work.kind},
        {"work.every", "", 1, 1000, .u32 = &s->work.every},
        {"work.liars", "", 1, SIM_LIARS_MAX, .u32 = &s->work.liars},
        {"idle.kind", "", 1, 16, .u32 = &s->idle.kind},
        {"idle.liars", "", 1, SIM_LIARS_MAX, .u32 = &s->idle.liars},
        {"convicts.kind", "", 1, 9, .u32 = &s->trial_kind},
        {"convicts.accusers", "", 1, 64, .u32 = &s->accusers},
        {"liar.kind", "", 1, LIE_ALL, .u32 = &s->lie},
        {"round.min_peers", "", 1, 4096, .u32 = &l->min_peers},
        {"round.grace_ms", "", 0, 1e6, .u32 = &l->grace_ms},
        {"round.fork_after_ms", "", 0, 1e7, .u32 = &l->fork_after_ms},
        {"probation_rounds", "", 0, 1000, .u32 = &l->probation_rounds},
    };

    return sim_settings(&s->opt, table, sizeof table / sizeof table[0], result);
}

/* NULL: a ring where it can carry that; false: no such name. */
static bool read_exchange(const char *name,
                          const struct codec *codec,
                          enum exchange_kind *kind)
{
    if (name == NULL) {
        *kind = codec_adds(codec) ? EXCHANGE_RING : EXCHANGE_BUTTERFLY;
        return true;
    }
    *kind = strcmp(name, "sites") == 0       ? EXCHANGE_SITES
            : strcmp(name, "butterfly") == 0 ? EXCHANGE_BUTTERFLY
                                             : EXCHANGE_RING;
    return *kind != EXCHANGE_RING || strcmp(name, "ring") == 0;
}

static struct local_calls calls_of(struct sim *s)
{
    return (struct local_calls){
        .self = s,
        .node = node_of,
        .stopped = on_stopped,
        .logged = on_logged,
        .convicted = sim_work_convicted,
    };
}

static int
make(struct sim *s, const struct scenario *sc, struct sim_result *result)
{
    const struct codec *codec =
        codec_find(s->opt.wire == NULL ? "bf16" : s->opt.wire);
    const struct world_calls wc = {s, on_died, on_after};
    const struct local_calls lc = calls_of(s);
    struct check_options co;
    enum exchange_kind exchange;
    uint64_t rng = s->opt.seed ^ 0x6d616e;
    int rc;

    if (codec == NULL || !read_exchange(s->opt.exchange, codec, &exchange)) {
        (void)snprintf(result->violation, sizeof result->violation,
                       "--wire wants %s, --exchange ring, butterfly or sites",
                       codec_names);
        return LOCO_EINVAL;
    }
    if (sc->options == options_audit || sc->options == options_silence ||
        sc->options == options_work || sc->options == options_astray) {
        exchange = EXCHANGE_BUTTERFLY; /* others have no owners */
    }
    if (exchange != EXCHANGE_BUTTERFLY && !codec_adds(codec)) {
        return LOCO_EINVAL;
    }
    s->nodes = world_alloc(s->n * sizeof(struct node *));
    s->lives = world_alloc(s->n * sizeof *s->lives);
    s->group = world_alloc(s->n * sizeof *s->group);
    s->lines.told = world_alloc(s->n * sizeof *s->lines.told);
    for (uint32_t i = 0; i < sizeof s->manifest; i++) {
        s->manifest[i] = (uint8_t)rng_next(&rng);
    }
    hash_bytes("loco-run-1", s->manifest, sizeof s->manifest, &s->run_id);
    set_defaults(s, codec, exchange);
    if (sc->options != NULL) {
        sc->options(s);
    }
    rc = settings(s, result);
    rc = rc != 0 ? rc : sim_work_made(s, result);
    if (rc != 0) {
        return rc;
    }
    sim_shards_made(s);
    sim_liars_made(s);
    sim_convicts_made(s);
    if (s->local_opt.trainers > 0) { /* models of one size */
        s->local_opt.n_params -= s->local_opt.n_params % s->local_opt.trainers;
    }
    s->world_opt.n_peers = s->n + s->n_strangers;
    rc = world_open(&s->world, &s->world_opt, &wc);
    co = (struct check_options){.world = s->world,
                                .n_peers = s->n,
                                .n_params = local_most(&s->local_opt),
                                .block = s->local_opt.block,
                                .segment_elements =
                                    s->local_opt.segment_elements,
                                .codec = codec->id,
                                .exchange = s->local_opt.exchange,
                                .norm_clip = s->local_opt.norm_clip,
                                .centred = s->local_opt.centred,
                                .raw = local_raw(&s->local_opt),
                                .sim = s,
                                .missums = s->missums,
                                .nodes = s->nodes};
    rc = rc == 0 ? check_open(&s->check, &co) : rc;
    rc = rc == 0 ? local_open(&s->local, s->world, &s->local_opt, &lc) : rc;
    if (rc == 0) {
        check_set_local(s->check, s->local);
    }
    return rc;
}

static uint32_t n_finished(struct sim *s)
{
    struct node_status status;
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        if (world_alive(s->world, q)) {
            node_status(s->nodes[q], &status);
            n += status.round >= s->rounds;
        }
    }
    return n;
}

static void check_beyond_the_end(struct sim *s)
{
    struct node_status status;

    for (uint32_t q = 0; q < s->n; q++) {
        if (world_alive(s->world, q)) {
            node_status(s->nodes[q], &status);
            if (status.round > s->rounds) {
                check_fail(s->check,
                           "E: peer %u is at round %" PRIu64
                           " of a run of %" PRIu64,
                           q, status.round, s->rounds);
            }
        }
    }
}

/* All have finished, and for a while no further round was begun. */
static bool stays_finished(struct sim *s)
{
    uint64_t now = world_now(s->world);

    if (!check_finished(s->check, s->rounds, s->fork_fine, s->why)) {
        s->finished_ms = 0; /* one has started again, perhaps */
        return false;
    }
    s->finished_ms = s->finished_ms == 0 ? now : s->finished_ms;
    return now - s->finished_ms >= LINGER_MS;
}

static void poll_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    check_beyond_the_end(s);
    if (world_now(s->world) >= s->calm_ms) {
        s->done = s->need > 0 ? n_finished(s) >= s->need : stays_finished(s);
    }
    world_call(s->world, world_now(s->world) + POLL_MS, poll_call, s, 0);
}

/* Summed over the live peers; *detected_ms: the slowest detection of a loss. */
struct totals {
    uint64_t rounds, aborted, malformed, inherited;
    uint32_t detected_ms;
};

static struct totals totals_of(struct sim *s)
{
    struct node_status status;
    struct totals t = {0};

    for (uint32_t q = 0; q < s->n; q++) {
        if (!world_alive(s->world, q)) {
            continue;
        }
        node_status(s->nodes[q], &status);
        t.rounds = status.round > t.rounds ? status.round : t.rounds;
        t.aborted += status.rounds_aborted;
        t.malformed += status.malformed;
        t.inherited += status.elements_inherited;
        for (uint32_t k = 0; k < status.n_lost && k < NODE_LOST_MAX; k++) {
            if (status.lost[k].detected_ms > t.detected_ms) {
                t.detected_ms = status.lost[k].detected_ms;
            }
        }
    }
    return t;
}

static void collect(struct sim *s, struct sim_result *r)
{
    const struct world_stats *stats = world_stats(s->world);
    struct totals t = totals_of(s);

    r->trace_hash = world_trace_hash(s->world);
    r->invariants_checked = check_count(s->check);
    r->at = s->at;
    sim_figure(r, "rounds", (double)t.rounds, SIM_MIN);
    sim_figure(r, "commits", (double)check_commits(s->check), SIM_SUM);
    sim_figure(r, "inherited", (double)t.inherited, SIM_SUM);
    sim_figure(r, "twice", (double)check_twice(s->check), SIM_SUM);
    sim_figure(r, "unleased", (double)check_unleased(s->check), SIM_SUM);
    sim_figure(r, "aborted", (double)t.aborted, SIM_SUM);
    sim_figure(r, "virtual_ms", (double)(world_now(s->world) - SIM_START_MS),
               SIM_SUM);
    sim_figure(r, "steps", (double)stats->steps, SIM_SUM);
    sim_figure(r, "messages", (double)stats->messages, SIM_SUM);
    sim_figure(r, "segments", (double)stats->segments, SIM_SUM);
    sim_figure(r, "detected_ms_max", t.detected_ms, SIM_MAX);
    sim_figure(r, "malformed", (double)t.malformed, SIM_SUM);
    sim_figure(r, "at", (double)s->at, SIM_MAX);
}

static void print_peers(struct sim *s)
{
    struct node_status t;

    for (uint32_t q = 0; q < s->n && q < 64; q++) {
        if (!world_alive(s->world, q)) {
            fprintf(stderr, "  peer %2u dead\n", q);
            continue;
        }
        node_status(s->nodes[q], &t);
        fprintf(stderr,
                "  peer %2u%s %-9s round %" PRIu64 " epoch %" PRIu64
                " view %016" PRIx64 "%s params %016" PRIx64
                " members %u alive %u aborted %" PRIu64 " %s\n",
                q, world_frozen(s->world, q) ? " frozen" : "",
                node_state_name(t.state), t.round, t.epoch,
                hash32_u64(&t.view_hash), t.fork ? " FORK" : "",
                hash32_u64(&t.params_hash), t.peers_in_round, t.peers_alive,
                t.rounds_aborted, t.reason);
    }
}

static void report(struct sim *s, struct sim_result *r)
{
    const char *what = check_violation(s->check);

    r->violations = 1;
    (void)snprintf(r->violation, sizeof r->violation, "%s", what);
    if (s->opt.quiet_failure) {
        return;
    }
    world_print_trace(s->world);
    print_peers(s);
    fprintf(stderr,
            "sim: VIOLATION %s\n"
            "sim: scenario %s, --peers %u --rounds %" PRIu64 " --seed %" PRIu64
            " --at %" PRIu64 ", at %" PRIu64 " ms, step %" PRIu64 "\n",
            what, s->opt.scenario, s->n, s->rounds, s->opt.seed, s->at,
            world_now(s->world), world_stats(s->world)->steps);
}

static void run(struct sim *s)
{
    for (uint32_t i = 0; i < s->starters; i++) {
        world_call(s->world, SIM_START_MS + 20 * i, sim_start_call, s, i);
    }
    world_call(s->world, SIM_START_MS + POLL_MS, poll_call, s, 0);
    while (!s->done && check_violation(s->check) == NULL) {
        uint64_t more_ms = s->finished_ms != 0 ? LINGER_MS + POLL_MS : 0;

        if (world_step(s->world, s->calm_ms + s->limit_ms + more_ms)) {
            continue;
        }
        if (world_stats(s->world)->storms > 0) {
            check_fail(s->check, "F: peers answer each other without end: %s",
                       s->why);
        } else {
            check_fail(s->check,
                       "E: not done %" PRIu64 " ms after the last fault: %s",
                       s->limit_ms, s->why);
        }
    }
}

/* A core that spins still does its work, so this is looked at last. */
static void check_spins(struct sim *s)
{
    if (world_stats(s->world)->spins > 0) {
        check_fail(s->check,
                   "F: %" PRIu64 " times a deadline in the past did not move "
                   "on after a tick: a shell would burn a core",
                   world_stats(s->world)->spins);
    }
}

/* A pair without an edge is no reason for one view after another. */
static void check_churn(struct sim *s)
{
    struct node_status t;

    for (uint32_t q = 0; q < s->n && s->epochs_max > 0; q++) {
        if (world_alive(s->world, q)) {
            node_status(s->nodes[q], &t);
            if (t.epoch > s->epochs_max) {
                check_fail(s->check,
                           "H: peer %u is in view %" PRIu64
                           ", more than %" PRIu64 " are churn",
                           q, t.epoch, s->epochs_max);
            }
        }
    }
}

/* Where nothing breaks, no attempt at a round may fail (aborts_max: or some).
 */
static void check_quiet(struct sim *s)
{
    struct node_status t;

    for (uint32_t q = 0; q < s->n && (s->quiet || s->faults.aborts_max > 0);
         q++) {
        if (world_alive(s->world, q)) {
            node_status(s->nodes[q], &t);
            if (t.rounds_aborted > s->faults.aborts_max) {
                check_fail(s->check,
                           "H: peer %u aborted %" PRIu64
                           " attempts and nothing had failed",
                           q, t.rounds_aborted);
            }
        }
    }
    if (s->quiet && world_stats(s->world)->unposted > 0) {
        check_fail(s->check, "H: a frame was never posted");
    }
}

/* What a peer has learnt of an edge is its speed. */
static void check_map(struct sim *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        const struct bandwidth *map;

        if (!world_alive(s->world, q) || s->lines.slow_rounds > 0) {
            continue; /* or speeds changed: the segments on their way misled */
        }
        map = node_bandwidth(s->nodes[q]);
        for (uint32_t i = 0; i < map->cap; i++) {
            const struct bandwidth_row *r = &map->row[i];
            uint64_t rate = r->bytes_per_s, truth;

            if (!r->used || r->confidence == 0) {
                continue;
            }
            truth = sim_rate(s, world_find(s->world, &r->from),
                             world_find(s->world, &r->to));
            if (rate < truth * 9 / 10 || rate > truth * 11 / 10) {
                check_fail(s->check,
                           "M: peer %u takes an edge for one of %" PRIu64
                           " bytes a second",
                           q, rate);
                return;
            }
        }
    }
}

/* With one victim it alone can be known to be why an attempt failed, or who has
 * a slow disk. (What it
 * says itself of the others after a freeze is another matter.) */
static void check_blame(struct sim *s)
{
    const struct peer_id *victim = &world_identity(s->world, s->victim)->id;
    const struct peer_id *too =
        &world_identity(s->world, s->faults.victim_too)->id;
    const struct timeline_attempt *a;

    for (uint32_t q = 0; q < s->n && s->at > 0; q++) {
        for (uint32_t back = 0;
             q != s->victim && q != s->faults.victim_too &&
             world_alive(s->world, q) &&
             (a = timeline_at(node_timeline(s->nodes[q]), back)) != NULL;
             back++) {
            const struct peer_id *who = &a->member[a->culprit].id;

            if (a->guilt >= TIMELINE_LEFT && !id_eq(who, victim) &&
                !id_eq(who, too) &&
                !world_disk_is_slow(s->world, world_find(s->world, who))) {
                check_fail(s->check,
                           "T: peer %u blames peer %u for round %" PRIu64, q,
                           world_find(s->world, who), a->round);
                return;
            }
        }
    }
}

/* Everybody knows whether it can be dialled, and who cannot meets at a relay.
 */
static void check_nat(struct sim *s)
{
    struct node_status t;
    uint32_t n_nat = 0, relayed = 0;

    for (uint32_t q = 0; q < s->n && s->nat; q++) {
        bool nat = world_nat(s->world, q) != WORLD_OPEN;

        n_nat += nat;
        if (!world_alive(s->world, q)) {
            continue;
        }
        node_status(s->nodes[q], &t);
        relayed += t.links_relayed;
        if (nat != (t.reach == REACH_RESTRICTED || t.reach == REACH_RELAYED) ||
            nat == (t.reach == REACH_PUBLIC)) {
            check_fail(s->check,
                       "N: peer %u, behind NAT: %d, thinks that it "
                       "is of class %d",
                       q, nat, (int)t.reach);
        }
    }
    if (s->direct && relayed > 0) {
        check_fail(s->check, "N: %u links still go through a relay", relayed);
    }
    if ((n_nat > 1 || s->direct) && world_stats(s->world)->relayed == 0) {
        check_fail(s->check, "N: two peers behind NAT and no relay");
    }
}

static void destroy(struct sim *s)
{
    for (uint32_t i = 0; i < s->n && s->nodes != NULL; i++) {
        node_close(s->nodes[i]);
    }
    local_close(s->local);
    check_close(s->check);
    world_close(s->world);
    free(s->nodes);
    free(s->lives);
    free(s->group);
    free(s->lines.told);
    free(s->strangers);
    free(s->claims);
    free(s->liar);
    free(s->crowd);
    free(s->trial);
    free(s->pens);
    free(s);
}

/* The victim's action: of its own stream of draws, so that a run with `--at` is
 * the same run. Struck before anybody has a link to it, an only bootstrap that
 * comes back leaves the other peer to give up, and rightly so: not that early.
 */
static uint64_t draw_at(const struct sim *s, const struct sim_result *before)
{
    bool back = s->restart_after_ms > 0 || s->freeze_ms > 0;
    bool only_bootstrap = s->n == 2 && s->victim == 0;
    uint64_t from = back && only_bootstrap ? before->victim_heard : 0;
    uint64_t rng = s->opt.seed ^ 0x6174;

    return from + 1 + rng_below(&rng, before->victim_actions - from);
}

/* before: of the run without faults, which this is if `base`. */
static int run_once(const struct sim_options *opt,
                    const struct scenario *sc,
                    const struct sim_result *before,
                    bool base,
                    struct sim_result *result)
{
    struct sim *s = world_alloc(sizeof *s);
    int rc;

    memset(result, 0, sizeof *result);
    s->opt = *opt;
    s->n = opt->peers > 0 ? opt->peers : sc->peers;
    s->rounds = opt->rounds > 0 ? opt->rounds : sc->rounds;
    s->rng = opt->seed ^ 0x73696d;
    s->victim = s->faults.victim_too = (uint32_t)(opt->seed % s->n);
    rc = make(s, sc, result);
    if (rc == 0) {
        if (sc->setup != NULL && !base) {
            sc->setup(s);
        }
        if (sc->needs_base && !base) {
            s->at = opt->at > 0 ? opt->at : draw_at(s, before);
        }
        run(s);
        check_spins(s);
        check_nat(s);
        sim_nat_judge(s, result);
        check_quiet(s);
        check_blame(s);
        check_map(s);
        check_churn(s);
        check_sources(s);
        check_invited(s);
        check_twin(s);
        check_strangers(s);
        check_rollbacks(s);
        check_audits(s);
        sim_audit_judge(s, result);
        check_work(s);
        sim_work_judge(s, result);
        check_silence(s);
        check_astray(s);
        check_idle(s);
        sim_convicts_judge(s);
        collect(s, result);
        sim_claims_judge(s, result);
        sim_links_judge(s, result);
        sim_sites_judge(s, result);
        sim_faults_judge(s, result);
        sim_liars_judge(s, result);
        sim_slow_judge(s, result);
        sim_shards_judge(s, result);
        result->victim_actions =
            base ? world_actions(s->world, s->victim) : before->victim_actions;
        result->victim_heard = base ? s->heard_at : before->victim_heard;
        if (check_violation(s->check) != NULL) {
            report(s, result);
            rc = 1;
        }
    }
    destroy(s);
    return rc;
}

int sim_nodes_run(const struct sim_options *opt, struct sim_result *result)
{
    const struct scenario *sc = find_scenario(opt->scenario);
    struct sim_result before = {0};
    int rc;

    if (sc == NULL || opt->peers > 4096) {
        (void)snprintf(result->violation, sizeof result->violation,
                       "at most 4096 peers");
        return LOCO_EINVAL;
    }
    if (sc->needs_base && opt->at == 0) {
        rc = run_once(opt, sc, &before, true, result);
        if (rc != 0) {
            return rc;
        }
        before = *result;
    }
    return run_once(opt, sc, &before, false, result);
}
