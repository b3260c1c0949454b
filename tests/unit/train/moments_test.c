/* moments_test.c - how far apart moments are: by direction and by length; what
 * is rounded to nothing says nothing. */
#include "train/sync/moments.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N   64U
#define EPS 1e-8

static float u[N], v[N], other_u[N], other_v[N];

static void lay(void)
{
    for (uint32_t i = 0; i < N; i++) {
        u[i] = other_u[i] = (float)(1 + i % 7) * (i % 2 == 0 ? 1e-4F : -1e-4F);
        v[i] = other_v[i] = (float)(1 + i % 5) * 1e-7F;
    }
}

static double apart(void)
{
    const struct moments_part x = {other_u, other_v}, r = {u, v};

    return moments_apart(&x, &r, N, EPS);
}

static void direction_and_length_count(void **state)
{
    (void)state;
    lay();
    assert_true(apart() == 0);
    for (uint32_t i = 0; i < N; i++) {
        other_u[i] = 2 * u[i];
    }
    assert_true(fabs(apart() - 0.5) < 0.01); /* 2 + 1/2 - 2 */
    for (uint32_t i = 0; i < N; i++) {
        other_u[i] = u[i];
        other_v[i] = 4 * v[i];
    }
    assert_true(fabs(apart() - 2.25) < 0.01); /* of v: 4 + 1/4 - 2 */
    lay();
    for (uint32_t i = 0; i < N; i += 2) {
        other_u[i] = -u[i];
    }
    assert_true(apart() > 1);
}

/* All but one v is nothing: the steps of these are long. */
static void a_v_of_nothing_is_far_away(void **state)
{
    (void)state;
    lay();
    v[0] = other_v[0] = 1; /* it has all of the cosine */
    for (uint32_t i = 1; i < N; i++) {
        other_v[i] = 0;
    }
    assert_true(apart() > 1000);
    other_v[3] = -1;
    assert_true(isinf(apart()));
    v[5] = NAN; /* ours says nothing */
    assert_true(isnan(apart()));
}

static void what_is_rounded_away_is_nothing(void **state)
{
    (void)state;
    lay();
    for (uint32_t i = 0; i < N; i++) {
        u[i] = 0;
        other_u[i] = 1e-24F;
        v[i] = 0;
        other_v[i] = 1e-40F;
    }
    assert_true(apart() < 1e-6);
    memset(other_u, 0, sizeof other_u);
    memset(other_v, 0, sizeof other_v);
    assert_true(apart() == 0);
    other_u[3] = 1e-3F; /* of a matrix of Muon's */
    assert_true(apart() > 1);
    for (uint32_t i = 0; i < N; i++) {
        u[i] = other_u[i] = 1e-3F;
    }
    assert_true(apart() == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direction_and_length_count),
        cmocka_unit_test(a_v_of_nothing_is_far_away),
        cmocka_unit_test(what_is_rounded_away_is_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
