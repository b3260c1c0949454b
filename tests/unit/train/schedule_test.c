/* The vectors of the algorithms page, 0.4. */
#include "train/model/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/base/err.h"

struct point {
    uint64_t k;
    double lr;
};

static void check(const struct schedule *s, const struct point *p, int n)
{
    assert_int_equal(schedule_check(s, NULL), 0);
    for (int i = 0; i < n; i++) {
        double diff = fabs(schedule_lr(s, p[i].k) - p[i].lr);

        if (!(diff <= 1e-9 * p[i].lr)) {
            fail_msg("lr(%llu) is %.12g, not %.12g", (unsigned long long)p[i].k,
                     schedule_lr(s, p[i].k), p[i].lr);
        }
    }
}

static void cosine_follows_the_vectors(void **state)
{
    const struct schedule s = {SCHEDULE_COSINE, 6e-4, 6e-5, 1000, 25000, 0};
    const struct point p[] = {
        {0, 6e-7},
        {999, 6e-4},
        {1000, 6e-4},
        {13000, 3.3e-4},
        {24999, 6.0000002313188535e-05},
        {25000, 6e-5},
        {UINT64_MAX, 6e-5},
    };

    (void)state;
    check(&s, p, 7);
}

static void wsd_follows_the_vectors(void **state)
{
    struct schedule s = {SCHEDULE_WSD_SQRT, 1e-3, 0, 10, 100, 20};
    const struct point root[] = {
        {0, 1e-4},
        {9, 1e-3},
        {10, 1e-3},
        {79, 1e-3},
        {80, 1e-3},
        {85, 5e-4},
        {90, 0.00029289321881345245},
        {99, 2.5320565519103668e-05},
        {100, 0},
    };
    const struct point line[] = {
        {9, 1e-3},
        {80, 1e-3},
        {85, 7.5e-4},
        {90, 5e-4},
        {99, 5.000000000000004e-05},
        {100, 0},
        {500, 0},
    };

    (void)state;
    check(&s, root, 9);
    s.kind = SCHEDULE_WSD_LINEAR;
    check(&s, line, 7);
}

static void constant_warms_up_and_stays(void **state)
{
    const struct schedule s = {
        .kind = SCHEDULE_CONSTANT, .peak = 0.1, .warmup_steps = 4};
    const struct schedule cold = {.kind = SCHEDULE_CONSTANT, .peak = 0.1};
    const struct point p[] = {{0, 0.025}, {3, 0.1}, {4, 0.1}, {1u << 30, 0.1}};

    (void)state;
    check(&s, p, 4);
    check(&cold, p + 2, 2);
    assert_true(schedule_lr(&cold, 0) == 0.1);
}

static void schedules_of_length_zero_divide_nothing_by_zero(void **state)
{
    const struct schedule c = {SCHEDULE_COSINE, 1, 0.5, 0, 0, 0};
    const struct schedule w = {SCHEDULE_WSD_SQRT, 1, 0.5, 5, 5, 0};

    (void)state;
    assert_int_equal(schedule_check(&c, NULL), 0);
    assert_int_equal(schedule_check(&w, NULL), 0);
    assert_true(schedule_lr(&c, 0) == 0.5);
    assert_true(schedule_lr(&w, 4) == 1);
    assert_true(schedule_lr(&w, 5) == 0.5);
}

static void kinds_have_names(void **state)
{
    static const char *const names[SCHEDULE_KIND_COUNT] = {"constant", "cosine",
                                                           "wsd", "wsd-linear"};
    enum schedule_kind kind;

    (void)state;
    for (int i = 0; i < SCHEDULE_KIND_COUNT; i++) {
        assert_int_equal(schedule_kind_named(names[i], &kind), 0);
        assert_int_equal(kind, i);
    }
    assert_int_equal(schedule_kind_named("sawtooth", &kind), LOCO_ENOENT);
}

static void impossible_schedules_are_refused(void **state)
{
    const struct schedule bad[] = {
        {SCHEDULE_KIND_COUNT, 1, 0, 0, 10, 0},
        {SCHEDULE_COSINE, NAN, 0, 0, 10, 0},
        {SCHEDULE_COSINE, -1, 0, 0, 10, 0},
        {SCHEDULE_COSINE, 1, 2, 0, 10, 0},
        {SCHEDULE_COSINE, 1, NAN, 0, 10, 0},
        {SCHEDULE_COSINE, 1, 0, 11, 10, 0},
        {SCHEDULE_WSD_SQRT, 1, 0, 5, 10, 6},
        {SCHEDULE_WSD_LINEAR, 1, 0, 0, 10, UINT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *reason = NULL;

        assert_int_equal(schedule_check(&bad[i], &reason), LOCO_EINVAL);
        assert_non_null(reason);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosine_follows_the_vectors),
        cmocka_unit_test(wsd_follows_the_vectors),
        cmocka_unit_test(constant_warms_up_and_stays),
        cmocka_unit_test(schedules_of_length_zero_divide_nothing_by_zero),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(impossible_schedules_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
