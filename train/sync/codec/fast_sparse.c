/* fast_sparse.c - sparse.h with the instructions of a set. */
#include "train/sync/codec/simd.h"

/* Magnitudes are below 2^31, so signed comparisons will do. */
VF_INLINE uint64_t at_least(const uint32_t magnitude[64], uint32_t least)
{
    uint64_t mask = 0;

#ifdef __AVX512F__
    for (int i = 0; i < 64; i += 16) {
        mask |=
            (uint64_t)_mm512_cmpge_epi32_mask(_mm512_loadu_si512(magnitude + i),
                                              _mm512_set1_epi32((int)least))
            << i;
    }
#else
    for (int i = 0; i < 64; i += 8) {
        __m256i x = _mm256_loadu_si256((const void *)(magnitude + i));
        __m256i is = _mm256_cmpgt_epi32(x, _mm256_set1_epi32((int)least - 1));

        mask |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(is))
                << i;
    }
#endif
    return mask;
}
#define SPARSE_AT_LEAST at_least

#include "train/sync/codec/sparse.h"

int CODEC_KERNEL(sparse_load)(float *x, const uint8_t *src, size_t n)
{
    return sparse_block_load(x, src, n);
}

int CODEC_KERNEL(sparse_store)(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    return sparse_block_store(dst, x, scale, n, max);
}
