/* lab_test.c - the laboratory: every method, peers that come and go.
 *
 * A model of a few thousand parameters on a made text, plain C kernels. What is
 * checked is the bookkeeping: who is equal, what was sent, how long it took,
 * that a run ends; whether a method is good is measured on prose
 * (tests/bench/methods.py).
 */
#include "train/lab/lab.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"
#include "tests/unit/sanitized.h"
#include "train/sync/preset.h"

#define TEXT_BYTES 20000
#include "tests/unit/train/lab_text.h"

#define SEQ   16
#define BATCH 2
#define STEPS 12 /* of each peer */

static struct lab_options options(const char *preset, uint32_t peers)
{
    const struct preset *p;
    struct lab_options o = {
        .model = {.dim = 16,
                  .layers = 2,
                  .heads = 2,
                  .kv_heads = 2,
                  .ffn = 32,
                  .vocab = 256,
                  .seq = SEQ,
                  .tied = true,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5F},
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 0.01, 0.01, 0, 0, 0},
        .peers = peers,
        .tokens = (uint64_t)peers * STEPS * SEQ * BATCH,
        .batch = BATCH,
        .micro_batch = BATCH,
        .seq = SEQ,
        .seed = 1,
        .machines = machines,
        .grace_s = 0.05,
        .train = &train_shard,
        .n_train = 1,
        .val = &val_shard,
        .eval_tokens = 512,
        .threads = 1,
        .reference = true,
    };

    assert_int_equal(preset_find(preset, &p, NULL), 0);
    o.method = p->method;
    if (p->optimizer != NULL) {
        assert_int_equal(optimizer_rule_named(p->optimizer, &o.optimizer.rule),
                         0);
    }
    if (o.method.trainers > 0) {
        o.method.trainers = 2;
        o.method.merge_every = 2;
        o.method.batch_most = 4;
    }
    if (o.method.period > 0) { /* several turns of every stream */
        o.method.period = 4;
        o.method.overlap = o.method.eager ? 4 : 0;
    }
    if (strcmp(preset, "streaming") == 0) {
        o.method.period = 8;
        o.method.overlap = 1;
    }
    if (strcmp(preset, "async-naive") == 0) {
        o.method.rule.lr = 0.1F; /* at 0.7 it diverges, as the page says */
    }
    o.method.period_u = o.method.period_u > 0 ? 8 : 0;
    o.method.period_v = o.method.period_v > 0 ? 12 : 0;
    return o;
}

static struct lab_result run(const struct lab_options *o)
{
    struct lab_result r;
    char errmsg[ERRMSG_SIZE] = "";

    if (lab_run(o, &r, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    return r;
}

static void every_method_learns_and_ends(void **state)
{
    static const uint32_t peers[] = {1, 4};

    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        for (size_t k = 0; k < sizeof peers / sizeof peers[0]; k++) {
            struct lab_options o = options(preset_at(i)->name, peers[k]);
            struct lab_result r = run(&o);

            if (!(r.bits_per_byte < r.bits_per_byte_before - 0.5)) {
                fail_msg("%s with %u peers: %.3f after %.3f",
                         preset_at(i)->name, peers[k], r.bits_per_byte,
                         r.bits_per_byte_before);
            }
            assert_true(r.tokens >= o.tokens);
            assert_true(r.turns > 0);
            assert_true(isfinite(r.loss));
            assert_true(r.virtual_s > 0.0);
            for (size_t s = 0; s < METHOD_STREAMS_MAX; s++) {
                assert_false(r.never_synced[s]);
            }
            assert_true(peers[k] == 1 ? r.bytes_sent == 0 : r.bytes_sent > 0);
            lab_result_free(&r);
        }
    }
}

/* Peer 1 dies, peer 7 joins, peer 0 becomes slow, peer 2 leaves. */
static void every_method_goes_on_while_peers_come_and_go(void **state)
{
    static const uint32_t peers[] = {3, 2, 5, 8};

    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        for (size_t k = 0; k < TURNS(4, 1); k++) {
            struct lab_options o = options(preset_at(i)->name, peers[k]);
            const struct lab_event events[] = {
                {o.tokens / 5, LAB_DIE, 1, 0.0},
                {o.tokens / 3, LAB_JOIN, 17, 0.0},
                {o.tokens / 2, LAB_SPEED, 0, 100.0},
                {o.tokens / 2 + 1, LAB_LEAVE, 2, 0.0},
            };
            struct lab_result r;

            o.events = events;
            o.n_events = peers[k] > 2 ? 4 : 3;
            r = run(&o);
            if (!(r.bits_per_byte < r.bits_per_byte_before - 0.3)) {
                fail_msg("%s with %u peers: %.3f after %.3f",
                         preset_at(i)->name, peers[k], r.bits_per_byte,
                         r.bits_per_byte_before);
            }
            assert_true(r.tokens >= o.tokens);
            lab_result_free(&r);
        }
    }
}

/* One peer alone, a newcomer, who becomes slow; then the first one dies. */
static void every_method_goes_over_to_a_newcomer(void **state)
{
    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        struct lab_options o = options(preset_at(i)->name, 1);
        struct lab_event events[] = {
            {0, LAB_JOIN, 17, 0.0},
            {0, LAB_SPEED, 17, 500.0},
            {0, LAB_DIE, 0, 0.0},
        };
        struct lab_result r;

        o.tokens *= 2;
        events[0].at_tokens = o.tokens / 4;
        events[1].at_tokens = o.tokens / 3;
        events[2].at_tokens = o.tokens / 2;
        o.events = events;
        o.n_events = 3;
        r = run(&o);
        if (!(r.bits_per_byte < r.bits_per_byte_before - 0.3)) {
            fail_msg("%s: %.3f after %.3f", preset_at(i)->name, r.bits_per_byte,
                     r.bits_per_byte_before);
        }
        lab_result_free(&r);
    }
}

static void the_same_seed_gives_the_same_run(void **state)
{
    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        struct lab_options o = options(preset_at(i)->name, 3);
        struct lab_result a, b;

        o.eval_every = o.tokens / 4;
        a = run(&o);
        b = run(&o);
        assert_memory_equal(&a.bits_per_byte, &b.bits_per_byte,
                            sizeof a.bits_per_byte);
        assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
        assert_int_equal(a.bytes_sent, b.bytes_sent);
        assert_int_equal(a.n_points, b.n_points);
        lab_result_free(&a);
        lab_result_free(&b);
    }
}

static void replicas_are_equal_where_the_method_says_so(void **state)
{
    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        struct lab_options o = options(preset_at(i)->name, 4);
        struct lab_result r;

        if (o.method.group == METHOD_QUORUM || o.method.overlap > 0 ||
            o.method.group == METHOD_TRAINER) {
            continue; /* live parameters are ahead, or all trainers merged */
        }
        r = run(&o);
        assert_int_equal(r.spread == 0.0, method_replicas_equal(&o.method));
        lab_result_free(&r);
    }
}

/* A ring of 4 moves 2 * 3/4 of the vector each; 4 peers, 12 steps, period 4:
 * 3 turns. fp32, 1 MB/s, 10 ms: seconds follow too. */
static void bytes_and_seconds_are_those_of_the_model(void **state)
{
    struct lab_options o = options("diloco", 4);
    uint64_t n = (uint64_t)llama_numel(&o.model);
    double each = 2.0 * 3.0 / 4.0 * 4.0 * (double)n;
    double turn_s = each / 1e6 + 6 * 0.01;
    double step_s = (double)SEQ * BATCH / 1000;
    struct lab_result r = run(&o);

    (void)state;
    assert_int_equal(r.turns, 3);
    assert_int_equal(r.bytes_sent, 3 * 4 * (uint64_t)each);
    assert_true(fabs(r.virtual_s - (STEPS * step_s + 3 * turn_s)) < 1e-6);
    lab_result_free(&r);
}

static void what_overlaps_costs_only_what_is_left(void **state)
{
    struct lab_options o = options("diloco", 4);
    struct lab_result blocking = run(&o), hidden, half;
    double turn_s;

    (void)state;
    turn_s = (blocking.virtual_s - STEPS * 0.032) / 3;
    o.method.overlap = 3;
    o.method.take = METHOD_REBASE;
    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        machines[i].tokens_per_s = 100; /* a step outlasts a turn */
    }
    hidden = run(&o);
    assert_true(fabs(hidden.virtual_s - STEPS * 0.32) < 1e-6);
    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        machines[i].tokens_per_s = 1e9;
    }
    half = run(&o);
    assert_true(fabs(half.virtual_s - 3 * turn_s) < 1e-3);
    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        machines[i].tokens_per_s = 1000;
    }
    lab_result_free(&blocking);
    lab_result_free(&hidden);
    lab_result_free(&half);
}

/* Who is ten times slower makes a tenth of the steps and is in as many quorums:
 * all send about the same. */
static void dylu_lets_slow_peers_arrive_as_often(void **state)
{
    struct lab_options o = options("async-dn", 4);
    struct lab_result with, without;

    (void)state;
    machines[0].tokens_per_s = 100;
    o.method.period = 10;
    o.tokens *= 4;
    with = run(&o);
    o.method.dylu = false;
    without = run(&o);
    machines[0].tokens_per_s = 1000;
    assert_true((double)with.bytes_most <= 1.05 * (double)with.bytes_sent / 4);
    assert_true((double)without.bytes_most >=
                1.2 * (double)without.bytes_sent / 4);
    lab_result_free(&with);
    lab_result_free(&without);
}

/* Tasks that end at 1.0, 1.3, 1.6 and 2.4 s: the first two go together, and
 * begin again at 1.3; then the third one alone; then the last, at 2.4, with the
 * next two, at 2.3 and 2.6. */
static void the_grace_period_gathers_who_is_nearly_done(void **state)
{
    static const double finish_s[4] = {1.0, 1.3, 1.6, 2.4};
    struct lab_options o = options("async-dn", 4);
    uint64_t task = (uint64_t)o.method.period * SEQ * BATCH;
    struct lab_machine own[LAB_PEERS_MAX] = {{0, 0, 0, 0}};
    struct lab_result r;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        own[i].tokens_per_s = (double)task / finish_s[i];
    }
    o.machines = own;
    o.method.dylu = false;
    o.grace_s = 0.5;
    o.tokens = 6 * task;
    r = run(&o);
    assert_int_equal(r.n_points, 3);
    assert_int_equal(r.points[0].tokens, 2 * task);
    assert_int_equal(r.points[1].tokens, 3 * task);
    assert_int_equal(r.points[2].tokens, 6 * task);
    lab_result_free(&r);
}

/* ---- owners of slices --------------------------------------------------- */

static struct lab_options owners(const char *preset, uint32_t peers)
{
    struct lab_options o = options(preset, peers);

    o.method.group = METHOD_OWNERS;
    return o;
}

static void owners_learn_on_every_wire(void **state)
{
    static const char *const presets[] = {"async-dn", "async-naive"};
    static const uint32_t peers[] = {1, 2, 3, 5, 8};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof peers / sizeof peers[0]; k++) {
            struct lab_options o = owners(presets[i], peers[k]);
            struct lab_result r;

            o.method.wire = (enum codec_id)(k % CODEC_COUNT);
            r = run(&o);
            if (!(r.bits_per_byte < r.bits_per_byte_before - 0.5)) {
                fail_msg("%s with %u peers: %.3f after %.3f", presets[i],
                         peers[k], r.bits_per_byte, r.bits_per_byte_before);
            }
            assert_int_equal(r.turns, 3); /* each has made three tasks */
            assert_false(r.never_synced[0]);
            assert_true(r.virtual_s > 0.0);
            assert_true(peers[k] == 1 ? r.bytes_sent == 0 : r.bytes_sent > 0);
            lab_result_free(&r);
        }
    }
}

static void owners_go_on_while_peers_come_and_go(void **state)
{
    static const uint32_t peers[] = {2, 3, 5, 8};

    (void)state;
    for (size_t k = 0; k < 2 * sizeof peers / sizeof peers[0]; k++) {
        uint32_t n = peers[k / 2];
        struct lab_options o =
            owners(k % 2 == 0 ? "async-dn" : "async-naive", n);
        const struct lab_event events[] = {
            {o.tokens / 5, LAB_DIE, 1, 0.0},
            {o.tokens / 3, LAB_JOIN, 17, 0.0},
            {o.tokens / 2, LAB_SPEED, 0, 100.0},
            {o.tokens / 2 + 1, LAB_LEAVE, 2, 0.0},
        };
        struct lab_result r, again;

        o.events = events;
        o.n_events = n > 2 ? 4 : 3;
        r = run(&o);
        again = run(&o);
        if (!(r.bits_per_byte < r.bits_per_byte_before - 0.3)) {
            fail_msg("%u peers: %.3f after %.3f", n, r.bits_per_byte,
                     r.bits_per_byte_before);
        }
        assert_true(r.tokens >= o.tokens);
        assert_true(r.bits_per_byte == again.bits_per_byte);
        assert_true(r.virtual_s == again.virtual_s);
        assert_int_equal(r.bytes_sent, again.bytes_sent);
        lab_result_free(&r);
        lab_result_free(&again);
    }
}

/* A newcomer reads the slices of the one that was alone; then that one dies. */
static void owners_go_over_to_a_newcomer(void **state)
{
    struct lab_options o = owners("async-dn", 1);
    struct lab_event events[] = {{0, LAB_JOIN, 17, 0.0}, {0, LAB_DIE, 0, 0.0}};
    struct lab_result r;

    (void)state;
    o.tokens *= 2;
    events[0].at_tokens = o.tokens / 4;
    events[1].at_tokens = o.tokens / 2;
    o.events = events;
    o.n_events = 2;
    r = run(&o);
    assert_true(r.bits_per_byte < r.bits_per_byte_before - 0.5);
    assert_true(r.bytes_sent > 0);
    lab_result_free(&r);
}

/* Where bytes and messages take no time, arrivals one by one are quorums of
 * one: the same tasks in the same order, the same bits. */
static void owners_without_delays_are_quorums_of_one(void **state)
{
    static const char *const presets[] = {"async-dn", "async-naive"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct lab_options o = owners(presets[i], 3);
        struct lab_machine own[LAB_PEERS_MAX];
        struct lab_result slices, quorums;

        for (uint32_t k = 0; k < LAB_PEERS_MAX; k++) {
            own[k] = (struct lab_machine){1000 - 130.7 * k, 0, 0, 0};
        }
        o.machines = own;
        o.method.wire = CODEC_FP32;
        o.method.dylu = false;
        o.grace_s = 0;
        o.tokens *= 3;
        slices = run(&o);
        o.method.group = METHOD_QUORUM;
        quorums = run(&o);
        assert_int_equal(slices.tokens, quorums.tokens);
        assert_true(slices.loss == quorums.loss);
        assert_true(slices.bits_per_byte == quorums.bits_per_byte);
        lab_result_free(&slices);
        lab_result_free(&quorums);
    }
}

/* Two peers: of each slice one is the owner and the other the backup, so a task
 * sends half of its pieces to the other as such and half as records, and the
 * other sends half of the model back. fp32, and the last task reads nothing. */
static void owners_send_what_the_page_says(void **state)
{
    struct lab_options o = owners("async-dn", 2);
    uint64_t bytes = 4 * (uint64_t)llama_numel(&o.model);
    struct lab_result r;

    (void)state;
    o.method.wire = CODEC_FP32;
    o.method.dylu = false;
    machines[1].tokens_per_s = 999;
    r = run(&o);
    machines[1].tokens_per_s = 1000;
    /* 6 tasks: pieces P b / 2, records P b; 4 readings of P b / 2. Slices of
     * 1,024 elements do not halve every model: within one of them. */
    assert_true(fabs((double)r.bytes_sent -
                     (double)bytes * (6 * 1.5 + 4 * 0.5)) <= 6 * 4 * 1024 * 4);
    lab_result_free(&r);
}

/* A slow line costs who has it, and nobody else waits. */
static void owners_do_not_wait_for_a_slow_worker(void **state)
{
    struct lab_options o = owners("async-dn", 4);
    struct lab_result fast, slow;

    (void)state;
    o.method.dylu = false;
    o.tokens *= 2;
    fast = run(&o);
    machines[3].tokens_per_s = 100;
    slow = run(&o);
    machines[3].tokens_per_s = 1000;
    /* Three make what four made, and the slow one's last task is not waited
     * for: a third more, not ten times. */
    assert_true(slow.virtual_s < 2.0 * fast.virtual_s);
    lab_result_free(&fast);
    lab_result_free(&slow);
}

static void trainers_merge_until_one_is_left(void **state)
{
    struct lab_options o = options("adloco", 8);
    struct lab_result r;

    (void)state;
    o.tokens *= 8;
    o.method.trainers = 4;
    o.method.merge_every = 1;
    r = run(&o);
    assert_int_equal(r.trainers, 1);
    assert_true(r.batch >= BATCH);
    lab_result_free(&r);
}

static void a_stream_that_was_never_due_is_reported(void **state)
{
    struct lab_options o = options("desloc", 2);
    struct lab_result r;

    (void)state;
    o.method.period_v = 100000;
    r = run(&o);
    assert_false(r.never_synced[0]);
    assert_false(r.never_synced[1]);
    assert_true(r.never_synced[2]);
    lab_result_free(&r);
}

/* ---- stages ------------------------------------------------------------ */

static struct lab_options staged(const char *preset, uint32_t peers)
{
    struct lab_options o = options(preset, peers);

    o.model.tied = false;
    o.model.layers = 2;
    o.micro_batch = 1;
    o.stages = 2;
    o.tokens /= 2; /* a column has as many steps as a peer */
    return o;
}

/* Column c sends micro-batch mb to column c + mb. */
static void next_column(void *data,
                        uint64_t step,
                        uint64_t mb,
                        uint32_t columns,
                        uint32_t stages,
                        uint32_t entry,
                        uint32_t *path)
{
    uint32_t *calls = data;

    (void)step;
    for (uint32_t s = 1; s < stages; s++) {
        path[s] = (entry + (uint32_t)mb) % columns;
    }
    *calls += 1;
}

static void one_column_of_stages_is_one_peer_to_the_bit(void **state)
{
    static const char *const presets[] = {"diloco", "noloco", "ddp"};

    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        struct lab_options o = staged(presets[i], 2), one;
        struct lab_result a, b;

        o.optimizer.clip_norm = 0; /* a stage's norm is not the model's */
        one = o;
        one.peers = 1;
        one.stages = 1;
        a = run(&o);
        b = run(&one);
        assert_true(a.bits_per_byte == b.bits_per_byte);
        assert_true(a.bits_per_byte == a.bits_per_byte_routes);
        assert_int_equal(a.tokens, b.tokens);
        lab_result_free(&a);
        lab_result_free(&b);
    }
}

static void stages_learn_and_average_by_themselves(void **state)
{
    static const char *const presets[] = {"diloco", "noloco", "ddp",
                                          "local-adam"};

    (void)state;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        struct lab_options o = staged(presets[i], 6);
        uint32_t calls = 0;
        struct lab_result r;

        o.route = next_column;
        o.route_data = &calls;
        r = run(&o);
        assert_true(r.bits_per_byte < r.bits_per_byte_before - 0.5);
        assert_true(r.bits_per_byte_routes < r.bits_per_byte_before - 0.5);
        assert_int_equal(calls, STEPS * BATCH * 3);
        assert_int_equal(r.spread == 0.0, method_replicas_equal(&o.method));
        assert_true(r.turns > 0 && r.bytes_sent > 0 && r.virtual_s > 0);
        lab_result_free(&r);
    }
}

/* Without averaging fixed columns are peers of their own; what crosses brings
 * them nearer to each other. */
static void random_routes_change_what_a_host_sees(void **state)
{
    struct lab_options o = staged("diloco", 4);
    struct lab_result fixed, mixed;
    uint32_t calls = 0;

    (void)state;
    o.method.period = 1000000;
    fixed = run(&o);
    o.route = next_column;
    o.route_data = &calls;
    mixed = run(&o);
    assert_true(fixed.spread > 0 && mixed.spread > 0);
    assert_true(fixed.spread != mixed.spread);
    assert_int_equal(fixed.bytes_sent, mixed.bytes_sent);
    lab_result_free(&fixed);
    lab_result_free(&mixed);
}

/* What crosses a cut: labels and activations there, gradients back. */
static void activations_cost_bytes_of_their_wire_type(void **state)
{
    struct lab_options o = staged("diloco", 2);
    uint64_t each = SEQ * (uint64_t)o.model.dim;
    struct lab_result r;

    (void)state;
    r = run(&o);
    assert_int_equal(r.bytes_sent,
                     STEPS * BATCH * (2 * 4 * each + 4 * (uint64_t)SEQ));
    lab_result_free(&r);
    o.activations = CODEC_BF16;
    r = run(&o);
    assert_int_equal(r.bytes_sent,
                     STEPS * BATCH * (2 * 2 * each + 4 * (uint64_t)SEQ));
    assert_true(r.bits_per_byte < r.bits_per_byte_before - 0.5);
    lab_result_free(&r);
}

static void stages_that_cannot_be_are_an_error(void **state)
{
    struct lab_options o = staged("diloco", 3);
    struct lab_result r;
    char errmsg[ERRMSG_SIZE];

    (void)state;
    assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "stages of equally many hosts"));
    o = staged("diloco", 4);
    o.model.tied = true;
    assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "tied"));
    o = staged("async-dn", 4);
    assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
    o = staged("streaming", 4);
    assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
}

/* Two of seven, round a butterfly; the rest of the run is that of plain means.
 */
static struct lab_options lied_to(enum lab_lie lie, float clip, bool centred)
{
    struct lab_options o = options("localsgd", 7);

    o.liars = 2;
    o.lie = lie;
    o.butterfly = true;
    o.clip = clip;
    o.centred = centred;
    return o;
}

static void huge_lies_end_a_plain_mean_and_not_a_centred_one(void **state)
{
    const struct lab_options plain = lied_to(LAB_LIE_HUGE, 0, false);
    const struct lab_options centred = lied_to(LAB_LIE_HUGE, 1, true);
    char errmsg[ERRMSG_SIZE];
    struct lab_result r;
    int rv = lab_run(&plain, &r, errmsg);

    (void)state;
    assert_true(rv == LOCO_ENUMERIC ||
                (rv == 0 && !(r.bits_per_byte < r.bits_per_byte_before)));
    lab_result_free(&r);
    r = run(&centred);
    assert_true(r.bits_per_byte < 0.7 * r.bits_per_byte_before);
    lab_result_free(&r);
}

/* Every lie by its name changes the run; nobody lies where nobody is to. */
static void lies_are_those_of_the_liars_alone(void **state)
{
    static const char *const names[LAB_LIE_COUNT] = {
        "noise",   "flip", "scale",     "huge",  "zero", "drift",
        "against", "copy", "overshoot", "mimic", "push", "pull"};
    struct lab_options honest = lied_to(LAB_LIE_FLIP, 1, true);
    struct lab_result want, r;
    enum lab_lie lie;

    (void)state;
    honest.liars = 0;
    want = run(&honest);
    for (int i = 0; i < LAB_LIE_COUNT; i++) {
        struct lab_options o;

        assert_true(lab_lie_named(names[i], &lie) && (int)lie == i);
        o = lied_to(lie, 1, true);
        r = run(&o);
        assert_true(r.bits_per_byte != want.bits_per_byte);
        assert_true(r.bits_per_byte < r.bits_per_byte_before);
        assert_int_equal(r.bytes_sent, want.bytes_sent);
        lab_result_free(&r);
    }
    honest.lie = LAB_LIE_NOISE;
    r = run(&honest);
    assert_true(r.bits_per_byte == want.bits_per_byte);
    lab_result_free(&r);
    assert_false(lab_lie_named("truth", &lie));
    lab_result_free(&want);
}

static void a_script_that_cannot_be_is_an_error(void **state)
{
    struct lab_options o = options("diloco", 2);
    const struct lab_event twice = {1, LAB_JOIN, 0, 0.0};
    const struct lab_event nobody[2] = {{1, LAB_DIE, 0, 0.0},
                                        {2, LAB_DIE, 1, 0.0}};
    struct lab_result r;
    char errmsg[ERRMSG_SIZE];

    (void)state;
    o.events = &twice;
    o.n_events = 1;
    assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "peer 0 cannot join"));
    lab_result_free(&r);
    o.events = nobody;
    o.n_events = 2;
    assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "all peers are gone"));
    lab_result_free(&r);
    o.n_events = 0;
    o.peers = LAB_PEERS_MAX + 1;
    assert_int_equal(lab_run(&o, &r, errmsg), LOCO_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_learns_and_ends),
        cmocka_unit_test(every_method_goes_on_while_peers_come_and_go),
        cmocka_unit_test(every_method_goes_over_to_a_newcomer),
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(replicas_are_equal_where_the_method_says_so),
        cmocka_unit_test(bytes_and_seconds_are_those_of_the_model),
        cmocka_unit_test(what_overlaps_costs_only_what_is_left),
        cmocka_unit_test(dylu_lets_slow_peers_arrive_as_often),
        cmocka_unit_test(the_grace_period_gathers_who_is_nearly_done),
        cmocka_unit_test(owners_learn_on_every_wire),
        cmocka_unit_test(owners_go_on_while_peers_come_and_go),
        cmocka_unit_test(owners_go_over_to_a_newcomer),
        cmocka_unit_test(owners_without_delays_are_quorums_of_one),
        cmocka_unit_test(owners_send_what_the_page_says),
        cmocka_unit_test(owners_do_not_wait_for_a_slow_worker),
        cmocka_unit_test(trainers_merge_until_one_is_left),
        cmocka_unit_test(a_stream_that_was_never_due_is_reported),
        cmocka_unit_test(one_column_of_stages_is_one_peer_to_the_bit),
        cmocka_unit_test(stages_learn_and_average_by_themselves),
        cmocka_unit_test(random_routes_change_what_a_host_sees),
        cmocka_unit_test(activations_cost_bytes_of_their_wire_type),
        cmocka_unit_test(stages_that_cannot_be_are_an_error),
        cmocka_unit_test(huge_lies_end_a_plain_mean_and_not_a_centred_one),
        cmocka_unit_test(lies_are_those_of_the_liars_alone),
        cmocka_unit_test(a_script_that_cannot_be_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_text, NULL);
}
