/* simd.h - what the fast codecs share: vectors of VF_LANES floats.
 *
 * AVX2 and AVX-512 under one set of names, so that each codec_fast_TYPE.c is
 * written once. Products and sums are single instructions, rounded to nearest;
 * CMake compiles these files without contraction.
 *
 * `m` is the number of lanes that exist in memory: VF_LANES in a main loop,
 * where the branch falls away, fewer behind it. Lanes that do not exist are 0.
 */
#ifndef LOCO_TRAIN_SYNC_CODEC_SIMD_H
#define LOCO_TRAIN_SYNC_CODEC_SIMD_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

#define CODEC_JOIN2(a, b)  a##_##b
#define CODEC_JOIN(a, b)   CODEC_JOIN2(a, b)
#define CODEC_KERNEL(name) CODEC_JOIN(name, LOCO_ISA)

/* The set's own functions: fp16_store_avx512, ... */
#define CODEC_FAST(type)                                                       \
    int CODEC_KERNEL(type##_load)(float *x, const uint8_t *src, size_t n);     \
    int CODEC_KERNEL(type##_store)(uint8_t * dst, const float *x, float scale, \
                                   size_t n, uint32_t max);
#define CODEC_FAST_ADD(type)                                                   \
    int CODEC_KERNEL(type##_load_add)(float *x, const uint8_t *src,            \
                                      const struct codec_term *t, size_t n,    \
                                      uint32_t *max);
/* clang-format off */
#define CODEC_FAST_RING(type)      CODEC_FAST(type) CODEC_FAST_ADD(type)
#define CODEC_FAST_BUTTERFLY(type) CODEC_FAST(type)
#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    CODEC_FAST_##exchange(type)
#include "proto/base/codec.def"
/* clang-format on */

#define VF_INLINE static inline __attribute__((always_inline, unused))

/* Run the block for each vector of n elements: it begins at i, m lanes of it
 * exist. Compiled twice, for whole vectors and for the rest. */
#define EACH_VECTOR(i, m, n, ...)                                              \
    do {                                                                       \
        size_t i = 0;                                                          \
        for (const size_t m = VF_LANES; i + m <= (n); i += m)                  \
            __VA_ARGS__                                                        \
        if (i < (n)) {                                                         \
            const size_t m = (n)-i;                                            \
            __VA_ARGS__                                                        \
        }                                                                      \
    } while (0)

#if defined(__AVX512F__)
#define VF_LANES    16
#define VF_OP(name) _mm512_##name
#define VI_OP(name) _mm512_##name##_si512
typedef __m512 vf;
typedef __m512i vi;
#else /* AVX2 */
#define VF_LANES    8
#define VF_OP(name) _mm256_##name
#define VI_OP(name) _mm256_##name##_si256
typedef __m256 vf;
typedef __m256i vi;
#endif

#define VF_TWO(name, type, op)                                                 \
    VF_INLINE type name(type a, type b)                                        \
    {                                                                          \
        return op(a, b);                                                       \
    }
/* clang-format off */
VF_TWO(vf_mul, vf, VF_OP(mul_ps))
VF_TWO(vf_add, vf, VF_OP(add_ps))
VF_TWO(vf_sub, vf, VF_OP(sub_ps))
VF_TWO(vi_and, vi, VI_OP(and))
VF_TWO(vi_or, vi, VI_OP(or))
VF_TWO(vi_add, vi, VF_OP(add_epi32))
VF_TWO(vi_sub, vi, VF_OP(sub_epi32))
VF_TWO(vi_max, vi, VF_OP(max_epi32)) /* signed */
/* clang-format on */

#define vi_shift_left(a, bits)         VF_OP(slli_epi32)(a, bits)
#define vi_shift_right(a, bits)        VF_OP(srli_epi32)(a, bits)
#define vi_shift_right_signed(a, bits) VF_OP(srai_epi32)(a, bits)

VF_INLINE vf vf_set(float x)
{
    return VF_OP(set1_ps)(x);
}

VF_INLINE vi vi_set(uint32_t x)
{
    return VF_OP(set1_epi32)((int)x);
}

VF_INLINE vi vi_bits(vf x)
{
    return VI_OP(castps)(x);
}

/* What the two sets do not have under one name. Of vi_keep_above: a where x >
 * bound (signed), else 0. */
#if defined(__AVX512F__)
VF_INLINE vf vf_from_bits(vi x)
{
    return _mm512_castsi512_ps(x);
}

VF_INLINE vi vi_truncated(vf x)
{
    return _mm512_cvttps_epi32(x);
}

VF_INLINE vi vi_keep_above(vi a, vi x, vi bound)
{
    return _mm512_maskz_mov_epi32(_mm512_cmpgt_epi32_mask(x, bound), a);
}

VF_INLINE uint32_t vi_max_lane(vi a)
{
    return (uint32_t)_mm512_reduce_max_epi32(a);
}
#else
VF_INLINE vf vf_from_bits(vi x)
{
    return _mm256_castsi256_ps(x);
}

VF_INLINE vi vi_truncated(vf x)
{
    return _mm256_cvttps_epi32(x);
}

VF_INLINE vi vi_keep_above(vi a, vi x, vi bound)
{
    return vi_and(_mm256_cmpgt_epi32(x, bound), a);
}

VF_INLINE uint32_t vi_max_lane(vi a)
{
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(a),
                              _mm256_extracti128_si256(a, 1));

    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(x);
}
#endif

/* m floats at any alignment. */
VF_INLINE vf vf_load(const void *p, size_t m)
{
    float part[VF_LANES] = {0};

    if (m == VF_LANES) {
        return VF_OP(loadu_ps)(p);
    }
    memcpy(part, p, m * sizeof *part);
    return VF_OP(loadu_ps)(part);
}

VF_INLINE void vf_store(void *p, size_t m, vf x)
{
    float part[VF_LANES];

    if (m == VF_LANES) {
        VF_OP(storeu_ps)(p, x);
    } else {
        VF_OP(storeu_ps)(part, x);
        memcpy(p, part, m * sizeof *part);
    }
}

/* `have` bytes of `want` as an address where all can be read. */
VF_INLINE const uint8_t *
readable(uint8_t *part, const uint8_t *p, size_t have, size_t want)
{
    if (have == want) {
        return p;
    }
    memset(part, 0, want);
    memcpy(part, p, have);
    return part;
}

VF_INLINE vi vi_magnitude(vf x)
{
    return vi_and(vi_bits(x), vi_set(CODEC_SIGN_OFF));
}

/* scale * own [+ residual] at i. By value: a store of floats cannot change
 * it, so that it stays in registers. */
VF_INLINE vf vf_term(struct codec_term t, size_t i, size_t m)
{
    vf x = vf_mul(vf_set(t.scale), vf_load(t.own + i, m));

    if (t.residual != NULL) {
        x = vf_add(x, vf_load(t.residual + i, m));
    }
    return x;
}

VF_INLINE int finite_or_error(vi max)
{
    return vi_max_lane(max) < CODEC_INFINITE_BITS ? 0 : LOCO_ENUMERIC;
}

/* Elements i to i + m of a wire type; `factor` is that of their block. */
typedef vf elements_fn(const uint8_t *src, size_t i, size_t m, float factor);

/* kernels.h, `load`. */
VF_INLINE int load_elements(
    elements_fn *elements, float *x, const uint8_t *src, float factor, size_t n)
{
    vi max = vi_set(0);

    EACH_VECTOR(i, m, n, {
        vf v = elements(src, i, m, factor);

        vf_store(x + i, m, v);
        max = vi_max(max, vi_magnitude(v));
    });
    return finite_or_error(max);
}

/* `load_add`: returns the largest magnitude. */
VF_INLINE uint32_t add_elements(elements_fn *elements,
                                float *x,
                                const uint8_t *src,
                                float factor,
                                struct codec_term term,
                                size_t n)
{
    vi max = vi_set(0);

    EACH_VECTOR(i, m, n, {
        vf v = vf_add(elements(src, i, m, factor), vf_term(term, i, m));

        vf_store(x + i, m, v);
        max = vi_max(max, vi_magnitude(v));
    });
    return vi_max_lane(max);
}

/* 16 bits each, in the lower halves of the lanes. */
VF_INLINE vi words_load(const uint8_t *src, size_t m)
{
    uint8_t part[2 * VF_LANES];
    const uint8_t *p = readable(part, src, 2 * m, sizeof part);

#if defined(__AVX512F__)
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
#else
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
#endif
}

VF_INLINE void words_store(uint8_t *dst, size_t m, vi words)
{
    uint8_t part[2 * VF_LANES];
    uint8_t *p = m == VF_LANES ? dst : part;

#if defined(__AVX512F__)
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(words));
#else
    _mm_storeu_si128((void *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(words),
                                      _mm256_extracti128_si256(words, 1)));
#endif
    if (m != VF_LANES) {
        memcpy(dst, part, 2 * m);
    }
}

#endif
