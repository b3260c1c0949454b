/* crew.c - see crew.h. */
#include "daemon/sim/crew.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/sync/codec/codec.h"

uint64_t crew_draw(struct crew *s, uint64_t n)
{
    return rng_below(&s->rng, n);
}

void crew_note_fault(struct crew *s)
{
    s->calm_ms = world_now(s->world);
}

/* ---- processes -------------------------------------------------------- */

void crew_start(void *data, uint64_t number)
{
    struct crew *s = data;
    struct crew_peer *p = &s->peers[number];
    const struct identity *id = world_identity(s->world, (uint32_t)number);
    uint64_t words[] = {s->opt.seed, s->salt, number, p->lives + 1};
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
        o.chain = local_chain(s->local, (uint32_t)number)->bytes;
        o.chain_len = local_chain(s->local, (uint32_t)number)->len;
    }
    if (world_alive(s->world, (uint32_t)number)) {
        return;
    }
    p->lives++;
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
    o.peers = local_peers(s->local, (uint32_t)number)->bytes;
    o.peers_len = local_peers(s->local, (uint32_t)number)->len;
    p->round = 0;
    if (s->starts != NULL) {
        s->starts(s, (uint32_t)number);
    }
    if (node_open(&p->node, &o, world_now(s->world)) != 0) {
        sim_fail(s->r, "node_open of peer %u failed", (uint32_t)number);
        return;
    }
    core.self = p->node;
    world_start(s->world, (uint32_t)number, &core);
    crew_note_fault(s);
}

uint32_t crew_n_alive(const struct crew *s)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        n += world_alive(s->world, q);
    }
    return n;
}

/* ms until it is back; 0: it stays dead. */
static uint64_t back_ms(struct crew *s, uint32_t peer)
{
    if (s->back_ms != NULL) {
        return s->back_ms(s, peer);
    }
    return s->fault == CREW_RESTART || crew_n_alive(s) <= s->alive_least ||
                   (s->fault == CREW_ALL && crew_draw(s, 2) == 0)
               ? 1000 + crew_draw(s, 8000)
               : 0;
}

static void on_died(void *self, uint32_t peer)
{
    struct crew *s = self;
    uint64_t ms;

    node_close(s->peers[peer].node);
    s->peers[peer].node = NULL;
    crew_note_fault(s);
    ms = back_ms(s, peer);
    if (ms > 0) {
        world_call(s->world, world_now(s->world) + ms, crew_start, s, peer);
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

/* ---- what machines tell ------------------------------------------------ */

static const struct node *node_of(void *self, uint32_t peer)
{
    return ((struct crew *)self)->peers[peer].node;
}

static void stop(void *data, uint64_t number)
{
    struct crew *s = data;

    if (world_alive(s->world, (uint32_t)number)) {
        world_kill(s->world, (uint32_t)number);
        world_call(s->world, world_now(s->world) + 3000, crew_start, s, number);
    }
}

static void on_stopped(void *self, uint32_t peer, int rc)
{
    struct crew *s = self;

    if (rc != LOCO_EXIT_NETWORK) { /* nobody was there: a person tries again */
        sim_fail(s->r, "peer %u stops with code %d", peer, rc);
        return;
    }
    world_call(s->world, world_now(s->world), stop, s, peer);
}

static void on_logged(void *self, uint32_t peer, int level, const char *text)
{
    struct crew *s = self;

    (void)level;
    world_note(s->world, peer, text);
}

static void on_stepped(void *self, uint32_t peer, const struct local_step *step)
{
    struct crew *s = self;

    if (s->stepped != NULL) {
        s->stepped(s->self, peer, step);
    }
}

static void on_wrong(void *self, const char *what)
{
    sim_fail(((struct crew *)self)->r, "C: %s", what);
}

/* ---- one run ---------------------------------------------------------- */

static bool same_end(struct crew *s, char *why, size_t size)
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
        if (status.state != NODE_FINISHED || status.round != s->rounds ||
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

static bool all_finished(struct crew *s, char *why, size_t size)
{
    return s->finished != NULL ? s->finished(s->self, why, size)
                               : same_end(s, why, size);
}

static void poll(void *data, uint64_t arg)
{
    struct crew *s = data;
    char why[SIM_TEXT_MAX];
    uint64_t now = world_now(s->world);

    (void)arg;
    if (s->look != NULL) {
        s->look(s->self);
    }
    s->done = now > s->least_ms + s->rounds * s->round_ms &&
              now > s->calm_ms + 3000 && all_finished(s, why, sizeof why);
    if (!s->done) {
        world_call(s->world, now + CREW_POLL_MS, poll, s, 0);
    }
}

int crew_make(struct crew *s)
{
    const struct world_options wo = {.seed = s->opt.seed,
                                     .n_peers = s->n,
                                     .latency_min_ms = 5,
                                     .latency_max_ms = s->latency_max_ms,
                                     .jitter_ms = 10,
                                     .bytes_per_s = s->bytes_per_s,
                                     .dial_timeout_ms = 5000,
                                     .transport_timeout_ms = 20000,
                                     .print_trace = s->opt.print_trace};
    const struct world_calls wc = {
        .self = s, .died = on_died, .after = on_after};
    const struct local_calls lc = {.self = s,
                                   .node = node_of,
                                   .stopped = on_stopped,
                                   .logged = on_logged,
                                   .stepped = on_stepped,
                                   .wrong = on_wrong};
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

    if (!world_is_sound(s->world, why, sizeof why)) {
        sim_fail(s->r, "F: %s", why);
    }
    if (!s->done && s->r->violations == 0 &&
        !all_finished(s, why, sizeof why)) {
        sim_fail(s->r, "E: after %d s %s", (int)(s->limit_ms / 1000), why);
    }
    if (s->judge != NULL) {
        s->judge(s->self);
    }
    s->r->trace_hash = world_trace_hash(s->world);
    sim_figure(s->r, "virtual_ms", (double)world_now(s->world), SIM_MAX);
    sim_figure(s->r, "steps", (double)w->steps, SIM_SUM);
    sim_figure(s->r, "bytes", (double)w->bytes, SIM_SUM);
}

void crew_begin(struct crew *s,
                const struct sim_options *opt,
                struct sim_result *result)
{
    s->opt = *opt;
    s->r = result;
    s->n = opt->peers;
    s->rounds = opt->rounds > 0 ? opt->rounds : 6;
}

int crew_open(struct crew *s,
              const struct sim_options *opt,
              struct sim_result *result)
{
    const struct sim_setting table[] = {
        {"fault", "", 0, CREW_FAULTS - 1, .u32 = &s->fault},
        {"faults", "", 0, 1e4, .u32 = &s->n_faults},
    };
    int rc;

    s->salt = 0x6e6f6465;
    s->rng = opt->seed ^ 0x63726577;
    s->latency_max_ms = 60;
    s->bytes_per_s = 20000;
    s->least_ms = 15000;
    s->schedule = crew_schedule;
    crew_begin(s, opt, result);
    s->fault = (uint32_t)crew_draw(s, CREW_FAULTS);
    s->n_faults = 1 + s->n / 2;
    rc = sim_settings(opt, table, sizeof table / sizeof table[0], result);
    if (rc != 0) {
        return rc;
    }
    if (s->n > 2 && (s->fault == CREW_JOIN || s->fault == CREW_ALL)) {
        s->starters = s->n - 2;
    }
    if (s->starters == 0 || s->starters > s->n) {
        s->starters = s->n;
    }
    s->n_faults =
        s->fault == CREW_PLAIN || s->fault == CREW_JOIN ? 0 : s->n_faults;
    s->machines.min_peers = s->starters / 2 + 1;
    return crew_make(s);
}

void crew_run(struct crew *s)
{
    s->schedule(s);
    poll(s, 0);
    while (s->r->violations == 0 && !s->done &&
           world_step(s->world, s->limit_ms)) {
    }
    judge(s);
    if (s->r->violations > 0 && !s->opt.quiet_failure) {
        world_print_trace(s->world);
        if (s->print != NULL) {
            s->print(s->self);
        }
        fprintf(stderr, "sim: %s, fault %u: %s\n", s->name, s->fault,
                s->r->violation);
    }
}

void crew_close(struct crew *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        node_close(s->peers[q].node);
    }
    world_close(s->world);
    local_close(s->local);
    free(s->peers);
    free(s->group);
}
