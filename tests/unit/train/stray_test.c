/* stray_test.c - who is found to stray: made-up members with a common vector
 * and noise of their own, and members that lie. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"
#include "train/sync/stray.h"

#define MOST    16
#define LEN     (16 * 4096)
#define SEGMENT (3 * 4096)
#define SIGNAL  0.5F /* of the spread of a member's noise */

enum lie { HONEST, FLIP, DRIFT, NUDGE, PUSH, PULL, HUGE, ZERO, COPY, HALF };

struct crowd {
    const struct codec *codec;
    uint32_t n;
    enum lie lie[MOST];
    struct strays s;
    float *common, *x[MOST];
    uint8_t *wire[MOST], *sum;
    uint64_t attempt, rng;
    bool gone[MOST];
    int commits; /* 0: what was seen; else in which way it is not */
};

static float gauss(uint64_t *rng)
{
    float sum = 0;

    for (int i = 0; i < 4; i++) {
        sum += rng_float(rng) - 0.5F;
    }
    return sum * sqrtf(3);
}

static struct crowd *open_crowd(const char *wire, uint32_t n, uint64_t seed)
{
    struct crowd *c = calloc(1, sizeof *c);

    assert_non_null(c);
    c->codec = codec_find(wire);
    c->n = n;
    c->rng = seed;
    c->common = malloc(LEN * sizeof(float));
    c->sum = malloc(c->codec->bytes(LEN));
    for (uint32_t k = 0; k < n; k++) {
        c->x[k] = malloc(LEN * sizeof(float));
        c->wire[k] = malloc(c->codec->bytes(LEN));
    }
    strays_open(&c->s, LEN, seed);
    return c;
}

static void close_crowd(struct crowd *c)
{
    for (uint32_t k = 0; k < c->n; k++) {
        free(c->x[k]);
        free(c->wire[k]);
    }
    free(c->sum);
    free(c->common);
    strays_free(&c->s);
    free(c);
}

/* What that member sends; its noise is in `x` already. */
static float told(const struct crowd *c, uint32_t k, size_t i)
{
    float g = c->common[i], own = c->x[k][i];
    float unit = SIGNAL; /* of g in units of noise */

    switch (c->lie[k]) {
    case FLIP:
        return -own;
    case DRIFT:
        return g - 1.5F;
    case NUDGE:
        return own - 0.5F;
    case PUSH:
        return own + 1.25F * g / unit;
    case PULL:
        return own - g / unit;
    case HUGE:
        return 1000 * own;
    case ZERO:
        return 0;
    case COPY:
        return c->x[0][i];
    case HALF:
        return 0.5F * g + sqrtf(0.5F) * (own - g);
    default:
        return own;
    }
}

/* A round: the common vector keeps half of its direction; all learn, then lie;
 * those that are here are summed as a run of strangers does it. */
static void learn(struct crowd *c)
{
    const uint8_t *terms[MOST];
    float scale[MOST], *x = malloc(LEN * sizeof(float));
    struct codec_sum sum = {
        .terms = terms, .scale = scale, .n = LEN, .clip = 1, .centred = true};

    for (size_t i = 0; i < LEN; i++) {
        c->common[i] = 0.7F * c->common[i] + 0.7F * SIGNAL * gauss(&c->rng);
        for (uint32_t k = 0; k < c->n; k++) {
            c->x[k][i] = c->common[i] + gauss(&c->rng);
        }
    }
    for (uint32_t k = 0; k < c->n; k++) {
        for (size_t i = 0; i < LEN; i++) {
            x[i] = told(c, k, i);
        }
        assert_int_equal(c->codec->encode(c->wire[k], x, LEN, 1), 0);
        if (!c->gone[k]) {
            terms[sum.n_terms] = c->wire[k];
            scale[sum.n_terms++] = c->lie[k] == HALF ? 0.5F : 1;
        }
    }
    assert_int_equal(c->codec->sum(c->sum, &sum), 0);
    free(x);
}

/* The own slice, another part of the vector in each round. */
static uint64_t see(struct crowd *c)
{
    struct stray_member member[MOST] = {0};
    const uint8_t *lane[MOST];
    uint64_t slice = LEN / c->n / 4096 * 4096;
    uint64_t begin = rng_below(&c->rng, c->n) * slice;
    uint32_t lanes = 0;

    for (uint32_t k = 0; k < c->n; k++) {
        if (!c->gone[k]) {
            member[lanes].id[0] = (uint8_t)(1 + k);
            member[lanes++].tokens = c->lie[k] == HALF ? 500 : 1000;
        }
    }
    c->attempt++;
    for (uint64_t at = begin; at < begin + slice; at += SEGMENT) {
        struct stray_sum m = {
            .attempt = c->attempt,
            .offset = at,
            .n = (uint32_t)(at + SEGMENT < begin + slice ? SEGMENT
                                                         : begin + slice - at),
            .lanes = lanes,
            .lane = lane,
            .sum = c->sum + c->codec->bytes((size_t)at),
        };

        lanes = 0;
        for (uint32_t k = 0; k < c->n; k++) {
            if (!c->gone[k]) {
                lane[lanes++] = c->wire[k] + c->codec->bytes((size_t)at);
            }
        }
        assert_int_equal(strays_see(&c->s, c->codec, &m), 0);
    }
    if (c->commits == 1) {
        return strays_commit(&c->s, c->attempt + 1, member, lanes);
    }
    if (c->commits == 2) {
        return strays_commit(&c->s, c->attempt, member, lanes - 1);
    }
    if (c->commits == 3) { /* another attempt begins, and shows nothing */
        const struct stray_sum none = {.attempt = ++c->attempt, .lanes = lanes};

        assert_int_equal(strays_see(&c->s, c->codec, &none), 0);
    }
    return strays_commit(&c->s, c->attempt, member, lanes);
}

/* Bits of all that were named in so many rounds. */
static uint64_t named(struct crowd *c, int rounds)
{
    uint64_t mask = 0;

    for (int i = 0; i < rounds; i++) {
        learn(c);
        mask |= see(c);
    }
    return mask;
}

static void nobody_honest_strays(void **state)
{
    static const char *const wires[] = {"fp32", "fp16", "int8", "e3m0"};

    (void)state;
    for (size_t w = 0; w < 4; w++) {
        struct crowd *c = open_crowd(wires[w], w % 2 ? 8 : 3, 7 + w);

        assert_int_equal(named(c, 40), 0);
        close_crowd(c);
    }
}

/* Each of three of eight. */
static void who_lies_is_named_and_nobody_else(void **state)
{
    static const struct {
        enum lie lie;
        int rounds;
    } cases[] = {{FLIP, 20}, {DRIFT, 40}, {NUDGE, 150}, {PUSH, 20},
                 {PULL, 20}, {HUGE, 20},  {ZERO, 30}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct crowd *c = open_crowd("fp16", 8, 3);
        uint64_t mask;

        c->lie[2] = c->lie[3] = c->lie[7] = cases[i].lie;
        mask = named(c, cases[i].rounds);
        if (mask != (1 << 2 | 1 << 3 | 1 << 7)) {
            fail_msg("lie %d: %#llx", cases[i].lie, (unsigned long long)mask);
        }
        close_crowd(c);
    }
}

/* They go as far for each token. */
static void who_makes_half_of_the_steps_does_not_stray(void **state)
{
    struct crowd *c = open_crowd("e3m0", 8, 5);

    (void)state;
    c->lie[1] = HALF;
    assert_int_equal(named(c, 40), 0);
    close_crowd(c);
    c = open_crowd("e3m0", 8, 6);
    for (int k = 1; k < 8; k++) {
        c->lie[k] = HALF; /* the fast one is alone */
    }
    assert_int_equal(named(c, 40), 0);
    close_crowd(c);
}

static void what_is_known_begins_anew_once_it_is_named(void **state)
{
    struct crowd *c = open_crowd("fp16", 8, 3);
    int first = 0, again = 0;

    (void)state;
    c->lie[7] = FLIP;
    while (named(c, 1) == 0) {
        first++;
    }
    while (named(c, 1) == 0) {
        again++;
    }
    assert_true(first >= 2 && again >= 2);
    c->lie[7] = HONEST;
    assert_int_equal(named(c, 30), 0);
    close_crowd(c);
}

/* Whoever is away for a while, or comes new, is no liar by that. */
static void members_come_and_go(void **state)
{
    struct crowd *c = open_crowd("fp16", 9, 11);

    (void)state;
    c->gone[8] = true;
    assert_int_equal(named(c, 12), 0);
    c->gone[8] = false;
    c->gone[0] = true;
    assert_int_equal(named(c, 12), 0);
    c->gone[0] = false;
    assert_int_equal(named(c, 20), 0);
    close_crowd(c);
}

/* More newcomers than there are members: nobody's path is as long as those of
 * the old ones, and nobody strays. */
static void a_wave_of_newcomers_makes_nobody_stray(void **state)
{
    static const uint32_t old[] = {3, 4, 7};

    (void)state;
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) {
        struct crowd *c = open_crowd("fp16", 2 * old[i] + 2, 11);

        for (uint32_t k = old[i]; k < c->n; k++) {
            c->gone[k] = true;
        }
        assert_int_equal(named(c, 60), 0);
        for (uint32_t k = old[i]; k < c->n; k++) {
            c->gone[k] = false;
        }
        assert_int_equal(named(c, 60), 0);
        close_crowd(c);
    }
}

static void too_few_members_tell_nothing(void **state)
{
    struct crowd *c = open_crowd("fp16", 2, 3);

    (void)state;
    c->lie[1] = FLIP;
    assert_int_equal(named(c, 20), 0); /* of two nobody is typical */
    close_crowd(c);
    c = open_crowd("fp16", 4, 3);
    strays_open(&c->s, STRAY_PIECE - 1, 3); /* no place is in it */
    c->lie[1] = FLIP;
    assert_int_equal(named(c, 20), 0);
    close_crowd(c);
}

/* What another attempt showed, or one of other members, is of no commit. */
static void only_the_attempt_that_was_committed_counts(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct crowd *c = open_crowd("fp16", 8, 3);
        uint64_t mask = 0;

        c->lie[7] = FLIP;
        c->commits = how;
        mask = named(c, 20);
        assert_int_equal(mask, how == 0 ? 1 << 7 : 0);
        close_crowd(c);
    }
}

/* In each n-th part of the vector one place, and no block cuts it. */
static void places_are_spread_over_the_vector(void **state)
{
    static const uint64_t lengths[] = {256, 1000, 65536, 1 << 20, 1ULL << 40};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        uint64_t most = lengths[i] / STRAY_PIECE;
        struct strays s = {0}, t = {0};
        uint32_t differ = 0;

        strays_open(&s, lengths[i], 1);
        strays_open(&t, lengths[i], 2);
        assert_int_equal(s.n_pieces, most < STRAY_PIECES ? most : STRAY_PIECES);
        for (uint32_t k = 0; k < s.n_pieces; k++) {
            assert_int_equal(s.piece[k] % STRAY_PIECE, 0);
            assert_true(s.piece[k] + STRAY_PIECE <= lengths[i]);
            assert_true(k == 0 || s.piece[k] > s.piece[k - 1]);
            differ += s.piece[k] != t.piece[k];
        }
        assert_true(most <= STRAY_PIECES || differ > s.n_pieces / 2);
        strays_free(&s);
        strays_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_honest_strays),
        cmocka_unit_test(who_lies_is_named_and_nobody_else),
        cmocka_unit_test(who_makes_half_of_the_steps_does_not_stray),
        cmocka_unit_test(what_is_known_begins_anew_once_it_is_named),
        cmocka_unit_test(members_come_and_go),
        cmocka_unit_test(a_wave_of_newcomers_makes_nobody_stray),
        cmocka_unit_test(too_few_members_tell_nothing),
        cmocka_unit_test(only_the_attempt_that_was_committed_counts),
        cmocka_unit_test(places_are_spread_over_the_vector),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
