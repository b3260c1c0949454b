/* page_test.c - figures of the algorithms page that no other test reads.
 *
 * Some are what a method must do, some what it must not: the page lists results
 * of wrong formulas that are in print. Which vector is checked where:
 * VECTORS.md.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/train/theory.h"
#include "tests/unit/train/vectors.h"
#include "train/model/optimizer.h"
#include "train/sync/delayed.h"
#include "train/sync/pair.h"
#include "train/sync/preset.h"

static double number(const char *key, size_t i)
{
    return vector_number(vector_at(vector_of(key), i));
}

static void near(double got, double want, double share)
{
    if (!(fabs(got - want) <= share * fmax(1.0, fabs(want)))) {
        fail_msg("%.12g instead of %.12g", got, want);
    }
}

static void a_weighted_mean_is_that_of_the_page(void **state)
{
    const char *key = "weighted average w=(3,1) of [.2,0],[0,.4]";
    const struct codec *codec = codec_get(CODEC_FP32);
    const float x[2][2] = {{0.2F, 0}, {0, 0.4F}}, scale[2] = {0.75F, 0.25F};
    uint8_t wire[3][16];
    const uint8_t *terms[2] = {wire[0], wire[1]};
    float mean[2];
    struct codec_sum sum = {
        .terms = terms, .scale = scale, .n_terms = 2, .n = 2, .result = mean};

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(codec->encode(wire[i], x[i], 2, 1.0F), 0);
    }
    assert_int_equal(codec->sum(wire[2], &sum), 0);
    for (size_t i = 0; i < 2; i++) {
        near((double)mean[i], number(key, i), 1e-6);
    }
}

static void heavy_ball_gives_its_vectors(void **state)
{
    static const float tape[4][2] = {
        {0.1F, -0.2F}, {0.05F, 0.3F}, {-0.4F, 0.1F}, {0.2F, 0.2F}};
    const json_t *want =
        vector_of("outer heavy-ball (NoLoCo code) beta=.7 alpha=.9");
    const struct rule rule = {RULE_HEAVY_BALL, 0.7F, 0.9F, 0.0F};
    float phi[2] = {1, -2}, m[2] = {0, 0};
    struct outer_state s = {phi, m};

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        assert_int_equal(rule_apply(&rule, &s, &s, tape[t], 2), 0);
        for (size_t i = 0; i < 2; i++) {
            near((double)phi[i],
                 vector_number(vector_at(vector_at(want, t), i)), 1e-6);
        }
    }
}

/* Four arrivals of one gradient: as a mean 1.9 of it, four times that if they
 * were four rounds. */
static void one_round_of_four_moves_once(void **state)
{
    const char *key = " sync Nesterov total for mean g, and x4";
    const struct rule rule = {RULE_NESTEROV, 1.0F, 0.9F, 0.0F};
    float phi = 0, m = 0, g = 1;
    struct outer_state s = {&phi, &m};

    (void)state;
    assert_int_equal(rule_apply(&rule, &s, &s, &g, 1), 0);
    near(-(double)phi, number(key, 0), 1e-6);
    near(-4.0 * (double)phi, number(key, 1), 1e-6);
}

/* The formula of a survey counts what was applied already. */
static void delayed_nesterov_is_not_the_formula_in_print(void **state)
{
    const char *key =
        "seed-003 'reconstructed' DN after 4 (WRONG, do not implement)";
    const char *right = "DN N=4 eps=.7 beta=.9 c=0, theta after 1..8";
    const struct delayed rule = {0.7F, 0.9F, 0};
    const float g[4] = {0.04F, 0.03F, 0.05F, 0.02F};
    float phi = 1, m = 0, sum = 0;
    struct delayed_state s = {&phi, &m, &sum, 4, 4, 0};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(delayed_apply(&rule, &s, &s, &g[i], 1, 1), 0);
    }
    near((double)phi,
         vector_number(vector_at(vector_at(vector_of(right), 3), 0)), 1e-6);
    assert_true(fabs((double)phi - number(key, 0)) > 0.1);
}

static void longer_periods_send_less_in_proportion(void **state)
{
    static const struct {
        const char *key;
        uint32_t x, u, v;
    } rows[] = {
        {"comm reduction vs DDP DES-LOC 16/48/96", 16, 48, 96},
        {"comm reduction vs DDP DES-LOC 32/96/192", 32, 96, 192},
        {"comm reduction vs DDP DES-LOC 64/192/384", 64, 192, 384},
    };
    const struct preset *p;

    (void)state;
    assert_int_equal(preset_find("desloc", &p, NULL), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct method m = p->method;

        m.period = rows[i].x;
        m.period_u = rows[i].u;
        m.period_v = rows[i].v;
        near(1.0 / method_rate(&m), vector_number(vector_of(rows[i].key)),
             1e-12);
    }
}

/* First moment after k steps on a gradient of 1. */
static double moment(double beta, int k)
{
    const struct optimizer_options opt = {beta,           0, 1e-8, 0, 0,
                                          OPTIMIZER_SGDM, 0};
    const struct optimizer_span span = {0, 1, false};
    const struct optimizer_rate rate = {0.0, 1};
    struct optimizer a;
    struct backend be;
    float x = 1, g = 1;
    double u;

    backend_cpu_ref(&be);
    assert_int_equal(optimizer_open(&a, &opt, &span, 1), 0);
    for (int i = 0; i < k; i++) {
        assert_int_equal(optimizer_step(&a, &be, &x, &g, &rate, NULL), 0);
    }
    u = (double)a.u[0];
    optimizer_close(&a);
    backend_close(&be);
    return u;
}

/* Two workers whose gradients are 1 and -1 all the time: no two moments of that
 * size can be further apart. */
static void moments_drift_as_far_as_the_page_says(void **state)
{
    const char *key = "max drift 2*rho*(1-b^K), rho=1: u b=.95 K=16,256 ; v "
                      "b=.9999 K=16,256,1536";
    static const int k[5] = {16, 256, 16, 256, 1536};

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        near(2.0 * moment(i < 2 ? 0.95 : 0.9999, k[i]), number(key, i), 1e-5);
    }
}

/* ---- pairs --------------------------------------------------------------- */

/* Second moments of (phi, m) of a crowd without gradients whose partners are
 * drawn anew in each step, and their growth per step in the long run. */
static double growth(double alpha, double gamma)
{
    double pp = 1.0, pm = 0.0, mm = 0.0, log_sum = 0.0;
    const int steps = 4000, warm = 2000;

    for (int k = 0; k < steps; k++) {
        double m2 =
            alpha * alpha * mm + alpha * gamma * pm + gamma * gamma * pp / 2;
        double phi_m = alpha * pm + gamma * pp / 2;
        double p2 = pp - 2 * phi_m + m2;
        double size = p2 + m2;

        pm = (phi_m - m2) / size;
        pp = p2 / size;
        mm = m2 / size;
        log_sum += k >= warm ? log(size) : 0.0;
    }
    return exp(log_sum / (steps - warm));
}

static void the_spread_of_pairs_shrinks_below_the_bound(void **state)
{
    const char *key = "NoLoCo consensus mean-square growth per outer step "
                      "(alpha=.5; gamma=.1,.3,.5,.7,.9,1.2,1.5,1.8,2.0,2.2)";
    static const double gamma[10] = {.1,  .3,  .5,  .7,  .9,
                                     1.2, 1.5, 1.8, 2.0, 2.2};
    double limit = theory_gamma_limit(0.5, 2);

    (void)state;
    for (size_t i = 0; i < 10; i++) {
        double want = number(key, i);

        near(growth(0.5, gamma[i]), want, 2e-3);
        assert_int_equal(want < 1.0 - 1e-9, gamma[i] < limit - 1e-9);
    }
}

static void the_bound_for_larger_groups_is_wider(void **state)
{
    const char *key = "NoLoCo exact upper bound on gamma alpha=.5, n=2,4,8";
    static const uint32_t n[3] = {2, 4, 8};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        near(theory_gamma_limit(0.5, n[i]), number(key, i), 1e-9);
    }
}

/* Too narrow for little momentum, far too wide for much. */
static void the_bound_in_print_is_not_ours(void **state)
{
    const char *key =
        "NoLoCo paper bound (74), n=2: a<g<sqrt(2+a^2) for a=.3,.5,.9";
    const struct preset *p;
    struct method m;

    (void)state;
    assert_int_equal(preset_find("noloco", &p, NULL), 0);
    for (size_t i = 0; i < 3; i++) {
        const json_t *row = vector_at(vector_of(key), i);
        double alpha = vector_number(vector_at(row, 0));
        double bound = vector_number(vector_at(row, 1));

        m = p->method;
        m.rule.mu = (float)alpha;
        m.rule.gamma = (float)(bound - 0.01);
        assert_int_equal(bound < pair_gamma_max(alpha),
                         method_check(&m, NULL) == 0);
        assert_true(i < 2 || method_check(&m, NULL) != 0);
    }
}

/* Where the inner steps reach the optimum, the outer ones turn around it: the
 * roots are complex, and their modulus is that of the determinant. */
static void the_outer_recursion_contracts_by_its_momentum(void **state)
{
    const char *key = "outer recursion root moduli for (alpha,beta)=(.5,.7),"
                      "(.9,.7),(.3,.7), inner contraction (1-wL)^m=0";
    static const double alpha[3] = {0.5, 0.9, 0.3};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const struct rule rule = {RULE_HEAVY_BALL, 0.7F, (float)alpha[i], 0};
        float a[2] = {1, 0}, b[2] = {0, 1}; /* phi, m */
        struct outer_state sa = {&a[0], &a[1]}, sb = {&b[0], &b[1]};
        int turns = 0;

        for (int k = 0; k < 20; k++) {
            float ga = a[0], gb = b[0], was = a[0];

            assert_int_equal(rule_apply(&rule, &sa, &sa, &ga, 1), 0);
            assert_int_equal(rule_apply(&rule, &sb, &sb, &gb, 1), 0);
            turns += (was < 0) != (a[0] < 0);
        }
        near(pow(fabs((double)(a[0] * b[1] - a[1] * b[0])), 1.0 / 40),
             vector_number(vector_at(vector_at(vector_of(key), i), 0)), 1e-3);
        assert_true(turns >= 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weighted_mean_is_that_of_the_page),
        cmocka_unit_test(heavy_ball_gives_its_vectors),
        cmocka_unit_test(one_round_of_four_moves_once),
        cmocka_unit_test(delayed_nesterov_is_not_the_formula_in_print),
        cmocka_unit_test(longer_periods_send_less_in_proportion),
        cmocka_unit_test(moments_drift_as_far_as_the_page_says),
        cmocka_unit_test(the_spread_of_pairs_shrinks_below_the_bound),
        cmocka_unit_test(the_bound_for_larger_groups_is_wider),
        cmocka_unit_test(the_bound_in_print_is_not_ours),
        cmocka_unit_test(the_outer_recursion_contracts_by_its_momentum),
    };
    return cmocka_run_group_tests(tests, NULL, vectors_free);
}
