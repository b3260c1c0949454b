/* simd.h - what the fast kernels share: vectors of VF_LANES floats, exp.
 *
 * Written with the vector extension that gcc and clang share, so one source
 * serves SSE2, AVX2, AVX-512 and other processors: CMake compiles the fast
 * files once per instruction set with LOCO_ISA naming it, and CPU_KERNEL gives
 * each copy its own symbol. Without LOCO_ISA: the reference set.
 */
#ifndef LOCO_KERNELS_CPU_SIMD_H
#define LOCO_KERNELS_CPU_SIMD_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernels/cpu/kernels.h"

#define CPU_JOIN2(a, b) a##_##b
#define CPU_JOIN(a, b)  CPU_JOIN2(a, b)
#ifdef LOCO_ISA
#define CPU_KERNEL(name) CPU_JOIN(name, LOCO_ISA)
#else
#define CPU_KERNEL(name) CPU_JOIN(ref, name)
#endif

/* The set's own declarations: adamw_avx512, ... */
#define CPU_DECLARE(kernel, type, units)                                       \
    void CPU_KERNEL(kernel)(const struct type *op, struct kernel_range r);
BACKEND_KERNELS(CPU_DECLARE)
CPU_DECLARE(matmul_bf16, matmul, 0)
int64_t CPU_KERNEL(peak)(int64_t n, float *x);
int64_t CPU_KERNEL(peak_bf16)(int64_t n, float *x);

#if defined(__AVX512F__) || defined(LOCO_AMX)
#define VF_LANES 16
#elif defined(__AVX__)
#define VF_LANES 8
#else
#define VF_LANES 4
#endif

typedef float vf __attribute__((vector_size(4 * VF_LANES)));
typedef int32_t vi __attribute__((vector_size(4 * VF_LANES)));

#define VF_INLINE static inline __attribute__((always_inline, unused))

VF_INLINE vf vf_set(float x)
{
    return x - (vf){0};
}

VF_INLINE vf vf_load(const float *p)
{
    vf x;

    memcpy(&x, p, sizeof x);
    return x;
}

VF_INLINE void vf_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}

/* Lane by lane: yes where the mask is all ones, else no. */
VF_INLINE vf vf_pick(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

#if defined(__AVX2__) && !defined(__AVX512F__)
/* All bits of the first n <= 8 lanes. */
VF_INLINE __m256i vf_first(int64_t n)
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

    return _mm256_loadu_si256((const void *)(ones + 8 - n));
}
#endif

/* The first n <= VF_LANES floats; the other lanes are `fill`. */
VF_INLINE vf vf_load_part(const float *p, int64_t n, float fill)
{
#if defined(__AVX512F__)
    __mmask16 mask = (__mmask16)((1U << n) - 1);

    return (vf)_mm512_mask_loadu_ps((__m512)vf_set(fill), mask, p);
#elif defined(__AVX2__) && VF_LANES == 8
    __m256i mask = vf_first(n);
    vf x = (vf)_mm256_maskload_ps(p, mask); /* 0 where the mask is */

    return fill == 0 ? x : vf_pick((vi)mask, x, vf_set(fill));
#else
    vf x = vf_set(fill);

    if (n == VF_LANES) {
        return vf_load(p);
    }
    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
#endif
}

VF_INLINE void vf_store_part(float *p, int64_t n, vf x)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1U << n) - 1), (__m512)x);
#elif defined(__AVX2__) && VF_LANES == 8
    _mm256_maskstore_ps(p, vf_first(n), (__m256)x);
#else
    memcpy(p, &x, (size_t)n * sizeof *p);
#endif
}

/* A NaN in x stays, a NaN in y does not. */
VF_INLINE vf vf_max(vf x, vf y)
{
    return vf_pick(x < y, y, x);
}

VF_INLINE float vf_sum(vf x)
{
    float lane[VF_LANES];

    memcpy(lane, &x, sizeof x);
    for (int n = VF_LANES / 2; n > 0; n /= 2) {
        for (int i = 0; i < n; i++) {
            lane[i] += lane[i + n];
        }
    }
    return lane[0];
}

VF_INLINE float vf_top(vf x)
{
    float lane[VF_LANES];

    memcpy(lane, &x, sizeof x);
    for (int i = 1; i < VF_LANES; i++) {
        lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
    }
    return lane[0];
}

/* e^x within 2 ulp for -87.3 <= x <= 88; clamped outside, NaN stays NaN.
 * x = n ln2 + r, |r| <= ln2 / 2; e^r by its Taylor series to r^7, whose rest
 * is below 6e-9; 2^n by the exponent bits. Adding 1.5 * 2^23 leaves round(n)
 * in the low bits of the sum. */
VF_INLINE vf vf_exp(vf x)
{
    const vf magic = vf_set(12582912.0f);
    vf t, n, r, p;
    vi scale;

    x = vf_max(x, vf_set(-87.3f));
    x = vf_pick(x > vf_set(88.0f), vf_set(88.0f), x);
    t = x * 1.44269504f + magic;
    n = t - magic;
    r = x - n * 0.693359375f; /* ln2 = 0.693359375 - 2.12194440e-4 */
    r = r + n * 2.12194440e-4f;
    p = vf_set(1.0f / 5040) * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    scale = ((vi)t - (vi)magic + 127) << 23;
    return p * (vf)scale;
}

#endif
