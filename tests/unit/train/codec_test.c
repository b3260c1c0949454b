/* codec_test.c - wire codecs: layouts, rounding, bounds, refusals. */
#include "train/sync/codec/codec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "proto/base/rng.h"

#define N_MAX (3 * CODEC_FP16_BLOCK + 7)

static const size_t sizes[] = {0, 1, 7, 8, 9, 4095, 4096, 4097, N_MAX};
#define N_SIZES (sizeof sizes / sizeof sizes[0])

static float buf_x[N_MAX];
static float buf_y[N_MAX];
static float buf_z[N_MAX];
static uint8_t buf_a[N_MAX * 4];
static uint8_t buf_b[N_MAX * 4];

/* Magnitudes from 2^-24 to 2^8, both signs. */
static void fill(float *x, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        float u = rng_float(&seed) * 2.0F - 1.0F;
        x[i] = ldexpf(u, (int)rng_below(&seed, 33) - 24);
    }
}

/* The nearest half in double arithmetic, ties to even; finite results only. */
static double nearest_half(double x)
{
    int e;
    double quantum;

    if (x == 0.0) {
        return x;
    }
    (void)frexp(x, &e); /* |x| in [2^(e-1), 2^e) */
    quantum = ldexp(1.0, (e - 1 < -14 ? -14 : e - 1) - 10);
    return rint(x / quantum) * quantum;
}

static void fp16_bits_are_those_of_the_algorithms_page(void **state)
{
    static const float in[] = {0.0F,    1.0F,     0.1F,    -0.3333333333F,
                               6.1e-5F, 5.96e-8F, 2.0e-8F, 65504.0F,
                               1e-3F,   -2.7e-4F};
    static const uint16_t bits[] = {0x0000, 0x3c00, 0x2e66, 0xb555, 0x03ff,
                                    0x0001, 0x0000, 0x7bff, 0x1419, 0x8c6c};
    static const double decoded[] = {0,
                                     1,
                                     0.09997558594,
                                     -0.3332519531,
                                     6.097555161e-05,
                                     5.960464478e-08,
                                     0,
                                     65504,
                                     0.001000404358,
                                     -0.0002698898315};

    (void)state;
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        double d = (double)half_to_float(bits[i]);
        assert_int_equal(half_from_float(in[i]), bits[i]);
        assert_true(fabs(d - decoded[i]) <= 1e-9 * fabs(decoded[i]));
    }
}

static void every_half_survives_the_way_through_float(void **state)
{
    (void)state;
    for (unsigned h = 0; h <= 0xffff; h++) {
        float x = half_to_float((uint16_t)h);

        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(x));
            assert_true((half_from_float(x) & 0x7fff) > 0x7c00);
        } else {
            assert_int_equal(half_from_float(x), h);
        }
    }
}

static void half_rounds_to_nearest_even_over_all_magnitudes(void **state)
{
    unsigned n_checked = 0;

    (void)state;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1021) {
        float x = float_from_bits((uint32_t)bits);
        uint16_t h;

        if (!isfinite(x)) {
            continue;
        }
        h = half_from_float(x);
        n_checked++;
        if (fabsf(x) >= 65520.0F) {
            assert_int_equal(h & 0x7fff, 0x7c00);
        } else {
            assert_true((double)half_to_float(h) == nearest_half((double)x));
        }
        assert_int_equal(h >> 15, bits >> 31);
    }
    assert_true(n_checked > 4000000);
}

static void every_tie_of_the_halves_goes_to_the_even_one(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7bff; h++) {
        float low = half_to_float((uint16_t)h);
        float high = half_to_float((uint16_t)(h + 1));
        float middle = low + (high - low) / 2; /* exact in fp32 */
        unsigned even = h + (h & 1);

        assert_int_equal(half_from_float(middle), even);
        assert_int_equal(half_from_float(nextafterf(middle, 0.0F)), h);
        assert_int_equal(half_from_float(nextafterf(middle, 1e9F)), h + 1);
    }
}

static void
layouts_are_little_endian_words_behind_a_block_exponent(void **state)
{
    static const float in[] = {1.0F, -0.5F, 3.0F};
    static const uint8_t fp32[] = {0, 0,    0x80, 0x3f, 0,    0,
                                   0, 0xbf, 0,    0,    0x40, 0x40};
    static const uint8_t bf16[] = {0x80, 0x3f, 0, 0xbf, 0x40, 0x40};
    /* max 3 = 1.5 * 2^1: e = 1 - 14 = -13; 3 * 2^13 = 24576 = 0x7600,
     * 1 * 2^13 = 8192 = 0x7000, -0.5 * 2^13 = -4096 = 0xec00. */
    static const uint8_t fp16[] = {0xf3, 0xff, 0, 0x70, 0, 0xec, 0, 0x76};
    const struct codec *c = codec_find("fp32");
    uint8_t out[12];

    (void)state;
    assert_int_equal(c->bytes(3), 12);
    assert_int_equal(c->encode(out, in, 3, 1.0F), 0);
    assert_memory_equal(out, fp32, 12);
    c = codec_find("bf16");
    assert_int_equal(c->bytes(3), 6);
    assert_int_equal(c->encode(out, in, 3, 1.0F), 0);
    assert_memory_equal(out, bf16, 6);
    c = codec_find("fp16");
    assert_int_equal(c->bytes(3), 8);
    assert_int_equal(c->encode(out, in, 3, 1.0F), 0);
    assert_memory_equal(out, fp16, 8);
    assert_int_equal(c->bytes(0), 0);
    assert_int_equal(c->bytes(4096), 8194);
    assert_int_equal(c->bytes(4097), 8194 + 4);
}

static void codecs_are_found_by_id_and_by_name(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);

        assert_int_equal(c->id, id);
        assert_ptr_equal(codec_find(c->name), c);
        assert_string_equal(codec_get_portable(id)->name, c->name);
    }
    assert_null(codec_get(CODEC_COUNT));
    assert_null(codec_get_portable(99));
    assert_null(codec_get_isa(CODEC_COUNT, "portable"));
    assert_null(codec_get_isa(CODEC_FP16, "mmx"));
    assert_ptr_equal(codec_get_isa(CODEC_FP16, "portable"),
                     codec_get_portable(CODEC_FP16));
    assert_null(codec_find("fp8"));
}

static void only_types_of_sixteen_bits_and_more_are_summed(void **state)
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};

    (void)state;
    for (unsigned i = 0; i < 3 * CODEC_COUNT; i++) {
        const struct codec *c = codec_get_isa(i / 3, isas[i % 3]);
        bool low = i / 3 >= CODEC_INT8;

        if (c != NULL) {
            assert_true(codec_adds(c) == !low);
            assert_true((c->add == NULL) == low);
            assert_true((c->add_op == NULL) == low);
        }
    }
}

static void nothing_is_written_beyond_the_encoded_bytes(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);

        for (size_t s = 0; s < N_SIZES - 1; s++) {
            size_t bytes = c->bytes(sizes[s]);

            fill(buf_x, sizes[s], s);
            memset(buf_a, 0xa5, sizeof buf_a);
            assert_int_equal(c->encode(buf_a, buf_x, sizes[s], 1.0F), 0);
            assert_int_equal(buf_a[bytes], 0xa5);
            assert_int_equal(buf_a[bytes + 1], 0xa5);
            buf_y[sizes[s]] = 42.0F;
            assert_int_equal(c->decode(buf_y, buf_a, sizes[s]), 0);
            assert_true(buf_y[sizes[s]] == 42.0F);
        }
    }
}

static float largest(const float *x, size_t n)
{
    float max = 0;

    for (size_t i = 0; i < n; i++) {
        max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    }
    return max;
}

/* |dec(enc(x)) - x| per block of the fp16 codec. */
static void check_fp16_error(const float *x, const float *y, size_t n)
{
    for (size_t b = 0; b < n; b += CODEC_FP16_BLOCK) {
        size_t m = n - b < CODEC_FP16_BLOCK ? n - b : CODEC_FP16_BLOCK;
        double floor_error = ldexp((double)largest(x + b, m), -39);

        for (size_t i = b; i < b + m; i++) {
            double error = fabs((double)y[i] - (double)x[i]);
            double bound = ldexp(fabs((double)x[i]), -11);
            bound = bound > floor_error ? bound : floor_error;
            assert_true(error <= bound);
        }
    }
}

static void fp16_error_stays_within_its_bound_at_every_scale(void **state)
{
    static const int scales[] = {-149, -140, -126, -112, -60, 0, 60, 118};
    const struct codec *c = codec_get(CODEC_FP16);

    (void)state;
    for (size_t s = 0; s < N_SIZES; s++) {
        for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
            fill(buf_x, sizes[s], s + 100);
            for (size_t i = 0; i < sizes[s]; i++) {
                buf_x[i] = ldexpf(buf_x[i], scales[k]);
            }
            assert_int_equal(c->encode(buf_a, buf_x, sizes[s], 1.0F), 0);
            assert_int_equal(c->decode(buf_y, buf_a, sizes[s]), 0);
            check_fp16_error(buf_x, buf_y, sizes[s]);
        }
    }
}

static void bf16_error_is_half_of_the_last_of_eight_bits(void **state)
{
    const struct codec *c = codec_get(CODEC_BF16);

    (void)state;
    fill(buf_x, N_MAX, 5);
    assert_int_equal(c->encode(buf_a, buf_x, N_MAX, 1.0F), 0);
    assert_int_equal(c->decode(buf_y, buf_a, N_MAX), 0);
    for (size_t i = 0; i < N_MAX; i++) {
        double error = fabs((double)buf_y[i] - (double)buf_x[i]);
        assert_true(error <= ldexp(fabs((double)buf_x[i]), -8));
    }
}

static void fp32_keeps_every_bit_of_a_scaled_value(void **state)
{
    const struct codec *c = codec_get(CODEC_FP32);

    (void)state;
    fill(buf_x, N_MAX, 6);
    assert_int_equal(c->encode(buf_a, buf_x, N_MAX, 0.3F), 0);
    assert_int_equal(c->decode(buf_y, buf_a, N_MAX), 0);
    for (size_t i = 0; i < N_MAX; i++) {
        float product = 0.3F * buf_x[i];
        assert_int_equal(float_bits(buf_y[i]), float_bits(product));
    }
}

static void zero_tiny_and_huge_values_pass(void **state)
{
    static const float in[] = {0.0F,      -0.0F,  0x1p-149F, -0x1p-149F,
                               0x3p-148F, 1e-30F, -1e-38F,   0x1p-126F};
    const struct codec *c = codec_get(CODEC_FP16);
    float out[8];
    float huge[2] = {1e30F, -0x1.ffcp127F};

    (void)state;
    for (size_t i = 0; i < 8; i++) { /* each as a block of its own */
        assert_int_equal(c->encode(buf_a, &in[i], 1, 1.0F), 0);
        assert_int_equal(c->decode(&out[i], buf_a, 1), 0);
        assert_true(fabsf(out[i] - in[i]) <= fabsf(in[i]) * 0x1p-11F);
        assert_int_equal(signbit(out[i]) != 0, signbit(in[i]) != 0);
    }
    assert_true(out[2] == 0x1p-149F);
    assert_int_equal(c->encode(buf_a, in, 2, 1.0F), 0);
    assert_int_equal((int16_t)get_u16(buf_a), CODEC_FP16_EXP_MIN);
    assert_int_equal(c->encode(buf_a, huge, 2, 1.0F), 0);
    assert_int_equal((int16_t)get_u16(buf_a), CODEC_FP16_EXP_MAX);
    assert_int_equal(c->decode(out, buf_a, 2), 0);
    assert_true(fabsf(out[0] - 1e30F) <= 1e30F * 0x1p-11F);
    assert_true(out[1] == -0x1.ffcp127F);
}

static void a_hop_is_decode_add_in_fp32_and_encode(void **state)
{
    (void)state;
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        const struct codec *c = codec_get(id);

        for (size_t s = 0; s < N_SIZES && codec_adds(c); s++) {
            size_t n = sizes[s];

            fill(buf_x, n, 1 + s);
            fill(buf_y, n, 2 + s);
            assert_int_equal(c->encode(buf_a, buf_x, n, 0.25F), 0);
            assert_int_equal(c->decode(buf_z, buf_a, n), 0);
            for (size_t i = 0; i < n; i++) {
                float product = 0.7F * buf_y[i];
                buf_z[i] = buf_z[i] + product;
            }
            assert_int_equal(c->encode(buf_b, buf_z, n, 1.0F), 0);
            assert_int_equal(c->add(buf_a, buf_a, buf_y, n, 0.7F), 0);
            assert_memory_equal(buf_a, buf_b, c->bytes(n));
        }
    }
}

static void add_leaves_a_separate_source_untouched(void **state)
{
    const struct codec *c = codec_get(CODEC_FP16);
    size_t bytes = c->bytes(5000);
    uint8_t *copy = malloc(bytes);

    (void)state;
    fill(buf_x, 5000, 3);
    assert_int_equal(c->encode(buf_a, buf_x, 5000, 1.0F), 0);
    memcpy(copy, buf_a, bytes);
    assert_int_equal(c->add(buf_b, buf_a, buf_x, 5000, 1.0F), 0);
    assert_memory_equal(buf_a, copy, bytes);
    assert_int_equal(c->add(copy, copy, buf_x, 5000, 1.0F), 0);
    assert_memory_equal(buf_b, copy, bytes);
    free(copy);
}

static void a_value_that_is_not_finite_is_refused_everywhere(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    static const size_t places[] = {0, 4095, 4096, 5000};

    (void)state;
    for (unsigned i = 0; i < 2 * CODEC_COUNT; i++) {
        unsigned id = i / 2;
        const struct codec *c =
            i % 2 == 0 ? codec_get(id) : codec_get_portable(id);

        for (unsigned k = 0; k < 12; k++) {
            fill(buf_x, 5001, k);
            fill(buf_y, 5001, k);
            assert_int_equal(c->encode(buf_b, buf_y, 5001, 1.0F), 0);
            buf_x[places[k / 3]] = bad[k % 3];
            assert_int_equal(c->encode(buf_a, buf_x, 5001, 1.0F),
                             LOCO_ENUMERIC);
            if (codec_adds(c)) {
                assert_int_equal(c->add(buf_b, buf_b, buf_x, 5001, 1.0F),
                                 LOCO_ENUMERIC);
            }
        }
    }
}

static void a_value_that_the_type_cannot_hold_is_refused(void **state)
{
    const struct codec *fp16 = codec_get(CODEC_FP16);
    const struct codec *bf16 = codec_get(CODEC_BF16);
    const struct codec *fp32 = codec_get(CODEC_FP32);
    float x = 0x1.ffdffep127F; /* the last that rounds down to 11 bits */
    float y;

    (void)state;
    assert_int_equal(fp16->encode(buf_a, &x, 1, 1.0F), 0);
    assert_int_equal(fp16->decode(&y, buf_a, 1), 0);
    assert_true(y == 0x1.ffcp127F);
    x = nextafterf(x, INFINITY);
    assert_int_equal(fp16->encode(buf_a, &x, 1, 1.0F), LOCO_ENUMERIC);
    x = 0x1.fefffep127F; /* the last that rounds down to 8 bits */
    assert_int_equal(bf16->encode(buf_a, &x, 1, 1.0F), 0);
    assert_int_equal(bf16->decode(&y, buf_a, 1), 0);
    assert_true(y == 0x1.fep127F);
    x = nextafterf(x, INFINITY);
    assert_int_equal(bf16->encode(buf_a, &x, 1, 1.0F), LOCO_ENUMERIC);
    x = 0x1.fffffep127F;
    assert_int_equal(fp32->encode(buf_a, &x, 1, 1.0F), 0);
    assert_int_equal(fp32->encode(buf_a, &x, 1, 2.0F), LOCO_ENUMERIC);
    assert_int_equal(fp32->encode(buf_a, &x, 1, 1.0F), 0);
    assert_int_equal(fp32->add(buf_a, buf_a, &x, 1, 1.0F), LOCO_ENUMERIC);
}

static void bytes_that_decode_to_no_finite_value_are_refused(void **state)
{
    static const uint8_t inf_fp32[] = {0, 0, 0x80, 0x7f};
    static const uint8_t nan_bf16[] = {0xc1, 0xff};
    static const uint8_t inf_fp16[] = {0, 0, 0, 0x7c};
    /* 65,504 * 2^113 is beyond fp32. */
    static const uint8_t large_fp16[] = {CODEC_FP16_EXP_MAX, 0, 0xff, 0x7b};
    float x = 1.0F;

    (void)state;
#define REFUSED(id, bytes)                                                     \
    assert_int_equal(codec_get(id)->decode(&x, bytes, 1), LOCO_ENUMERIC);      \
    x = 1.0F;                                                                  \
    assert_int_equal(codec_get(id)->add(buf_a, bytes, &x, 1, 1.0F),            \
                     LOCO_ENUMERIC)
    REFUSED(CODEC_FP32, inf_fp32);
    REFUSED(CODEC_BF16, nan_bf16);
    REFUSED(CODEC_FP16, inf_fp16);
    REFUSED(CODEC_FP16, large_fp16);
#undef REFUSED
}

static void an_exponent_out_of_bounds_breaks_the_protocol(void **state)
{
    static const int bad[] = {-32768, -127, 114, 32767};
    const struct codec *c = codec_get(CODEC_FP16);
    float x[2] = {1.0F, 2.0F};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(c->encode(buf_a, x, 2, 1.0F), 0);
        put_u16(buf_a, (uint16_t)(int16_t)bad[i]);
        assert_int_equal(c->decode(x, buf_a, 2), LOCO_EPROTO);
        assert_int_equal(c->add(buf_b, buf_a, x, 2, 1.0F), LOCO_EPROTO);
    }
}

static void three_toy_rounds_in_fp16_stay_near_those_in_fp32(void **state)
{
    /* Algorithms page, section 4: two workers, H = 2, inner SGD lr .1. */
    static const float centre[2][2] = {{3.0F, 1.0F}, {-1.0F, 2.5F}};
    static const double want[2] = {0.9203175626, 1.152381719};
    const struct codec *c = codec_get(CODEC_FP16);
    float phi[2] = {0.5F, -2.0F};
    float m[2] = {0.0F, 0.0F};

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        uint8_t wire[8];
        float g[2];

        for (unsigned i = 0; i < 2; i++) {
            float theta[2] = {phi[0], phi[1]};

            for (unsigned k = 0; k < 4; k++) {
                theta[k % 2] -= 0.1F * (theta[k % 2] - centre[i][k % 2]);
            }
            g[0] = phi[0] - theta[0];
            g[1] = phi[1] - theta[1];
            assert_int_equal(i == 0 ? c->encode(wire, g, 2, 0.5F)
                                    : c->add(wire, wire, g, 2, 0.5F),
                             0);
        }
        assert_int_equal(c->decode(g, wire, 2), 0);
        for (unsigned k = 0; k < 2; k++) {
            m[k] = 0.9F * m[k] + g[k];
            phi[k] -= 0.7F * (g[k] + 0.9F * m[k]);
        }
    }
    for (unsigned k = 0; k < 2; k++) {
        assert_true(fabs((double)phi[k] - want[k]) <= 1e-3 * fabs(want[k]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp16_bits_are_those_of_the_algorithms_page),
        cmocka_unit_test(every_half_survives_the_way_through_float),
        cmocka_unit_test(half_rounds_to_nearest_even_over_all_magnitudes),
        cmocka_unit_test(every_tie_of_the_halves_goes_to_the_even_one),
        cmocka_unit_test(
            layouts_are_little_endian_words_behind_a_block_exponent),
        cmocka_unit_test(codecs_are_found_by_id_and_by_name),
        cmocka_unit_test(only_types_of_sixteen_bits_and_more_are_summed),
        cmocka_unit_test(nothing_is_written_beyond_the_encoded_bytes),
        cmocka_unit_test(fp16_error_stays_within_its_bound_at_every_scale),
        cmocka_unit_test(bf16_error_is_half_of_the_last_of_eight_bits),
        cmocka_unit_test(fp32_keeps_every_bit_of_a_scaled_value),
        cmocka_unit_test(zero_tiny_and_huge_values_pass),
        cmocka_unit_test(a_hop_is_decode_add_in_fp32_and_encode),
        cmocka_unit_test(add_leaves_a_separate_source_untouched),
        cmocka_unit_test(a_value_that_is_not_finite_is_refused_everywhere),
        cmocka_unit_test(a_value_that_the_type_cannot_hold_is_refused),
        cmocka_unit_test(bytes_that_decode_to_no_finite_value_are_refused),
        cmocka_unit_test(an_exponent_out_of_bounds_breaks_the_protocol),
        cmocka_unit_test(three_toy_rounds_in_fp16_stay_near_those_in_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
