/* wallclock_test.c - the papers' time models against the page's figures. */
#include "train/lab/wallclock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/train/theory.h"
#include "tests/unit/train/vectors.h"
#include "train/sync/preset.h"

static void assert_within(double got, double want, double share)
{
    if (!(fabs(got - want) <= share * fabs(want))) {
        fail_msg("%.12g instead of %.12g", got, want);
    }
}

static double number(const char *key, size_t i)
{
    return vector_number(vector_at(vector_of(key), i));
}

static double run_of(const char *preset)
{
    const struct wallclock w = {1.7e9, 40e9,    4,   989e12, 0.4,
                                2,     1e9 / 8, 0.1, 2e6,    1};
    const struct preset *p;

    assert_int_equal(preset_find(preset, &p, NULL), 0);
    return wallclock_run_s(&w, &p->method);
}

static void a_run_takes_the_hours_of_appendix_h(void **state)
{
    static const char key[] = "wallclock: t_comp, one sync, DDP, FedAvg256, "
                              "LocalAdam256, DESLOC256/768/1536 [s]";
    const struct wallclock w = {1.7e9, 40e9,    4,   989e12, 0.4,
                                2,     1e9 / 8, 0.1, 2e6,    1};

    (void)state;
    assert_within(wallclock_compute_s(&w), number(key, 0), 1e-12);
    assert_within(wallclock_sync_s(&w), number(key, 1), 1e-12);
    assert_within(run_of("ddp"), number(key, 2), 1e-12);
    assert_within(run_of("favg-keep"), number(key, 3), 1e-12);
    assert_within(run_of("local-adam"), number(key, 4), 1e-12);
    assert_within(run_of("desloc"), number(key, 5), 1e-12);
}

static void uneven_messages_cost_trees_more_than_pairs(void **state)
{
    static const double sigma[5] = {0, 0.5, 1, 1.5, 2};
    /* The page's own simulation; its heavy-tailed cells are 10 % off. */
    static const double want[3][5] = {{2, 4, 6, 8, 10},
                                      {2.09, 4.46, 6.99, 9.64, 12.3},
                                      {2.2, 5.2, 8.7, 12.7, 16.7}};

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        assert_within(
            wallclock_pair_factor(sigma[i]),
            number("E[max of 2 lognormal] / E[t], sigma=0,.5,1,1.5,2", i),
            1e-12);
    }
    for (size_t row = 0; row < 3; row++) {
        for (unsigned k = 0; k < 5; k++) {
            assert_within(
                wallclock_tree_ratio(0.5 * (double)row, 2 * (k + 1), 7),
                want[row][k], row == 0 ? 1e-9 : 0.06);
        }
    }
}

/* The page draws the sum of m steps from a gamma distribution of the same mean
 * and variance, whose tail is lighter: for many steps that is the same, for ten
 * it is not. */
static void waiting_for_all_costs_what_the_page_says(void **state)
{
    (void)state;
    assert_within(wallclock_blocking_ratio(64, 100, 60, 1.0, 0.5, 3), 1.108,
                  0.02);
    assert_within(wallclock_blocking_ratio(1024, 100, 60, 1.0, 0.5, 3), 1.174,
                  0.03);
    assert_true(wallclock_blocking_ratio(1024, 10, 60, 1.0, 0.5, 3) > 1.575);
}

static void the_theory_of_desloc_has_its_constants(void **state)
{
    static const char psi[] = "psi(px=1/32,pu=1/96,b=.95), psi(1/32,0,.95), "
                              "psi(1/64,1/96,.95), psi(1,1/96,.95)";
    static const double beta[6] = {0.9, 0.95, 0.99, 0.995, 0.999, 0.9999};

    (void)state;
    assert_within(theory_psi(1.0 / 32, 1.0 / 96, 0.95), number(psi, 0), 1e-12);
    assert_within(theory_psi(1.0 / 32, 0, 0.95), number(psi, 1), 1e-12);
    assert_within(theory_psi(1.0 / 64, 1.0 / 96, 0.95), number(psi, 2), 1e-12);
    assert_true(theory_psi(1, 1.0 / 96, 0.95) == 0.0);
    for (size_t i = 0; i < 6; i++) {
        assert_within(theory_half_life(beta[i]),
                      number("half-life .9,.95,.99,.995,.999,.9999", i), 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_takes_the_hours_of_appendix_h),
        cmocka_unit_test(uneven_messages_cost_trees_more_than_pairs),
        cmocka_unit_test(waiting_for_all_costs_what_the_page_says),
        cmocka_unit_test(the_theory_of_desloc_has_its_constants),
    };
    return cmocka_run_group_tests(tests, NULL, vectors_free);
}
