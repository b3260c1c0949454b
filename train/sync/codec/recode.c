/* recode.c - see recode.h. */
#include "train/sync/codec/recode.h"

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"

bool recode_can(const struct codec *c)
{
    return codec_types[c->id].again != CODEC_LOST;
}

size_t recode_notes(const struct codec *c, size_t n)
{
    return codec_types[c->id].again == CODEC_NOTED
               ? (n + c->block - 1) / c->block
               : 0;
}

void recode_note(const struct codec *c,
                 int16_t *notes,
                 const uint8_t *src,
                 size_t n)
{
    for (size_t k = 0; k < recode_notes(c, n); k++) {
        notes[k] = (int16_t)get_u16(src + k * c->bytes(c->block));
    }
}

/* One block of fp16 under the exponent that it had. */
static int block_again(uint8_t *dst, const float *src, size_t n, int e)
{
    float factor;

    if (e < CODEC_FP16_EXP_MIN || e > CODEC_FP16_EXP_MAX) {
        return LOCO_ENUMERIC;
    }
    factor = float_power_of_two(-e);
    put_u16(dst, (uint16_t)(int16_t)e);
    for (size_t i = 0; i < n; i++) {
        put_u16(dst + 2 + 2 * i, half_from_float(src[i] * factor));
    }
    return 0;
}

int recode(const struct codec *c,
           uint8_t *dst,
           const float *src,
           size_t n,
           const int16_t *notes)
{
    int rv = c->encode(dst, src, n, 1.0F);

    for (size_t k = 0; k < recode_notes(c, n) && rv == 0; k++) {
        size_t at = k * c->block, left = n - at;
        uint8_t *block = dst + k * c->bytes(c->block);

        if ((int16_t)get_u16(block) != notes[k]) {
            rv = block_again(block, src + at, left < c->block ? left : c->block,
                             notes[k]);
        }
    }
    return rv;
}
