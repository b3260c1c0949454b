/* int8.c - eight bits an element, scaled by the block's largest.
 *
 * With m the largest magnitude of the block, every operation in fp32:
 *
 *   s = m / 127                             the scale on the wire
 *   t = x * (127 / m)
 *   q = trunc(t + copysign(0.5, t))         halves go away from zero
 *   x ~ q * s
 *
 * m * (127 / m) is within 2^-22 of 127, so no code passes 127. A decoded block
 * encodes to the bytes it came from: s is within half a unit of m / 127, hence
 * 127 * s within 63.5 of those units of m, and one unit of m is 64 or 128 of
 * them; so s * 127 rounds to m or its neighbour, and that gives s again.
 *
 * A block with m < CODEC_LOW_MIN is sent as zeros: s, 127 / m and every q * s
 * are normal numbers. The scale must be 0 or normal and s * 127 finite; -128
 * is reserved.
 */
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

#define SMALLEST_NORMAL_BITS 0x00800000U

static int is_infinite_at_127(float s)
{
    return float_bits(s * 127.0F) >= CODEC_INFINITE_BITS;
}

int int8_scale_of(uint32_t max, struct int8_scale *out)
{
    float m = float_from_bits(max);

    if (max >= CODEC_INFINITE_BITS) {
        return LOCO_ENUMERIC;
    }
    if (m < CODEC_LOW_MIN) {
        *out = (struct int8_scale){0};
        return 0;
    }
    out->s = m / 127.0F;
    out->inverse = 127.0F / m;
    return is_infinite_at_127(out->s) ? LOCO_ENUMERIC : 0;
}

int int8_scale_read(const uint8_t *src, float *s)
{
    uint32_t bits = get_u32(src);

    *s = float_from_bits(bits);
    if (bits == 0) {
        return 0;
    }
    /* A sign bit, too, makes it too large. */
    if (bits < SMALLEST_NORMAL_BITS || bits >= CODEC_INFINITE_BITS ||
        is_infinite_at_127(*s)) {
        return LOCO_EPROTO;
    }
    return 0;
}

int int8_load(float *x, const uint8_t *src, size_t n)
{
    const int8_t *q = (const int8_t *)src + 4;
    float s;
    int rv = int8_scale_read(src, &s);

    for (size_t i = 0; i < n && rv == 0; i++) {
        if (q[i] == INT8_MIN || (q[i] != 0 && s == 0.0F)) {
            return LOCO_EPROTO;
        }
        x[i] = (float)q[i] * s;
    }
    return rv;
}

int int8_store(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    struct int8_scale block;
    int rv = int8_scale_of(max, &block);

    if (rv != 0) {
        return rv;
    }
    put_u32(dst, float_bits(block.s));
    for (size_t i = 0; i < n; i++) {
        float t = scale * x[i] * block.inverse;

        dst[4 + i] = (uint8_t)(int8_t)(t + (t < 0.0F ? -0.5F : 0.5F));
    }
    return 0;
}
