/* recode.h - the wire bytes of a vector again, from what they decode to.
 *
 * The final bytes of an average are forwarded, hashed and served as they are:
 * all peers must hold the same. A peer that decoded them need not keep both
 * forms, but for types that lose what their scale was (codec.def, LOST). fp32
 * and bf16 encode what they decoded to the same bytes. fp16 would too, but for
 * the exponent of a block: rounding may carry its largest value to the next
 * power of two, and encoded anew the block then has another one. So the
 * exponents are *noted* before the bytes go, 2 bytes for 4,096 elements.
 *
 *     bytes -> decode, recode_note -> ... -> recode -> the same bytes
 *
 * Exact for whatever an encoder wrote. Bytes that none would write (an odd
 * sub-normal under the lowest exponent) may come back as others: their hash
 * then differs from the sender's, as it should.
 *
 * Cost: one encoding, and a slow second one for the few blocks whose exponent
 * differs. Threads: pure.
 */
#ifndef LOCO_TRAIN_SYNC_CODEC_RECODE_H
#define LOCO_TRAIN_SYNC_CODEC_RECODE_H

#include "train/sync/codec/codec.h"

/* Whether bytes of this type can be made again. */
bool recode_can(const struct codec *c);

/* Notes for n elements. */
size_t recode_notes(const struct codec *c, size_t n);

/* Note what `src`, n encoded elements, does not tell when it is decoded. */
void recode_note(const struct codec *c,
                 int16_t *notes,
                 const uint8_t *src,
                 size_t n);

/* dst = the bytes that src[n] was decoded from. LOCO_ENUMERIC: it was not. */
int recode(const struct codec *c,
           uint8_t *dst,
           const float *src,
           size_t n,
           const int16_t *notes);

#endif
