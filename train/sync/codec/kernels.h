/* kernels.h - what one instruction set brings to the codecs: blocks.
 *
 * codec.c cuts a vector into blocks (fp32 and bf16, which have none, into
 * pieces of CODEC_PIECE) and runs for each: measure, which finds the largest
 * magnitude of scale * own, or gather or load_add, which leave a sum in a
 * buffer in the L1 cache and measure it; store, which chooses the block's scale
 * and encodes; load, when somebody wants the decoded values. Three sets fill
 * this table: the reference (codec_TYPE.c, plain loops, the specification) and
 * the codec_fast_*.c, compiled once for AVX2 + F16C and once for AVX-512 (CMake
 * names the set in LOCO_ISA).
 *
 * Magnitudes are compared as integers, the bits without the sign: that order
 * is the order of magnitudes, and infinities and NaNs are above all numbers,
 * so one maximum finds the scale and the non-finite.
 *
 * n is 1 up to the block or piece; wire bytes have any alignment. Every
 * function returns 0, LOCO_ENUMERIC or LOCO_EPROTO as codec.h says.
 */
#ifndef LOCO_TRAIN_SYNC_CODEC_KERNELS_H
#define LOCO_TRAIN_SYNC_CODEC_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "train/sync/codec/codec.h"

#define CODEC_SIGN_OFF      0x7fffffffU
#define CODEC_INFINITE_BITS 0x7f800000U
/* From here on eleven, or eight, significant bits round up to 2^128. */
#define CODEC_FP16_TOO_LARGE 0x7f7ff000U
#define CODEC_BF16_TOO_LARGE 0x7f7f8000U

/* What this member adds to a block: scale * own [+ residual]. */
struct codec_term {
    const float *own;
    const float *residual; /* or NULL */
    float scale;
};

/* Of one wire type. */
struct codec_blocks {
    /* x = dec(src) */
    int (*load)(float *x, const uint8_t *src, size_t n);
    /* x = dec(src) + term, *max = its largest magnitude; may leave values that
     * are not finite, which `store` refuses. NULL: a butterfly's type. */
    int (*load_add)(float *x,
                    const uint8_t *src,
                    const struct codec_term *t,
                    size_t n,
                    uint32_t *max);
    /* dst = enc(scale * x); max is the largest magnitude of scale * x */
    int (*store)(
        uint8_t *dst, const float *x, float scale, size_t n, uint32_t max);
};

struct codec_kernels {
    const char *isa;
    /* Returns the largest magnitude of scale * x. */
    uint32_t (*measure)(const float *x, float scale, size_t n);
    /* x = term; returns its largest magnitude. */
    uint32_t (*gather)(float *x, const struct codec_term *t, size_t n);
    /* out = x - y; out may be y */
    void (*subtract)(float *out, const float *x, const float *y, size_t n);
    struct codec_blocks blocks[CODEC_COUNT];
};

/* What is worked on at a time: a block, or a piece of a type without. */
struct codec_piece {
    size_t n;
    size_t bytes; /* encoded */
};
extern const struct codec_piece codec_pieces[CODEC_COUNT];

/* codec.h, `sum`, with the kernels of one set (sync/codec/sum.c). */
int codec_sum_run(const struct codec_kernels *kernels,
                  enum codec_id id,
                  uint8_t *dst,
                  struct codec_sum *s);

extern const struct codec_kernels codec_kernels_portable;
#ifdef LOCO_ISA_X86
extern const struct codec_kernels codec_kernels_avx2;
extern const struct codec_kernels codec_kernels_avx512;
#endif

/* ---- the reference, one file per type ---------------------------------- */

#define CODEC_REFERENCE(type)                                                  \
    int type##_load(float *x, const uint8_t *src, size_t n);                   \
    int type##_store(uint8_t *dst, const float *x, float scale, size_t n,      \
                     uint32_t max);
/* clang-format off */
#define CODEC(ID, type, ...) CODEC_REFERENCE(type)
#include "proto/base/codec.def"
/* clang-format on */

/* ---- scales of blocks, the same for all sets --------------------------- */

/* int8: s for the wire and the factor that makes codes. A block of zeros has
 * both 0. Refuses what is not finite or rounds to infinity. */
struct int8_scale {
    float s;
    float inverse;
};
int int8_scale_of(uint32_t max, struct int8_scale *out);
/* Reads and checks s. */
int int8_scale_read(const uint8_t *src, float *s);

/* fp16: reads and checks a block's exponent: the factor 2^e. */
int fp16_factor_read(const uint8_t *src, float *factor);

/* e3m0: s for the wire and the bounds between codes, as magnitude bits: k is 7
 * above `upper`, one less for each halving of it, and 0 up to `zero`. */
struct e3m0_scale {
    float s;
    uint32_t upper;
    uint32_t zero;
};
int e3m0_scale_of(uint32_t max, struct e3m0_scale *out);
int e3m0_scale_read(const uint8_t *src, float *s);

/* int2: what the levels are made of (int2.c), of the elements as whole numbers
 * q. Large are those above `bound`. */
struct int2_sums {
    uint32_t n, q; /* all elements; the sum of their q */
    uint32_t bound;
    uint32_t n_large, q_large;
};
/* Both levels for the wire; n is above 0, max at least CODEC_LOW_MIN. */
void int2_levels_put(uint8_t *dst, uint32_t max, const struct int2_sums *s);
/* Reads and checks the small and the large one. */
int int2_levels_read(const uint8_t *src, float level[2]);

#endif
