/* codec_isa_test.c - every instruction set gives the bits of the reference.
 *
 * Blocks of every kind of number, sizes with odd tails, addresses of every
 * alignment, the caller's floating-point mode. Also compiled and run by
 * golden_bits.sh with both compilers and without optimisation.
 */
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

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define N_MAX (2 * CODEC_FP16_BLOCK + 300)

static const char *const fast_isas[] = {"avx2", "avx512"};
#define N_FAST 2

/* One form's outputs, each with room for any offset. */
struct outputs {
    uint8_t wire[4 * N_MAX + 64];
    float decoded[N_MAX + 16];
    float next[N_MAX + 16];
    float result[N_MAX + 16];
};

static struct outputs spec_out;
static struct outputs fast_out;
static float own[N_MAX + 16];
static float residual[N_MAX + 16];

/* A finite float of any kind: most near 2^magnitude, some zero, sub-normal,
 * far smaller, a few with a mantissa that makes ties. */
static float any_float(uint64_t *seed, int magnitude)
{
    uint64_t r = rng_next(seed);
    float u = rng_float(seed) - 0.5F;

    switch (r % 16) {
    case 0:
        return r & 32 ? 0.0F : -0.0F;
    case 1:
        return float_from_bits((uint32_t)(r >> 32) & 0x807fffffU);
    case 2:
        return ldexpf(u, magnitude - 30);
    case 3: /* a short mantissa: ties of eight, eleven and fewer bits */
        return ldexpf((float)((int)(r >> 40 & 0x1fff) - 0x1000),
                      magnitude - 13);
    case 4: /* three quarters of a power of two: a tie of e3m0 */
        return ldexpf(r & 32 ? 0.75F : -0.75F,
                      magnitude - 1 - (int)(r >> 8 & 7));
    default:
        return ldexpf(u, magnitude - (int)(r >> 8 & 15));
    }
}

static void fill(float *x, size_t n, uint64_t *seed)
{
    int magnitude = 0;

    for (size_t i = 0; i < n; i++) {
        if (i % 1024 == 0) {
            magnitude = (int)rng_below(seed, 250) - 135;
        }
        x[i] = rng_below(seed, 4096) == 0 ? 0.0F : any_float(seed, magnitude);
    }
}

/* All that one form makes of `own`; returns the error of the first step that
 * failed. */
static int run_form(const struct codec *c,
                    struct outputs *o,
                    size_t n,
                    size_t offset,
                    float scale)
{
    uint8_t *wire = o->wire + offset;
    struct codec_op op = {.own = own + offset % 16,
                          .n = n,
                          .scale = scale,
                          .residual = residual + offset % 16,
                          .next = o->next,
                          .result = o->result + offset % 16};
    int rv = c->encode(wire, op.own, n, scale);

    rv = rv != 0 || c->add == NULL ? rv : c->add(wire, wire, op.own, n, scale);
    rv = rv != 0 ? rv : c->decode(o->decoded + offset % 16, wire, n);
    if (rv == 0) {
        rv = c->add == NULL ? c->encode_op(wire, &op)
                            : c->add_op(wire, wire, &op);
    }
    return rv;
}

static void check_all_forms(size_t n, size_t offset, float scale)
{
    for (unsigned i = 0; i < CODEC_COUNT * N_FAST; i++) {
        const struct codec *spec = codec_get_portable(i / N_FAST);
        const struct codec *fast =
            codec_get_isa(i / N_FAST, fast_isas[i % N_FAST]);
        int rv;

        if (fast == NULL) {
            continue;
        }
        memset(&spec_out, 0x55, sizeof spec_out);
        memset(&fast_out, 0x55, sizeof fast_out);
        rv = run_form(spec, &spec_out, n, offset, scale);
        assert_int_equal(run_form(fast, &fast_out, n, offset, scale), rv);
        if (rv == 0) { /* everything, and what lies around it */
            assert_memory_equal(&spec_out, &fast_out, sizeof spec_out);
        }
    }
}

static void all_sizes_up_to_a_few_vectors_and_odd_ones_give_the_bits(void **st)
{
    static const size_t sizes[] = {1023, 1024, 1025, 1039, 2049,
                                   4095, 4096, 4097, 5121, N_MAX - 1};
    uint64_t seed = 5;

    (void)st;
    fill(own, N_MAX, &seed);
    fill(residual, N_MAX, &seed);
    for (size_t n = 0; n <= 70; n++) {
        check_all_forms(n, n % 3, 0.75F);
        check_all_forms(n, n % 3, -0.75F);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_all_forms(sizes[i], i, 0.3F);
    }
}

static void every_alignment_gives_the_bits(void **st)
{
    uint64_t seed = 6;

    (void)st;
    fill(own, N_MAX, &seed);
    fill(residual, N_MAX, &seed);
    for (size_t offset = 0; offset < 64; offset++) {
        check_all_forms(1100, offset, 1.0F);
    }
}

static void blocks_of_every_magnitude_give_the_bits(void **st)
{
    uint64_t seed = 7;

    (void)st;
    for (unsigned turn = 0; turn < 60; turn++) {
        fill(own, N_MAX, &seed);
        fill(residual, N_MAX, &seed);
        check_all_forms(N_MAX - (size_t)rng_below(&seed, 100), 2,
                        rng_float(&seed) + 0.25F);
    }
}

static void a_number_that_is_not_finite_gives_the_same_error(void **st)
{
    static const uint32_t bad[] = {0x7f800000U, 0xff800000U, 0x7fc00000U,
                                   0xffffffffU, 0x7f800001U, 0x7f7fffffU};
    static const size_t places[] = {0, 15, 16, 1023, 4096, 5006};
    uint64_t seed = 8;

    (void)st;
    for (unsigned i = 0; i < 36; i++) {
        fill(own, 5007, &seed);
        fill(residual, 5007, &seed);
        own[places[i / 6]] = float_from_bits(bad[i % 6]);
        check_all_forms(5007, 0, 1.0F);
    }
}

static void every_half_decodes_alike(void **st)
{
    static const int exponents[] = {-126, -125, -14, 0, 13, 111};
    const struct codec *spec = codec_get_portable(CODEC_FP16);

    (void)st;
    for (size_t k = 0; k < 2 * sizeof exponents / sizeof exponents[0]; k++) {
        const struct codec *fast = codec_get_isa(CODEC_FP16, fast_isas[k % 2]);

        for (unsigned h = 0; h < 0x10000 && fast != NULL; h += 1024) {
            int rv;

            put_u16(spec_out.wire, (uint16_t)(int16_t)exponents[k / 2]);
            for (unsigned i = 0; i < 1024; i++) {
                put_u16(spec_out.wire + 2 + 2 * (size_t)i, (uint16_t)(h + i));
            }
            rv = spec->decode(spec_out.decoded, spec_out.wire, 1024);
            assert_int_equal(
                fast->decode(fast_out.decoded, spec_out.wire, 1024), rv);
            if ((h & 0x7c00) == 0x7c00) {
                assert_int_equal(rv, LOCO_ENUMERIC);
            } else {
                assert_int_equal(rv, 0);
                assert_memory_equal(spec_out.decoded, fast_out.decoded, 4096);
            }
        }
    }
}

static void any_bytes_decode_alike_or_are_refused_alike(void **st)
{
    uint64_t seed = 9;
    unsigned n_taken = 0;

    (void)st;
    for (unsigned turn = 0; turn < 20000; turn++) {
        unsigned id = turn % CODEC_COUNT;
        size_t n = 1 + (size_t)rng_below(&seed, 40);
        const struct codec *spec = codec_get_portable(id);
        size_t bytes = spec->bytes(n);
        int rv;

        for (size_t i = 0; i < bytes; i++) {
            spec_out.wire[i] = (uint8_t)rng_next(&seed);
        }
        rv = spec->decode(spec_out.decoded, spec_out.wire, n);
        n_taken += rv == 0;
        for (unsigned k = 0; k < N_FAST; k++) {
            const struct codec *fast = codec_get_isa(id, fast_isas[k]);

            if (fast == NULL) {
                continue;
            }
            assert_int_equal(fast->decode(fast_out.decoded, spec_out.wire, n),
                             rv);
            if (rv == 0) {
                assert_memory_equal(spec_out.decoded, fast_out.decoded, 4 * n);
            }
        }
    }
    assert_true(n_taken > 100 && n_taken < 19900);
}

#if defined(__x86_64__)
static void the_callers_mode_changes_nothing_and_is_given_back(void **st)
{
    /* flush to zero and denormals are zero; round up; all traps on */
    static const unsigned modes[] = {0x9fc0, 0x5f80, 0};
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    uint64_t seed = 10;
    const size_t n = 4096 + 77;

    (void)st;
    fill(own, N_MAX, &seed);
    fill(residual, N_MAX, &seed);
    for (size_t i = 0; i < 60; i++) { /* blocks near the sub-normals, too */
        own[i] = float_from_bits((uint32_t)(i * 7919));
    }
    for (unsigned i = 0; i < 3 * 3 * CODEC_COUNT; i++) {
        const struct codec *c = codec_get_isa(i / 9, isas[i % 3]);
        unsigned before = _mm_getcsr();
        unsigned after;
        size_t size = c == NULL || i % 2 == 0 ? n : 60;
        int rv;

        if (c == NULL) {
            continue;
        }
        memset(&spec_out, 0x55, sizeof spec_out);
        memset(&fast_out, 0x55, sizeof fast_out);
        assert_int_equal(run_form(c, &spec_out, size, 0, 0.75F), 0);
        _mm_setcsr(modes[i / 3 % 3]);
        rv = run_form(c, &fast_out, size, 0, 0.75F);
        after = _mm_getcsr();
        _mm_setcsr(before);
        assert_int_equal(rv, 0);
        assert_int_equal(after & ~0x3fU, modes[i / 3 % 3]);
        assert_memory_equal(&spec_out, &fast_out, sizeof spec_out);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            all_sizes_up_to_a_few_vectors_and_odd_ones_give_the_bits),
        cmocka_unit_test(every_alignment_gives_the_bits),
        cmocka_unit_test(blocks_of_every_magnitude_give_the_bits),
        cmocka_unit_test(a_number_that_is_not_finite_gives_the_same_error),
        cmocka_unit_test(every_half_decodes_alike),
        cmocka_unit_test(any_bytes_decode_alike_or_are_refused_alike),
#if defined(__x86_64__)
        cmocka_unit_test(the_callers_mode_changes_nothing_and_is_given_back),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
