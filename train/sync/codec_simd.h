/* codec_simd.h - what the fast codecs share: vectors of VF_LANES floats.
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
#include "train/sync/codec_kernels.h"
#include "train/sync/half.h"

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
CODEC_FAST(fp32)
CODEC_FAST(bf16)
CODEC_FAST(fp16)
CODEC_FAST(int8)
CODEC_FAST(e3m0)
CODEC_FAST_ADD(fp32)
CODEC_FAST_ADD(bf16)
CODEC_FAST_ADD(fp16)
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
#define VF_LANES 16
typedef __m512 vf;
typedef __m512i vi;

VF_INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

VF_INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

VF_INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

VF_INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}

VF_INLINE vf vf_load_whole(const float *p)
{
    return _mm512_loadu_ps(p);
}

VF_INLINE void vf_store_whole(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

VF_INLINE vi vi_bits(vf x)
{
    return _mm512_castps_si512(x);
}

VF_INLINE vf vf_from_bits(vi x)
{
    return _mm512_castsi512_ps(x);
}

VF_INLINE vi vi_set(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

VF_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

VF_INLINE vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

VF_INLINE vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}

VF_INLINE vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}

/* Signed. */
VF_INLINE vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}

/* a where x > bound (signed), else 0. */
VF_INLINE vi vi_keep_above(vi a, vi x, vi bound)
{
    return _mm512_maskz_mov_epi32(_mm512_cmpgt_epi32_mask(x, bound), a);
}

VF_INLINE uint32_t vi_max_lane(vi a)
{
    return (uint32_t)_mm512_reduce_max_epi32(a);
}

#define vi_shift_left(a, bits)         _mm512_slli_epi32(a, bits)
#define vi_shift_right(a, bits)        _mm512_srli_epi32(a, bits)
#define vi_shift_right_signed(a, bits) _mm512_srai_epi32(a, bits)

#else /* AVX2 */
#define VF_LANES 8
typedef __m256 vf;
typedef __m256i vi;

VF_INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

VF_INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

VF_INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

VF_INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}

VF_INLINE vf vf_load_whole(const float *p)
{
    return _mm256_loadu_ps(p);
}

VF_INLINE void vf_store_whole(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}

VF_INLINE vi vi_bits(vf x)
{
    return _mm256_castps_si256(x);
}

VF_INLINE vf vf_from_bits(vi x)
{
    return _mm256_castsi256_ps(x);
}

VF_INLINE vi vi_set(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

VF_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

VF_INLINE vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}

VF_INLINE vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}

VF_INLINE vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}

/* Signed. */
VF_INLINE vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}

/* a where x > bound (signed), else 0. */
VF_INLINE vi vi_keep_above(vi a, vi x, vi bound)
{
    return _mm256_and_si256(_mm256_cmpgt_epi32(x, bound), a);
}

VF_INLINE uint32_t vi_max_lane(vi a)
{
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128(a),
                              _mm256_extracti128_si256(a, 1));

    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(x);
}

#define vi_shift_left(a, bits)         _mm256_slli_epi32(a, bits)
#define vi_shift_right(a, bits)        _mm256_srli_epi32(a, bits)
#define vi_shift_right_signed(a, bits) _mm256_srai_epi32(a, bits)
#endif

VF_INLINE vf vf_load(const float *p, size_t m)
{
    float part[VF_LANES] = {0};

    if (m == VF_LANES) {
        return vf_load_whole(p);
    }
    memcpy(part, p, m * sizeof *p);
    return vf_load_whole(part);
}

VF_INLINE void vf_store(float *p, size_t m, vf x)
{
    float part[VF_LANES];

    if (m == VF_LANES) {
        vf_store_whole(p, x);
    } else {
        vf_store_whole(part, x);
        memcpy(p, part, m * sizeof *p);
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
