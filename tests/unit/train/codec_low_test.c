/* codec_low_test.c - int8 and E3M0: vectors, rounding, scales, refusals. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "proto/base/rng.h"
#include "train/sync/codec/codec.h"

#define N (3 * CODEC_INT8_BLOCK + 77)

static float x[N];
static float y[N];
static uint8_t wire[2 * N];
static uint8_t again[2 * N];

static void fill(uint64_t seed, int magnitude)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = ldexpf(rng_float(&seed) - 0.5F,
                      magnitude - (int)rng_below(&seed, 12));
    }
}

/* The block of the algorithms page, 5.1. */
static const float page[8] = {0.5F,    -0.25F,  0.1F, 0.03F,
                              -0.004F, 0.0039F, 0.0F, -0.5F};

static void e3m0_bytes_are_those_of_the_algorithms_page(void **state)
{
    static const uint8_t packed[] = {0xe7, 0x35, 0x09, 0xf0};
    static const float decoded[8] = {0.5F,        -0.25F, 0.125F, 0.03125F,
                                     -0.0078125F, 0.0F,   0.0F,   -0.5F};
    const struct codec *c = codec_find("e3m0");

    (void)state;
    assert_int_equal(c->bytes(8), 8);
    assert_int_equal(c->encode(wire, page, 8, 1.0F), 0);
    assert_int_equal(get_u32(wire), float_bits(0.5F));
    assert_memory_equal(wire + 4, packed, 4);
    assert_int_equal(c->decode(y, wire, 8), 0);
    assert_memory_equal(y, decoded, sizeof decoded);
}

static void int8_codes_are_those_of_the_algorithms_page(void **state)
{
    static const int8_t q[] = {127, -64, 25, 8, -1, 1, 0, -127};
    static const double decoded[] = {
        0.5,
        -0.25196850393700787,
        0.09842519685039369,
        0.031496062992125984,
        -0.003937007874015748,
        0.003937007874015748,
        0.0,
        -0.5,
    };
    const struct codec *c = codec_find("int8");
    double s;

    (void)state;
    assert_int_equal(c->bytes(8), 12);
    assert_int_equal(c->encode(wire, page, 8, 1.0F), 0);
    s = (double)float_from_bits(get_u32(wire));
    assert_true(fabs(s - 0.003937007874015748) <= 1e-9);
    assert_memory_equal(wire + 4, q, 8);
    assert_int_equal(c->decode(y, wire, 8), 0);
    for (size_t i = 0; i < 8; i++) {
        assert_true(fabs((double)y[i] - decoded[i]) <= 1e-6);
    }
}

static void sizes_count_a_scale_for_each_begun_block(void **state)
{
    const struct codec *int8 = codec_find("int8");
    const struct codec *e3m0 = codec_find("e3m0");

    (void)state;
    assert_int_equal(int8->bytes(0), 0);
    assert_int_equal(int8->bytes(1), 5);
    assert_int_equal(int8->bytes(1024), 1028);
    assert_int_equal(int8->bytes(1025), 1028 + 5);
    assert_int_equal(e3m0->bytes(0), 0);
    assert_int_equal(e3m0->bytes(1), 5);
    assert_int_equal(e3m0->bytes(1024), 516);
    assert_int_equal(e3m0->bytes(1027), 516 + 6);
}

/* The largest magnitude of the block that i lies in. */
static double block_max(size_t i)
{
    size_t from = i / CODEC_INT8_BLOCK * CODEC_INT8_BLOCK;
    double max = 0;

    for (size_t k = from; k < N && k < from + CODEC_INT8_BLOCK; k++) {
        max = fmax(max, fabs((double)x[k]));
    }
    return max;
}

static void int8_error_is_half_a_step(void **state)
{
    const struct codec *c = codec_find("int8");

    (void)state;
    for (int magnitude = -110; magnitude <= 120; magnitude += 23) {
        fill(1, magnitude);
        assert_int_equal(c->encode(wire, x, N, 1.0F), 0);
        assert_int_equal(c->decode(y, wire, N), 0);
        for (size_t i = 0; i < N; i++) {
            double step = block_max(i) / 127;

            assert_true(fabs((double)y[i] - (double)x[i]) <= 0.50001 * step);
        }
    }
}

/* The nearest of the sixteen values in double arithmetic, as the page says. */
static double nearest_e3m0(double v, double s)
{
    double best = 0;

    for (int k = 1; k < 8; k++) {
        double level = ldexp(s, k - 7);

        if (fabs(fabs(v) - level) < fabs(fabs(v) - best)) {
            best = level;
        }
    }
    return v < 0 ? -best : best;
}

static void e3m0_takes_the_nearest_value_and_the_smaller_of_two(void **state)
{
    const struct codec *c = codec_find("e3m0");
    uint64_t seed = 3;

    (void)state;
    for (unsigned turn = 0; turn < 300; turn++) {
        float s = ldexpf(rng_float(&seed) + 1.0F, (int)(turn % 246) - 119);

        fill(turn, 0);
        for (size_t i = 0; i < N; i++) { /* bounds, and the numbers beside */
            float bound = s * ldexpf(0.75F, -(int)rng_below(&seed, 7));
            uint32_t bits = float_bits(i % 5 == 0 ? s * 0x1p-7F : bound);

            x[i] = i % 3 == 0 ? x[i] * s
                              : float_from_bits(bits + (uint32_t)(i % 4) - 1);
        }
        for (size_t b = 0; b < N; b += CODEC_INT8_BLOCK) {
            x[b] = s;
        }
        assert_int_equal(c->encode(wire, x, N, 1.0F), 0);
        assert_int_equal(c->decode(y, wire, N), 0);
        for (size_t i = 0; i < N; i++) {
            double want = nearest_e3m0((double)x[i], (double)s);
            assert_true((double)y[i] == want);
        }
    }
}

static void what_was_decoded_encodes_to_the_same_bytes(void **state)
{
    (void)state;
    for (unsigned turn = 0; turn < 2 * 240; turn++) {
        const struct codec *c =
            codec_get(turn % 2 == 0 ? CODEC_INT8 : CODEC_E3M0);

        fill(turn, (int)(turn / 2) - 115);
        assert_int_equal(c->encode(wire, x, N, 1.0F), 0);
        assert_int_equal(c->decode(y, wire, N), 0);
        assert_int_equal(c->encode(again, y, N, 1.0F), 0);
        assert_memory_equal(wire, again, c->bytes(N));
    }
}

static void int8_keeps_its_scale_for_every_mantissa(void **state)
{
    /* One binade has all mantissas: scaling by powers of two is exact. */
    const struct codec *c = codec_find("int8");

    (void)state;
    for (uint32_t bits = 0x3f800000U; bits < 0x40000000U; bits += 3) {
        float m = float_from_bits(bits);

        assert_int_equal(c->encode(wire, &m, 1, 1.0F), 0);
        assert_int_equal(c->decode(y, wire, 1), 0);
        assert_int_equal(c->encode(again, y, 1, 1.0F), 0);
        assert_memory_equal(wire, again, 5);
        assert_int_equal(wire[4], 127);
    }
}

static void a_block_of_tiny_numbers_is_sent_as_zeros(void **state)
{
    static const uint8_t zeros[4 + CODEC_INT8_BLOCK];
    const float tiny = nextafterf(CODEC_LOW_MIN, 0.0F);

    (void)state;
    for (unsigned id = CODEC_INT8; id <= CODEC_E3M0; id++) {
        const struct codec *c = codec_get(id);

        for (size_t i = 0; i < CODEC_INT8_BLOCK; i++) {
            x[i] = i % 2 == 0 ? tiny : -0x1p-149F;
        }
        memset(wire, 0xff, sizeof wire);
        assert_int_equal(c->encode(wire, x, CODEC_INT8_BLOCK, 1.0F), 0);
        assert_memory_equal(wire, zeros, c->bytes(CODEC_INT8_BLOCK));
        assert_int_equal(c->decode(y, wire, CODEC_INT8_BLOCK), 0);
        assert_true(y[0] == 0.0F && y[1] == 0.0F);
        x[7] = -CODEC_LOW_MIN;
        assert_int_equal(c->encode(wire, x, CODEC_INT8_BLOCK, 1.0F), 0);
        assert_int_equal(c->decode(y, wire, CODEC_INT8_BLOCK), 0);
        assert_true(fabsf(y[7] + CODEC_LOW_MIN) <= CODEC_LOW_MIN * 1e-6F);
    }
}

static void the_largest_numbers_pass_or_are_refused(void **state)
{
    const struct codec *int8 = codec_find("int8");
    const struct codec *e3m0 = codec_find("e3m0");
    float big = FLT_MAX;
    unsigned n_passed = 0;

    (void)state;
    assert_int_equal(e3m0->encode(wire, &big, 1, 1.0F), 0);
    assert_int_equal(e3m0->decode(y, wire, 1), 0);
    assert_true(y[0] == FLT_MAX);
    for (unsigned i = 0; i < 300; i++) {
        int rv = int8->encode(wire, &big, 1, 1.0F);

        /* Never bytes that a decoder would refuse. */
        assert_true(rv == LOCO_ENUMERIC || rv == 0);
        if (rv == 0) {
            n_passed++;
            assert_int_equal(int8->decode(y, wire, 1), 0);
        }
        big = nextafterf(big, 0.0F);
    }
    assert_true(n_passed > 200);
}

static void refused(unsigned id, const uint8_t *bytes, size_t n)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};

    for (size_t i = 0; i < 3; i++) {
        const struct codec *c = codec_get_isa(id, isas[i]);

        if (c != NULL) {
            assert_int_equal(c->decode(y, bytes, n), LOCO_EPROTO);
        }
    }
}

static void a_scale_that_no_encoder_writes_breaks_the_protocol(void **state)
{
    static const uint32_t bad[] = {
        0x80000000U,              /* minus zero */
        0x00000001U, 0x007fffffU, /* sub-normal */
        0xbf800000U,              /* negative */
        0x7f800000U, 0xff800000U, 0x7fc00000U, 0xffffffffU,
    };

    (void)state;
    memset(wire, 0, sizeof wire);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_u32(wire, bad[i]);
        refused(CODEC_INT8, wire, 40);
        refused(CODEC_E3M0, wire, 40);
    }
    put_u32(wire, float_bits(CODEC_LOW_MIN) - 1);
    refused(CODEC_E3M0, wire, 40);
    put_u32(wire, float_bits(FLT_MAX / 126.9F)); /* times 127 is infinite */
    refused(CODEC_INT8, wire, 40);
    put_u32(wire, float_bits(FLT_MAX / 127.1F));
    assert_int_equal(codec_find("int8")->decode(y, wire, 40), 0);
}

static void a_code_that_no_encoder_writes_breaks_the_protocol(void **state)
{
    (void)state;
    for (size_t at = 0; at < 45; at++) {
        memset(wire, 0, sizeof wire);
        put_u32(wire, float_bits(1.0F));
        wire[4 + at] = 0x80; /* -128 */
        refused(CODEC_INT8, wire, 45);
        put_u32(wire, 0); /* nothing but 0 under a scale of 0 */
        wire[4 + at] = at % 2 == 0 ? 1 : 0xff;
        refused(CODEC_INT8, wire, 45);
    }
    for (size_t at = 0; at < 45; at++) {
        unsigned shift = at % 2 * 4;

        memset(wire, 0, sizeof wire);
        put_u32(wire, float_bits(1.0F));
        wire[4 + at / 2] = (uint8_t)(8U << shift); /* minus zero */
        refused(CODEC_E3M0, wire, 45);
        put_u32(wire, 0);
        wire[4 + at / 2] = (uint8_t)(3U << shift);
        refused(CODEC_E3M0, wire, 45);
    }
    memset(wire, 0, sizeof wire);
    put_u32(wire, float_bits(1.0F));
    wire[4 + 22] = 0x10; /* behind the 45th */
    refused(CODEC_E3M0, wire, 45);
    assert_int_equal(codec_find("e3m0")->decode(y, wire, 46), 0);
}

static void nothing_is_written_beyond_n(void **state)
{
    (void)state;
    fill(4, 0);
    for (unsigned i = 0; i < 2 * 70; i++) {
        const struct codec *c = codec_get(i % 2 == 0 ? CODEC_INT8 : CODEC_E3M0);
        size_t n = i / 2;

        memset(wire, 0xa5, sizeof wire);
        assert_int_equal(c->encode(wire, x, n, 1.0F), 0);
        assert_int_equal(wire[c->bytes(n)], 0xa5);
        y[n] = 42.0F;
        assert_int_equal(c->decode(y, wire, n), 0);
        assert_true(y[n] == 42.0F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e3m0_bytes_are_those_of_the_algorithms_page),
        cmocka_unit_test(int8_codes_are_those_of_the_algorithms_page),
        cmocka_unit_test(sizes_count_a_scale_for_each_begun_block),
        cmocka_unit_test(int8_error_is_half_a_step),
        cmocka_unit_test(e3m0_takes_the_nearest_value_and_the_smaller_of_two),
        cmocka_unit_test(what_was_decoded_encodes_to_the_same_bytes),
        cmocka_unit_test(int8_keeps_its_scale_for_every_mantissa),
        cmocka_unit_test(a_block_of_tiny_numbers_is_sent_as_zeros),
        cmocka_unit_test(the_largest_numbers_pass_or_are_refused),
        cmocka_unit_test(a_scale_that_no_encoder_writes_breaks_the_protocol),
        cmocka_unit_test(a_code_that_no_encoder_writes_breaks_the_protocol),
        cmocka_unit_test(nothing_is_written_beyond_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
