/* slices_test.c - arrivals at slices: their vectors, their orders, their cuts.
 */
#include "train/sync/slices.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"
#include "tests/unit/train/vectors.h"
#include "train/sync/engine.h"
#include "train/sync/preset.h"

#define NEAR 1e-6
#define N    40 /* elements of a toy model */
#define M    4  /* members */

static struct method owners(const char *preset)
{
    const struct preset *p;
    struct method m;

    assert_int_equal(preset_find(preset, &p, NULL), 0);
    m = p->method;
    m.group = METHOD_OWNERS;
    assert_int_equal(method_check(&m, NULL), 0);
    return m;
}

/* ---- cuts -------------------------------------------------------------- */

static void slices_cover_everything_once_in_whole_blocks(void **state)
{
    static const uint64_t sizes[] = {1,    7,     1024,   4096,
                                     4097, 65536, 262145, 1020928};
    static const uint32_t blocks[] = {1, 1024, 4096};

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
            struct slices s = slices_cut(sizes[k], blocks[b]);
            uint64_t at = 0;

            assert_in_range(s.count, 1, SLICES_MAX);
            for (uint32_t i = 0; i < s.count; i++) {
                assert_int_equal(slices_offset(&s, i), at);
                assert_int_equal(at % blocks[b], 0);
                assert_true(slices_len(&s, i) > 0);
                at += slices_len(&s, i);
            }
            assert_int_equal(at, sizes[k]);
        }
    }
}

static void what_is_read_goes_in_16_bits_or_more(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(slices_reading(id));

        assert_true(c->bytes(8192) >= 2 * (size_t)8192);
        assert_true(codec_adds(codec_get(id)) == (c->id == id));
    }
}

/* ---- arrivals ---------------------------------------------------------- */

/* Each element of the page's example in a slice of its own. */
static void an_owner_takes_the_steps_of_the_page(void **state)
{
    static const float g[8][2] = {
        {0.04F, -0.01F}, {0.03F, 0.02F},  {0.05F, -0.005F}, {0.02F, 0.01F},
        {0.01F, 0.01F},  {0.02F, -0.02F}, {0.03F, 0.0F},    {0.04F, 0.01F}};
    const json_t *want = vector_of("DN N=4 eps=.7 beta=.9 c=0, theta after "
                                   "1..8");
    const struct method method = owners("async-dn");
    float phi[2] = {1, 1}, m[2] = {0}, sum[2] = {0};
    struct delayed_state s[2] = {{phi, m, sum, 4, 4, 0},
                                 {phi + 1, m + 1, sum + 1, 4, 4, 0}};

    (void)state;
    for (size_t t = 0; t < 8; t++) {
        for (size_t i = 0; i < 2; i++) {
            double x = vector_number(vector_at(vector_at(want, t), i));

            assert_int_equal(slices_arrive(&method, &s[i], &g[t][i], 1, 1), 0);
            assert_true(fabs((double)phi[i] - x) <= NEAR);
        }
    }
}

struct toy {
    struct slices cut;
    float phi[N], m[N], sum[N];
    struct delayed_state at[SLICES_MAX];
};

static void toy_open(struct toy *toy)
{
    toy->cut = slices_cut(N, 1);
    for (uint32_t i = 0; i < N; i++) {
        toy->phi[i] = 1.0F + (float)i;
        toy->m[i] = toy->sum[i] = 0.0F;
    }
    for (uint32_t i = 0; i < toy->cut.count; i++) {
        uint64_t at = slices_offset(&toy->cut, i);

        toy->at[i] = (struct delayed_state){
            toy->phi + at, toy->m + at, toy->sum + at, M, M, 0};
    }
}

/* M arrivals, which every slice sees in another order, are one synchronous
 * step of rule N with their mean; so are the next ones. */
static void a_cycle_in_any_order_is_one_synchronous_step(void **state)
{
    const struct method method = owners("async-dn");
    float phi[N], m[N] = {0}, g[M][N], mean[N];
    struct outer_state plain = {phi, m};
    struct toy toy;
    uint64_t rng = 7;

    (void)state;
    toy_open(&toy);
    memcpy(phi, toy.phi, sizeof phi);
    for (int cycle = 0; cycle < 5; cycle++) {
        for (uint32_t k = 0; k < N; k++) {
            mean[k] = 0.0F;
            for (uint32_t w = 0; w < M; w++) {
                g[w][k] = rng_float(&rng) - 0.5F;
                mean[k] += g[w][k] / M;
            }
        }
        assert_int_equal(rule_apply(&method.rule, &plain, &plain, mean, N), 0);
        for (uint32_t i = 0; i < toy.cut.count; i++) {
            uint64_t at = slices_offset(&toy.cut, i);
            uint32_t first = (uint32_t)rng_below(&rng, M);

            for (uint32_t k = 0; k < M; k++) {
                assert_int_equal(slices_arrive(&method, &toy.at[i],
                                               g[(first + k * 3) % M] + at, 1,
                                               slices_len(&toy.cut, i)),
                                 0);
            }
            assert_int_equal(toy.at[i].count, 0);
        }
        for (uint32_t k = 0; k < N; k++) {
            assert_true(fabs((double)(toy.phi[k] - phi[k])) <=
                        1e-5 * fmax(1.0, fabs((double)phi[k])));
            assert_true(fabs((double)(toy.m[k] - m[k])) <= 1e-5);
        }
    }
}

/* Owner and backup: the same calls in the same order, the same bits, with
 * members that come and go between them. */
static void a_backup_holds_the_same_bits(void **state)
{
    const struct method method = owners("async-dn");
    struct toy a, b;
    uint64_t rng = 3;

    (void)state;
    toy_open(&a);
    toy_open(&b);
    for (int t = 0; t < 50; t++) {
        uint32_t i = (uint32_t)rng_below(&rng, a.cut.count);
        uint32_t next = 1 + (uint32_t)rng_below(&rng, 6);
        float g[N];

        for (uint32_t k = 0; k < N; k++) {
            g[k] = rng_float(&rng) - 0.5F;
        }
        delayed_resize(&a.at[i], next);
        delayed_resize(&b.at[i], next);
        assert_int_equal(
            slices_arrive(&method, &a.at[i], g, 1, slices_len(&a.cut, i)), 0);
        assert_int_equal(
            slices_arrive(&method, &b.at[i], g, 1, slices_len(&b.cut, i)), 0);
        assert_int_equal(a.at[i].count, b.at[i].count);
        assert_int_equal(a.at[i].size, b.at[i].size);
    }
    assert_memory_equal(a.phi, b.phi, sizeof a.phi);
    assert_memory_equal(a.m, b.m, sizeof a.m);
    assert_memory_equal(a.sum, b.sum, sizeof a.sum);
}

/* The baseline counts cycles too, and needs no D. */
static void naive_arrivals_amplify_as_the_page_says(void **state)
{
    const json_t *want =
        vector_of("naive async 4x same g: per-arrival coefficients");
    const struct method method = owners("async-naive");
    float phi = 1, m = 0, g = 1;
    struct delayed_state s = {&phi, &m, NULL, 4, 5, 0};

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        float before = phi;

        assert_int_equal(slices_arrive(&method, &s, &g, 1, 1), 0);
        assert_true(fabs((double)(before - phi) / 0.7 -
                         vector_number(vector_at(want, t))) < 1e-5);
    }
    assert_true(fabs((double)(1 - phi) / 0.7 -
                     vector_number(vector_of(" total"))) < 1e-5);
    assert_int_equal(s.count, 0);
    assert_int_equal(s.size, 5);
}

static void what_is_not_finite_is_an_error(void **state)
{
    const struct method method = owners("async-dn");
    float phi = 1, m = 0, sum = 0, g = INFINITY;
    struct delayed_state s = {&phi, &m, &sum, 4, 4, 0};

    (void)state;
    assert_true(slices_arrive(&method, &s, &g, 1, 1) != 0);
}

/* ---- the worker -------------------------------------------------------- */

/* A task counts from what was read, slice by slice, and nothing else of the
 * method is a worker's to hold. */
static void a_task_counts_from_what_was_read(void **state)
{
    const struct method method = owners("async-dn");
    const struct stream_turn turn = {0, 0};
    const float newer[2] = {5, 6};
    float theta[4] = {1, 2, 3, 4}, base[4], wire[4];
    struct engine e;

    (void)state;
    assert_int_equal(engine_needs(&method), ENGINE_BASE);
    engine_init(&e, &method, NULL, 4, M);
    e.theta = theta;
    e.base = base;
    engine_start(&e);
    engine_read(&e, 2, 2, newer);
    engine_begin_task(&e);
    assert_true(theta[1] == 2 && theta[2] == 5 && theta[3] == 6);
    assert_false(e.moments_reset);
    theta[0] = 0.5F;
    theta[3] = 7;
    assert_int_equal(engine_pack(&e, 0, &turn, wire), 0);
    assert_true(wire[0] == 0.5F && wire[1] == 0 && wire[2] == 0 &&
                wire[3] == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_cover_everything_once_in_whole_blocks),
        cmocka_unit_test(what_is_read_goes_in_16_bits_or_more),
        cmocka_unit_test(an_owner_takes_the_steps_of_the_page),
        cmocka_unit_test(a_cycle_in_any_order_is_one_synchronous_step),
        cmocka_unit_test(a_backup_holds_the_same_bits),
        cmocka_unit_test(naive_arrivals_amplify_as_the_page_says),
        cmocka_unit_test(what_is_not_finite_is_an_error),
        cmocka_unit_test(a_task_counts_from_what_was_read),
    };
    return cmocka_run_group_tests(tests, NULL, vectors_free);
}
