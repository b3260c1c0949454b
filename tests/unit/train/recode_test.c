/* recode_test.c - wire bytes made again from what they decode to. */
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
#include "train/sync/codec/recode.h"

#define N_MAX 20000

static float x[N_MAX];
static uint8_t wire[4 * N_MAX + 64], again[4 * N_MAX + 64];
static int16_t notes[N_MAX];

/* Values of every size in one vector, sub-normals, zeros of both signs. */
static void fill(size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t words[] = {seed, i};
        uint64_t r = rng_mix(words, 2);
        uint32_t exponent = 100 + (uint32_t)(r >> 32) % 40;

        switch (seed % 4) {
        case 0: /* of one size, as a model's changes */
            x[i] = (float)((double)(r >> 11) / 0x1p53 - 0.5);
            break;
        case 1: /* of many sizes */
            x[i] = float_from_bits((uint32_t)r >> 9 | exponent << 23 |
                                   (uint32_t)(r & 1) << 31);
            break;
        case 2: /* sub-normal or zero */
            x[i] = float_from_bits((uint32_t)(r & 0x800000ff));
            break;
        default: /* just below a power of two: rounding carries */
            x[i] = float_from_bits(0x3fffffffU - (uint32_t)(r % 3));
            break;
        }
    }
}

static void there_and_back(const struct codec *c, size_t n, uint64_t seed)
{
    size_t bytes = c->bytes(n);

    fill(n, seed);
    assert_int_equal(c->encode(wire, x, n, 1.0F), 0);
    assert_int_equal(c->decode(x, wire, n), 0);
    recode_note(c, notes, wire, n);
    memset(again, 0xa5, bytes + 1);
    assert_int_equal(recode(c, again, x, n, notes), 0);
    assert_memory_equal(again, wire, bytes);
    assert_int_equal(again[bytes], 0xa5);
}

static void decoded_bytes_come_back_bit_by_bit(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 4095, 4096, 4097, 8192, N_MAX};
    static const char *const names[] = {"fp32", "bf16", "fp16"};

    (void)state;
    for (int k = 0; k < 3; k++) {
        const struct codec *c = codec_find(names[k]);

        assert_true(recode_can(c));
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (uint64_t seed = 0; seed < 8; seed++) {
                there_and_back(c, sizes[i], seed);
                there_and_back(codec_get_portable(c->id), sizes[i], seed);
            }
        }
    }
}

/* What the notes are for. */
static void a_block_that_rounding_carried_needs_its_note(void **state)
{
    const struct codec *c = codec_find("fp16");
    int16_t without;

    (void)state;
    x[0] = float_from_bits(0x3fffffffU); /* 2 - 2^-23 becomes 2 */
    assert_int_equal(c->encode(wire, x, 1, 1.0F), 0);
    assert_int_equal(c->decode(x, wire, 1), 0);
    assert_true(x[0] == 2.0F);
    recode_note(c, notes, wire, 1);
    assert_int_equal(c->encode(again, x, 1, 1.0F), 0);
    without = (int16_t)get_u16(again);
    assert_int_equal(without, notes[0] + 1);
    assert_int_equal(recode(c, again, x, 1, notes), 0);
    assert_memory_equal(again, wire, c->bytes(1));
}

static void what_was_never_decoded_is_an_error(void **state)
{
    const struct codec *c = codec_find("fp16");

    (void)state;
    x[0] = 1.0F;
    notes[0] = 2000;
    assert_int_equal(recode(c, again, x, 1, notes), LOCO_ENUMERIC);
    x[0] = float_from_bits(0x7fc00000U);
    assert_int_equal(recode(c, again, x, 1, notes), LOCO_ENUMERIC);
}

static void types_with_scales_are_not_for_this(void **state)
{
    (void)state;
    assert_false(recode_can(codec_find("int8")));
    assert_false(recode_can(codec_find("e3m0")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoded_bytes_come_back_bit_by_bit),
        cmocka_unit_test(a_block_that_rounding_carried_needs_its_note),
        cmocka_unit_test(what_was_never_decoded_is_an_error),
        cmocka_unit_test(types_with_scales_are_not_for_this),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
