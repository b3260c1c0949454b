/* codec.h - wire types: fp32 vectors as the bytes that peers exchange.
 *
 * A *codec* writes n floats as codec.bytes(n) bytes and reads them back. A
 * ring's reduce-scatter carries partial sums in the wire type: at each hop
 * `add` decodes what came in, adds the own contribution in fp32 and encodes
 * the sum again; the final bytes are forwarded verbatim, so that all members
 * decode the same bits. Weights of a mean go in as `scale` (w_i / sum w): the
 * sum of the scaled contributions is the mean.
 *
 * Layouts, all little-endian, no padding; a *segment* is encoded on its own
 * and begins at a multiple of codec.block:
 *
 *   fp32  n * 4 bytes        the bits
 *   bf16  n * 2 bytes        the upper 16 bits, rounded to nearest even
 *   fp16  blocks of 4,096 elements, the last one may be short:
 *           int16   e        one power-of-two exponent for the block
 *           uint16  h[]      IEEE binary16; the value is h * 2^e
 *   int8  blocks of 1,024 elements:
 *           float   s        the largest magnitude / 127
 *           int8    q[]      -127 to 127; the value is q * s
 *   e3m0  blocks of 1,024 elements:
 *           float   s        the largest magnitude
 *           uint4   c[]      low nibble first, 0 behind an odd end: sign << 3
 *                            | k; k = 0 is 0, k = 1 to 7 is s * 2^(k - 7)
 *   int2  blocks of 1,024 elements:
 *           bf16    l[2]     the mean magnitude of the small and of the large
 *           uint2   c[]      lowest bits first, 0 behind the end: sign << 1
 *                            | k; the value is l[k]
 *   sparse  blocks of 1,024 elements, whole ones only:
 *           uint16  l        the largest level of the words
 *           uint60  w[16]    of 64 elements each the 12 largest: signs, rank
 *                            of the positions, level (sparse.c)
 *
 * The types and what each is good for are the rows of codec.def. The exact
 * rules are those of the reference in TYPE.c, one file each.
 *
 * A type of the butterfly never travels as partial sums. It has no `add`: a
 * ring takes a codec only when codec_adds() says so. In a butterfly the owner
 * of a slice decodes all contributions, sums them in fp32 and encodes once
 * (`sum`, which every type has).
 *
 * Error feedback. What rounding took from a member's contribution can go into
 * its next one: it sends enc(x), x = scale * own + residual, and keeps
 * residual' = x - dec(enc(x)). The residual is a vector of the caller's that
 * nobody may change before the round commits. So no call writes it unless
 * `next` says where, and there are two ways to use that:
 *
 *   recompute  encode with next = NULL; when the round has committed, call
 *              encode_op again with the same inputs and next = residual, over
 *              the ranges that the commit took. Encoding is a pure function:
 *              the bytes, and that it succeeds, are the same. No memory.
 *   candidate  encode or add with next = a second vector; at the commit copy
 *              or swap it. Needed where the input is gone by then: a ring's
 *              incoming bytes (add_op), the owner's sum in a butterfly.
 *
 * Same bits everywhere: only IEEE fp32 products, sums and roundings to nearest
 * even in the order written here; no libm, no contraction to FMA (the build
 * sets -ffp-contract=off). On x86 a call sets the rounding mode and turns off
 * flush-to-zero and traps for its own duration when the caller has other ones
 * (MXCSR); on other processors the caller leaves them at their defaults. The
 * portable form is the specification; codec_get's may use AVX2 and F16C or
 * AVX-512 and gives the same bits.
 *
 * How it fails: encode and add return LOCO_ENUMERIC for a value that is not
 * finite or that the type cannot hold; decode and add return it for one that
 * decodes so. What no encoder writes is LOCO_EPROTO: an fp16 exponent outside
 * its bounds; a scale of int8 or e3m0 that is negative, not finite, too small
 * or too large; a level of int2 that is negative or not finite, or a large one
 * below the small one; the codes -128 and 8 (minus zero); a code that is not 0
 * under a scale or level of 0 or behind the end; what sparse.c calls reserved.
 * Every output is then unspecified (in-place add: the source's too), never
 * written beyond bytes(n) or n.
 *
 * Threads: all functions are pure. They use 32 KiB of stack, `sum` 64 KiB.
 */
#ifndef LOCO_TRAIN_SYNC_CODEC_CODEC_H
#define LOCO_TRAIN_SYNC_CODEC_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/codec_type.h"

#define CODEC_FP16_EXP_MIN (-126)
#define CODEC_FP16_EXP_MAX 113 /* floor(log2(FLT_MAX)) - 14 */

/* No block is longer, and no piece (CODEC_PIECE) of a type without blocks. The
 * `sum` of such a type gives the same bits for segments that begin at multiples
 * of a piece. */
#define CODEC_BLOCK_MAX 4096

/* A block of int8, e3m0 or int2, or a group of sparse, whose largest magnitude
 * is below this is sent as zeros, so that no scale and no step is sub-normal (a
 * small level of int2 can be). */
#define CODEC_LOW_MIN 0x1p-119F

/* One encoding with everything that may go with it. Pointers are to n floats
 * each; NULL where a thing is not wanted. x is the sum that is encoded. */
struct codec_op {
    const float *own;
    size_t n;
    float scale;
    const float *residual; /* x = [dec(src) +] (scale * own + residual) */
    float *next;           /* = x - dec(dst); may be residual itself */
    float *result;         /* = dec(dst): what the last hop keeps */
};

/* The weighted sum of encoded vectors: what the owner of a slice does in a
 * butterfly. Each element is ((w0 x0 + w1 x1) + w2 x2) + .., in fp32 in this
 * order, then encoded. */
struct codec_sum {
    const uint8_t *const *terms; /* (n_terms) encoded vectors of n elements */
    const float *scale;          /* (n_terms) their weights */
    uint32_t n_terms;            /* 1 .. CODEC_TERMS_MAX */
    size_t n;
    /* Term own_term is these n floats, which were never encoded; NULL: all
     * terms are encoded. May be `result`. */
    const float *own;
    uint32_t own_term;
    /* 0, or: the norm of a block (fp32 and bf16: of 1,024 elements) of a term
     * counts at most this many times the median of the norms that the terms of
     * weight above 0 have in that block; the lower one of two. A median of 0
     * clips nothing. */
    float clip;
    /* With clip: not the distance from 0 counts, but that from a centre, which
     * follows from the distances between the terms (centre.c); it is the
     * result. Only ratios of the weights count. */
    bool centred;
    float *next; /* += (sum - dec(dst)) * next_scale; or NULL */
    float next_scale;
    float *result; /* = dec(dst); or NULL */
    uint32_t bad;  /* on failure: the term at fault; n_terms: the sum itself */
};

#define CODEC_TERMS_MAX    64
#define CODEC_CENTRE_TURNS 8

struct codec {
    const char *name; /* as in --wire and sync.wire */
    const char *isa;  /* "portable", "avx2" or "avx512" */
    enum codec_id id;
    uint32_t block; /* segments begin at multiples of it */
    /* Size of n encoded elements. */
    size_t (*bytes)(size_t n);
    /* dst = enc(scale * src) */
    int (*encode)(uint8_t *dst, const float *src, size_t n, float scale);
    /* dst = dec(src) */
    int (*decode)(float *dst, const uint8_t *src, size_t n);
    /* dst = enc(dec(src) + scale * contrib); dst == src is allowed, any other
     * overlap is not. NULL: this type is never summed on the wire. */
    int (*add)(uint8_t *dst,
               const uint8_t *src,
               const float *contrib,
               size_t n,
               float scale);
    /* The same two with residuals and the decoded result. */
    int (*encode_op)(uint8_t *dst, const struct codec_op *op);
    int (*add_op)(uint8_t *dst, const uint8_t *src, const struct codec_op *op);
    /* dst = enc(sum of scale * dec(term)); dst may be one of the terms. */
    int (*sum)(uint8_t *dst, struct codec_sum *s);
};

/* The fastest form for this CPU; NULL for an unknown id. Look it up once, not
 * per segment: it asks the CPU what it can do. */
const struct codec *codec_get(unsigned id);

/* The specification: the same bits, plain C. */
const struct codec *codec_get_portable(unsigned id);

/* One form by name; NULL when it is unknown or this CPU or build lacks it. */
const struct codec *codec_get_isa(unsigned id, const char *isa);

/* By name; NULL when there is none. */
const struct codec *codec_find(const char *name);

/* Whether partial sums may travel in this type: what a ring needs. */
static inline bool codec_adds(const struct codec *c)
{
    return c->add != NULL;
}

#endif
