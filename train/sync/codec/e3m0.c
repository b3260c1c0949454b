/* e3m0.c - four bits an element: a sign and a power of two.
 *
 * With s the largest magnitude of the block, the magnitudes on the wire are
 * 0 (k = 0) and s * 2^(k-7) (k = 1 to 7); an element takes the nearest by
 * absolute distance, a tie the smaller. The bounds between neighbours are then
 * s/128, below which is 0, and 3/4 s halved 0 to 5 times. 3/4 s may need 26
 * bits: rounded down to fp32 it still parts the fp32 numbers rightly, and
 * halving is exact. As integers, halving subtracts 2^23, so that the number of
 * halvings between |x| and the bound is a difference shifted right:
 *
 *   k = 7 + floor((bits(|x|) - bits(3/4 s) - 1) / 2^23), at least 0,
 *       and at least 1 where |x| > s/128
 *
 * A block with s < CODEC_LOW_MIN is sent as zeros, so that all bounds are
 * normal numbers. The scale must be 0 or within [CODEC_LOW_MIN, FLT_MAX];
 * minus zero (8) is reserved.
 */
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

int e3m0_scale_of(uint32_t max, struct e3m0_scale *out)
{
    float s = float_from_bits(max);
    float upper = 0.75F * s;

    if (max >= CODEC_INFINITE_BITS) {
        return LOCO_ENUMERIC;
    }
    if (s < CODEC_LOW_MIN) { /* all magnitudes are up to these bounds */
        *out =
            (struct e3m0_scale){0.0F, CODEC_INFINITE_BITS, CODEC_INFINITE_BITS};
        return 0;
    }
    out->s = s;
    out->upper = float_bits(upper);
    if ((double)upper > 0.75 * (double)s) { /* exact in double */
        out->upper--;
    }
    out->zero = max - (7U << 23);
    return 0;
}

int e3m0_scale_read(const uint8_t *src, float *s)
{
    uint32_t bits = get_u32(src);

    *s = float_from_bits(bits);
    if (bits != 0 &&
        (bits < float_bits(CODEC_LOW_MIN) || bits >= CODEC_INFINITE_BITS)) {
        return LOCO_EPROTO;
    }
    return 0;
}

static unsigned encode_one(float x, const struct e3m0_scale *block)
{
    uint32_t magnitude = float_bits(x) & CODEC_SIGN_OFF;
    uint32_t bound = block->upper;
    unsigned k = 7;

    if (magnitude <= block->zero) {
        return 0;
    }
    while (k > 1 && magnitude <= bound) {
        bound -= 1U << 23;
        k--;
    }
    return (float_bits(x) >> 31) << 3 | k;
}

int e3m0_load(float *x, const uint8_t *src, size_t n)
{
    float s;
    int rv = e3m0_scale_read(src, &s);

    for (size_t i = 0; i < n && rv == 0; i++) {
        unsigned code = src[4 + i / 2] >> (i % 2 * 4) & 15U;
        unsigned k = code & 7U;
        float magnitude = k == 0 ? 0.0F : s * float_power_of_two((int)k - 7);

        if (code == 8 || (code != 0 && s == 0.0F)) {
            return LOCO_EPROTO;
        }
        x[i] = code > 8 ? -magnitude : magnitude;
    }
    if (rv == 0 && n % 2 != 0 && src[4 + n / 2] >> 4 != 0) {
        return LOCO_EPROTO;
    }
    return rv;
}

int e3m0_store(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    struct e3m0_scale block;
    int rv = e3m0_scale_of(max, &block);

    if (rv != 0) {
        return rv;
    }
    put_u32(dst, float_bits(block.s));
    for (size_t i = 0; i < n; i += 2) {
        unsigned low = encode_one(scale * x[i], &block);
        unsigned high = i + 1 < n ? encode_one(scale * x[i + 1], &block) : 0;

        dst[4 + i / 2] = (uint8_t)(low | high << 4);
    }
    return 0;
}
