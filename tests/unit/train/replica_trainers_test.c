/* replica_trainers_test.c - AdLoCo as replicas run it: equal states, the bits
 * of the laboratory, growing batches, mergers, late members and newcomers. What
 * becomes of a round's numbers is trainers_test.c's. */
#include "train/replica/replica.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"
#include "tests/unit/train/small_run.h"
#include "train/lab/lab.h"
#include "train/sync/preset.h"

#define SWARM  4
#define BATCH  2
#define SEQ    16
#define PERIOD 3

static uint8_t text[SMALL_TEXT];
static struct shard shard;
static char errmsg[ERRMSG_SIZE];

static int setup(void **state)
{
    (void)state;
    small_text(text, &shard);
    return 0;
}

static struct method method_of(uint32_t trainers, uint32_t merge_every)
{
    const struct preset *p;
    struct method m;

    assert_int_equal(preset_find("adloco", &p, errmsg), 0);
    m = p->method;
    m.wire = CODEC_FP32;
    m.period = PERIOD;
    m.trainers = trainers;
    m.merge_every = merge_every;
    m.batch_most = 4;
    assert_int_equal(method_check(&m, errmsg), 0);
    return m;
}

static struct replica_options options(const struct method *m, uint64_t number)
{
    const uint64_t words[2] = {11, number};

    return (struct replica_options){
        .model = small_model(1, SEQ),
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 3e-3, 3e-3, 0, 0, 0},
        .method = *m,
        .codec = codec_get(m->wire),
        .batch = BATCH,
        .micro_batch = 1,
        .seq = SEQ,
        .seed = 11,
        .peer = rng_mix(words, 2),
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = 512,
        .threads = 1,
        .reference = true,
    };
}

struct swarm {
    struct replica r[SWARM + 1];
    uint32_t n;
    uint64_t round;
    uint8_t *wire;
};

static void open_one(struct swarm *s, const struct method *m)
{
    const struct replica_options o = options(m, s->n);

    assert_int_equal(replica_open(&s->r[s->n], &o, errmsg), 0);
    replica_init(&s->r[s->n]);
    s->n++;
}

static void swarm_open(struct swarm *s, const struct method *m, uint32_t n)
{
    *s = (struct swarm){0};
    while (s->n < n) {
        open_one(s, m);
    }
    s->wire = malloc(s->r[0].opt.codec->bytes(s->r[0].n_wire));
    assert_non_null(s->wire);
}

static void swarm_close(struct swarm *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        replica_close(&s->r[i]);
    }
    free(s->wire);
}

static void train(struct swarm *s, uint32_t i)
{
    float loss;

    replica_turn(&s->r[i], i, s->n);
    while (replica_left(&s->r[i]) > 0) {
        assert_int_equal(replica_step(&s->r[i], &loss), 0);
    }
    assert_int_equal(replica_pack(&s->r[i]), 0);
}

/* The mean of what the first n have packed, by their tokens: chunk k of a ring
 * begins at member k. */
static void reduce(struct swarm *s, uint32_t n)
{
    const struct codec *c = s->r[0].opt.codec;
    uint64_t len = replica_elements(&s->r[0]);
    uint64_t chunk = ((len + c->block - 1) / c->block + n - 1) / n * c->block;
    double all = 0;

    for (uint32_t i = 0; i < n; i++) {
        all += (double)s->r[i].packed_tokens;
        assert_int_equal(replica_elements(&s->r[i]), len);
    }
    for (uint32_t k = 0; k < n * n && k / n * chunk < len; k++) {
        const struct replica *r = &s->r[(k / n + k % n) % n];
        uint64_t at = k / n * chunk, left = len - at;
        uint64_t part = left < chunk ? left : chunk;
        const float *own = r->contribution + at;
        uint8_t *to = s->wire + c->bytes(at);
        float w = (float)((double)r->packed_tokens / all);

        assert_int_equal(k % n == 0 ? c->encode(to, own, part, w)
                                    : c->add(to, to, own, part, w),
                         0);
    }
    s->round++;
}

static void apply(struct swarm *s, uint32_t i, double share)
{
    const struct replica_commit c = {s->round, s->wire, share, 0, 0};

    assert_int_equal(replica_commit(&s->r[i], &c), 0);
}

static void make_round(struct swarm *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        train(s, i);
    }
    reduce(s, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        apply(s, i, 1.0 / s->n);
    }
}

static void check_equal(const struct swarm *s)
{
    struct replica_vector a[REPLICA_STATE_MAX], b[REPLICA_STATE_MAX];
    size_t n = replica_state(&s->r[0], a);

    for (uint32_t i = 1; i < s->n; i++) {
        assert_int_equal(replica_state(&s->r[i], b), n);
        for (size_t v = 0; v < n; v++) {
            assert_memory_equal(a[v].x, b[v].x, a[v].n * sizeof(float));
        }
    }
}

static bool at_anchor(const struct replica *r)
{
    return memcmp(r->theta, r->phi + r->trainer * r->n, r->n * sizeof(float)) ==
           0;
}

static void all_hold_the_same_trainers_until_one_is_left(void **state)
{
    const struct method m = method_of(3, 2);
    struct swarm s;

    (void)state;
    swarm_open(&s, &m, SWARM);
    for (uint32_t round = 1; round <= 6; round++) {
        uint64_t before = s.r[0].n_wire;

        make_round(&s);
        check_equal(&s);
        for (uint32_t i = 0; i < s.n; i++) {
            assert_true(at_anchor(&s.r[i]));
        }
        assert_true(replica_elements(&s.r[0]) <= before);
        if (round == 1) { /* they are apart */
            assert_memory_not_equal(s.r[0].phi, s.r[0].phi + s.r[0].n,
                                    s.r[0].n * sizeof(float));
        }
    }
    for (uint64_t i = 0; i < 2 * s.r[0].n; i++) { /* two have ended */
        assert_true(s.r[0].phi[s.r[0].n + i] == 0.0F);
    }
    assert_int_equal(replica_elements(&s.r[0]),
                     s.r[0].n + 7 + 1 - (s.r[0].n + 7) % 8);
    swarm_close(&s);
}

static void batches_grow_and_are_cut_to_whole_micro_batches(void **state)
{
    struct method m = method_of(1, 0);
    uint32_t rows = BATCH, grew = 0;
    struct swarm s;

    (void)state;
    m.batch_eta = 0.05;
    swarm_open(&s, &m, 2);
    for (int round = 0; round < 8; round++) {
        uint64_t before = s.r[0].tokens_seen;

        make_round(&s);
        assert_true(s.r[0].rows >= rows);
        assert_true(s.r[0].rows <= 4 || s.r[0].rows % 4 == 0);
        assert_int_equal(s.r[0].tokens_seen - before,
                         (uint64_t)PERIOD * s.r[0].rows * SEQ);
        grew += s.r[0].rows > rows;
        rows = s.r[0].rows;
    }
    assert_true(grew >= 3); /* 2 -> 4 -> 8 -> ..., as the noise asks for */
    swarm_close(&s);
}

static struct lab_result
in_the_laboratory(const struct method *m, uint32_t peers, uint64_t tokens)
{
    static const struct lab_machine machines[LAB_PEERS_MAX] = {
        {1000, 0, 0, 0}, {1000, 0, 0, 0}, {1000, 0, 0, 0}, {1000, 0, 0, 0}};
    const struct replica_options o = options(m, 0);
    const struct lab_options lab = {
        .method = *m,
        .model = o.model,
        .optimizer = o.optimizer,
        .schedule = o.schedule,
        .peers = peers,
        .tokens = tokens,
        .batch = BATCH,
        .micro_batch = 1,
        .seq = SEQ,
        .seed = o.seed,
        .machines = machines,
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = o.eval_tokens,
        .threads = 1,
        .reference = true,
    };
    struct lab_result result;

    if (lab_run(&lab, &result, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    lab_result_free(&result); /* the points */
    return result;
}

/* Every round, before a merger and after it: the laboratory's result is
 * that of the first trainer. */
static void trainers_give_the_bits_of_the_laboratory(void **state)
{
    static const enum codec_id wires[] = {CODEC_FP32, CODEC_BF16, CODEC_FP16};

    (void)state;
    for (uint32_t peers = 1; peers <= SWARM; peers++) {
        struct method m = method_of(2, 3);
        uint64_t tokens = 0;
        struct swarm s;

        m.wire = wires[peers % 3];
        swarm_open(&s, &m, peers);
        for (uint32_t round = 1; round <= 5; round++) {
            struct replica *r = &s.r[0];
            struct lab_result result;
            double bits;

            make_round(&s);
            tokens = 0;
            for (uint32_t i = 0; i < peers; i++) {
                tokens += s.r[i].tokens_seen;
            }
            result = in_the_laboratory(&m, peers, tokens);
            assert_int_equal(result.tokens, tokens);
            assert_int_equal(result.turns, round);
            assert_int_equal(result.trainers, round < 3 ? 2 : 1);
            assert_int_equal(replica_eval(r, 0, &bits), 0);
            if (bits != result.bits_per_byte) {
                fail_msg("%u peers, round %u: %.17g, in the laboratory %.17g",
                         peers, round, bits, result.bits_per_byte);
            }
        }
        swarm_close(&s);
    }
}

/* A commit without it, at which its trainer merges: its work goes into the next
 * round, from where its trainer is then. */
static void who_was_late_keeps_its_displacement(void **state)
{
    const struct method m = method_of(2, 1);
    struct swarm s;
    struct replica *late;
    float *moved;

    (void)state;
    swarm_open(&s, &m, 3);
    late = &s.r[2];
    for (uint32_t i = 0; i < 3; i++) {
        train(&s, i);
    }
    assert_int_equal(late->trainer, 1);
    moved = malloc(late->n * sizeof *moved);
    assert_non_null(moved);
    for (uint64_t i = 0; i < late->n; i++) {
        moved[i] = late->theta[i] - late->phi[late->n + i];
    }
    reduce(&s, 2);
    apply(&s, 0, 0.5);
    apply(&s, 1, 0.5);
    apply(&s, 2, 0);
    check_equal(&s);
    assert_int_equal(late->trainer, 0); /* merged */
    assert_true(late->packed);
    for (uint64_t i = 0; i < late->n; i++) {
        double d = (double)late->theta[i] - (double)late->phi[i];

        assert_true(fabs(d - (double)moved[i]) < 1e-6);
        assert_true(fabs(d + (double)late->contribution[i]) < 1e-6);
    }
    train(&s, 0);
    train(&s, 1);
    reduce(&s, 3);
    for (uint32_t i = 0; i < 3; i++) {
        apply(&s, i, 1.0 / 3);
        assert_true(at_anchor(&s.r[i]));
    }
    check_equal(&s);
    free(moved);
    swarm_close(&s);
}

static float *copy_state(const struct replica *r)
{
    struct replica_vector at[REPLICA_STATE_MAX];
    size_t n = replica_state(r, at);
    float *out = calloc((size_t)replica_state_elements(&r->opt.method, r->n),
                        sizeof *out);
    float *to = out;

    assert_non_null(out);
    for (size_t i = 0; i < n; i++) {
        memcpy(to, at[i].x, at[i].n * sizeof(float));
        to += at[i].n;
    }
    assert_int_equal(to - out, replica_state_elements(&r->opt.method, r->n));
    return out;
}

static void newcomers_and_who_reloads_hold_the_same(void **state)
{
    const struct method m = method_of(3, 2);
    struct swarm s;
    struct replica *far;
    float *at, *moved;

    (void)state;
    swarm_open(&s, &m, SWARM);
    make_round(&s);
    train(&s, 3); /* then it is away for two rounds, in which one merges */
    far = &s.r[3];
    moved = malloc(far->n * sizeof *moved);
    assert_non_null(moved);
    assert_int_equal(far->trainer, 2);
    for (uint64_t i = 0; i < far->n; i++) {
        moved[i] = far->theta[i] - far->phi[2 * far->n + i];
    }
    s.n = 3;
    make_round(&s);
    make_round(&s);
    at = copy_state(&s.r[0]);
    s.n = SWARM;
    open_one(&s, &m);
    assert_int_equal(replica_load(&s.r[SWARM], s.round, at, false), 0);
    assert_true(at_anchor(&s.r[SWARM]));
    assert_int_equal(replica_load(far, s.round, at, true), 0);
    check_equal(&s);
    assert_int_equal(far->trainer, 1);
    for (uint64_t i = 0; i < far->n; i++) {
        double d = (double)far->theta[i] - (double)far->phi[far->n + i];

        assert_true(fabs(d - (double)moved[i]) < 1e-6);
    }
    for (uint32_t i = 0; i < s.n; i++) {
        if (i != 3) {
            train(&s, i);
        }
    }
    reduce(&s, s.n);
    for (uint32_t i = 0; i < s.n; i++) {
        apply(&s, i, 1.0 / s.n);
    }
    check_equal(&s);
    free(at);
    free(moved);
    swarm_close(&s);
}

/* Fewer peers than trainers: no trainer is lost, and some rest. */
static void one_peer_alone_works_for_one_of_three(void **state)
{
    const struct method m = method_of(3, 2);
    struct swarm s;
    float *rests;

    (void)state;
    swarm_open(&s, &m, 1);
    rests = malloc(s.r[0].n * sizeof *rests);
    assert_non_null(rests);
    memcpy(rests, s.r[0].phi + 2 * s.r[0].n, s.r[0].n * sizeof *rests);
    make_round(&s);
    assert_memory_equal(rests, s.r[0].phi + 2 * s.r[0].n,
                        s.r[0].n * sizeof *rests);
    assert_memory_not_equal(rests, s.r[0].phi, s.r[0].n * sizeof *rests);
    for (int round = 0; round < 6; round++) {
        make_round(&s);
        assert_true(at_anchor(&s.r[0]));
    }
    free(rests);
    swarm_close(&s);
}

static void what_is_no_number_changes_nothing(void **state)
{
    const struct method m = method_of(2, 1);
    struct swarm s;
    float *before, *after;
    uint64_t bytes;

    (void)state;
    swarm_open(&s, &m, 2);
    train(&s, 0);
    train(&s, 1);
    s.r[1].contribution[5] = INFINITY;
    before = copy_state(&s.r[0]);
    s.round = 1;
    for (uint64_t i = 0; i < replica_elements(&s.r[0]); i++) {
        float x = i == 7 ? NAN : s.r[0].contribution[i];

        memcpy(s.wire + i * sizeof x, &x, sizeof x); /* fp32 as it is */
    }
    {
        const struct replica_commit c = {1, s.wire, 0.5, 0, 0};

        assert_int_equal(replica_commit(&s.r[0], &c), LOCO_ENUMERIC);
    }
    after = copy_state(&s.r[0]);
    bytes = replica_state_elements(&m, s.r[0].n) * sizeof *after;
    assert_memory_equal(before, after, bytes);
    assert_int_equal(s.r[0].round, 0);
    free(before);
    free(after);
    swarm_close(&s);
}

/* What comes from others, or lay in a file, is not believed. */
static void requests_without_meaning_are_refused(void **state)
{
    static const float bad[] = {-1, 0.5F, 16777216, 3e38F, NAN};
    const struct method m = method_of(3, 2);
    struct swarm s;
    uint64_t n;
    float *at;

    (void)state;
    swarm_open(&s, &m, 2);
    n = replica_state_elements(&m, s.r[0].n);
    at = copy_state(&s.r[0]);
    assert_int_equal(replica_load(&s.r[1], 3, at, false), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        for (uint64_t k = n - 6; k < n; k += 5) { /* the first, the last */
            float before = at[k];

            at[k] = bad[i];
            assert_int_equal(replica_load(&s.r[1], 4, at, false), LOCO_EPROTO);
            assert_int_equal(replica_load(&s.r[1], 4, at, true), LOCO_EPROTO);
            at[k] = before;
            assert_true(s.r[1].round == 3);
        }
    }
    at[n - 1] = 16777215;
    assert_int_equal(replica_load(&s.r[1], 4, at, false), 0);
    free(at);
    swarm_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_hold_the_same_trainers_until_one_is_left),
        cmocka_unit_test(batches_grow_and_are_cut_to_whole_micro_batches),
        cmocka_unit_test(trainers_give_the_bits_of_the_laboratory),
        cmocka_unit_test(who_was_late_keeps_its_displacement),
        cmocka_unit_test(newcomers_and_who_reloads_hold_the_same),
        cmocka_unit_test(one_peer_alone_works_for_one_of_three),
        cmocka_unit_test(what_is_no_number_changes_nothing),
        cmocka_unit_test(requests_without_meaning_are_refused),
    };

    return cmocka_run_group_tests_name("replica_trainers", tests, setup, NULL);
}
