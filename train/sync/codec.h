/* codec.h - wire types: fp32 vectors as the bytes that peers exchange.
 *
 * A *codec* writes n floats as codec.bytes(n) bytes and reads them back. A
 * ring's reduce-scatter carries partial sums in the wire type: at each hop
 * `add` decodes what came in, adds the own contribution in fp32 and encodes
 * the sum again; the final bytes are forwarded verbatim, so that all members
 * decode the same bits. Weights of a mean go in as `scale` (w_i / sum w): the
 * sum of the scaled contributions is the mean.
 *
 * Layouts, all little-endian, no padding; a *segment* is encoded on its own:
 *
 *   fp32  n * 4 bytes        the bits
 *   bf16  n * 2 bytes        the upper 16 bits, rounded to nearest even
 *   fp16  blocks of CODEC_FP16_BLOCK elements, the last one may be short:
 *           int16   e        one power-of-two exponent for the block
 *           uint16  h[]      IEEE binary16; the value is h * 2^e
 *
 * e = max(floor(log2(max |x|)) - 14, CODEC_FP16_EXP_MIN): the largest element
 * of a block lands in [2^14, 2^15), one binade below overflow, so an element
 * keeps 11 significant bits down to 2^-28 of the block's largest and the
 * absolute error of a smaller one is at most 2^-39 of it. This is what makes
 * fp16 lossless in practice for pseudo-gradients (plain fp16 flushes them to
 * zero below 6e-8). With e >= -126 every fp32 number, sub-normals included,
 * is inside the range, and h * 2^e is one fp32 product.
 *
 * Same bits everywhere: only IEEE fp32 products, sums and roundings to nearest
 * even in the order written here; no libm, no contraction to FMA (the build
 * sets -ffp-contract=off), no flush to zero (callers leave MXCSR alone). The
 * *_portable table is the specification; the one that codec_get returns may
 * use AVX2 and F16C and gives the same bits.
 *
 * How it fails: encode and add return LOCO_ENUMERIC for a value that is not
 * finite or that the type cannot hold, decode and add for one that decodes so;
 * an exponent outside its bounds is LOCO_EPROTO. The destination's contents
 * are then unspecified (in-place add: the source's too), never written beyond
 * bytes(n) or n.
 *
 * Threads: all functions are pure. int8 and E3M0 are further rows: they have
 * no `add` (they never travel as partial sums).
 */
#ifndef LOCO_TRAIN_SYNC_CODEC_H
#define LOCO_TRAIN_SYNC_CODEC_H

#include <stddef.h>
#include <stdint.h>

#define CODEC_FP16_BLOCK   4096
#define CODEC_FP16_EXP_MIN (-126)
#define CODEC_FP16_EXP_MAX 113 /* floor(log2(FLT_MAX)) - 14 */

/* The number on the wire and in manifests; never renumbered. */
enum codec_id { CODEC_FP32, CODEC_BF16, CODEC_FP16, CODEC_COUNT };

struct codec {
    const char *name; /* as in --wire and sync.wire */
    enum codec_id id;
    uint32_t block; /* segments cut at multiples of it waste no bytes */
    /* Size of n encoded elements. */
    size_t (*bytes)(size_t n);
    /* dst = enc(scale * src) */
    int (*encode)(uint8_t *dst, const float *src, size_t n, float scale);
    /* dst = dec(src) */
    int (*decode)(float *dst, const uint8_t *src, size_t n);
    /* dst = enc(dec(src) + scale * contrib); dst == src is allowed, any other
     * overlap is not. */
    int (*add)(uint8_t *dst,
               const uint8_t *src,
               const float *contrib,
               size_t n,
               float scale);
};

/* The fastest form for this CPU; NULL for an unknown id. Look it up once, not
 * per segment: it asks the CPU what it can do. */
const struct codec *codec_get(unsigned id);

/* The specification: the same bits, plain C. */
const struct codec *codec_get_portable(unsigned id);

/* By name ("fp32", "bf16", "fp16"); NULL when there is none. */
const struct codec *codec_find(const char *name);

#endif
