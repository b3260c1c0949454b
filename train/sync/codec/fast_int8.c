/* fast_int8.c - int8 with the scale of a block by AVX2 or AVX-512. */
#include "proto/base/bytes.h"
#include "train/sync/codec/simd.h"

/* The bytes as lanes of 32 bits. */
VF_INLINE vi codes_load(const uint8_t *src, size_t m)
{
    uint8_t part[VF_LANES];
    const uint8_t *p = readable(part, src, m, sizeof part);

#if defined(__AVX512F__)
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
#else
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));
#endif
}

VF_INLINE void codes_store(uint8_t *dst, size_t m, vi q)
{
    uint8_t part[VF_LANES];
    uint8_t *p = m == VF_LANES ? dst : part;

#if defined(__AVX512F__)
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(q));
#else
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q),
                                    _mm256_extracti128_si256(q, 1));

    _mm_storel_epi64((void *)p, _mm_packs_epi16(words, words));
#endif
    if (m != VF_LANES) {
        memcpy(dst, part, m);
    }
}

VF_INLINE vf float_of(vi q)
{
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(q);
#else
    return _mm256_cvtepi32_ps(q);
#endif
}

int CODEC_KERNEL(int8_load)(float *x, const uint8_t *src, size_t n)
{
    vi max = vi_set(0); /* of |q|; only the reserved code has 128 */
    float s;
    int rv = int8_scale_read(src, &s);

    if (rv != 0) {
        return rv;
    }
    src += 4;
    EACH_VECTOR(i, m, n, {
        vi q = codes_load(src + i, m);

        max = vi_max(max, vi_sub(vi_set(0), q));
        max = vi_max(max, q);
        vf_store(x + i, m, vf_mul(float_of(q), vf_set(s)));
    });
    return vi_max_lane(max) > (s == 0.0F ? 0 : 127) ? LOCO_EPROTO : 0;
}

int CODEC_KERNEL(int8_store)(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    const vi half = vi_set(0x3f000000U);
    const vi sign = vi_set(~CODEC_SIGN_OFF);
    struct int8_scale block;
    int rv = int8_scale_of(max, &block);

    if (rv != 0) {
        return rv;
    }
    put_u32(dst, float_bits(block.s));
    dst += 4;
    EACH_VECTOR(i, m, n, {
        vf v = vf_mul(vf_set(scale), vf_load(x + i, m));
        vf t = vf_mul(v, vf_set(block.inverse));
        vf away = vf_from_bits(vi_or(half, vi_and(sign, vi_bits(t))));

        codes_store(dst + i, m, vi_truncated(vf_add(t, away)));
    });
    return 0;
}
