/* half.h - IEEE 754 binary16 to binary32 and back, in integer arithmetic.
 *
 * The specification of the fp16 wire codec: round to nearest, ties to even;
 * sub-normals on both sides; overflow gives infinity. F16C and every GPU give
 * the same bits for every number (tests/unit/train/codec_test.c compares all
 * 65,536 halves and millions of floats). NaNs stay NaNs, payload unspecified:
 * a codec refuses them before they get here.
 */
#ifndef LOCO_PROTO_BASE_HALF_H
#define LOCO_PROTO_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^e for the exponents of normal floats. */
static inline float float_power_of_two(int e)
{
    return float_from_bits((uint32_t)(e + 127) << 23);
}

static inline uint16_t half_from_float(float x)
{
    uint32_t bits = float_bits(x);
    uint32_t sign = bits >> 16 & 0x8000U;
    uint32_t a = bits & 0x7fffffffU;

    if (a > 0x7f800000U) {
        return (uint16_t)(sign | 0x7e00U);
    }
    if (a >= 0x477ff000U) { /* 65,520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00U);
    }
    if (a >= 0x38800000U) { /* 2^-14, the smallest normal half */
        /* 13 bits go: add just under half of their unit, and the unit's own
         * last bit, so that a tie goes to even. */
        a += 0xfffU + (a >> 13 & 1U);
        return (uint16_t)(sign | (a - 0x38000000U) >> 13);
    }
    if (a <= 0x33000000U) { /* 2^-25: half of the smallest, the even is 0 */
        return (uint16_t)sign;
    }
    /* A sub-normal half counts units of 2^-24; the float is
     * mantissa * 2^(exponent - 150). */
    uint32_t shift = 126U - (a >> 23);
    uint32_t mantissa = (a & 0x7fffffU) | 0x800000U;
    uint32_t units = mantissa >> shift;
    uint32_t rest = mantissa & ((1U << shift) - 1U);
    uint32_t tie = 1U << (shift - 1U);

    if (rest > tie || (rest == tie && (units & 1U) != 0)) {
        units++;
    }
    return (uint16_t)(sign | units);
}

static inline float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000U) << 16;
    uint32_t exponent = h >> 10 & 0x1fU;
    uint32_t mantissa = h & 0x3ffU;

    if (exponent == 31) {
        return float_from_bits(sign | 0x7f800000U | mantissa << 13);
    }
    if (exponent == 0) { /* units of 2^-24: exact in fp32 */
        float x = (float)mantissa * 0x1p-24F;
        return float_from_bits(sign | float_bits(x));
    }
    return float_from_bits(sign | ((exponent + 112U) << 23 | mantissa << 13));
}

#endif
