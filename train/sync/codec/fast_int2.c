/* fast_int2.c - two bits an element by AVX2 or AVX-512.
 *
 * Three passes over a block in the L1 cache: its whole numbers and their sum;
 * which are large; the codes.
 */
#include "proto/base/bytes.h"
#include "train/sync/codec/simd.h"

#define BYTES (VF_LANES / 4) /* of one vector */

VF_INLINE vi codes_load(const uint8_t *src, size_t m)
{
    uint8_t part[BYTES];
    const uint8_t *p = readable(part, src, (m + 3) / 4, sizeof part);
#if defined(__AVX512F__)
    const vi shifts = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                        22, 24, 26, 28, 30);

    return vi_and(_mm512_srlv_epi32(vi_set(get_u32(p)), shifts), vi_set(3));
#else
    const vi shifts = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);

    return vi_and(_mm256_srlv_epi32(vi_set(get_u16(p)), shifts), vi_set(3));
#endif
}

VF_INLINE void codes_store(uint8_t *dst, size_t m, vi codes)
{
    uint8_t part[BYTES];
    uint8_t *p = m == VF_LANES ? dst : part;
    __m128i bytes;
#if defined(__AVX512F__)
    bytes = _mm512_cvtepi32_epi8(codes);
#else
    bytes = _mm_packs_epi32(_mm256_castsi256_si128(codes),
                            _mm256_extracti128_si256(codes, 1));
    bytes = _mm_packus_epi16(bytes, bytes);
#endif
    /* Pairs become low + 4 * high, pairs of these low + 16 * high. */
    bytes = _mm_maddubs_epi16(bytes, _mm_set1_epi16(0x0401));
    bytes = _mm_madd_epi16(bytes, _mm_set1_epi32(0x00100001));
    bytes = _mm_packs_epi32(bytes, bytes);
    bytes = _mm_packus_epi16(bytes, bytes);
#if defined(__AVX512F__)
    put_u32(p, (uint32_t)_mm_cvtsi128_si32(bytes));
#else
    put_u16(p, (uint16_t)_mm_cvtsi128_si32(bytes));
#endif
    if (m != VF_LANES) {
        memcpy(dst, part, (m + 3) / 4);
    }
}

VF_INLINE vf look_up(const float values[16], vi codes)
{
#if defined(__AVX512F__)
    return _mm512_permutexvar_ps(codes, _mm512_loadu_ps(values));
#else
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), codes);
#endif
}

VF_INLINE uint32_t vi_sum_lanes(vi a)
{
    uint32_t lanes[VF_LANES], sum = 0;

    VI_OP(storeu)((void *)lanes, a);
    for (size_t i = 0; i < VF_LANES; i++) {
        sum += lanes[i];
    }
    return sum;
}

VF_INLINE vi vi_load(const uint32_t *p)
{
    return VI_OP(loadu)((const void *)p);
}

int CODEC_KERNEL(int2_load)(float *x, const uint8_t *src, size_t n)
{
    float level[2], values[16] = {0};
    vi most = vi_set(0), minus_small = vi_set(0);
    int rv = int2_levels_read(src, level);

    if (rv != 0) {
        return rv;
    }
    values[0] = level[0];
    values[1] = level[1];
    values[2] = -level[0];
    values[3] = -level[1];
    src += 4;
    EACH_VECTOR(i, m, n, {
        vi codes = codes_load(src + i / 4, m);
        vi minus = vi_shift_right(codes, 1);

        most = vi_max(most, codes);
        minus_small = vi_max(minus_small, vi_sub(minus, vi_and(minus, codes)));
        vf_store(x + i, m, look_up(values, codes));
    });
    if ((level[1] == 0.0F && vi_max_lane(most) != 0) ||
        (level[0] == 0.0F && vi_max_lane(minus_small) != 0) ||
        (n % 4 != 0 && src[n / 4] >> (n % 4 * 2) != 0)) {
        return LOCO_EPROTO;
    }
    return 0;
}

/* q with the sign of its element above it; lanes behind the end are plus or
 * minus 0. */
VF_INLINE void sum_up(struct int2_sums *s,
                      uint32_t q[CODEC_INT2_BLOCK],
                      const float *x,
                      float scale,
                      float largest)
{
    const vi sign = vi_set(~CODEC_SIGN_OFF);
    const vf inverse = vf_set(127.0F / largest);
    vi all = vi_set(0), large = vi_set(0), n_large = vi_set(0);

    EACH_VECTOR(i, m, s->n, {
        vf v = vf_mul(vf_set(scale), vf_load(x + i, m));
        vf t = vf_mul(vf_from_bits(vi_magnitude(v)), inverse);
        vi whole =
            vi_truncated(vf_add(vf_mul(t, vf_set(256.0F)), vf_set(0.5F)));

        all = vi_add(all, whole);
        VI_OP(storeu)((void *)(q + i), vi_or(whole, vi_and(sign, vi_bits(v))));
    });
    s->q = vi_sum_lanes(all);
    s->bound = s->q / s->n;
    for (size_t i = 0; i < s->n; i += VF_LANES) {
        vi whole = vi_and(vi_load(q + i), vi_set(CODEC_SIGN_OFF));

        large = vi_add(large, vi_keep_above(whole, whole, vi_set(s->bound)));
        n_large =
            vi_add(n_large, vi_keep_above(vi_set(1), whole, vi_set(s->bound)));
    }
    s->q_large = vi_sum_lanes(large);
    s->n_large = vi_sum_lanes(n_large);
}

int CODEC_KERNEL(int2_store)(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    uint32_t q[CODEC_INT2_BLOCK];
    struct int2_sums s = {.n = (uint32_t)n};
    vi signs; /* of small ones */

    if (max >= CODEC_INFINITE_BITS) {
        return LOCO_ENUMERIC;
    }
    if (float_from_bits(max) < CODEC_LOW_MIN) {
        memset(dst, 0, 4 + (n + 3) / 4);
        return 0;
    }
    sum_up(&s, q, x, scale, float_from_bits(max));
    int2_levels_put(dst, max, &s);
    signs = vi_set(get_u16(dst) != 0 ? 2 : 0);
    dst += 4;
    EACH_VECTOR(i, m, n, {
        vi both = vi_load(q + i);
        vi whole = vi_and(both, vi_set(CODEC_SIGN_OFF));
        vi minus = vi_and(vi_shift_right(both, 30), vi_set(2));
        vi large =
            vi_keep_above(vi_or(minus, vi_set(1)), whole, vi_set(s.bound));

        codes_store(dst + i / 4, m, vi_or(large, vi_and(minus, signs)));
    });
    if (n % 4 != 0) { /* behind the end a negative scale makes minus zeros */
        dst[n / 4] = (uint8_t)(dst[n / 4] & ((1U << n % 4 * 2) - 1));
    }
    return 0;
}
