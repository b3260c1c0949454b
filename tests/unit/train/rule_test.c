/* rule_test.c - the outer step against the vectors of the algorithms page. */
#include "train/sync/rule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

static void assert_near(float got, double want)
{
    double scale = fabs(want) > 1.0 ? fabs(want) : 1.0;

    assert_true(fabs((double)got - want) <= 1e-6 * scale);
}

static void nesterov_gives_the_vectors_of_section_0_3(void **state)
{
    static const float tape[4][2] = {
        {0.1F, -0.2F}, {0.05F, 0.3F}, {-0.4F, 0.1F}, {0.2F, 0.2F}};
    static const double want[4][2] = {{0.867, -1.734},
                                      {0.7438, -2.0196},
                                      {1.19642, -2.22064},
                                      {1.085778, -2.604576}};
    const struct rule rule = {.lr = 0.7F, .mu = 0.9F};
    float phi[2] = {1.0F, -2.0F};
    float m[2] = {0.0F, 0.0F};
    struct outer_state s = {phi, m};

    (void)state;
    for (unsigned t = 0; t < 4; t++) {
        assert_int_equal(rule_apply(&rule, &s, &s, tape[t], 2), 0);
        assert_near(phi[0], want[t][0]);
        assert_near(phi[1], want[t][1]);
    }
    assert_near(m[0], -0.0466);
    assert_near(m[1], 0.3872);
}

/* Two workers, H = 2, inner SGD lr .1 on f_i = |x - c_i|^2 / 2. */
static void toy_displacement(float g[2], const float phi[2])
{
    static const float centre[2][2] = {{3.0F, 1.0F}, {-1.0F, 2.5F}};

    g[0] = 0.0F;
    g[1] = 0.0F;
    for (unsigned i = 0; i < 2; i++) {
        float theta[2] = {phi[0], phi[1]};
        float d[2];

        for (unsigned k = 0; k < 4; k++) {
            theta[k % 2] -= 0.1F * (theta[k % 2] - centre[i][k % 2]);
        }
        assert_int_equal(rule_displacement(d, phi, theta, 2), 0);
        g[0] += 0.5F * d[0];
        g[1] += 0.5F * d[1];
    }
}

static void check_rounds(float lr,
                         float mu,
                         const double g_want[3][2],
                         const double m_want[3][2],
                         const double phi_want[3][2])
{
    const struct rule rule = {.lr = lr, .mu = mu};
    float phi[2] = {0.5F, -2.0F};
    float m[2] = {0.0F, 0.0F};
    struct outer_state s = {phi, m};

    for (unsigned t = 0; t < 3; t++) {
        float g[2];

        toy_displacement(g, phi);
        assert_int_equal(rule_apply(&rule, &s, &s, g, 2), 0);
        for (unsigned k = 0; k < 2; k++) {
            assert_near(g[k], g_want[t][k]);
            assert_near(m[k], m_want[t][k]);
            assert_near(phi[k], phi_want[t][k]);
        }
    }
}

static void three_rounds_of_diloco_give_the_vectors_of_section_3(void **state)
{
    static const double g[3][2] = {{-0.095, -0.7125},
                                   {-0.0709935, -0.53245125},
                                   {-0.04281909255, -0.3211431941}};
    static const double m[3][2] = {{-0.095, -0.7125},
                                   {-0.1564935, -1.17370125},
                                   {-0.1836632425, -1.377474319}};
    static const double phi[3][2] = {{0.62635, -1.052375},
                                     {0.774636355, 0.0597726625},
                                     {0.9203175626, 1.152381719}};

    (void)state;
    check_rounds(0.7F, 0.9F, g, m, phi);
}

static void lr_one_without_momentum_is_local_sgd(void **state)
{
    static const double g[3][2] = {
        {-0.095, -0.7125}, {-0.07695, -0.577125}, {-0.0623295, -0.46747125}};
    static const double phi[3][2] = {
        {0.595, -1.2875}, {0.67195, -0.710375}, {0.7342795, -0.24290375}};

    (void)state;
    check_rounds(1.0F, 0.0F, g, g, phi);
}

static void lr_one_without_momentum_subtracts_exactly_g(void **state)
{
    enum { N = 1000 };
    const struct rule mean = {.lr = 1.0F, .mu = 0.0F};
    static float phi[N];
    static float g[N];
    static float out[N];
    static float want[N];
    struct outer_state to = {out, NULL};
    struct outer_state from = {phi, NULL};
    uint64_t seed = 11;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        phi[i] = ldexpf(rng_float(&seed) - 0.5F, (int)rng_below(&seed, 40));
        g[i] = ldexpf(rng_float(&seed) - 0.5F, (int)rng_below(&seed, 40));
    }
    phi[0] = -0.0F;
    g[0] = -0.0F;
    phi[1] = 0x1p-149F;
    g[1] = 0x3p-149F;
    for (size_t i = 0; i < N; i++) {
        want[i] = phi[i] - g[i];
    }
    assert_int_equal(rule_apply(&mean, &to, &from, g, N), 0);
    assert_memory_equal(out, want, sizeof want);
}

static void a_step_out_of_place_leaves_its_input_untouched(void **state)
{
    const struct rule rule = {.lr = 0.7F, .mu = 0.9F};
    float phi[3] = {1.0F, 2.0F, 3.0F};
    float m[3] = {0.5F, -0.5F, 0.25F};
    const float g[3] = {0.1F, 0.2F, 0.3F};
    float phi_out[3];
    float m_out[3];
    const float phi_before[3] = {1.0F, 2.0F, 3.0F};
    const float m_before[3] = {0.5F, -0.5F, 0.25F};
    struct outer_state from = {phi, m};
    struct outer_state to = {phi_out, m_out};

    (void)state;
    assert_int_equal(rule_apply(&rule, &to, &from, g, 3), 0);
    assert_memory_equal(phi, phi_before, sizeof phi);
    assert_memory_equal(m, m_before, sizeof m);
    assert_int_equal(rule_apply(&rule, &from, &from, g, 3), 0);
    assert_memory_equal(phi, phi_out, sizeof phi);
    assert_memory_equal(m, m_out, sizeof m);
}

static void each_operation_is_rounded_on_its_own(void **state)
{
    const struct rule rule = {.lr = 0.7F, .mu = 0.9F};
    uint64_t seed = 3;

    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        float g = rng_float(&seed) - 0.5F;
        float phi = rng_float(&seed) - 0.5F;
        float m = rng_float(&seed) - 0.5F;
        struct outer_state s = {&phi, &m};
        /* A double holds the product of two floats; the cast rounds once. */
        float a = (float)((double)rule.mu * (double)m);
        float m_want = (float)((double)a + (double)g);
        float b = (float)((double)rule.mu * (double)m_want);
        float c = (float)((double)g + (double)b);
        float d = (float)((double)rule.lr * (double)c);
        float phi_want = (float)((double)phi - (double)d);

        assert_int_equal(rule_apply(&rule, &s, &s, &g, 1), 0);
        assert_memory_equal(&phi, &phi_want, sizeof phi);
        assert_memory_equal(&m, &m_want, sizeof m);
    }
}

static void a_result_that_is_not_finite_is_an_error(void **state)
{
    const struct rule nesterov = {.lr = 0.7F, .mu = 0.9F};
    const struct rule mean = {.lr = 1.0F, .mu = 0.0F};
    float phi[2] = {3e38F, 1.0F};
    float m[2] = {0.0F, 0.0F};
    float g[2] = {-3e38F, 1.0F};
    float out[2];
    float theta[2] = {NAN, 0.0F};
    struct outer_state s = {phi, m};

    (void)state;
    assert_int_equal(rule_apply(&mean, &s, &s, g, 2), LOCO_ENUMERIC);
    m[0] = 0.0F; /* m stays finite, g + mu * m does not */
    g[0] = -2e38F;
    assert_int_equal(rule_apply(&nesterov, &s, &s, g, 2), LOCO_ENUMERIC);
    phi[0] = 1.0F;
    m[0] = INFINITY;
    g[0] = 0.0F;
    assert_int_equal(rule_apply(&nesterov, &s, &s, g, 2), LOCO_ENUMERIC);
    assert_int_equal(rule_displacement(out, g, theta, 2), LOCO_ENUMERIC);
    theta[0] = 0.0F;
    assert_int_equal(rule_displacement(out, g, theta, 2), 0);
}

static void ordinary_values_with_unlike_exponents_are_finite(void **state)
{
    const struct rule rule = {.lr = 0.5F, .mu = 0.5F};
    float phi = 3.0F;
    float m = 1.0F;
    const float g = 0.5F; /* m becomes 1, phi 2.5: exponents 127 and 128 */
    struct outer_state s = {&phi, &m};

    (void)state;
    assert_int_equal(rule_apply(&rule, &s, &s, &g, 1), 0);
    assert_true(m == 1.0F);
    assert_true(phi == 2.5F);
}

/* How the vectors lie: apart, the result in the place of the input, the new
 * anchor in the place of g. */
enum places { APART, IN_PLACE, OVER_G, PLACES };

#define LONGEST 100

struct long_vectors {
    float phi[LONGEST], m[LONGEST], g[LONGEST], pull[LONGEST];
    float phi_out[LONGEST], m_out[LONGEST];
};

static void draw_long(struct long_vectors *v, uint64_t seed)
{
    for (size_t i = 0; i < LONGEST; i++) {
        v->phi[i] = rng_float(&seed) - 0.5F;
        v->m[i] = rng_float(&seed) - 0.5F;
        v->g[i] = rng_float(&seed) - 0.5F;
        v->pull[i] = rng_float(&seed) - 0.5F;
    }
}

static struct outer_state where(struct long_vectors *v, enum places p)
{
    return p == APART      ? (struct outer_state){v->phi_out, v->m_out}
           : p == IN_PLACE ? (struct outer_state){v->phi, v->m}
                           : (struct outer_state){v->g, v->m_out};
}

static void check_long(const struct rule *rule, enum places p, size_t n)
{
    struct long_vectors all, one;
    struct outer_state out = where(&all, p), want = where(&one, p);
    struct outer_state from = {all.phi, all.m};

    draw_long(&all, n + 1);
    one = all;
    for (size_t i = 0; i < n; i++) {
        struct outer_state to = {want.phi + i, want.m + i};
        struct outer_state at = {one.phi + i, one.m + i};

        assert_int_equal(
            rule_apply_pulled(rule, &to, &at, one.g + i, one.pull + i, 1), 0);
    }
    assert_int_equal(rule_apply_pulled(rule, &out, &from, all.g, all.pull, n),
                     0);
    if (n > 0) {
        assert_memory_equal(out.phi, want.phi, n * sizeof(float));
        assert_memory_equal(out.m, want.m, n * sizeof(float));
    }
}

static void long_vectors_get_the_bits_of_single_elements(void **state)
{
    const struct rule rules[] = {
        {.lr = 1.0F},
        {.lr = 0.7F, .mu = 0.9F},
        {.lr = 0.7F, .mu = 0.9F, .gamma = 0.3F},
        {.form = RULE_HEAVY_BALL, .lr = 0.7F, .mu = 0.3F},
        {.form = RULE_HEAVY_BALL, .lr = 0.7F, .mu = 0.3F, .gamma = 0.3F},
    };

    (void)state;
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        for (enum places p = APART; p < PLACES; p++) {
            for (size_t n = 0; n <= LONGEST; n++) {
                check_long(&rules[r], p, n);
            }
        }
    }
}

static void a_number_that_is_none_is_found_wherever_it_lies(void **state)
{
    const struct rule rule = {.lr = 0.7F, .mu = 0.9F};
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (size_t i = 0; i < 3 * LONGEST; i++) {
        struct long_vectors v;
        struct outer_state out = where(&v, APART), from = {v.phi, v.m};

        draw_long(&v, i);
        v.g[i / 3] = bad[i % 3];
        assert_int_equal(rule_apply(&rule, &out, &from, v.g, LONGEST),
                         LOCO_ENUMERIC);
        assert_int_equal(rule_displacement(v.phi_out, v.g, v.phi, LONGEST),
                         LOCO_ENUMERIC);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nesterov_gives_the_vectors_of_section_0_3),
        cmocka_unit_test(three_rounds_of_diloco_give_the_vectors_of_section_3),
        cmocka_unit_test(lr_one_without_momentum_is_local_sgd),
        cmocka_unit_test(lr_one_without_momentum_subtracts_exactly_g),
        cmocka_unit_test(a_step_out_of_place_leaves_its_input_untouched),
        cmocka_unit_test(each_operation_is_rounded_on_its_own),
        cmocka_unit_test(a_result_that_is_not_finite_is_an_error),
        cmocka_unit_test(ordinary_values_with_unlike_exponents_are_finite),
        cmocka_unit_test(long_vectors_get_the_bits_of_single_elements),
        cmocka_unit_test(a_number_that_is_none_is_found_wherever_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
