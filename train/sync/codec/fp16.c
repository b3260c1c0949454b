/* fp16.c - binary16 with one power-of-two exponent for a block.
 *
 *   e = max(floor(log2(max |x|)) - 14, CODEC_FP16_EXP_MIN)
 *   h = half(x * 2^-e)                      x ~ h * 2^e
 *
 * The largest element of a block lands in [2^14, 2^15), one binade below
 * overflow, so an element keeps 11 significant bits down to 2^-28 of the
 * block's largest and the absolute error of a smaller one is at most 2^-39 of
 * it. This is what makes fp16 lossless in practice for pseudo-gradients (plain
 * fp16 flushes them to zero below 6e-8). With e >= -126 every fp32 number,
 * sub-normals included, is inside the range, and h * 2^e is one fp32 product.
 */
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

int fp16_factor_read(const uint8_t *src, float *factor)
{
    int e = (int16_t)get_u16(src);

    if (e < CODEC_FP16_EXP_MIN || e > CODEC_FP16_EXP_MAX) {
        return LOCO_EPROTO;
    }
    *factor = float_power_of_two(e);
    return 0;
}

int fp16_load(float *x, const uint8_t *src, size_t n)
{
    float factor;
    int rv = fp16_factor_read(src, &factor);

    if (rv != 0) {
        return rv;
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = half_to_float(get_u16(src + 2 + 2 * i)) * factor;
        if ((float_bits(x[i]) & CODEC_SIGN_OFF) >= CODEC_INFINITE_BITS) {
            return LOCO_ENUMERIC;
        }
    }
    return 0;
}

int fp16_store(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    int e = (int)(max >> 23) - 127 - 14;
    float factor;

    if (max >= CODEC_FP16_TOO_LARGE) {
        return LOCO_ENUMERIC;
    }
    if (e < CODEC_FP16_EXP_MIN) { /* tiny, sub-normal or all zero */
        e = CODEC_FP16_EXP_MIN;
    }
    factor = float_power_of_two(-e);
    put_u16(dst, (uint16_t)(int16_t)e);
    for (size_t i = 0; i < n; i++) {
        put_u16(dst + 2 + 2 * i, half_from_float(scale * x[i] * factor));
    }
    return 0;
}
