/* sync_numbers_test.c - who, how much, how many: the vectors of the page.
 *
 * Pairs, speeds, shards, batch tests, merging: the pure arithmetic that peers
 * must agree on.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/dylu.h"
#include "proto/base/err.h"
#include "proto/base/pairing.h"
#include "proto/base/rng.h"
#include "tests/unit/train/theory.h"
#include "tests/unit/train/vectors.h"
#include "train/sync/batch_size.h"
#include "train/sync/merge.h"
#include "train/sync/pair.h"
#include "train/sync/preset.h"

static void assert_near(double got, double want)
{
    double scale = fabs(want) > 1.0 ? fabs(want) : 1.0;

    if (!(fabs(got - want) <= 1e-12 * scale)) {
        fail_msg("%.15g instead of %.15g", got, want);
    }
}

static double number(const char *key, size_t i)
{
    return vector_number(vector_at(vector_of(key), i));
}

/* ---- pairs ------------------------------------------------------------- */

static void check_pairs(const char *key, uint32_t n, uint64_t epoch, uint64_t t)
{
    const json_t *want = vector_of(key), *list = want;
    uint32_t scratch[8];
    uint32_t bye = PAIRING_BYE;

    if (json_is_object(want)) {
        list = vector_field(want, "pairs");
        bye = (uint32_t)vector_number(vector_field(want, "bye"));
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = vector_at(list, i);
        uint32_t a = (uint32_t)vector_number(vector_at(pair, 0));
        uint32_t b = (uint32_t)vector_number(vector_at(pair, 1));

        assert_int_equal(pairing_partner(42, epoch, t, n, a, scratch), b);
        assert_int_equal(pairing_partner(42, epoch, t, n, b, scratch), a);
    }
    if (bye != PAIRING_BYE) {
        assert_true(pairing_partner(42, epoch, t, n, bye, scratch) ==
                    PAIRING_BYE);
    }
}

static void pairs_are_those_of_the_page(void **state)
{
    (void)state;
    check_pairs("pairs ids=0..3 seed=42 epoch=1 outer=0", 4, 1, 0);
    check_pairs("pairs ids=0..3 seed=42 epoch=1 outer=1", 4, 1, 1);
    check_pairs("pairs ids=0..3 seed=42 epoch=1 outer=2", 4, 1, 2);
    check_pairs("pairs ids=0..3 seed=42 epoch=2 outer=2", 4, 2, 2);
    check_pairs("pairs ids=0..4 seed=42 epoch=1 outer=0", 5, 1, 0);
    check_pairs("pairs ids=0..4 seed=42 epoch=1 outer=1", 5, 1, 1);
    check_pairs("pairs ids=0..4 seed=42 epoch=1 outer=2", 5, 1, 2);
}

static void everybody_has_one_partner_or_the_one_bye(void **state)
{
    uint32_t scratch[33];

    (void)state;
    for (uint32_t n = 1; n <= 33; n++) {
        for (uint64_t t = 0; t < 20; t++) {
            uint32_t byes = 0;

            for (uint32_t i = 0; i < n; i++) {
                uint32_t j = pairing_partner(7, 3, t, n, i, scratch);

                if (j == PAIRING_BYE) {
                    byes++;
                    continue;
                }
                assert_true(j < n && j != i);
                assert_int_equal(pairing_partner(7, 3, t, n, j, scratch), i);
            }
            assert_int_equal(byes, n % 2);
        }
    }
}

static void the_bounds_of_the_pull_are_exact(void **state)
{
    static const double alpha[5] = {0.0, 0.3, 0.5, 0.7, 0.9};
    static const uint32_t group[3] = {2, 4, 8};

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        /* The page found these by bisection of a power iteration. */
        assert_true(fabs(theory_gamma_limit(alpha[i], 2) -
                         number("NoLoCo exact upper bound on gamma (n=2) "
                                "alpha=0,.3,.5,.7,.9",
                                i)) < 1e-9);
        assert_true(pair_gamma_max(alpha[i]) < theory_gamma_limit(alpha[i], 2));
    }
    for (size_t i = 0; i < 3; i++) {
        assert_near(theory_gamma_limit(0.5, group[i]),
                    number(" closed form 2(1-a^2)/(1+a-2ak), same", i));
    }
    assert_near(theory_spread(0.5, 0.7, 0.7, 2), 1.3125);
    assert_true(fabs(theory_spread(0.5, 0.7, 0.3, 2) - 2.0417) < 1e-4);
    assert_true(fabs(theory_spread(0.9, 0.7, 0.3, 2) - 38.7917) < 1e-4);
    assert_true(isinf(theory_spread(0.9, 0.7, 1.0, 2)));
    assert_true(isinf(theory_spread(0.5, 0.7, 0.0, 2)));
}

/* One normal number (Box and Muller). */
static double normal(uint64_t *rng)
{
    double u = ((double)(rng_next(rng) >> 11) + 0.5) * 0x1p-53;
    double v = ((double)(rng_next(rng) >> 11) + 0.5) * 0x1p-53;

    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

/* Variance of 256 replicas of one parameter without curvature that step in
 * pairs on noise of standard deviation `noise`. */
static double simulated_spread(double noise)
{
    enum { N = 256, STEPS = 1500, WARM = 200 };
    const struct rule rule = {RULE_HEAVY_BALL, 0.7F, 0.5F, 0.7F};
    static float phi[N], m[N], g[N];
    uint32_t scratch[N];
    uint64_t rng = 5;
    double sum = 0.0;

    memset(phi, 0, sizeof phi);
    memset(m, 0, sizeof m);
    for (uint64_t t = 0; t < STEPS; t++) {
        const uint64_t words[2] = {99, t};
        double mean = 0.0, square = 0.0;

        for (size_t i = 0; i < N; i++) {
            g[i] = (float)(noise * normal(&rng));
        }
        /* The pairs as pairing_partner() cuts them. */
        rng_perm(scratch, N, rng_mix(words, 2));
        for (size_t p = 0; p < N; p += 2) {
            uint32_t a = scratch[p], b = scratch[p + 1];
            const float mean_g = (g[a] + g[b]) / 2;
            const float mean_phi = (phi[a] + phi[b]) / 2;
            struct outer_state sa = {&phi[a], &m[a]}, sb = {&phi[b], &m[b]};

            assert_int_equal(
                rule_apply_pulled(&rule, &sa, &sa, &mean_g, &mean_phi, 1), 0);
            assert_int_equal(
                rule_apply_pulled(&rule, &sb, &sb, &mean_g, &mean_phi, 1), 0);
        }
        for (size_t i = 0; i < N; i++) {
            mean += (double)phi[i] / N;
        }
        for (size_t i = 0; i < N; i++) {
            square += ((double)phi[i] - mean) * ((double)phi[i] - mean) / N;
        }
        sum += t >= WARM ? square : 0.0;
    }
    return sum / (STEPS - WARM);
}

static void the_spread_of_replicas_follows_the_closed_form(void **state)
{
    double one = simulated_spread(1.0);
    double half = simulated_spread(0.5);

    (void)state;
    assert_true(fabs(one / theory_spread(0.5, 0.7, 0.7, 2) - 1.0) < 0.1);
    /* Quadratic in the noise, hence in the inner rate. */
    assert_true(fabs(half / one / 0.25 - 1.0) < 0.01);
}

/* ---- speeds ------------------------------------------------------------ */

static void steps_follow_speeds(void **state)
{
    static const double v[4] = {100, 80, 60, 50};
    static const double seconds[4] = {0.58, 0.75, 1.51, 3.33};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(dylu_steps(500, v[i], v[0]),
                         (int)number("DyLU H=500", i));
        assert_int_equal(
            dylu_steps(50, 1.0 / seconds[i], 1.0 / seconds[0]),
            (int)number("DyLU notebook very-heterogeneous, H=50", i));
    }
    assert_int_equal(dylu_steps(500, 1e-9, 1.0), 1);
    assert_int_equal(dylu_steps(500, 0.0, 1.0), 500); /* not measured yet */
    assert_int_equal(dylu_steps(500, NAN, 1.0), 500);
}

/* ---- batches ----------------------------------------------------------- */

/* Four micro-batches of two samples. */
static struct batch_sample page_sample(void)
{
    static const double g[4][2] = {
        {1, 0.5}, {0.8, -0.1}, {1.4, 0.2}, {0.8, 0.2}};
    struct batch_sample b = {.n = 4, .s = 2, .has_inner = true};
    double mean[2] = {0, 0};

    for (size_t j = 0; j < 4; j++) {
        mean[0] += g[j][0] / 4;
        mean[1] += g[j][1] / 4;
        b.sum_norm2 += g[j][0] * g[j][0] + g[j][1] * g[j][1];
    }
    b.norm2 = mean[0] * mean[0] + mean[1] * mean[1];
    for (size_t j = 0; j < 4; j++) {
        double inner = g[j][0] * mean[0] + g[j][1] * mean[1];
        b.sum_inner2 += inner * inner;
    }
    return b;
}

static void the_batch_tests_give_their_vectors(void **state)
{
    struct batch_sample b = page_sample();
    double variance, signal;

    (void)state;
    assert_near(batch_variance(&b),
                number("AdLoCo gbar,|gbar|^2,sum|g|^2, sigma2 (s=2)", 3));
    assert_near(batch_norm_ratio(&b, 0.8), number("  raw", 0));
    assert_near(batch_norm_ratio(&b, 0.1), number("  raw", 1));
    assert_near(batch_norm_ratio(&b, 0.1) / batch_norm_ratio(&b, 0.8), 64.0);
    assert_near(theory_signal(&b),
                number(" unbiased |G|^2 and noise scale sigma2/|G|^2", 0));
    assert_near(batch_variance(&b) / theory_signal(&b),
                number(" unbiased |G|^2 and noise scale sigma2/|G|^2", 1));
    assert_near(batch_inner_ratio(&b, 0.01),
                number(" ip test raw, vartheta=.01 -> b", 1));
    assert_near(batch_ortho_ratio(&b, 0.3),
                number(" ortho raw, nu=.3 -> b", 1));
    /* In print: element by element, without the samples' number. */
    assert_true(fabs(batch_ortho_ratio(&b, 0.3) -
                     vector_number(vector_of(" ortho as the repo computes it "
                                             "(elementwise var, no s)"))) >
                0.05);
    /* Micro-batches of 2 against the whole of 8. */
    theory_two_sizes(2, b.sum_norm2 / 4, 8, b.norm2, &variance, &signal);
    assert_near(
        variance,
        number(" two-point (norms only): sigma2,|G|^2 (must match)", 0));
    assert_near(
        signal,
        number(" two-point (norms only): sigma2,|G|^2 (must match)", 1));
}

static void a_request_grows_by_its_test_and_within_its_bounds(void **state)
{
    const struct batch_sample b = page_sample();
    struct batch_sample nothing = b;
    struct batch_rule rule = {BATCH_NORM, 0.8,         0.01,
                              0.3,        .cap = 1000, .growth = 0.0};

    (void)state;
    assert_int_equal(
        batch_request(&rule, &b, 1),
        number(" norm test b=ceil(sigma2/(eta^2|g|^2)) eta=.8,.1", 0));
    rule.eta = 0.1;
    assert_int_equal(
        batch_request(&rule, &b, 1),
        number(" norm test b=ceil(sigma2/(eta^2|g|^2)) eta=.8,.1", 1));
    assert_int_equal(batch_request(&rule, &b, 40), 40); /* never shrinks */
    rule.test = BATCH_INNER_PRODUCT;
    assert_int_equal(batch_request(&rule, &b, 1), 1000);
    rule.cap = 2000;
    assert_int_equal(batch_request(&rule, &b, 1), 1672);
    rule.test = BATCH_AUGMENTED;
    assert_int_equal(batch_request(&rule, &b, 1), 1672);
    rule.vartheta = 10.0;
    assert_int_equal(batch_request(&rule, &b, 1), 2); /* the orthogonal one */
    rule.vartheta = 0.01;
    rule.growth = 2.0;
    assert_int_equal(batch_request(&rule, &b, 8), 16);
    nothing.n = 1;
    assert_int_equal(batch_request(&rule, &nothing, 8), 8);
    nothing = b;
    nothing.norm2 = 1e-13; /* a ratio to nothing */
    assert_int_equal(batch_request(&rule, &nothing, 8), 8);
    rule.test = BATCH_FIXED;
    assert_int_equal(batch_request(&rule, &b, 8), 8);
}

static void two_halves_give_all_inner_products(void **state)
{
    static const double g[2][2] = {{1, 0.5}, {-0.25, 2}};
    const double mean[2] = {0.375, 1.25};
    struct batch_sample b = batch_sample_of_halves(
        4, 1.25, 0.0625 + 4, mean[0] * mean[0] + mean[1] * mean[1]);
    double want = 0.0;

    (void)state;
    for (size_t j = 0; j < 2; j++) {
        double inner = g[j][0] * mean[0] + g[j][1] * mean[1];
        want += inner * inner;
    }
    assert_near(b.sum_inner2, want);
    assert_near(b.sum_norm2, 1.25 + 4.0625);
    assert_int_equal(b.n, 2);
}

/* On a quadratic with noise the request grows in proportion to the steps: the
 * slope of log b over log k is about 1. */
static void requests_grow_linearly_on_a_noisy_quadratic(void **state)
{
    enum { D = 16, STEPS = 20000, FROM = 600 };
    const struct batch_rule rule = {BATCH_NORM,        0.8,          0.01, 0.3,
                                    .cap = UINT32_MAX, .growth = 0.0};
    double x[D], at_from = 0.0;
    uint64_t rng = 3, b = 1;

    (void)state;
    for (size_t i = 0; i < D; i++) {
        x[i] = 3.0;
    }
    for (uint64_t k = 1; k <= STEPS; k++) {
        /* Rates of 1/k: the expected |x|^2 falls like 1/k. */
        double lr = 0.5 / (1.0 + (double)k * 0.25), signal = 0.0;
        struct batch_sample s = {.n = 2, .s = 1};

        for (size_t i = 0; i < D; i++) {
            signal += x[i] * x[i];
        }
        /* Expectations, so that the slope is not the luck of one draw. */
        s.norm2 = signal;
        s.sum_norm2 = 2.0 * signal + D; /* variance of one sample: D */
        b = batch_request(&rule, &s, b);
        if (k == FROM) {
            at_from = (double)b;
        }
        for (size_t i = 0; i < D; i++) {
            x[i] -= lr * (x[i] + normal(&rng) /
                                     sqrt((double)b < 16.0 ? (double)b : 16.0));
        }
    }
    double slope = log((double)b / at_from) / log((double)STEPS / FROM);
    if (slope < 0.7 || slope > 1.3) {
        fail_msg("slope %.3f from %.0f to %llu", slope, at_from,
                 (unsigned long long)b);
    }
}

static void large_requests_are_accumulated(void **state)
{
    static const uint64_t request[6] = {10, 16, 20, 32, 33, 100};
    const json_t *want = vector_of(
        "switch mode bmax=16: breq 10,16,20,32,33,100 -> (micro,accum)");

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct batch_shape s = batch_switch(request[i], 16, 2);

        assert_near((double)s.micro,
                    vector_number(vector_at(vector_at(want, i), 0)));
        assert_near((double)s.accumulate,
                    vector_number(vector_at(vector_at(want, i), 1)));
    }
}

/* ---- merging ----------------------------------------------------------- */

static void the_trainers_that_ask_for_least_are_merged(void **state)
{
    static const uint64_t request[4] = {12, 3, 5, 20};
    static const float x[2][2] = {{2, 2}, {0, 4}};
    static const uint64_t demand[3] = {12, 8, 20}, few[3] = {1, 1, 100};
    const json_t *want =
        vector_of("merge w=2 breq=(12,3,5,20): set, representative, merged");
    const float *parts[2] = {x[0], x[1]};
    uint32_t set[4], representative, nodes[3];
    float merged[2];

    (void)state;
    assert_int_equal(merge_set(request, 4, 2, set, &representative), 2);
    assert_near(set[0], vector_number(vector_at(vector_at(want, 0), 0)));
    assert_near(set[1], vector_number(vector_at(vector_at(want, 0), 1)));
    assert_near(representative, vector_number(vector_at(want, 1)));
    merge_mean(merged, parts, request + 1, 2, 2);
    assert_near((double)merged[0], 0.75);
    assert_near((double)merged[1], 3.25);
    assert_int_equal(merge_set(request, 4, 1, set, &representative), 0);
    assert_int_equal(merge_set(request, 4, 5, set, &representative), 0);
    assert_int_equal(merge_nodes(demand, 3, 8, nodes), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_near(nodes[i],
                    number("node allocation 8 nodes demand (12,8,20)", i));
    }
    assert_int_equal(merge_nodes(few, 3, 5, nodes), 0);
    assert_int_equal(nodes[0], 1); /* nobody is left without a node */
    assert_int_equal(nodes[1], 1);
    assert_int_equal(nodes[2], 3);
    assert_int_equal(merge_nodes(few, 3, 2, nodes), LOCO_EINVAL);
}

static void equal_requests_merge_by_the_lower_index(void **state)
{
    static const uint64_t request[4] = {5, 5, 5, 5};
    uint32_t set[4], representative;

    (void)state;
    assert_int_equal(merge_set(request, 4, 3, set, &representative), 3);
    assert_int_equal(set[0], 0);
    assert_int_equal(set[2], 2);
    assert_int_equal(representative, 0);
}

/* ---- traffic ----------------------------------------------------------- */

static double reduction(uint32_t x, uint32_t u, uint32_t v)
{
    struct method m = {
        .period = x, .period_u = u, .period_v = v, .fragments = 1};

    m.rule.lr = 1.0F;
    assert_int_equal(method_check(&m, NULL), 0);
    return 1.0 / method_rate(&m);
}

static void the_traffic_of_desloc_is_that_of_its_periods(void **state)
{
    (void)state;
    assert_near(
        reduction(256, 768, 1536),
        vector_number(vector_of("comm reduction vs DDP DES-LOC 256/768/1536")));
    assert_near(
        reduction(256, 256, 256),
        vector_number(vector_of("comm reduction vs DDP Local Adam 256")));
    assert_near(reduction(256, 0, 0),
                vector_number(vector_of("comm reduction vs DDP FAVG+OPT 256")));
    assert_near(
        reduction(192, 192, 692),
        vector_number(vector_of("comm reduction vs DDP toy 192/192/692")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_those_of_the_page),
        cmocka_unit_test(everybody_has_one_partner_or_the_one_bye),
        cmocka_unit_test(the_bounds_of_the_pull_are_exact),
        cmocka_unit_test(the_spread_of_replicas_follows_the_closed_form),
        cmocka_unit_test(steps_follow_speeds),
        cmocka_unit_test(the_batch_tests_give_their_vectors),
        cmocka_unit_test(a_request_grows_by_its_test_and_within_its_bounds),
        cmocka_unit_test(two_halves_give_all_inner_products),
        cmocka_unit_test(requests_grow_linearly_on_a_noisy_quadratic),
        cmocka_unit_test(large_requests_are_accumulated),
        cmocka_unit_test(the_trainers_that_ask_for_least_are_merged),
        cmocka_unit_test(equal_requests_merge_by_the_lower_index),
        cmocka_unit_test(the_traffic_of_desloc_is_that_of_its_periods),
    };
    return cmocka_run_group_tests(tests, NULL, vectors_free);
}
