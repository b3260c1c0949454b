/* recipe_test.c - which period and outer step a run gets. */
#include "train/sync/recipe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

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

static void the_papers_momentum_costs_most_in_short_runs(void **state)
{
    double before = recipe_momentum_cost(1);

    (void)state;
    assert_true(before > 10);
    for (uint64_t rounds = 2; rounds < 100000; rounds *= 2) {
        double cost = recipe_momentum_cost(rounds);

        assert_true(cost >= 0 && cost <= before);
        before = cost;
    }
    assert_true(before == 0); /* nobody has measured that many */
    assert_true(recipe_momentum_cost(0) == 0); /* no end was set */
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
        cmocka_unit_test(the_papers_momentum_costs_most_in_short_runs),
        cmocka_unit_test(a_run_of_few_rounds_has_the_plain_mean),
        cmocka_unit_test(muloco_has_the_outer_steps_of_its_paper),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
