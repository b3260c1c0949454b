/* lies_test.c - what liars make of a group's vectors.
 *
 * Five honest members: a common vector and noise at right angles to it, as in
 * many dimensions; three liars.
 */
#include "train/lab/lies.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"

#define PEERS  8
#define HONEST 5
#define BLOCK  1024
#define LEN    2500 /* two blocks and a part of one */

static float vectors[PEERS][LEN], before[PEERS][LEN];

static struct lies_group group(enum lab_lie lie)
{
    struct lies_group g = {.lie = lie,
                           .clip = 1,
                           .block = BLOCK,
                           .seed = 3,
                           .turn = 7,
                           .len = LEN,
                           .n = PEERS};
    uint64_t rng = 5;

    for (uint32_t k = 0; k < PEERS; k++) {
        g.x[k] = vectors[k];
        g.number[k] = k;
        g.liar[k] = k >= HONEST;
        for (int i = 0; i < LEN; i++) {
            float size = i < BLOCK ? 1.0F : 100.0F;

            vectors[k][i] =
                size * ((i % 2 == 0 ? 0.2F : -0.2F) + rng_float(&rng) - 0.5F);
        }
    }
    memcpy(before, vectors, sizeof before);
    return g;
}

static double mean_of(uint32_t n, int i)
{
    double sum = 0;

    for (uint32_t k = 0; k < n; k++) {
        sum += (double)vectors[k][i];
    }
    return sum / n;
}

/* Distance in one block of a member from the mean of the first `n`. */
static double away(uint32_t member, uint32_t n, int at)
{
    double sum = 0;

    for (int i = at; i < at + BLOCK && i < LEN; i++) {
        double d = (double)vectors[member][i] - mean_of(n, i);

        sum += d * d;
    }
    return sqrt(sum);
}

/* The median of the honest distances from the mean of all. */
static double honest_median(int at)
{
    double far[HONEST];

    for (uint32_t k = 0; k < HONEST; k++) {
        uint32_t i = k;
        double d = away(k, PEERS, at);

        for (; i > 0 && far[i - 1] > d; i--) {
            far[i] = far[i - 1];
        }
        far[i] = d;
    }
    return far[HONEST / 2];
}

/* In every block liars are at the edge: as far from the mean of all as an
 * honest member, and a tenth farther would be clipped. */
static void an_overshoot_is_the_longest_mean_that_no_centre_clips(void **state)
{
    struct lies_group g = group(LAB_LIE_OVERSHOOT);

    (void)state;
    lies_tell(&g);
    for (int at = 0; at < LEN; at += BLOCK) {
        double factor = (double)vectors[HONEST][at] / mean_of(HONEST, at);

        assert_true(factor > 1.5);
        assert_true(fabs(away(HONEST, PEERS, at) / honest_median(at) - 1) <
                    0.1);
        for (int i = at; i < at + BLOCK && i < LEN; i++) {
            assert_true(fabs((double)vectors[HONEST][i] -
                             factor * mean_of(HONEST, i)) < 1e-3 * factor);
        }
    }
}

/* Three of eight, radius 2: a clip that grows with the lie is none. */
static void a_radius_above_the_honest_share_bounds_no_overshoot(void **state)
{
    struct lies_group g = group(LAB_LIE_OVERSHOOT);
    double near;

    (void)state;
    lies_tell(&g);
    near = away(HONEST, HONEST, 0);
    g = group(LAB_LIE_OVERSHOOT);
    g.clip = 2;
    lies_tell(&g);
    assert_true(away(HONEST, HONEST, 0) > 4 * near);
}

static void a_mimic_is_the_farthest_honest_member(void **state)
{
    struct lies_group g = group(LAB_LIE_MIMIC);

    (void)state;
    vectors[3][LEN - 1] += 1000;
    vectors[6][0] += 1e6F; /* a liar's own does not count */
    memcpy(before, vectors, sizeof before);
    lies_tell(&g);
    for (uint32_t k = HONEST; k < PEERS; k++) {
        assert_memory_equal(vectors[k], before[3], sizeof vectors[k]);
    }
}

/* Whatever the lie: it is another vector, and nobody else's changes. */
static void only_liars_lie(void **state)
{
    (void)state;
    for (int lie = 0; lie < LAB_LIE_COUNT; lie++) {
        struct lies_group g = group((enum lab_lie)lie);

        lies_tell(&g);
        assert_memory_equal(vectors, before, HONEST * sizeof vectors[0]);
        for (uint32_t k = HONEST; k < PEERS; k++) {
            assert_memory_not_equal(vectors[k], before[k], sizeof vectors[k]);
            for (int i = 0; i < LEN; i++) {
                assert_true(isfinite(vectors[k][i]));
            }
        }
        g = group((enum lab_lie)lie);
        memset(g.liar, 0, sizeof g.liar);
        lies_tell(&g);
        assert_memory_equal(vectors, before, sizeof vectors);
    }
}

/* Nobody to learn from: no number that is none, no reading beyond the end. */
static void liars_alone_do_no_harm_to_the_process(void **state)
{
    (void)state;
    for (int lie = 0; lie < LAB_LIE_COUNT; lie++) {
        struct lies_group g = group((enum lab_lie)lie);

        memset(g.liar, 1, sizeof g.liar);
        lies_tell(&g);
        for (int i = 0; i < LEN; i++) {
            assert_true(isfinite(vectors[0][i]));
        }
    }
}

static void names_are_all_there(void **state)
{
    char all[128];

    (void)state;
    lab_lie_names(all, sizeof all);
    for (int i = 0; i < LAB_LIE_COUNT; i++) {
        assert_non_null(strstr(all, lab_lie_name((enum lab_lie)i)));
    }
    assert_non_null(strstr(all, ", copy, "));
    assert_non_null(strstr(all, " or pull"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overshoot_is_the_longest_mean_that_no_centre_clips),
        cmocka_unit_test(a_radius_above_the_honest_share_bounds_no_overshoot),
        cmocka_unit_test(a_mimic_is_the_farthest_honest_member),
        cmocka_unit_test(only_liars_lie),
        cmocka_unit_test(liars_alone_do_no_harm_to_the_process),
        cmocka_unit_test(names_are_all_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
