/* slot.h - what fast_matmul.c packs: one 32-bit slot per element of a block.
 *
 * fp32: a slot is one float. bf16 (LOCO_BF16, AVX512_BF16 only): a slot is two
 * neighbours along k, rounded to bf16 (nearest, ties to even), the earlier one
 * in the low half; one instruction multiplies both with those of another slot
 * and adds to an fp32 sum.
 */
#ifndef LOCO_KERNELS_CPU_SLOT_H
#define LOCO_KERNELS_CPU_SLOT_H

#include "kernels/cpu/simd.h"

/* At least 0, at most VF_LANES. */
VF_INLINE int64_t lanes(int64_t n)
{
    return n < 0 ? 0 : n < VF_LANES ? n : VF_LANES;
}

#ifdef LOCO_BF16
#define SLOT_K           2
#define MATMUL_NAME(isa) CPU_JOIN(matmul_bf16, isa)

VF_INLINE vf slot_round(vf first, vf second)
{
    return (vf)(__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}

/* Slots of n columns: x[0 .. n) with the row below, which is 0 where only
 * `depth` 1 is left. */
VF_INLINE vf slots_of_columns(const float *x,
                              int64_t ld,
                              int64_t n,
                              int64_t depth)
{
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11,
                                         26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    vf first = vf_load_part(x, n, 0);
    vf second = depth < 2 ? vf_set(0) : vf_load_part(x + ld, n, 0);

    return (vf)_mm512_permutexvar_epi16(zip,
                                        (__m512i)slot_round(first, second));
}

/* Slots along a row: x[0 .. depth). */
VF_INLINE vf slots_of_row(const float *x, int64_t depth)
{
    if (depth >= 2 * VF_LANES) {
        return slot_round(vf_load(x), vf_load(x + VF_LANES));
    }
    return slot_round(vf_load_part(x, lanes(depth), 0),
                      vf_load_part(x + VF_LANES, lanes(depth - VF_LANES), 0));
}

VF_INLINE vf slot_multiply_add(vf sum, vf a, vf b)
{
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}

#else
#define SLOT_K           1
#define MATMUL_NAME(isa) CPU_JOIN(matmul, isa)

VF_INLINE vf slots_of_columns(const float *x,
                              int64_t ld,
                              int64_t n,
                              int64_t depth)
{
    (void)ld;
    (void)depth;
    return n == VF_LANES ? vf_load(x) : vf_load_part(x, n, 0);
}

VF_INLINE vf slots_of_row(const float *x, int64_t depth)
{
    return depth >= VF_LANES ? vf_load(x) : vf_load_part(x, lanes(depth), 0);
}

VF_INLINE vf slot_multiply_add(vf sum, vf a, vf b)
{
    return sum + a * b;
}
#endif

#endif
