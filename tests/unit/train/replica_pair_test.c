/* replica_pair_test.c - two replicas that step with each other, and the mix at
 * the end of a run. The vectors of rule H are sync_numbers_test.c's and
 * engine_test.c's; here is what only the wire can spoil. */
#include "train/replica/pair.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"
#include "tests/unit/train/small_run.h"
#include "train/sync/pair_mean.h"

#define TEXT 2000
#define LR   0.7F
#define MU   0.5F
#define PULL 0.7F

static uint8_t text[TEXT];
static struct shard shard;
static char errmsg[ERRMSG_SIZE];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEXT; i++) {
        text[i] = (uint8_t)('a' + i % 7);
    }
    shard_from_text(&shard, text, TEXT);
    return 0;
}

static void open_replica(struct replica *r, uint64_t peer, const char *codec)
{
    struct replica_options opt = {
        .model = small_model(2, 16),
        .optimizer = optimizer_defaults(),
        .schedule = {SCHEDULE_CONSTANT, 3e-3, 3e-3, 2, 0, 0},
        .method = {.period = 4,
                   .fragments = 1,
                   .group = METHOD_PAIR,
                   .rule = {.form = RULE_HEAVY_BALL,
                            .lr = LR,
                            .mu = MU,
                            .gamma = PULL}},
        .codec = codec_find(codec),
        .batch = 2,
        .micro_batch = 2,
        .seq = 16,
        .seed = 3,
        .peer = peer,
        .train = &shard,
        .n_train = 1,
        .threads = 1,
        .reference = true,
    };

    assert_int_equal(replica_open(r, &opt, errmsg), 0);
    replica_init(r);
}

/* Some numbers in place of a history: what a peer has is unlike another's. */
static void scatter(struct replica *r, uint64_t seed, float size)
{
    for (uint64_t i = 0; i < r->n; i++) {
        r->phi[i] += size * (rng_float(&seed) - 0.5F);
        r->m[i] = size * (rng_float(&seed) - 0.5F);
        r->theta[i] = r->phi[i] + size * (rng_float(&seed) - 0.5F);
    }
    assert_int_equal(replica_pack(r), 0);
}

static uint8_t *payload(const struct replica *r)
{
    size_t vector = r->opt.codec->bytes(r->n);
    uint8_t *p = malloc(2 * vector);

    assert_non_null(p);
    assert_int_equal(r->opt.codec->encode(p, r->phi, r->n, 1.0F), 0);
    assert_int_equal(
        r->opt.codec->encode(p + vector, r->contribution, r->n, 1.0F), 0);
    return p;
}

static void step_together(struct replica *a, struct replica *b)
{
    uint8_t *of_a = payload(a), *of_b = payload(b);

    assert_int_equal(replica_apply_pair(a, 5, of_b, true), 0);
    assert_int_equal(replica_apply_pair(b, 5, of_a, false), 0);
    free(of_a);
    free(of_b);
}

static double
sum_of(const struct replica *a, const struct replica *b, uint64_t i)
{
    return (double)a->phi[i] + (double)b->phi[i];
}

static void a_step_together_keeps_the_mean_on_every_wire(void **state)
{
    const char *codecs[] = {"fp32", "bf16", "fp16"};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct replica a, b, c, d;

        open_replica(&a, 1, codecs[k]);
        open_replica(&b, 2, codecs[k]);
        open_replica(&c, 1, codecs[k]);
        open_replica(&d, 2, codecs[k]);
        scatter(&a, 11, 0.02F);
        scatter(&b, 12, 0.02F);
        scatter(&c, 11, 0.02F);
        scatter(&d, 12, 0.02F);
        step_together(&a, &b);
        assert_int_equal(replica_apply_pair(&c, 5, NULL, true), 0);
        assert_int_equal(replica_apply_pair(&d, 5, NULL, true), 0);
        for (uint64_t i = 0; i < a.n; i++) {
            /* All that is lost is what the wire makes of two displacements. */
            double off = fabs(sum_of(&a, &b, i) - sum_of(&c, &d, i));

            assert_true(off < (k == 0 ? 1e-6 : 1.5e-4));
        }
        assert_int_equal(a.round, 5);
        replica_close(&a);
        replica_close(&b);
        replica_close(&c);
        replica_close(&d);
    }
}

/* Learning rates go by turns as they go by rounds, whatever was trained. */
static void a_turn_is_a_round_of_the_clock(void **state)
{
    struct replica r;
    float loss;

    (void)state;
    open_replica(&r, 1, "bf16");
    for (int k = 0; k < 4; k++) {
        assert_int_equal(replica_left(&r), 4 - k);
        assert_int_equal(replica_step(&r, &loss), 0);
    }
    assert_int_equal(replica_left(&r), 0);
    assert_int_equal(replica_pack(&r), 0);
    assert_int_equal(replica_beside(&r), 0);
    assert_int_equal(replica_apply_pair(&r, 7, NULL, true), 0);
    assert_int_equal(replica_clock(&r), 28);
    assert_int_equal(replica_left(&r), 4);
    assert_int_equal(replica_replaced(&r, true), 0);
    assert_int_equal(replica_step(&r, &loss), 0);
    assert_int_equal(replica_clock(&r), 29);
    assert_int_equal(r.inner_step, 5);
    replica_close(&r);
}

static void equal_replicas_do_not_pull_each_other_to_the_grid(void **state)
{
    struct replica a, b, alone;
    uint8_t *wire;

    (void)state;
    open_replica(&a, 1, "bf16");
    open_replica(&b, 1, "bf16");
    open_replica(&alone, 1, "bf16");
    scatter(&a, 4, 0.02F);
    scatter(&b, 4, 0.02F);
    scatter(&alone, 4, 0.02F);
    /* The displacement on the grid, so that only the anchors could differ. */
    wire = payload(&alone);
    assert_int_equal(alone.opt.codec->decode(
                         alone.contribution,
                         wire + alone.opt.codec->bytes(alone.n), alone.n),
                     0);
    free(wire);
    step_together(&a, &b);
    assert_int_equal(replica_apply_pair(&alone, 5, NULL, true), 0);
    assert_memory_equal(a.phi, alone.phi, a.n * sizeof(float));
    assert_memory_equal(a.phi, b.phi, a.n * sizeof(float));
    assert_memory_equal(a.theta, a.phi, a.n * sizeof(float));
    replica_close(&a);
    replica_close(&b);
    replica_close(&alone);
}

static void the_step_is_rule_h(void **state)
{
    struct replica a, b;
    float phi, m, g, mean;

    (void)state;
    open_replica(&a, 1, "fp32");
    open_replica(&b, 2, "fp32");
    scatter(&a, 21, 0.5F);
    scatter(&b, 22, 0.5F);
    phi = a.phi[7];
    g = 0.5F * a.contribution[7] + 0.5F * b.contribution[7];
    mean = phi + 0.5F * (b.phi[7] - phi);
    m = MU * a.m[7] + LR * g + PULL * (phi - mean);
    step_together(&a, &b);
    assert_true(fabs((double)a.m[7] - (double)m) < 1e-6);
    assert_true(fabs((double)a.phi[7] - (double)(phi - m)) < 1e-6);
    replica_close(&a);
    replica_close(&b);
}

static void no_numbers_from_the_partner_change_nothing(void **state)
{
    struct replica a, b;
    uint8_t *wire;
    float phi;

    (void)state;
    open_replica(&a, 1, "fp32");
    open_replica(&b, 2, "fp32");
    scatter(&a, 31, 0.1F);
    scatter(&b, 32, 0.1F);
    wire = payload(&b);
    memset(wire + 4 * 9, 0xff, 4);
    phi = a.phi[0];
    assert_int_equal(replica_apply_pair(&a, 5, wire, true), LOCO_ENUMERIC);
    assert_true(a.phi[0] == phi);
    assert_int_equal(a.round, 0);
    free(wire);
    replica_close(&a);
    replica_close(&b);
}

static void a_mix_is_the_weighted_mean_and_of_equals_nothing(void **state)
{
    struct replica a;
    float *other, before;

    (void)state;
    open_replica(&a, 1, "fp32");
    scatter(&a, 41, 0.1F);
    other = malloc(2 * a.n * sizeof(float));
    assert_non_null(other);
    memcpy(other, a.phi, a.n * sizeof(float));
    memcpy(other + a.n, a.m, a.n * sizeof(float));
    assert_int_equal(replica_mix(&a, other, 1.0 / 3.0), 0);
    assert_memory_equal(other, a.phi, a.n * sizeof(float));
    before = a.phi[3];
    other[3] = before + 3.0F;
    assert_int_equal(replica_mix(&a, other, 1.0 / 3.0), 0);
    assert_true(fabs((double)a.phi[3] - (double)before - 1.0) < 1e-5);
    assert_true(a.theta[3] == a.phi[3]);
    free(other);
    replica_close(&a);
}

/* Its owner signs for it alone: whatever it is, its hash is right. */
static void a_state_that_is_no_numbers_is_not_taken(void **state)
{
    struct replica a;
    float *other, *before;

    (void)state;
    open_replica(&a, 1, "fp32");
    scatter(&a, 41, 0.1F);
    other = malloc(2 * a.n * sizeof(float));
    before = malloc(2 * a.n * sizeof(float));
    assert_non_null(other);
    assert_non_null(before);
    memcpy(before, a.phi, a.n * sizeof(float));
    memcpy(before + a.n, a.m, a.n * sizeof(float));
    for (int k = 0; k < 3; k++) {
        memcpy(other, before, 2 * a.n * sizeof(float));
        other[k == 0 ? 3 : a.n + 3] = k == 1 ? INFINITY : NAN;
        assert_int_equal(replica_mix(&a, other, 0.5), LOCO_ENUMERIC);
        assert_int_equal(replica_load(&a, 9, other, false), LOCO_ENUMERIC);
        assert_memory_equal(a.phi, before, a.n * sizeof(float));
        assert_memory_equal(a.m, before + a.n, a.n * sizeof(float));
        assert_int_not_equal(a.round, 9);
    }
    free(other);
    free(before);
    replica_close(&a);
}

static void the_mean_of_two_is_the_same_from_both_sides(void **state)
{
    const float a[3] = {1.0F, 0x1p-149F, -3.25F};
    const float b[3] = {0.1F, 0x1p-149F, 7.0F};
    float x[3], y[3];

    (void)state;
    pair_mean_step(x, a, b, 3);
    memcpy(y, a, sizeof y);
    pair_mean_step(y, y, b, 3); /* in place */
    assert_memory_equal(x, y, sizeof x);
    pair_mean_anchor(x, a, a, b, 3);
    assert_true(x[2] == 1.875F);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_together_keeps_the_mean_on_every_wire),
        cmocka_unit_test(a_turn_is_a_round_of_the_clock),
        cmocka_unit_test(equal_replicas_do_not_pull_each_other_to_the_grid),
        cmocka_unit_test(the_step_is_rule_h),
        cmocka_unit_test(no_numbers_from_the_partner_change_nothing),
        cmocka_unit_test(a_mix_is_the_weighted_mean_and_of_equals_nothing),
        cmocka_unit_test(a_state_that_is_no_numbers_is_not_taken),
        cmocka_unit_test(the_mean_of_two_is_the_same_from_both_sides),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
