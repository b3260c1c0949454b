/* bf16.c - the upper half of an fp32: its range, eight significant bits.
 *
 * Rounded to nearest, ties to even, in integers: add just under half of the
 * unit that stays, and that unit's own last bit. Sub-normals need no case of
 * their own. Values from CODEC_BF16_TOO_LARGE on would round to infinity.
 */
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

int bf16_load(float *x, const uint8_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)get_u16(src + 2 * i) << 16;

        if ((bits & CODEC_SIGN_OFF) >= CODEC_INFINITE_BITS) {
            return LOCO_ENUMERIC;
        }
        x[i] = float_from_bits(bits);
    }
    return 0;
}

int bf16_store(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    if (max >= CODEC_BF16_TOO_LARGE) {
        return LOCO_ENUMERIC;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(scale * x[i]);

        bits += 0x7fffU + (bits >> 16 & 1U);
        put_u16(dst + 2 * i, (uint16_t)(bits >> 16));
    }
    return 0;
}
