/* crew.c - see crew.h. */
#include "tests/sim/crew.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "tests/sim/world_internal.h"
#include "train/sync/codec.h"

#define POLL_MS 500

void crew_fail(struct crew *s, const char *fmt, ...)
{
    va_list ap;

    if (s->r->violations++ > 0) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(s->r->violation, sizeof s->r->violation, fmt, ap);
    va_end(ap);
}

uint64_t crew_draw(struct crew *s, uint64_t n)
{
    return rng_below(&s->rng, n);
}

static void note_fault(struct crew *s)
{
    s->calm_ms = world_now(s->world);
}

/* ---- processes -------------------------------------------------------- */

static void start(void *data, uint64_t number)
{
    struct crew *s = data;
    struct crew_peer *p = &s->peers[number];
    const struct identity *id = world_identity(s->world, (uint32_t)number);
    uint64_t words[] = {s->opt.seed, 0x6e6f6465, number, ++p->lives};
    struct node_options o = {
        .self = id->id,
        .signer = signer_keyed(id),
        .run_id = s->run_id,
        .dialable = true,
        .listen_port = world_address(s->world, (uint32_t)number).port,
        .seed = rng_mix(words, 4),
        .time_scale = 1,
    };
    struct core core = {.step = node_step, .deadline = node_deadline};

    if (s->record) {
        o.record = world_record(s->world, (uint32_t)number, &o.record_len);
        o.chain = p->chain;
        o.chain_len = p->n_chain;
    }
    if (world_alive(s->world, (uint32_t)number)) {
        return;
    }
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
    o.peers = p->n_cache > 0 ? p->cache : NULL;
    o.peers_len = p->n_cache;
    p->round = 0;
    if (node_open(&p->node, &o, world_now(s->world)) != 0) {
        crew_fail(s, "node_open of peer %u failed", (uint32_t)number);
        return;
    }
    core.self = p->node;
    world_start(s->world, (uint32_t)number, &core);
    note_fault(s);
}

static uint32_t n_alive(const struct crew *s)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        n += world_alive(s->world, q);
    }
    return n;
}

static void on_died(void *self, uint32_t peer)
{
    struct crew *s = self;
    bool back = s->fault == CREW_RESTART || n_alive(s) <= s->alive_least ||
                (s->fault == CREW_ALL && crew_draw(s, 2) == 0) || s->stopping;

    local_died(s->local, peer);
    node_close(s->peers[peer].node);
    s->peers[peer].node = NULL;
    note_fault(s);
    if (back) {
        world_call(s->world, world_now(s->world) + 1000 + crew_draw(s, 8000),
                   start, s, peer);
    }
}

static void on_after(void *self,
                     uint32_t peer,
                     const struct event *event,
                     const struct out *out)
{
    struct crew *s = self;
    struct crew_peer *p = &s->peers[peer];

    (void)out;
    s->r->invariants_checked++;
    if (p->node != NULL && s->after != NULL) {
        s->after(s, peer, event);
    }
}

static void stop(void *data, uint64_t number)
{
    struct crew *s = data;

    if (world_alive(s->world, (uint32_t)number)) {
        world_kill(s->world, (uint32_t)number);
        world_call(s->world, world_now(s->world) + 3000, start, s, number);
    }
}

/* ---- the machines ----------------------------------------------------- */

static void on_local(void *self,
                     uint32_t peer,
                     const struct action *a,
                     const struct out *out)
{
    struct crew *s = self;

    struct crew_peer *p = &s->peers[peer];

    if (a->type == ACTION_PEERS && a->len <= CREW_PEERS_BYTES) {
        p->n_cache = a->len;
        memcpy(p->cache, out->bytes + a->bytes, a->len);
    } else if (a->type == ACTION_CHAIN) {
        free(p->chain);
        p->chain = world_alloc(a->len);
        p->n_chain = a->len;
        memcpy(p->chain, out->bytes + a->bytes, a->len);
    }
    local_action(s->local, peer, a, out);
}

static void on_timer(void *self, uint32_t peer, uint64_t token)
{
    local_timer(((struct crew *)self)->local, peer, token);
}

static size_t on_wire_len(void *self, uint32_t peer, const struct segment *seg)
{
    return local_wire_len(((struct crew *)self)->local, peer, seg);
}

static int
on_fill(void *self, uint32_t peer, const struct segment *seg, uint8_t *dst)
{
    return local_fill(((struct crew *)self)->local, peer, seg, dst);
}

static int on_take(void *self,
                   uint32_t peer,
                   const struct segment *seg,
                   const uint8_t *src,
                   size_t len)
{
    return local_take(((struct crew *)self)->local, peer, seg, src, len);
}

static void on_contributed(void *self, const struct local_contribution *k)
{
    (void)self;
    (void)k;
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

static void on_sliced(void *self, uint32_t peer, const struct local_sliced *x)
{
    struct crew *s = self;

    if (s->sliced != NULL) {
        s->sliced(s->self, peer, x);
    }
}

static void
on_describe(void *self, uint32_t peer, uint64_t *tokens, struct hash32 *commit)
{
    struct crew *s = self;
    struct node_status status;

    node_status(s->peers[peer].node, &status);
    *tokens = status.run_tokens;
    *commit = status.commit_hash;
}

static void on_stopped(void *self, uint32_t peer, int rc)
{
    struct crew *s = self;

    if (rc != LOCO_EXIT_NETWORK) { /* nobody was there: a person tries again */
        crew_fail(s, "peer %u stops with code %d", peer, rc);
        return;
    }
    world_call(s->world, world_now(s->world), stop, s, peer);
}

static void on_logged(void *self, uint32_t peer, int level, const char *text)
{
    struct crew *s = self;

    (void)level;
    world_note(s->world, peer, text);
    if (s->logged != NULL) {
        s->logged(s->self, peer, text);
    }
}

/* ---- faults ----------------------------------------------------------- */

static void thaw(void *data, uint64_t q)
{
    struct crew *s = data;

    if (world_alive(s->world, (uint32_t)q) &&
        world_frozen(s->world, (uint32_t)q)) {
        world_thaw(s->world, (uint32_t)q);
    }
    note_fault(s);
}

static void heal(void *data, uint64_t arg)
{
    struct crew *s = data;

    (void)arg;
    world_heal(s->world);
    note_fault(s);
}

static void strike(void *data, uint64_t arg)
{
    struct crew *s = data;
    uint32_t q = (uint32_t)crew_draw(s, s->starters), other;
    uint32_t fault = s->fault == CREW_ALL
                         ? CREW_KILL + (uint32_t)crew_draw(s, CREW_DROPS)
                         : s->fault;

    (void)arg;
    if (!world_alive(s->world, q) || world_frozen(s->world, q)) {
        return;
    }
    note_fault(s);
    if ((fault == CREW_KILL && n_alive(s) > s->alive_least) ||
        fault == CREW_RESTART) {
        world_kill_at_action(s->world, q, 1 + crew_draw(s, 60));
    } else if (fault == CREW_FREEZE) {
        world_freeze(s->world, q);
        world_call(s->world, world_now(s->world) + 500 + crew_draw(s, 12000),
                   thaw, s, q);
    } else if (fault == CREW_CUT) {
        for (uint32_t k = 0; k < s->n; k++) {
            s->group[k] = (uint32_t)crew_draw(s, 2);
        }
        world_partition(s->world, s->group);
        world_call(s->world, world_now(s->world) + 2000 + crew_draw(s, 20000),
                   heal, s, 0);
    } else if (fault == CREW_DROPS) {
        other = (q + 1 + (uint32_t)crew_draw(s, s->n - 1)) % s->n;
        world_drop_bulk(s->world, q, other);
        world_drop_links(s->world, q, other);
    }
}

static bool is_cut(void *self, uint32_t from, uint32_t to, bool bulk)
{
    const struct crew *s = self;

    return bulk && (from == s->mute || to == s->mute);
}

static void set_mute(void *data, uint64_t peer)
{
    struct crew *s = data;

    s->mute = (uint32_t)peer;
    world_heal(s->world); /* it looks at connections again */
    note_fault(s);
}

static void stop_all(void *data, uint64_t arg)
{
    struct crew *s = data;

    (void)arg;
    s->stopping = true;
    for (uint32_t q = 0; q < s->n; q++) {
        if (world_alive(s->world, q)) {
            world_kill(s->world, q);
        }
    }
    s->stopping = false;
    s->stopped = true;
}

static void schedule(struct crew *s)
{
    /* From the first steps to the mean at the end. */
    uint64_t span = 6000 + s->rounds * s->round_ms;

    for (uint32_t q = 0; q < s->starters; q++) {
        world_call(s->world, 100 + 50 * q, start, s, q);
    }
    for (uint32_t k = 0; k < s->n_faults; k++) {
        world_call(s->world, 2000 + crew_draw(s, span), strike, s, k);
    }
    if (s->mute_ms > 0) {
        uint64_t at = 8000 + crew_draw(s, 2000); /* after founding */

        world_call(s->world, at, set_mute, s, crew_draw(s, s->n));
        world_call(s->world, at + s->mute_ms, set_mute, s, s->n);
    }
    if (s->stop > 0) {
        world_call(s->world, 8000 + crew_draw(s, span), stop_all, s, 0);
    }
    for (uint32_t q = s->starters; q < s->n; q++) {
        world_call(s->world, 4000 + crew_draw(s, span), start, s, q);
    }
}

/* ---- one run ---------------------------------------------------------- */

static bool all_finished(struct crew *s, char *why, size_t size)
{
    struct node_status first, status;
    bool any = false;

    for (uint32_t q = 0; q < s->n; q++) {
        if (!world_alive(s->world, q)) {
            continue;
        }
        node_status(s->peers[q].node, &status);
        if (!any) {
            first = status;
            any = true;
        }
        if (status.state != NODE_FINISHED || status.round < s->rounds ||
            (status.round > s->rounds && !s->beyond) ||
            !status.replicas_equal ||
            !hash32_eq(&status.params_hash, &first.params_hash)) {
            (void)snprintf(
                why, size,
                "peer %u is %s at round %" PRIu64 " of %" PRIu64 "%s%s", q,
                node_state_name(status.state), status.round, s->rounds,
                hash32_eq(&status.params_hash, &first.params_hash)
                    ? ""
                    : ", with other parameters",
                status.reason);
            return false;
        }
    }
    return any;
}

static void poll(void *data, uint64_t arg)
{
    struct crew *s = data;
    char why[SIM_TEXT_MAX];
    uint64_t now = world_now(s->world);

    (void)arg;
    s->done = s->mute == s->n && now > 15000 + s->mute_ms &&
              now > 15000 + s->rounds * s->round_ms &&
              now > s->calm_ms + 3000 && all_finished(s, why, sizeof why);
    if (!s->done) {
        world_call(s->world, now + POLL_MS, poll, s, 0);
    }
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static int make(struct crew *s)
{
    const struct world_options wo = {.seed = s->opt.seed,
                                     .n_peers = s->n,
                                     .latency_min_ms = 5,
                                     .latency_max_ms = 60,
                                     .jitter_ms = 10,
                                     .bytes_per_s = 20000,
                                     .dial_timeout_ms = 5000,
                                     .transport_timeout_ms = 20000,
                                     .cut = is_cut,
                                     .cut_self = s,
                                     .print_trace = s->opt.print_trace};
    const struct world_calls wc = {.self = s,
                                   .wire_len = on_wire_len,
                                   .fill = on_fill,
                                   .take = on_take,
                                   .local = on_local,
                                   .timer = on_timer,
                                   .died = on_died,
                                   .after = on_after};
    const struct local_calls lc = {.self = s,
                                   .contributed = on_contributed,
                                   .loaded = on_loaded,
                                   .describe = on_describe,
                                   .stopped = on_stopped,
                                   .sliced = on_sliced,
                                   .logged = on_logged};
    uint64_t rng = s->opt.seed ^ 0x6d616e;
    int rc;

    s->peers = world_alloc(s->n * sizeof *s->peers);
    s->group = world_alloc(s->n * sizeof *s->group);
    for (uint32_t i = 0; i < sizeof s->manifest; i++) {
        s->manifest[i] = (uint8_t)rng_next(&rng);
    }
    hash_bytes("loco-run-1", s->manifest, sizeof s->manifest, &s->run_id);
    s->machines.seed = s->opt.seed;
    s->machines.n_peers = s->n;
    s->machines.min_peers =
        most(s->starters / 2 + 1,
             s->found_least < s->starters ? s->found_least : s->starters);
    s->machines.stop_rounds = s->rounds;
    s->machines.manifest = s->manifest;
    s->machines.manifest_len = sizeof s->manifest;
    rc = world_open(&s->world, &wo, &wc);
    return rc != 0 ? rc : local_open(&s->local, s->world, &s->machines, &lc);
}

static void judge(struct crew *s)
{
    const struct world_stats *w = world_stats(s->world);
    char why[SIM_TEXT_MAX] = "nobody is left";

    if (!s->done && s->r->violations == 0 &&
        !all_finished(s, why, sizeof why)) {
        crew_fail(s, "after %d s %s", (int)(s->limit_ms / 1000), why);
    }
    if (!world_is_sound(s->world, why, sizeof why)) {
        crew_fail(s, "%s", why);
    }
    s->r->trace_hash = world_trace_hash(s->world);
    sim_figure(s->r, "virtual_ms", (double)world_now(s->world), SIM_MAX);
    sim_figure(s->r, "steps", (double)w->steps, SIM_SUM);
    sim_figure(s->r, "bytes", (double)w->bytes, SIM_SUM);
}

int crew_open(struct crew *s,
              const struct sim_options *opt,
              struct sim_result *result)
{
    const struct sim_setting table[] = {
        {"fault", "", 0, CREW_FAULTS - 1, .u32 = &s->fault},
        {"faults", "", 0, 1e4, .u32 = &s->n_faults},
        {"fork_after_ms", "doubt", 0, 1e7, .u32 = &s->machines.fork_after_ms},
        {"stop", "all are killed, and come back", 0, 1, .u32 = &s->stop},
        {"mute_ms", "a peer's data goes nowhere", 0, 1e6, .u32 = &s->mute_ms},
    };
    int rc;

    s->opt = *opt;
    s->r = result;
    s->n = s->mute = opt->peers;
    s->rng = opt->seed ^ 0x63726577;
    s->rounds = opt->rounds > 0 ? opt->rounds : 6;
    s->fault = (uint32_t)crew_draw(s, CREW_FAULTS);
    s->n_faults = 1 + s->n / 2;
    rc = sim_settings(opt, table, sizeof table / sizeof table[0], result);
    if (rc != 0) {
        return rc;
    }
    if (s->n > 2 && (s->fault == CREW_JOIN || s->fault == CREW_ALL)) {
        s->starters = most(s->n - 2, s->found_least);
    }
    if (s->starters == 0 || s->starters > s->n) {
        s->starters = s->n;
    }
    s->n_faults =
        s->fault == CREW_PLAIN || s->fault == CREW_JOIN ? 0 : s->n_faults;
    return make(s);
}

void crew_run(struct crew *s)
{
    schedule(s);
    poll(s, 0);
    while (s->r->violations == 0 && !s->done &&
           world_step(s->world, s->limit_ms)) {
    }
    judge(s);
    if (s->r->violations > 0 && !s->opt.quiet_failure) {
        world_print_trace(s->world);
        fprintf(stderr, "sim: %s, fault %u: %s\n", s->name, s->fault,
                s->r->violation);
    }
}

void crew_close(struct crew *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        node_close(s->peers[q].node);
        free(s->peers[q].chain);
    }
    world_close(s->world);
    local_close(s->local);
    free(s->peers);
    free(s->group);
}
