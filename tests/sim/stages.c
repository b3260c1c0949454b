/* stages.c - whole nodes (daemon/node.h) in a run with stages, under faults;
 * see stages.h for what must hold.
 *
 * fault 0 none, 1 kill (at any action of the victim), 2 kill and restart, 3
 * freeze, 4 links drop, 5 peers join, 6 unequal machines (rebalancing), 7 all
 * hosts of a stage die and come back with their checkpoints, 8 all hosts of a
 * stage but one die and newcomers take their places, 9 all start at once, 10
 * any of these, 11 the trainer of one hangs for minutes though its process
 * lives, 12 one of a stage's two hosts is frozen, the other goes on alone, dies
 * and comes back while the first still stands where it was.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node_internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "tests/sim/stages.h"
#include "tests/sim/world_internal.h"
#include "train/sync/codec.h"

#define POLL_MS  500
#define LIMIT_MS 900000

enum fault {
    PLAIN,
    KILL,
    RESTART,
    FREEZE,
    DROPS,
    JOIN,
    UNEQUAL,
    STAGE_LOST,
    STARVED,
    AT_ONCE,
    ALL,
    HANG,
    STRANDED,
    FAULTS
};

static uint64_t draw(struct stages *s, uint64_t n)
{
    return rng_below(&s->rng, n);
}

static void note_fault(struct stages *s)
{
    s->calm_ms = world_now(s->world);
}

/* ---- processes -------------------------------------------------------- */

static void start(void *data, uint64_t number)
{
    struct stages *s = data;
    struct stages_peer *p = &s->peers[number];
    uint32_t peer = (uint32_t)number;
    const struct identity *id = world_identity(s->world, peer);
    uint64_t words[] = {s->opt.seed, 0x73746167, number, p->lives + 1};
    struct node_options o = {
        .self = id->id,
        .signer = signer_keyed(id),
        .run_id = s->run_id,
        .dialable = true,
        .listen_port = world_address(s->world, peer).port,
        .seed = rng_mix(words, 4),
        .time_scale = 1,
    };
    struct core core = {.step = node_step, .deadline = node_deadline};

    if (world_alive(s->world, peer)) {
        return;
    }
    p->lives++;
    p->moves = 0;
    memset(&p->seen, 0, sizeof p->seen);
    p->seen_ms = world_now(s->world);
    memcpy(o.public_key, id->public, sizeof o.public_key);
    if (number == 0 || p->lives > 1) {
        o.manifest = s->manifest;
        o.manifest_len = sizeof s->manifest;
    }
    for (uint32_t q = 0; q < 3 && q < s->n; q++) {
        if (q != number && (number > 0 || p->lives > 1)) {
            o.bootstrap[o.n_bootstrap++] = world_address(s->world, q);
        }
    }
    o.record = world_record(s->world, peer, &o.record_len);
    o.peers = p->n_cache > 0 ? p->cache : NULL;
    o.peers_len = p->n_cache;
    o.chain = p->chain;
    o.chain_len = p->n_chain;
    if (node_open(&p->node, &o, world_now(s->world)) != 0) {
        stages_fail(s, "node_open of peer %u failed", peer);
        return;
    }
    core.self = p->node;
    world_start(s->world, peer, &core);
    note_fault(s);
}

static uint32_t n_alive(const struct stages *s)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        n += world_alive(s->world, q);
    }
    return n;
}

/* Live hosts of that stage (from 1), as they say. */
static uint32_t n_hosts(const struct stages *s, uint32_t stage)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        n += world_alive(s->world, q) && s->peers[q].seen.stage == stage;
    }
    return n;
}

static uint64_t newest_round(const struct stages *s)
{
    uint64_t round = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        round = s->peers[q].seen.round > round ? s->peers[q].seen.round : round;
    }
    return round;
}

/* Only who held a stage's state can bring it back, and a run begins with as
 * many as it asks for. */
static bool must_return(const struct stages *s, uint32_t peer)
{
    uint32_t stage = s->peers[peer].seen.stage;

    return s->fault == RESTART || s->fault == STAGE_LOST || s->fault == ALL ||
           s->fault == STRANDED || stage == 0 || n_hosts(s, stage) == 0 ||
           newest_round(s) == 0;
}

static void on_died(void *self, uint32_t peer)
{
    struct stages *s = self;
    uint64_t back_ms = 1000 + draw(s, 8000);
    uint32_t stage = s->peers[peer].seen.stage;

    local_died(s->local, peer);
    node_close(s->peers[peer].node);
    s->peers[peer].node = NULL;
    note_fault(s);
    if (stage > 0 && n_hosts(s, stage) == 0) {
        stages_stage_died(s, stage);
        if (s->fault == STAGE_LOST && newest_round(s) < s->rounds) {
            s->lost_stage = stage; /* else nobody waits for it */
        }
    }
    if (s->fault == STAGE_LOST) {
        back_ms += 15000;
    }
    if (must_return(s, peer)) {
        world_call(s->world, world_now(s->world) + back_ms, start, s, peer);
    }
}

static void on_after(void *self,
                     uint32_t peer,
                     const struct event *event,
                     const struct out *out)
{
    (void)out;
    stages_check_step(self, peer, event);
}

/* ---- the machines ----------------------------------------------------- */

static void on_local(void *self,
                     uint32_t peer,
                     const struct action *a,
                     const struct out *out)
{
    struct stages *s = self;
    struct stages_peer *p = &s->peers[peer];

    if (a->type == ACTION_PEERS && a->len <= STAGES_PEERS_BYTES) {
        p->n_cache = a->len;
        memcpy(p->cache, out->bytes + a->bytes, a->len);
    }
    if (a->type == ACTION_CHAIN) {
        free(p->chain);
        p->chain = world_alloc(a->len);
        p->n_chain = a->len;
        memcpy(p->chain, out->bytes + a->bytes, a->len);
    }
    local_action(s->local, peer, a, out);
}

static void on_timer(void *self, uint32_t peer, uint64_t token)
{
    local_timer(((struct stages *)self)->local, peer, token);
}

static size_t on_wire_len(void *self, uint32_t peer, const struct segment *seg)
{
    return local_wire_len(((struct stages *)self)->local, peer, seg);
}

static int
on_fill(void *self, uint32_t peer, const struct segment *seg, uint8_t *dst)
{
    return local_fill(((struct stages *)self)->local, peer, seg, dst);
}

static int on_take(void *self,
                   uint32_t peer,
                   const struct segment *seg,
                   const uint8_t *src,
                   size_t len)
{
    return local_take(((struct stages *)self)->local, peer, seg, src, len);
}

static int on_sum(void *self, uint32_t peer, struct segment *seg)
{
    return local_sum(((struct stages *)self)->local, peer, seg);
}

static void on_contributed(void *self, const struct local_contribution *k)
{
    (void)self;
    (void)k;
}

static void on_applied(void *self, uint32_t peer, const struct local_applied *a)
{
    (void)self;
    (void)peer;
    (void)a;
}

static void on_loaded(void *self,
                      uint32_t peer,
                      uint64_t round,
                      const struct hash32 *params)
{
    (void)self;
    (void)peer;
    (void)round;
    (void)params;
}

static void
on_describe(void *self, uint32_t peer, uint64_t *tokens, struct hash32 *commit)
{
    struct stages *s = self;
    struct node_status status;

    node_status(s->peers[peer].node, &status);
    *tokens = status.run_tokens;
    *commit = status.commit_hash;
}

static void stop(void *data, uint64_t number)
{
    struct stages *s = data;

    if (world_alive(s->world, (uint32_t)number)) {
        world_kill(s->world, (uint32_t)number);
        world_call(s->world, world_now(s->world) + 3000, start, s, number);
    }
}

static void on_stopped(void *self, uint32_t peer, int rc)
{
    struct stages *s = self;

    if (rc != LOCO_EXIT_NETWORK) { /* nobody was there: a person tries again */
        stages_fail(s, "peer %u stops with code %d", peer, rc);
        return;
    }
    world_call(s->world, world_now(s->world), stop, s, peer);
}

static void on_logged(void *self, uint32_t peer, int level, const char *text)
{
    struct stages *s = self;

    (void)level;
    world_note(s->world, peer, text);
}

/* ---- faults ----------------------------------------------------------- */

static void thaw(void *data, uint64_t q)
{
    struct stages *s = data;

    if (world_alive(s->world, (uint32_t)q) &&
        world_frozen(s->world, (uint32_t)q)) {
        world_thaw(s->world, (uint32_t)q);
    }
    note_fault(s);
}

static void kill_one(struct stages *s, uint32_t q)
{
    uint32_t stage = s->peers[q].seen.stage;

    bool kept = s->peers[q].seen.round >= 2; /* a checkpoint is written */

    if (s->fault == RESTART || s->fault == ALL ? kept : n_hosts(s, stage) > 1) {
        world_kill_at_action(s->world, q, 1 + draw(s, 60));
    }
}

static void strike(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint32_t q = (uint32_t)draw(s, s->starters), other;
    uint32_t fault =
        s->fault == ALL ? KILL + (uint32_t)draw(s, DROPS) : s->fault;

    (void)arg;
    if (!world_alive(s->world, q) || world_frozen(s->world, q)) {
        return;
    }
    note_fault(s);
    if (fault == KILL || fault == RESTART) {
        kill_one(s, q);
    } else if (fault == FREEZE) {
        world_freeze(s->world, q);
        world_call(s->world, world_now(s->world) + 500 + draw(s, 12000), thaw,
                   s, q);
    } else if (fault == DROPS) {
        other = (q + 1 + (uint32_t)draw(s, s->n - 1)) % s->n;
        world_drop_bulk(s->world, q, other);
        world_drop_links(s->world, q, other);
    }
}

/* All hosts of a stage, or all but one, within a moment. */
static void strike_stage(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint32_t stage = 1 + (uint32_t)draw(s, s->stages), kept = 0;

    if (s->peers[0].seen.round == 0 && arg < 200) { /* not begun yet */
        world_call(s->world, world_now(s->world) + POLL_MS, strike_stage, s,
                   arg + 1);
        return;
    }
    for (uint32_t q = 0; q < s->n; q++) {
        if (!world_alive(s->world, q) || s->peers[q].seen.stage != stage) {
            continue;
        }
        if (s->fault == STAGE_LOST || kept > 0) {
            world_kill_at_action(s->world, q, 1 + draw(s, 30));
        } else {
            kept++;
        }
    }
}

/* ---- one that stays behind -------------------------------------------- */

static void kill_call(void *data, uint64_t q)
{
    struct stages *s = data;

    if (world_alive(s->world, (uint32_t)q)) {
        world_kill_at_action(s->world, (uint32_t)q, 1 + draw(s, 60));
    }
}

/* The live hosts of that stage (from 1), if they are two: by id. */
static bool two_hosts(const struct stages *s, uint32_t stage, uint32_t q[2])
{
    uint32_t n = 0, first;

    for (uint32_t k = 0; k < s->n && n_hosts(s, stage) == 2; k++) {
        if (world_alive(s->world, k) && s->peers[k].seen.stage == stage) {
            q[n++] = k;
        }
    }
    if (n == 2 && id_cmp(&world_identity(s->world, q[0])->id,
                         &world_identity(s->world, q[1])->id) > 0) {
        first = q[0];
        q[0] = q[1];
        q[1] = first;
    }
    return n == 2;
}

/* The lower id may go on alone, as one half of the view; then it dies, early
 * enough not to have come to the end of the run: who finds no view then is no
 * longer asked for one (p2p/PIPELINE.md). */
static void strand(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint64_t now = world_now(s->world), dies_ms = 6000 + draw(s, 6000);
    uint32_t q[2];

    if (s->peers[0].seen.round == 0 ||
        !two_hosts(s, 1 + (uint32_t)draw(s, s->stages), q)) {
        if (arg < 200) {
            world_call(s->world, now + POLL_MS, strand, s, arg + 1);
        }
        return;
    }
    note_fault(s);
    world_freeze(s->world, q[1]);
    world_call(s->world, now + dies_ms, kill_call, s, q[0]);
    world_call(s->world, now + dies_ms + draw(s, 12000), thaw, s, q[1]);
}

/* ---- a trainer that hangs --------------------------------------------- */

#define HANG_MS     180000
#define HANG_ROUNDS 3 /* that the others make of it at least */

static void hang_over(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint64_t made = newest_round(s) - s->hung_at;

    (void)arg;
    note_fault(s);
    if (made < HANG_ROUNDS && newest_round(s) < s->rounds) {
        stages_fail(s, "H: %" PRIu64 " rounds in %d s in which a trainer hung",
                    made, HANG_MS / 1000);
    }
}

/* Of a host that its stage can do without. */
static void hang_one(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint32_t q = (uint32_t)draw(s, s->n);

    if (s->peers[0].seen.round == 0 || n_hosts(s, s->peers[q].seen.stage) < 2) {
        if (arg < 200) {
            world_call(s->world, world_now(s->world) + POLL_MS, hang_one, s,
                       arg + 1);
        }
        return;
    }
    s->hung_at = newest_round(s);
    s->hung_peer = q + 1;
    local_hang(s->local, q, HANG_MS);
    world_call(s->world, world_now(s->world) + HANG_MS, hang_over, s, 0);
}

/* The hosts of some stage turn out to be slow. */
static void slow_stage(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint32_t stage = 1 + (uint32_t)(s->opt.seed % s->stages);

    if (s->peers[0].seen.round == 0 && arg < 200) { /* not begun yet */
        world_call(s->world, world_now(s->world) + POLL_MS, slow_stage, s,
                   arg + 1);
        return;
    }
    for (uint32_t q = 0; q < s->n; q++) {
        if (s->peers[q].seen.stage == stage) {
            local_slow(s->local, q, 12);
        }
    }
}

static void schedule(struct stages *s)
{
    uint64_t span = 8000 + s->rounds * 2500;

    for (uint32_t q = 0; q < s->starters; q++) {
        world_call(s->world, 100 + (s->fault == AT_ONCE ? 0 : 400ULL * q),
                   start, s, q);
    }
    for (uint32_t k = 0; k < s->n_faults; k++) {
        world_call(s->world, 4000 + draw(s, span), strike, s, k);
    }
    for (uint32_t q = s->starters; q < s->n; q++) {
        world_call(s->world, 8000 + draw(s, span), start, s, q);
    }
    if (s->fault == STAGE_LOST || s->fault == STARVED) {
        world_call(s->world, 6000 + draw(s, span / 2), strike_stage, s, 0);
    }
    if (s->fault == UNEQUAL) {
        world_call(s->world, 2000, slow_stage, s, 0);
    }
    if (s->fault == HANG) {
        world_call(s->world, 4000 + draw(s, span / 2), hang_one, s, 0);
    }
    if (s->fault == STRANDED) {
        world_call(s->world, 4000 + draw(s, 4000), strand, s, 0);
    }
}

/* ---- one run ---------------------------------------------------------- */

static void poll(void *data, uint64_t arg)
{
    struct stages *s = data;
    char why[SIM_TEXT_MAX];
    uint64_t now = world_now(s->world);

    (void)arg;
    stages_check_all(s);
    s->done = now > 8000 + s->rounds * 1200 && now > s->calm_ms + 3000 &&
              stages_finished(s, why, sizeof why);
    if (!s->done) {
        world_call(s->world, now + POLL_MS, poll, s, 0);
    }
}

/* What each machine is like. */
static struct local_options machines_of(struct stages *s)
{
    return (struct local_options){
        .piece_bytes = 512,
        .seed = s->opt.seed,
        .n_peers = s->n,
        .n_params = 403,
        .codec = CODEC_BF16,
        .block = 8,
        .segment_elements = 64,
        .stages = s->stages,
        .micro_batches = 3,
        .pipe_slots = 2 + (uint32_t)(s->opt.seed % 3),
        .cut_elements = 40,
        .cut_segment = 16,
        .forward_ms = 10,
        .eval_micros = 3 + (uint32_t)(s->opt.seed % 5) * 9,
        .eval_every = s->eval_every,
        .period = 4,
        .min_peers = s->fault == ALL ? s->stages : s->starters,
        .grace_ms = 3000,
        .fork_after_ms = 30000,
        .stop_rounds = s->rounds,
        .n_shards = 2,
        .shard_bytes = 3000,
        .step_ms = 20,
        .work_ms = 5,
        .tokens_per_step = 64,
        .lr = 0.7F,
        .mu = 0.5F,
        .manifest = s->manifest,
        .manifest_len = sizeof s->manifest};
}

static int make(struct stages *s)
{
    const struct world_options wo = {.seed = s->opt.seed,
                                     .n_peers = s->n,
                                     .latency_min_ms = 5,
                                     .latency_max_ms = 40,
                                     .jitter_ms = 10,
                                     .bytes_per_s = 200000,
                                     .dial_timeout_ms = 5000,
                                     .transport_timeout_ms = 20000,
                                     .print_trace = s->opt.print_trace};
    const struct world_calls wc = {.self = s,
                                   .wire_len = on_wire_len,
                                   .fill = on_fill,
                                   .take = on_take,
                                   .sum = on_sum,
                                   .local = on_local,
                                   .timer = on_timer,
                                   .died = on_died,
                                   .after = on_after};
    const struct local_calls lc = {.self = s,
                                   .contributed = on_contributed,
                                   .applied = on_applied,
                                   .loaded = on_loaded,
                                   .describe = on_describe,
                                   .stopped = on_stopped,
                                   .logged = on_logged,
                                   .stepped = stages_stepped,
                                   .wrong = stages_wrong};
    const struct local_options lo = machines_of(s);
    uint64_t rng = s->opt.seed ^ 0x6d616e;
    int rc;

    s->peers = world_alloc(s->n * sizeof *s->peers);
    s->group = world_alloc(s->n * sizeof *s->group);
    s->move_rounds = world_alloc(s->n * 64 * sizeof *s->move_rounds);
    for (uint32_t i = 0; i < sizeof s->manifest; i++) {
        s->manifest[i] = (uint8_t)rng_next(&rng);
    }
    hash_bytes("loco-run-1", s->manifest, sizeof s->manifest, &s->run_id);
    rc = world_open(&s->world, &wo, &wc);
    return rc != 0 ? rc : local_open(&s->local, s->world, &lo, &lc);
}

static void judge(struct stages *s)
{
    const struct world_stats *w = world_stats(s->world);
    char why[SIM_TEXT_MAX] = "nobody is left";

    if (!world_is_sound(s->world, why, sizeof why)) {
        stages_fail(s, "F: %s", why);
    }
    if (!s->done && s->r->violations == 0 &&
        !stages_finished(s, why, sizeof why)) {
        stages_fail(s, "E: after %d s %s", LIMIT_MS / 1000, why);
    }
    if (s->lost_stage != 0 && !s->starved) {
        stages_fail(s, "D: nobody said that stage %u has no host",
                    s->lost_stage);
    }
    if (s->fault == UNEQUAL && s->rounds > 8 && s->n_moves == 0) {
        stages_fail(s, "R: nobody went to the stage that has most to do");
    }
    for (uint64_t r = 0;
         s->fault == PLAIN && s->eval_every > 0 && r <= s->rounds && r < 64;
         r += s->eval_every) {
        if ((s->evaluated >> r & 1) == 0) {
            stages_fail(s, "G: round %" PRIu64 " is not evaluated", r);
        }
    }
    s->r->trace_hash = world_trace_hash(s->world);
    sim_figure(s->r, "virtual_ms", (double)world_now(s->world), SIM_MAX);
    sim_figure(s->r, "steps", (double)w->steps, SIM_SUM);
    sim_figure(s->r, "bytes", (double)w->bytes, SIM_SUM);
    sim_figure(s->r, "micro_batches", (double)s->n_counts, SIM_SUM);
    sim_figure(s->r, "evaluated_rounds",
               (double)__builtin_popcountll(s->evaluated), SIM_SUM);
    sim_figure(s->r, "moves", (double)s->n_moves, SIM_SUM);
    sim_figure(s->r, "peers_at_the_end", (double)n_alive(s), SIM_MEAN);
}

static void print_peers(const struct stages *s)
{
    struct node_status t;

    for (uint32_t q = 0; q < s->n; q++) {
        const struct node *n = s->peers[q].node;

        if (n == NULL) {
            fprintf(stderr, "  peer %2u dead\n", q);
            continue;
        }
        node_status(n, &t);
        fprintf(stderr,
                "  peer %2u stage %u %-9s round %" PRIu64 " epoch %" PRIu64
                " members %u alive %u pipe %d round %" PRIu64
                " step %u attempt %u layout %" PRIx64
                " phase %d packed %d %s\n",
                q, t.stage, node_state_name(t.state), t.round, t.epoch,
                t.peers_in_round, t.peers_alive, (int)n->pipe.state,
                n->pipe.round, n->pipe.step, n->pipe.attempt, n->pipe.layout,
                (int)n->round.phase, n->packed, t.reason);
    }
}

static void release(struct stages *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        node_close(s->peers[q].node);
        free(s->peers[q].chain);
    }
    world_close(s->world);
    local_close(s->local);
    free(s->peers);
    free(s->group);
    free(s->counts);
    free(s->states);
    free(s->move_rounds);
}

int sim_stages_run(const struct sim_options *opt, struct sim_result *result)
{
    struct stages s = {.opt = *opt, .r = result, .n = opt->peers};
    const struct sim_setting table[] = {
        {"eval", "", 0, 1e4, .u32 = &s.eval_every},
        {"fault", "", 0, FAULTS - 1, .u32 = &s.fault},
        {"faults", "", 0, 1e4, .u32 = &s.n_faults},
        {"stages", "", 2, ROUTE_STAGES_MAX, .u32 = &s.stages},
    };
    int rc;

    s.rng = opt->seed ^ 0x73746167;
    s.rounds = opt->rounds > 0 ? opt->rounds : 6;
    s.stages = 2 + (uint32_t)draw(&s, s.n > 5 ? 2 : 1);
    s.fault = (uint32_t)draw(&s, FAULTS);
    s.eval_every = 2;
    s.n_faults = 1 + s.n / 3;
    rc = sim_settings(opt, table, sizeof table / sizeof table[0], result);
    if (rc != 0 || s.n < s.stages) {
        return rc != 0 ? rc : LOCO_EINVAL;
    }
    s.starters = (s.fault == JOIN || s.fault == STARVED || s.fault == ALL) &&
                         s.n > s.stages + 1
                     ? s.n - 2
                     : s.n;
    if ((s.fault == UNEQUAL || s.fault == HANG || s.fault == STRANDED) &&
        opt->rounds == 0) {
        s.rounds = 20;
    }
    if (s.fault == PLAIN || s.fault == JOIN || s.fault >= UNEQUAL) {
        s.n_faults = s.fault == ALL ? s.n_faults : 0;
    }
    rc = make(&s);
    if (rc != 0) {
        return rc;
    }
    schedule(&s);
    poll(&s, 0);
    while (result->violations == 0 && !s.done &&
           world_step(s.world, LIMIT_MS)) {
    }
    judge(&s);
    if (result->violations > 0 && !opt->quiet_failure) {
        world_print_trace(s.world);
        print_peers(&s);
        fprintf(stderr, "sim: stages, fault %u: %s\n", s.fault,
                result->violation);
    }
    release(&s);
    return result->violations > 0;
}
