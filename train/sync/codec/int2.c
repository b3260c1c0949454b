/* int2.c - two bits an element: a sign, and one of two magnitudes.
 *
 * An element is large or small; for either kind the wire has the mean magnitude
 * of the elements of a block. No element is 0 but where that mean is: with
 * error feedback the next contributions take back what this adds. The more
 * unequal the elements of a block are, the longer that takes: the residual is
 * 0.4 of a contribution of noise with bell-shaped magnitudes, and 3 to 17 of
 * one whose block has four elements that are 30 times as large.
 *
 * A sum of fp32 numbers depends on its order, so whole numbers are summed. With
 * m the largest magnitude of a block of n, every operation in fp32 but where
 * it says whole:
 *
 *   q = trunc(|x| * (127 / m) * 256 + 0.5)            whole, up to 32,512
 *   large: q > floor(sum of all q / n)                whole
 *   level = m * (sum of their q / (their number * 32,512)), a quotient of two
 *       whole numbers that are rounded to fp32; then rounded to bf16, to the
 *       nearest, even at a tie, but never up to infinity
 *
 * |x| * (127 / m) is within 2^-22 of 127 at most, so no q is larger; sums stay
 * below 2^25. Where no element is large, that level is the small one's.
 *
 * A block with m < CODEC_LOW_MIN is sent as zeros: 127 / m is a normal number.
 * A level must be finite and not negative, the large one not below the small
 * one. A sign of 0, and any code but 0 where both levels are 0, are reserved.
 */
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

#define Q_MOST 32512U /* 127 * 256 */

static uint16_t level_of(float m, uint32_t q, uint32_t n)
{
    float level = m * ((float)q / (float)(n * Q_MOST));
    uint32_t bits = float_bits(level);

    bits = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    return (uint16_t)(bits >= 0x7f80U ? 0x7f7fU : bits);
}

void int2_levels_put(uint8_t *dst, uint32_t max, const struct int2_sums *s)
{
    float m = float_from_bits(max);
    uint32_t small = s->n - s->n_large;
    uint16_t low = level_of(m, s->q - s->q_large, small); /* never of none */

    put_u16(dst, low);
    put_u16(dst + 2,
            s->n_large == 0 ? low : level_of(m, s->q_large, s->n_large));
}

int int2_levels_read(const uint8_t *src, float level[2])
{
    uint32_t low = get_u16(src), high = get_u16(src + 2);

    level[0] = float_from_bits(low << 16);
    level[1] = float_from_bits(high << 16);
    /* A sign bit, too, makes it too large. */
    return high >= 0x7f80U || low > high ? LOCO_EPROTO : 0;
}

int int2_load(float *x, const uint8_t *src, size_t n)
{
    float level[2];
    int rv = int2_levels_read(src, level);

    for (size_t i = 0; i < n && rv == 0; i++) {
        unsigned code = src[4 + i / 4] >> (i % 4 * 2) & 3U;
        float v = level[code & 1U];

        if (code != 0 && v == 0.0F) {
            return LOCO_EPROTO;
        }
        x[i] = code >= 2 ? -v : v;
    }
    if (rv == 0 && n % 4 != 0 && src[4 + n / 4] >> (n % 4 * 2) != 0) {
        return LOCO_EPROTO;
    }
    return rv;
}

static void
sum_up(struct int2_sums *s, uint16_t *q, const float *x, float scale, float m)
{
    float inverse = 127.0F / m;

    for (uint32_t i = 0; i < s->n; i++) {
        float v = scale * x[i];
        float magnitude = float_from_bits(float_bits(v) & CODEC_SIGN_OFF);

        q[i] = (uint16_t)(magnitude * inverse * 256.0F + 0.5F);
        s->q += q[i];
    }
    s->bound = s->q / s->n;
    for (uint32_t i = 0; i < s->n; i++) {
        s->n_large += q[i] > s->bound;
        s->q_large += q[i] > s->bound ? q[i] : 0;
    }
}

int int2_store(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    uint16_t q[CODEC_INT2_BLOCK];
    struct int2_sums s = {.n = (uint32_t)n};
    bool signs; /* of small ones */

    if (max >= CODEC_INFINITE_BITS) {
        return LOCO_ENUMERIC;
    }
    memset(dst, 0, 4 + (n + 3) / 4);
    if (float_from_bits(max) < CODEC_LOW_MIN) {
        return 0;
    }
    sum_up(&s, q, x, scale, float_from_bits(max));
    int2_levels_put(dst, max, &s);
    signs = get_u16(dst) != 0;
    for (size_t i = 0; i < n; i++) {
        unsigned large = q[i] > s.bound;
        unsigned sign = float_bits(scale * x[i]) >> 31;
        unsigned code = large != 0 || signs ? sign << 1 | large : 0;

        dst[4 + i / 4] = (uint8_t)(dst[4 + i / 4] | code << (i % 4 * 2));
    }
    return 0;
}
