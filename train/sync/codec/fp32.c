/* fp32.c - the bits themselves; nothing is rounded. */
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

int fp32_load(float *x, const uint8_t *src, size_t n)
{
    memcpy(x, src, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        if ((float_bits(x[i]) & CODEC_SIGN_OFF) >= CODEC_INFINITE_BITS) {
            return LOCO_ENUMERIC;
        }
    }
    return 0;
}

int fp32_store(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    for (size_t i = 0; i < n; i++) {
        put_u32(dst + 4 * i, float_bits(scale * x[i]));
    }
    return max < CODEC_INFINITE_BITS ? 0 : LOCO_ENUMERIC;
}
