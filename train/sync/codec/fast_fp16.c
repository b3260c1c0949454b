/* fast_fp16.c - fp16 with block exponents by F16C or AVX-512.
 *
 * The conversion instructions round to nearest even and take and give
 * sub-normal halves, as half.h specifies, in whatever mode MXCSR is.
 */
#include "proto/base/bytes.h"
#include "train/sync/codec/simd.h"

VF_INLINE vf fp16_elements(const uint8_t *src, size_t i, size_t m, float factor)
{
    uint8_t part[2 * VF_LANES];
    const uint8_t *p = readable(part, src + 2 * i, 2 * m, sizeof part);

#if defined(__AVX512F__)
    vf half = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#else
    vf half = _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#endif
    return vf_mul(half, vf_set(factor));
}

VF_INLINE void halves_store(uint8_t *dst, size_t m, vf x)
{
    uint8_t part[2 * VF_LANES];
    uint8_t *p = m == VF_LANES ? dst : part;

#if defined(__AVX512F__)
    _mm256_storeu_si256((void *)p,
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#else
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
#endif
    if (m != VF_LANES) {
        memcpy(dst, part, 2 * m);
    }
}

int CODEC_KERNEL(fp16_load)(float *x, const uint8_t *src, size_t n)
{
    float factor;
    int rv = fp16_factor_read(src, &factor);

    return rv != 0 ? rv : load_elements(fp16_elements, x, src + 2, factor, n);
}

int CODEC_KERNEL(fp16_load_add)(float *x,
                                const uint8_t *src,
                                const struct codec_term *t,
                                size_t n,
                                uint32_t *max)
{
    float factor;
    int rv = fp16_factor_read(src, &factor);

    if (rv == 0) {
        *max = add_elements(fp16_elements, x, src + 2, factor, *t, n);
    }
    return rv;
}

int CODEC_KERNEL(fp16_store)(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    int e = (int)(max >> 23) - 127 - 14;
    vf factor;

    if (max >= CODEC_FP16_TOO_LARGE) {
        return LOCO_ENUMERIC;
    }
    if (e < CODEC_FP16_EXP_MIN) {
        e = CODEC_FP16_EXP_MIN;
    }
    factor = vf_set(float_power_of_two(-e));
    put_u16(dst, (uint16_t)(int16_t)e);
    dst += 2;
    EACH_VECTOR(i, m, n, {
        vf v = vf_mul(vf_set(scale), vf_load(x + i, m));

        halves_store(dst + 2 * i, m, vf_mul(v, factor));
    });
    return 0;
}
