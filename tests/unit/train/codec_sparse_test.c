/* The wire type `sparse`: words by hand, which elements are kept, levels in
 * double precision, what no encoder writes. What all types share is in
 * codec_test.c, codec_isa_test.c and codec_feedback_test.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "proto/base/rng.h"
#include "train/sync/codec/codec.h"

#define GROUP 64
#define KEPT  12
#define BLOCK 1024
#define BYTES 122

static const char *const isas[] = {"portable", "avx2", "avx512"};
#define N_ISAS (sizeof isas / sizeof isas[0])

/* C(p, j), by Pascal's rule. */
static uint64_t choose(unsigned p, unsigned j)
{
    uint64_t row[GROUP + 1] = {1};

    for (unsigned i = 1; i <= p; i++) {
        for (unsigned k = i; k > 0; k--) {
            row[k] += row[k - 1];
        }
    }
    return row[j];
}

/* The first word of 60 bits; *most is the block's head. */
static uint64_t
encoded(const char *isa, const float *x, size_t n, uint32_t *most)
{
    uint8_t block[BYTES];
    const struct codec *c = codec_get_isa(CODEC_SPARSE, isa);

    memset(block, 0xa5, sizeof block);
    assert_int_equal(c->encode(block, x, n, 1), 0);
    for (size_t k = 2 + ((n + GROUP - 1) / GROUP * 15 + 1) / 2; k < BYTES;
         k++) {
        assert_int_equal(block[k], 0);
    }
    *most = get_u16(block);
    return get_u64(block + 2) & ((UINT64_C(1) << 60) - 1);
}

static int
decoded(const char *isa, float *x, uint64_t word, uint32_t most, size_t n)
{
    uint8_t block[BYTES] = {0};

    put_u16(block, (uint16_t)most);
    put_u64(block + 2, word);
    return codec_get_isa(CODEC_SPARSE, isa)->decode(x, block, n);
}

/* There and back. */
static void through(const char *isa, float *y, const float *x, size_t n)
{
    uint8_t block[BYTES];
    const struct codec *c = codec_get_isa(CODEC_SPARSE, isa);

    assert_int_equal(c->encode(block, x, n, 1), 0);
    assert_int_equal(c->decode(y, block, n), 0);
}

/* For each set that this processor has. */
static void each_isa(void (*check)(const char *isa))
{
    int n = 0;

    for (size_t i = 0; i < N_ISAS; i++) {
        if (codec_get_isa(CODEC_SPARSE, isas[i]) != NULL) {
            check(isas[i]);
            n++;
        }
    }
    assert_true(n > 0);
}

/* Elements 3, 7, .. 47 are +-2, 63 elements are below: the mean of those kept
 * is 2, so the level's bits are those of 2.0. */
static void by_hand(const char *isa)
{
    float x[GROUP], y[GROUP];
    uint64_t rank = 0, signs = 0, word;
    uint32_t most;

    for (unsigned i = 0; i < GROUP; i++) {
        x[i] = i % 2 != 0 ? 0.5F : -1.0F;
    }
    for (unsigned j = 1; j <= KEPT; j++) {
        unsigned p = 4 * j - 1;

        x[p] = j % 3 == 0 ? -2.0F : 2.0F;
        signs |= (uint64_t)(j % 3 == 0) << (j - 1);
        rank += choose(p, j);
    }
    word = encoded(isa, x, GROUP, &most);
    assert_int_equal(most, 0x40000000U >> 21);
    assert_int_equal(word, signs | rank << 12 | UINT64_C(63) << 54);
    assert_int_equal(decoded(isa, y, word, most, GROUP), 0);
    for (unsigned i = 0; i < GROUP; i++) {
        assert_true(y[i] == (fabsf(x[i]) == 2.0F ? x[i] : 0.0F));
    }
}

static void a_word_is_as_written_by_hand(void **state)
{
    (void)state;
    assert_int_equal(choose(64, 12), UINT64_C(3284214703056));
    each_isa(by_hand);
}

struct ranked {
    float magnitude;
    unsigned at;
};

static int by_magnitude(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    return x->magnitude != y->magnitude
               ? (x->magnitude < y->magnitude) - (x->magnitude > y->magnitude)
               : (x->at > y->at) - (x->at < y->at);
}

/* The nearest of the 10-bit numbers around x: two bits behind the first one. */
static double nearest_level(double x)
{
    int e;
    double f = frexp(x, &e); /* 0.5 to 1: steps of an eighth */

    return ldexp(rint(f * 8), e - 3);
}

/* One group of n against a sorted list and double precision. */
static void check_group(const char *isa, const float *x, size_t n)
{
    struct ranked order[GROUP];
    float y[GROUP];
    double mean = 0;
    size_t kept = n < KEPT ? n : KEPT;

    for (unsigned i = 0; i < n; i++) {
        order[i] = (struct ranked){fabsf(x[i]), i};
    }
    qsort(order, n, sizeof *order, by_magnitude);
    through(isa, y, x, n);
    for (size_t i = 0; i < kept; i++) {
        mean += order[i].magnitude / (double)kept;
    }
    for (size_t i = 0; i < n; i++) {
        double v = y[order[i].at];

        if (i >= kept) {
            assert_true(v == 0);
            continue;
        }
        assert_int_equal(signbit(v) != 0, signbit(x[order[i].at]) != 0);
        /* Whole numbers and fp32 move a mean by little; at a tie that can be a
         * step of the level. */
        assert_true(fabs(fabs(v) - mean) <= mean * (1.0 / 8 + 1e-3));
        if (fabs(nearest_level(mean * 1.001) - nearest_level(mean * 0.999)) <
            1e-9 * mean) {
            assert_true(fabs(v) == nearest_level(mean));
        }
    }
}

static void random_groups(const char *isa)
{
    uint64_t rng = 5;

    for (int turn = 0; turn < 3000; turn++) {
        float x[GROUP];
        size_t n = turn % 3 == 0 ? 1 + rng_below(&rng, GROUP) : GROUP;
        int kinds = 1 + (int)rng_below(&rng, 40); /* few: many are equal */

        for (size_t i = 0; i < n; i++) {
            double v = (double)rng_below(&rng, (uint64_t)kinds) - kinds / 2;

            v = turn % 2 == 0 ? v + rng_float(&rng) : v;
            x[i] = (float)(v * (turn % 5 == 0 ? 1e-20 : 1e3));
        }
        x[0] = turn % 7 == 0 ? 1e6F : x[0]; /* one far above */
        x[n - 1] = x[n - 1] == 0 && n == 1 ? 1.0F : x[n - 1];
        for (size_t i = 0; i < n; i++) {
            if (x[i] != 0) {
                check_group(isa, x, n);
                break;
            }
        }
    }
}

static void the_twelve_largest_are_kept(void **state)
{
    (void)state;
    each_isa(random_groups);
}

static void equal_ones(const char *isa)
{
    float x[GROUP], y[GROUP];

    for (int i = 0; i < GROUP; i++) {
        x[i] = -3.0F;
    }
    through(isa, y, x, GROUP);
    for (int i = 0; i < GROUP; i++) {
        assert_true(y[i] == (i < KEPT ? -3.0F : 0.0F));
    }
    memset(x, 0, sizeof x); /* one element alone: zeros are kept beside it */
    x[40] = 12.0F;
    through(isa, y, x, GROUP);
    for (int i = 0; i < GROUP; i++) {
        assert_true(y[i] == (i < KEPT - 1 || i == 40 ? 1.0F : 0.0F));
    }
}

static void of_equal_ones_the_first_are_kept(void **state)
{
    (void)state;
    each_isa(equal_ones);
}

static void extremes(const char *isa)
{
    float x[GROUP] = {0}, y[GROUP];
    uint32_t most;

    assert_int_equal(encoded(isa, x, GROUP, &most), 0);
    assert_int_equal(most, 0);
    x[5] = -0.0F;
    x[6] = 0x1p-120F; /* below what is sent */
    assert_int_equal(encoded(isa, x, GROUP, &most), 0);
    x[6] = 0x1p-119F;
    assert_int_not_equal(encoded(isa, x, GROUP, &most), 0);
    through(isa, y, x, GROUP);
    for (int i = 0; i < GROUP; i++) {
        x[i] = 3.4028234e38F;
    }
    through(isa, y, x, GROUP);
    assert_true(isfinite(y[0]) && y[0] > 2.9e38F);
    x[9] = INFINITY;
    assert_int_equal(codec_get_isa(CODEC_SPARSE, isa)
                         ->encode((uint8_t[BYTES]){0}, x, GROUP, 1),
                     LOCO_ENUMERIC);
    x[9] = NAN;
    assert_int_equal(codec_get_isa(CODEC_SPARSE, isa)
                         ->encode((uint8_t[BYTES]){0}, x, GROUP, 1),
                     LOCO_ENUMERIC);
}

static void zeros_and_the_largest_numbers(void **state)
{
    (void)state;
    each_isa(extremes);
}

#define WORD(signs, rank, step)                                                \
    ((uint64_t)(signs) | (uint64_t)(rank) << 12 | (uint64_t)(step) << 54)

static void refused(const char *isa)
{
    const uint64_t ranks = UINT64_C(3284214703056);
    const uint32_t one = 0x3f800000U >> 21;
    float x[BLOCK];
    uint8_t block[BYTES] = {0};

    assert_int_equal(decoded(isa, x, WORD(0, 0, 63), 4, GROUP), 0);
    assert_int_equal(decoded(isa, x, WORD(0, 0, 1), 66, GROUP), 0);
    assert_int_equal(decoded(isa, x, WORD(0xfff, ranks - 1, 63), 0x3fb, GROUP),
                     0);
    for (int i = 0; i < GROUP; i++) { /* the last rank: the last twelve */
        assert_true((x[i] != 0) == (i >= GROUP - KEPT));
    }
    assert_int_equal(decoded(isa, x, WORD(0, ranks, 63), one, GROUP),
                     LOCO_EPROTO);
    assert_int_equal(
        decoded(isa, x, WORD(0, UINT64_C(0x3ffffffffff), 63), one, GROUP),
        LOCO_EPROTO);
    /* Heads that are no normal number; levels below one. */
    assert_int_equal(decoded(isa, x, 0, 3, GROUP), LOCO_EPROTO);
    assert_int_equal(decoded(isa, x, 0, 0x3fc, GROUP), LOCO_EPROTO);
    assert_int_equal(decoded(isa, x, 0, 0x8200, GROUP), LOCO_EPROTO);
    assert_int_equal(decoded(isa, x, WORD(0, 0, 62), 4, GROUP), LOCO_EPROTO);
    assert_int_equal(decoded(isa, x, WORD(0, 0, 63), 0, GROUP), LOCO_EPROTO);
    assert_int_equal(decoded(isa, x, WORD(1, 0, 0), one, GROUP), LOCO_EPROTO);
    assert_int_equal(decoded(isa, x, WORD(0, 1, 0), one, GROUP), LOCO_EPROTO);
    /* Behind the end: a position, a sign, another set than the first twelve. */
    assert_int_equal(decoded(isa, x, WORD(0, ranks - 1, 63), one, 63),
                     LOCO_EPROTO);
    assert_int_equal(decoded(isa, x, WORD(0xfff, 0, 63), one, 12), 0);
    assert_int_equal(decoded(isa, x, WORD(0x7, 0, 63), one, 3), 0);
    assert_int_equal(decoded(isa, x, WORD(0x8, 0, 63), one, 3), LOCO_EPROTO);
    assert_int_equal(decoded(isa, x, WORD(0, 1, 63), one, 3), LOCO_EPROTO);
    put_u16(block, (uint16_t)one); /* the second word, behind the end */
    block[2 + 14] = 0xfc;
    assert_int_equal(codec_get_isa(CODEC_SPARSE, isa)->decode(x, block, GROUP),
                     LOCO_EPROTO);
    assert_int_equal(
        codec_get_isa(CODEC_SPARSE, isa)->decode(x, block, GROUP + 12), 0);
}

/* Groups of one block that are far apart: 62 steps below the largest level are
 * the last that are sent. A step is a quarter of a power of two. */
static void far_apart(const char *isa)
{
    float x[BLOCK], y[BLOCK];

    for (int i = 0; i < BLOCK; i++) {
        x[i] = ldexpf(i % 2 == 0 ? 1.0F : -1.0F, -(i / GROUP));
    }
    through(isa, y, x, BLOCK);
    for (int i = 0; i < BLOCK; i++) { /* 60 steps: all sixteen groups */
        assert_true(y[i] == (i % GROUP < KEPT ? x[i] : 0.0F));
    }
    for (int steps = 61; steps < 65; steps++) {
        uint32_t level = (0x3f800000U >> 21) - (uint32_t)steps;

        for (int i = BLOCK - GROUP; i < BLOCK; i++) {
            x[i] = float_from_bits(level << 21);
        }
        through(isa, y, x, BLOCK);
        for (int i = BLOCK - GROUP; i < BLOCK; i++) {
            bool sent = steps < 63 && i - (BLOCK - GROUP) < KEPT;

            assert_true(y[i] == (sent ? x[i] : 0));
        }
    }
}

static void small_groups_of_a_block_are_sent_as_zeros(void **state)
{
    (void)state;
    each_isa(far_apart);
}

static void what_no_encoder_writes_is_refused(void **state)
{
    (void)state;
    each_isa(refused);
}

/* What a peer of a butterfly of eight sends stays below 1.7 bits an element,
 * and vectors take whole blocks. */
static void an_element_takes_less_than_a_bit(void **state)
{
    const struct codec *c = codec_get(CODEC_SPARSE);

    (void)state;
    assert_int_equal(c->bytes(BLOCK), BYTES);
    assert_int_equal(c->bytes(1), BYTES);
    assert_int_equal(c->bytes(BLOCK + 1), 2 * BYTES);
    assert_true(2 * 7.0 / 8 * BYTES * 8 / BLOCK < 1.7);
    assert_false(codec_adds(c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_is_as_written_by_hand),
        cmocka_unit_test(the_twelve_largest_are_kept),
        cmocka_unit_test(of_equal_ones_the_first_are_kept),
        cmocka_unit_test(zeros_and_the_largest_numbers),
        cmocka_unit_test(what_no_encoder_writes_is_refused),
        cmocka_unit_test(small_groups_of_a_block_are_sent_as_zeros),
        cmocka_unit_test(an_element_takes_less_than_a_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
