/* Figures of lm-evaluation-harness, worked out by hand. */
#include "daemon/cli/task_score.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void length_decides_only_the_normalised_score(void **state)
{
    const double scores[] = {-8, -6, -10};
    const size_t characters[] = {4, 2, 10};
    struct task_answers a = {.n = 3,
                             .answer = 2,
                             .log_likelihoods = scores,
                             .characters = characters};
    struct task_score s = {0};

    (void)state;
    task_score_add(&s, &a); /* per character: -2, -3, -1 */
    assert_int_equal(a.picked, 1);
    assert_int_equal(a.picked_norm, 2);
    assert_int_equal(s.questions, 1);
    assert_int_equal(s.right, 0);
    assert_int_equal(s.right_norm, 1);
    a.answer = 1;
    task_score_add(&s, &a);
    assert_int_equal(s.questions, 2);
    assert_int_equal(s.right, 1);
    assert_int_equal(s.right_norm, 1);
}

static void of_equal_choices_the_first_is_picked(void **state)
{
    const double scores[] = {-9, -4, -4, -2};
    const size_t characters[] = {9, 2, 2, 1};
    struct task_answers a = {
        .n = 3, .log_likelihoods = scores, .characters = characters};
    struct task_score s = {0};

    (void)state;
    task_score_add(&s, &a);
    assert_int_equal(a.picked, 1);
    assert_int_equal(a.picked_norm, 0);
    a.log_likelihoods++;
    a.characters++;
    task_score_add(&s, &a); /* -4, -4, -2; per character all -2 */
    assert_int_equal(a.picked, 2);
    assert_int_equal(a.picked_norm, 0);
}

/* statistics.stdev([1, 1, 1, 0]) / 2 = 0.25; of 3 of 10: 0.1527525 */
static void the_standard_error_is_that_of_a_sample(void **state)
{
    (void)state;
    assert_true(fabs(task_score_stderr(3, 4) - 0.25) < 1e-12);
    assert_true(fabs(task_score_stderr(3, 10) - 0.15275252316519466) < 1e-12);
    assert_true(task_score_stderr(0, 5) == 0);
    assert_true(task_score_stderr(5, 5) == 0);
    assert_true(isnan(task_score_stderr(1, 1)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(length_decides_only_the_normalised_score),
        cmocka_unit_test(of_equal_choices_the_first_is_picked),
        cmocka_unit_test(the_standard_error_is_that_of_a_sample),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
