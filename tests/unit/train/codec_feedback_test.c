/* codec_feedback_test.c - residuals: what rounding took comes back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"
#include "train/sync/codec/codec.h"

#define N (CODEC_FP16_BLOCK + 1100)

static float x[N];
static float y[N];
static float result[N];
static float residual[N];
static float candidate[N];
static float copy[N];
static uint8_t wire[4 * N];
static uint8_t again[4 * N];

static void fill(float *v, uint64_t seed, int magnitude)
{
    for (size_t i = 0; i < N; i++) {
        v[i] = ldexpf(rng_float(&seed) - 0.5F,
                      magnitude - (int)rng_below(&seed, 9));
    }
}

static void two_e3m0_rounds_are_those_of_the_algorithms_page(void **state)
{
    static const float sent_in[2][4] = {{0.5F, 0.1F, -0.03F, 0.2F},
                                        {0.4F, 0.1F, -0.03F, 0.25F}};
    static const double sent_out[2][4] = {{0.5, 0.125, -0.03125, 0.25},
                                          {0.4, 0.1, -0.025, 0.2}};
    static const double left[2][4] = {{0, -0.025, 0.00125, -0.05},
                                      {0, -0.025, -0.00375, 0}};
    const struct codec *c = codec_find("e3m0");
    float e[4] = {0};

    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        float sent[4];
        struct codec_op op = {.own = sent_in[round],
                              .n = 4,
                              .scale = 1.0F,
                              .residual = e,
                              .next = e,
                              .result = sent};

        assert_int_equal(c->encode_op(wire, &op), 0);
        for (unsigned i = 0; i < 4; i++) {
            assert_true(fabs((double)sent[i] - sent_out[round][i]) <= 1e-6);
            assert_true(fabs((double)e[i] - left[round][i]) <= 1e-6);
        }
    }
}

static void an_encoding_without_next_leaves_the_residual_alone(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);
        struct codec_op op = {
            .own = x, .n = N, .scale = 0.4F, .residual = residual};

        fill(x, 1, 0);
        fill(residual, 2, -4);
        memcpy(copy, residual, sizeof copy);
        assert_int_equal(c->encode_op(wire, &op), 0);
        op.result = result;
        assert_int_equal(c->encode_op(wire, &op), 0);
        assert_memory_equal(residual, copy, sizeof copy);
    }
}

static void a_recomputed_residual_is_the_candidate(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);
        struct codec_op op = {.own = x,
                              .n = N,
                              .scale = 0.4F,
                              .residual = residual,
                              .next = candidate};

        fill(x, 1, 0);
        fill(residual, 2, -4);
        memcpy(copy, residual, sizeof copy);
        assert_int_equal(c->encode_op(wire, &op), 0);
        assert_memory_equal(residual, copy, sizeof copy);
        op.next = residual; /* at the commit */
        assert_int_equal(c->encode_op(again, &op), 0);
        assert_memory_equal(wire, again, c->bytes(N));
        assert_memory_equal(residual, candidate, sizeof candidate);
    }
}

static void a_range_of_blocks_commits_on_its_own(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);
        struct codec_op op = {.own = x,
                              .n = N,
                              .scale = 1.0F,
                              .residual = residual,
                              .next = candidate};
        const size_t from = CODEC_FP16_BLOCK;

        fill(x, 3, 0);
        fill(residual, 4, -5);
        memcpy(copy, residual, sizeof copy);
        assert_int_equal(c->encode_op(wire, &op), 0);
        op = (struct codec_op){.own = x + from,
                               .n = N - from,
                               .scale = 1.0F,
                               .residual = residual + from,
                               .next = residual + from};
        assert_int_equal(c->encode_op(again, &op), 0);
        assert_memory_equal(again, wire + c->bytes(from), c->bytes(N - from));
        assert_memory_equal(residual, copy, from * sizeof(float));
        assert_memory_equal(residual + from, candidate + from,
                            (N - from) * sizeof(float));
    }
}

static void a_residual_is_what_the_bytes_lack(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);
        struct codec_op op = {.own = x,
                              .n = N,
                              .scale = 0.3F,
                              .residual = residual,
                              .next = candidate,
                              .result = result};

        fill(x, 5, 2);
        fill(residual, 6, -3);
        assert_int_equal(c->encode_op(wire, &op), 0);
        assert_int_equal(c->decode(y, wire, N), 0);
        assert_memory_equal(result, y, sizeof y);
        for (size_t i = 0; i < N; i++) {
            float product = 0.3F * x[i];
            float sum = product + residual[i];
            assert_true(candidate[i] == sum - y[i]);
        }
    }
}

static void a_hop_with_feedback_adds_the_residual_too(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);
        struct codec_op op = {.own = x,
                              .n = N,
                              .scale = 0.3F,
                              .residual = residual,
                              .next = candidate,
                              .result = result};

        if (!codec_adds(c)) {
            continue;
        }
        fill(x, 7, 2);
        fill(residual, 8, -3);
        assert_int_equal(c->encode(wire, residual, N, 9.0F), 0);
        assert_int_equal(c->decode(y, wire, N), 0);
        for (size_t i = 0; i < N; i++) {
            float product = 0.3F * x[i];
            float term = product + residual[i];
            y[i] = y[i] + term;
        }
        assert_int_equal(c->add_op(again, wire, &op), 0);
        assert_int_equal(c->encode(wire, y, N, 1.0F), 0);
        assert_memory_equal(again, wire, c->bytes(N));
        assert_int_equal(c->decode(copy, wire, N), 0);
        assert_memory_equal(result, copy, sizeof copy);
        for (size_t i = 0; i < N; i++) {
            assert_true(candidate[i] == y[i] - copy[i]);
        }
    }
}

static void feedback_makes_the_mean_of_many_rounds_right(void **state)
{
    /* The same small number beside a large one: rounding alone loses it every
     * time, with feedback the sum of what was sent is the sum of the inputs. */
    static const float v[2] = {1.0F, 0.0021F};

    (void)state;
    for (unsigned id = CODEC_INT8; id <= CODEC_E3M0; id++) {
        const struct codec *c = codec_get(id);
        float e[2] = {0};
        double with = 0;
        double without = 0;

        for (unsigned round = 0; round < 200; round++) {
            float sent[2];
            struct codec_op op = {.own = v,
                                  .n = 2,
                                  .scale = 1.0F,
                                  .residual = e,
                                  .next = e,
                                  .result = sent};

            assert_int_equal(c->encode_op(wire, &op), 0);
            with += (double)sent[1];
            assert_int_equal(c->encode(wire, v, 2, 1.0F), 0);
            assert_int_equal(c->decode(sent, wire, 2), 0);
            without += (double)sent[1];
        }
        assert_true(without == 0.0);
        assert_true(fabs(with - 200 * (double)v[1]) <= 0.016);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_e3m0_rounds_are_those_of_the_algorithms_page),
        cmocka_unit_test(an_encoding_without_next_leaves_the_residual_alone),
        cmocka_unit_test(a_recomputed_residual_is_the_candidate),
        cmocka_unit_test(a_range_of_blocks_commits_on_its_own),
        cmocka_unit_test(a_residual_is_what_the_bytes_lack),
        cmocka_unit_test(a_hop_with_feedback_adds_the_residual_too),
        cmocka_unit_test(feedback_makes_the_mean_of_many_rounds_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
