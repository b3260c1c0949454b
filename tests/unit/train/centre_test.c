/* centre_test.c - what each term counts in a robust mean.
 *
 * Eight members in many dimensions: a common vector, of length 1, and noise of
 * length 1 that is different for each; the last three are liars.
 */
#include "train/sync/codec/centre.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"

#define N      8
#define HONEST 5
#define LEN    1024

static float v[N][LEN], weight[N], share[N];
static const float zeros[LEN];
static struct centre c;

static void fill(uint64_t seed)
{
    for (uint32_t k = 0; k < N; k++) {
        weight[k] = 0.125F;
        for (int i = 0; i < LEN; i++) {
            float even = i % 2 == 0 ? 1.0F : -1.0F;
            float noise = (rng_float(&seed) - 0.5F) * sqrtf(12.0F);

            v[k][i] = (even + noise) / 32.0F;
        }
    }
}

static void run(uint32_t n)
{
    c.n = n;
    c.weight = weight;
    c.clip = 1;
    for (uint32_t k = 0; k < n; k++) {
        c.length[k] = centre_apart(v[k], zeros, LEN);
        for (uint32_t i = 0; i < k; i++) {
            c.apart[centre_pair(i, k)] = centre_apart(v[i], v[k], LEN);
        }
    }
    centre_shares(&c, share);
}

static double sum_of(uint32_t from, uint32_t upto)
{
    double sum = 0;

    for (uint32_t k = from; k < upto; k++) {
        sum += (double)share[k];
    }
    return sum;
}

/* How far the centre is from the honest mean; noise has length 1. */
static double moved(void)
{
    double far = 0;

    for (int i = 0; i < LEN; i++) {
        double d = 0;

        for (uint32_t k = 0; k < N; k++) {
            d += (double)share[k] * (double)v[k][i];
            d -= k < HONEST ? (double)v[k][i] / HONEST : 0;
        }
        far += d * d;
    }
    return sqrt(far);
}

static void honest_members_count_nearly_alike(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 9; seed++) {
        double squares = 0;

        fill(seed);
        run(N);
        for (uint32_t k = 0; k < N; k++) {
            squares += (double)share[k] * (double)share[k];
        }
        assert_true(sum_of(0, N) < 1 && sum_of(0, N) > 0.97); /* the longer
                                                                half is cut */
        assert_true(squares < 1.1 / N); /* of equal shares: 1 / N */
    }
}

/* Members that counted more tokens count more, as in a plain mean. */
static void shares_follow_the_weights(void **state)
{
    (void)state;
    fill(3);
    weight[2] = 0.25F;
    weight[6] = 0;
    run(N);
    assert_true(share[2] > 1.6F * share[1] && share[2] < 2.4F * share[1]);
    assert_true(share[6] == 0);
    assert_true(sum_of(0, N) < 1 && sum_of(0, N) > 0.97);
}

/* Who has no weight changes nothing, whatever it sends. */
static void no_weight_is_no_word(void **state)
{
    float before[N];

    (void)state;
    fill(4);
    weight[7] = 0;
    run(N);
    memcpy(before, share, sizeof before);
    memset(v[7], 0, sizeof v[7]);
    run(N);
    assert_memory_equal(before, share, sizeof before);
    run(N - 1);
    assert_memory_equal(before, share, (N - 1) * sizeof *before);
    memset(weight, 0, sizeof weight);
    run(N);
    assert_true(sum_of(0, N) == 0);
}

static void three_that_say_the_same_are_one_voice(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 9; seed++) {
        fill(seed);
        for (int i = 0; i < LEN; i++) { /* all liars: the mean, 1.5 too far */
            float even = i % 2 == 0 ? 2.5F : -2.5F;

            v[5][i] = v[6][i] = v[7][i] = even / 32.0F;
        }
        run(N);
        assert_true(sum_of(HONEST, N) < 0.27); /* a plain mean: 0.375 */
        assert_true(moved() < 0.45);
        fill(seed);
        memcpy(v[5], v[seed % 5], sizeof v[5]); /* mimics */
        memcpy(v[6], v[5], sizeof v[5]);
        memcpy(v[7], v[5], sizeof v[5]);
        run(N);
        assert_true(fabs(sum_of(HONEST, N) / (double)share[seed % 5] - 3) <
                    1e-4);
        assert_true(moved() < 0.1);
    }
}

/* The farther, the less: it neither leads the mean away nor makes honest
 * members count less than they would alone. */
static void what_is_far_away_hardly_counts(void **state)
{
    static const float times[] = {5, 30, 1e6F, 1e30F};
    double last = 1;

    (void)state;
    for (size_t t = 0; t < sizeof times / sizeof times[0]; t++) {
        fill(5);
        for (uint32_t k = HONEST; k < N; k++) {
            for (int i = 0; i < LEN; i++) {
                v[k][i] = times[t] * v[k][i];
            }
        }
        run(N);
        assert_true(moved() < 0.15);
        assert_true(sum_of(HONEST, N) < last);
        last = sum_of(HONEST, N);
    }
    assert_true(last < 1e-12);
}

/* The mean of two is half of each, but no longer than the shorter: LONG times
 * as long is none of these (what_is_far_away_hardly_counts). */
static void a_term_counts_as_long_as_most_are(void **state)
{
    float before[N];

    (void)state;
    for (uint64_t seed = 1; seed < 9; seed++) {
        double far;

        fill(seed);
        run(N);
        far = moved();
        memcpy(before, share, sizeof before);
        for (uint32_t k = HONEST; k < N; k++) {
            for (int i = 0; i < LEN; i++) {
                v[k][i] = 3 * v[k][i];
            }
        }
        run(N);
        for (uint32_t k = HONEST; k < N; k++) {
            assert_true(3 * share[k] < before[k] * 1.1F);
            assert_true(3 * share[k] > before[k] * 0.8F);
        }
        assert_true(moved() < far * 1.2);
    }
}

/* The best lie that is known: honest noise and a shift. Three of eight move a
 * plain mean by 0.375 of the shift, without end. */
static void a_shift_moves_the_centre_by_half_the_noise_at_most(void **state)
{
    (void)state;
    for (int shift = 1; shift < 40; shift++) {
        fill((uint64_t)shift);
        for (uint32_t k = HONEST; k < N; k++) {
            for (int i = 0; i < LEN; i++) {
                v[k][i] += (i % 2 == 0 ? 0.1F : -0.1F) * (float)shift / 32.0F;
            }
        }
        run(N);
        assert_true(moved() < 0.55);
    }
}

/* Blocks in which all, most or two are equal, one member, and two. */
static void what_is_equal_makes_no_number_that_is_none(void **state)
{
    (void)state;
    memset(v, 0, sizeof v);
    run(N);
    assert_true(fabs(sum_of(0, N) - 1) < 1e-6 && share[0] == share[7]);
    v[3][9] = 1; /* the others are the same: it does not count */
    run(N);
    assert_true(share[3] == 0 && fabs(sum_of(0, N) - 1) < 1e-6);
    fill(6);
    run(1);
    assert_true(share[0] == 1);
    run(2);
    assert_true((share[0] == 0.5F) != (share[1] == 0.5F)); /* the shorter */
    memcpy(v[1], v[0], sizeof v[0]);
    run(2);
    assert_true(share[0] == 0.5F && share[1] == 0.5F);
    weight[0] = 0; /* one voter */
    run(2);
    assert_true(share[0] == 0 && share[1] == 1);
}

/* The order of the eight partial sums is part of the protocol. */
static void distances_are_summed_in_eight_lanes(void **state)
{
    static float x[19], y[19];
    double lane[8] = {0};

    (void)state;
    for (int i = 0; i < 19; i++) {
        double d;

        x[i] = ldexpf(1 + 0.37F * (float)i, i);
        y[i] = ldexpf(0.9F, 2 * i - 9);
        d = (double)x[i] - (double)y[i];
        lane[i % 8] += d * d;
    }
    assert_true(centre_apart(x, y, 19) ==
                ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
                    ((lane[4] + lane[5]) + (lane[6] + lane[7])));
    assert_true(centre_apart(y, x, 19) == centre_apart(x, y, 19));
    x[0] = 3e38F;
    y[0] = -3e38F;
    assert_true(isfinite(centre_apart(x, y, 19)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_members_count_nearly_alike),
        cmocka_unit_test(shares_follow_the_weights),
        cmocka_unit_test(no_weight_is_no_word),
        cmocka_unit_test(three_that_say_the_same_are_one_voice),
        cmocka_unit_test(what_is_far_away_hardly_counts),
        cmocka_unit_test(a_term_counts_as_long_as_most_are),
        cmocka_unit_test(a_shift_moves_the_centre_by_half_the_noise_at_most),
        cmocka_unit_test(what_is_equal_makes_no_number_that_is_none),
        cmocka_unit_test(distances_are_summed_in_eight_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
