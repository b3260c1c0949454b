/* fast_e3m0.c - four bits an element by AVX2 or AVX-512.
 *
 * Encoding is all integers, by the formula of sync/codec/e3m0.c; decoding is a
 * table of the block's sixteen values, looked up by one permutation.
 */
#include "proto/base/bytes.h"
#include "train/sync/codec/simd.h"

#define BYTES (VF_LANES / 2) /* of one vector */

/* One code in each byte, the first VF_LANES of them. */
VF_INLINE __m128i nibbles_load(const uint8_t *src, size_t m)
{
    const __m128i low = _mm_set1_epi8(15);
    uint8_t part[BYTES];
    const uint8_t *p = readable(part, src, (m + 1) / 2, sizeof part);
    __m128i both;
#if defined(__AVX512F__)
    both = _mm_loadl_epi64((const void *)p);
#else
    both = _mm_cvtsi32_si128((int)get_u32(p));
#endif
    return _mm_unpacklo_epi8(_mm_and_si128(both, low),
                             _mm_and_si128(_mm_srli_epi16(both, 4), low));
}

VF_INLINE void nibbles_store(uint8_t *dst, size_t m, vi codes)
{
    /* Pairs of bytes become low + 16 * high in 16 bits. */
    const __m128i weights = _mm_set1_epi16(0x1001);
    uint8_t part[BYTES];
    uint8_t *p = m == VF_LANES ? dst : part;
    __m128i bytes;
#if defined(__AVX512F__)
    bytes = _mm512_cvtepi32_epi8(codes);
    bytes = _mm_maddubs_epi16(bytes, weights);
    _mm_storel_epi64((void *)p, _mm_packus_epi16(bytes, bytes));
#else
    bytes = _mm_packs_epi32(_mm256_castsi256_si128(codes),
                            _mm256_extracti128_si256(codes, 1));
    bytes = _mm_packus_epi16(bytes, bytes);
    bytes = _mm_maddubs_epi16(bytes, weights);
    put_u32(p, (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(bytes, bytes)));
#endif
    if (m != VF_LANES) {
        memcpy(dst, part, (m + 1) / 2);
    }
}

/* The values of codes 0 to 15 under a scale s. */
static void value_table(float values[16], float s)
{
    for (unsigned code = 0; code < 16; code++) {
        unsigned k = code & 7U;
        float v = k == 0 ? 0.0F : s * float_power_of_two((int)k - 7);

        values[code] = code > 8 ? -v : v;
    }
}

VF_INLINE vf look_up(const float values[16], __m128i codes)
{
#if defined(__AVX512F__)
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(codes),
                                 _mm512_loadu_ps(values));
#else
    vi index = _mm256_cvtepu8_epi32(codes);
    vf v = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), index);
    vi sign = vi_shift_left(vi_and(index, vi_set(8)), 28);

    return vf_from_bits(vi_or(vi_bits(v), sign));
#endif
}

int CODEC_KERNEL(e3m0_load)(float *x, const uint8_t *src, size_t n)
{
    const __m128i reserved = _mm_set1_epi8(8);
    __m128i bad = _mm_setzero_si128();
    __m128i any = _mm_setzero_si128();
    float values[16];
    float s;
    int rv = e3m0_scale_read(src, &s);

    if (rv != 0) {
        return rv;
    }
    value_table(values, s);
    src += 4;
    EACH_VECTOR(i, m, n, {
        __m128i codes = nibbles_load(src + i / 2, m);

        bad = _mm_or_si128(bad, _mm_cmpeq_epi8(codes, reserved));
        any = _mm_or_si128(any, codes);
        vf_store(x + i, m, look_up(values, codes));
    });
    any = _mm_cmpeq_epi8(any, _mm_setzero_si128());
    if (_mm_movemask_epi8(bad) != 0 ||
        (s == 0.0F && _mm_movemask_epi8(any) != 0xffff) ||
        (n % 2 != 0 && src[n / 2] >> 4 != 0)) {
        return LOCO_EPROTO;
    }
    return 0;
}

int CODEC_KERNEL(e3m0_store)(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    struct e3m0_scale block;
    int rv = e3m0_scale_of(max, &block);

    if (rv != 0) {
        return rv;
    }
    put_u32(dst, float_bits(block.s));
    dst += 4;
    EACH_VECTOR(i, m, n, {
        vi bits = vi_bits(vf_mul(vf_set(scale), vf_load(x + i, m)));
        vi magnitude = vi_and(bits, vi_set(CODEC_SIGN_OFF));
        vi sign = vi_and(vi_shift_right(bits, 28), vi_set(8));
        vi k = vi_sub(magnitude, vi_set(block.upper + 1));

        k = vi_add(vi_shift_right_signed(k, 23), vi_set(7));
        k = vi_max(k, vi_set(1));
        nibbles_store(
            dst + i / 2, m,
            vi_keep_above(vi_or(k, sign), magnitude, vi_set(block.zero)));
    });
    return 0;
}
