/* recipe_test.c - which period and outer step a run gets. */
#include "train/sync/recipe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* A million parameters in four bits, each sent about twice. */
static const struct recipe_run usual = {
    .steps = 5000, .step_s = 0.3, .exchange_bytes = 1e6, .bytes_per_s = 2.5e6};

static struct recipe chosen(struct recipe_run run)
{
    struct recipe r;

    recipe_choose(&run, &r);
    return r;
}

static void a_slower_line_never_has_a_shorter_period(void **state)
{
    struct recipe_run run = usual;
    uint32_t before = 0, first;

    (void)state;
    run.bytes_per_s = 1e9;
    first = chosen(run).period;
    assert_int_equal(first, RECIPE_PERIOD_LEAST);
    for (; run.bytes_per_s > 1e3; run.bytes_per_s /= 2) {
        uint32_t period = chosen(run).period;

        assert_true(period >= before);
        before = period;
    }
    assert_int_equal(before, RECIPE_PERIOD_MOST);
}

static void slower_steps_never_have_a_longer_period(void **state)
{
    struct recipe_run run = usual;
    uint32_t before = RECIPE_PERIOD_MOST;

    (void)state;
    for (run.step_s = 1e-3; run.step_s < 1e3; run.step_s *= 2) {
        uint32_t period = chosen(run).period;

        assert_true(period <= before);
        before = period;
    }
    assert_int_equal(before, RECIPE_PERIOD_LEAST);
}

static void all_steps_are_made_in_whole_rounds(void **state)
{
    struct recipe_run run = usual;

    (void)state;
    for (run.steps = 1; run.steps < 1000000; run.steps = run.steps * 3 + 1) {
        struct recipe r = chosen(run);

        assert_true(r.rounds * r.period >= run.steps);
        assert_true((r.rounds - 1) * r.period < run.steps);
    }
}

/* A mean of few rounds is hardly one: the line may be as slow as it likes. */
static void a_short_run_is_averaged_several_times(void **state)
{
    struct recipe_run run = usual;

    (void)state;
    run.bytes_per_s = 1e3;
    for (run.steps = RECIPE_PERIOD_LEAST * RECIPE_ROUNDS_LEAST;
         run.steps < 100000; run.steps *= 2) {
        assert_true(chosen(run).rounds >= RECIPE_ROUNDS_LEAST);
    }
    run.steps = 1;
    assert_int_equal(chosen(run).period, RECIPE_PERIOD_LEAST);
}

static void what_it_says_of_time_is_so(void **state)
{
    struct recipe r = chosen(usual);
    double training = r.period * usual.step_s;

    (void)state;
    assert_true(r.exchange_s >= usual.exchange_bytes / usual.bytes_per_s);
    assert_true(fabs(r.time_share - r.exchange_s / (r.exchange_s + training)) <
                1e-12);
    assert_true(r.period_cost >= 0);
}

/* Its own row for a run that was measured, the nearest for another, none for a
 * long run and for one without an end. */
static void a_short_run_is_told_of_the_nearest_that_was_measured(void **state)
{
    const struct recipe_measured *own = recipe_momentum(512, 16);

    (void)state;
    assert_true(own->steps == 512 && own->rounds == 16 && own->cost > 0);
    assert_ptr_equal(recipe_momentum(400, 20), own);
    assert_ptr_equal(recipe_momentum(1, 1), recipe_momentum(512, 4));
    assert_non_null(recipe_momentum(UINT64_MAX, RECIPE_ROUNDS_SHORT - 1));
    assert_null(recipe_momentum(512, RECIPE_ROUNDS_SHORT));
    assert_null(recipe_momentum(512, 0));
    assert_null(recipe_momentum(0, 16));
}

/* Whatever is asked, one of the periods and finite figures come out. */
static void strange_lines_and_machines_get_a_period_too(void **state)
{
    static const double values[] = {1e-300, 1e-12, 1, 1e12, 1e300};

    (void)state;
    for (int i = 0; i < 125; i++) {
        const struct recipe_run run = {.steps = (uint64_t)1 << i % 64,
                                       .step_s = values[i % 5],
                                       .exchange_bytes = values[i / 5 % 5],
                                       .bytes_per_s = values[i / 25]};
        struct recipe r;

        memset(&r, 0xff, sizeof r);
        recipe_choose(&run, &r);
        assert_true(r.period >= RECIPE_PERIOD_LEAST &&
                    r.period <= RECIPE_PERIOD_MOST);
        assert_true(r.outer_lr > 0 && r.outer_lr <= 1);
        assert_true(r.outer_momentum >= 0 && r.outer_momentum < 1);
        assert_true(r.period_cost >= 0 && r.period_cost < 100);
    }
}

static void a_run_of_few_rounds_has_the_plain_mean(void **state)
{
    struct recipe r = chosen(usual);

    (void)state;
    assert_true(r.outer_lr == 1 && r.outer_momentum == 0);
}

/* The three numbers of peers that the paper has. */
static void muloco_has_the_outer_steps_of_its_paper(void **state)
{
    static const struct {
        uint64_t peers;
        double lr, mu;
    } rows[] = {{1, 0.7, 0.6}, {8, 0.9, 0.8}, {16, 1.0, 0.9}, {64, 1.0, 0.9}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double lr, mu;

        recipe_muloco(rows[i].peers, &lr, &mu);
        assert_true(lr == rows[i].lr && mu == rows[i].mu);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slower_line_never_has_a_shorter_period),
        cmocka_unit_test(slower_steps_never_have_a_longer_period),
        cmocka_unit_test(all_steps_are_made_in_whole_rounds),
        cmocka_unit_test(a_short_run_is_averaged_several_times),
        cmocka_unit_test(what_it_says_of_time_is_so),
        cmocka_unit_test(a_short_run_is_told_of_the_nearest_that_was_measured),
        cmocka_unit_test(strange_lines_and_machines_get_a_period_too),
        cmocka_unit_test(a_run_of_few_rounds_has_the_plain_mean),
        cmocka_unit_test(muloco_has_the_outer_steps_of_its_paper),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
