/* rig.h - a machine (daemon/machine.h) on a shell of its own, without a node:
 * what it tells is kept. For machine_test.c and machine_pieces_test.c. */
#ifndef LOCO_TESTS_UNIT_DAEMON_RIG_H
#define LOCO_TESTS_UNIT_DAEMON_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/machine_internal.h"
#include "proto/base/err.h"
#include "train/errmsg.h"

#define HANG_S 60 /* only a test that hangs gets here */

/* A machine on a shell whose core only writes down what it is told. */
struct rig {
    uv_loop_t loop;
    struct shell *shell;
    struct machine *m;
    struct shell_calls calls;
    struct identity id;
    struct signer signer;
    struct frame_rule rule;
    struct local_event told[16];
    uint32_t n_told;
    bool shell_closed, machine_closed;
};

static inline void step(void *self, const struct event *event, struct out *out)
{
    struct rig *g = self;

    (void)out;
    if (event->type == EVENT_LOCAL && g->n_told < 16) {
        g->told[g->n_told++] = event->local;
    }
}

static inline uint64_t deadline(const void *self)
{
    (void)self;
    return CORE_NEVER;
}

static inline void on_stop(void *data, int exit_code)
{
    (void)data;
    fail_msg("the machine stops with %d", exit_code);
}

static inline void nothing_posted(void *self, const struct local_event *event)
{
    (void)self;
    (void)event;
}

static inline void no_snapshot(void *self, struct snapshot *s)
{
    (void)self;
    snapshot_free(s);
}

/* A trainer of some thousand parameters, so that there is a contribution. */
static inline struct trainer *open_trainer(void)
{
    static uint8_t text[2000];
    static struct shard shard;
    struct trainer_options opt = {
        .replica = {.model = {.dim = 16,
                              .layers = 1,
                              .heads = 2,
                              .kv_heads = 2,
                              .ffn = 16,
                              .vocab = 256,
                              .seq = 16,
                              .tied = true,
                              .rope_theta = 10000,
                              .norm_eps = 1e-5f},
                    .optimizer = optimizer_defaults(),
                    .schedule = {SCHEDULE_CONSTANT, 1e-3, 1e-3, 0, 0, 0},
                    .method = {.period = 1, .fragments = 1, .rule = {.lr = 1}},
                    .codec = codec_find("fp32"),
                    .batch = 1,
                    .micro_batch = 1,
                    .seq = 16,
                    .train = &shard,
                    .n_train = 1,
                    .threads = 1,
                    .reference = true},
        .post = nothing_posted,
        .take_snapshot = no_snapshot,
    };
    struct trainer *t = NULL;
    char errmsg[ERRMSG_SIZE];

    memset(text, 'x', sizeof text);
    shard_from_text(&shard, text, sizeof text);
    assert_int_equal(trainer_open(&t, &opt, errmsg), 0);
    return t;
}

static inline struct rig *open_rig(const char *wire, uint64_t n)
{
    static const uint8_t seed[SIGN_SEED_BYTES] = {7};
    struct machine_options opt = {.state_dir = ".", .encryption = true};
    struct shell_options so;
    struct rig *g = calloc(1, sizeof *g);
    struct core core = {g, step, deadline};

    assert_non_null(g);
    assert_int_equal(uv_loop_init(&g->loop), 0);
    assert_int_equal(machine_open(&g->m, &g->loop, &opt, on_stop, g), 0);
    g->calls = machine_calls(g->m);
    assert_int_equal(identity_generate(&g->id, seed), 0);
    g->signer = signer_sodium(&g->id);
    shell_options_default(&so);
    so.signer = &g->signer;
    so.rules = &g->rule;
    so.n_rules = 1;
    assert_int_equal(shell_open(&g->shell, &g->loop, &core, &so, &g->calls), 0);
    machine_connect(g->m, g->shell, NULL);
    g->m->codec = codec_find(wire);
    g->m->n = g->m->n_wire = g->m->terms.n_params = n;
    g->m->terms.segment_elements = 4096;
    g->m->configured = true;
    g->m->trainer = open_trainer();
    return g;
}

static inline void until(struct rig *g, const bool *flag, uint32_t told)
{
    uint64_t hang_ns = uv_hrtime() + HANG_S * 1000000000ULL;

    while (flag == NULL ? g->n_told < told : !*flag) {
        (void)uv_run(&g->loop, UV_RUN_NOWAIT);
        assert_true(uv_hrtime() < hang_ns);
    }
}

static inline void set_flag(void *data)
{
    *(bool *)data = true;
}

static inline void close_rig(struct rig *g)
{
    machine_disconnect(g->m);
    shell_close(g->shell, set_flag, &g->shell_closed);
    until(g, &g->shell_closed, 0);
    if (!g->m->closing) {
        machine_close(g->m, set_flag, &g->machine_closed);
    }
    until(g, &g->machine_closed, 0);
    (void)uv_run(&g->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&g->loop), 0);
    free(g);
}

static inline void
act(struct rig *g, enum action_type type, uint64_t attempt, uint64_t request)
{
    struct action a = {.type = type,
                       .buffer = BUFFER_RING,
                       .attempt = attempt,
                       .request = request};

    g->calls.local(g->calls.self, &a, NULL);
}

/* Fill the slot of an attempt through segments, as a shell does. */
static inline void receive(struct rig *g, uint64_t attempt, uint8_t with)
{
    struct segment s = {.attempt = attempt, .len = 1 << 16};
    size_t len = g->calls.wire_len(g->calls.self, &s);

    for (; s.offset < g->m->n; s.offset += s.len) {
        uint8_t *at = g->calls.place(g->calls.self, &s);

        assert_non_null(at);
        memset(at, with, len);
        assert_int_equal(g->calls.take(g->calls.self, &s, at, len), 0);
    }
}

#endif
