/* slot.h - what fast_matmul.c packs: one 32-bit slot per element of a block.
 *
 * fp32: a slot is one float. bf16 (LOCO_BF16): a slot is two neighbours along
 * k, rounded to bf16 (nearest, ties to even), the earlier one in the low half;
 * one instruction multiplies both with those of another slot and adds to an
 * fp32 sum. Some instructions want SLOT_GROUP slots of a row side by side.
 */
#ifndef LOCO_KERNELS_CPU_SLOT_H
#define LOCO_KERNELS_CPU_SLOT_H

#include "kernels/cpu/simd.h"

#if defined(LOCO_AMX)
#define SLOT_GROUP 16
#elif defined(LOCO_BFMMLA)
#define SLOT_GROUP 2
#include <arm_neon.h>
#else
#define SLOT_GROUP 1
#endif

#define GROUP_K (SLOT_K * SLOT_GROUP) /* floats along k */

/* At least 0, at most VF_LANES. */
VF_INLINE int64_t lanes(int64_t n)
{
    return n < 0 ? 0 : n < VF_LANES ? n : VF_LANES;
}

#ifdef LOCO_BF16
#define SLOT_K           2
#define MATMUL_NAME(isa) CPU_JOIN(matmul_bf16, isa)

/* slot_round: `first`, then `second`, in order. slot_zip: lane by lane, `first`
 * in the low half. */
#if defined(__AVX512BF16__)
VF_INLINE vf slot_round(vf first, vf second)
{
    return (vf)(__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}

VF_INLINE vf slot_zip(vf first, vf second)
{
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11,
                                         26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    return (vf)_mm512_permutexvar_epi16(zip,
                                        (__m512i)slot_round(first, second));
}
#elif defined(LOCO_BFMMLA)
VF_INLINE vf slot_round(vf first, vf second)
{
    bfloat16x8_t low = vcvtq_low_bf16_f32((float32x4_t)first);

    return (vf)vreinterpretq_f32_bf16(
        vcvtq_high_bf16_f32(low, (float32x4_t)second));
}

VF_INLINE vf slot_zip(vf first, vf second)
{
    uint16x4_t low = vreinterpret_u16_bf16(vcvt_bf16_f32((float32x4_t)first));
    uint16x4_t high = vreinterpret_u16_bf16(vcvt_bf16_f32((float32x4_t)second));

    return (vf)vreinterpretq_f32_u16(
        vcombine_u16(vzip1_u16(low, high), vzip2_u16(low, high)));
}
#else /* any processor: a model of one that has the instructions */
VF_INLINE vi slot_bits(vf x)
{
    vi bits = (vi)x;
    vi nearest = bits + 0x7FFF + ((bits >> 16) & 1);

    return (vi)vf_pick(x == x, (vf)nearest, (vf)(bits | 0x400000)) >> 16;
}

VF_INLINE vf slot_zip(vf first, vf second)
{
    return (vf)((slot_bits(first) & 0xFFFF) | slot_bits(second) << 16);
}

VF_INLINE vf slot_round(vf first, vf second)
{
    int16_t half[2 * VF_LANES];
    vi bits[2] = {slot_bits(first), slot_bits(second)};
    vf out;

    for (int i = 0; i < 2 * VF_LANES; i++) {
        half[i] = (int16_t)bits[i / VF_LANES][i % VF_LANES];
    }
    memcpy(&out, half, sizeof out);
    return out;
}
#endif

/* Slots of n columns: x[0 .. n) with the row below; what is past `depth` rows
 * is 0. */
VF_INLINE vf slots_of_columns(const float *x,
                              int64_t ld,
                              int64_t n,
                              int64_t depth)
{
    bool any = SLOT_GROUP == 1 || depth > 0;
    vf first = any ? vf_load_part(x, n, 0) : vf_set(0);
    vf second = depth < 2 ? vf_set(0) : vf_load_part(x + ld, n, 0);

    return slot_zip(first, second);
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

#if defined(LOCO_BFMMLA)
/* Two rows, two columns, four along k; see tile_bfmmla.h. */
VF_INLINE vf slot_multiply_add(vf sum, vf a, vf b)
{
    return (vf)vbfmmlaq_f32((float32x4_t)sum,
                            vreinterpretq_bf16_f32((float32x4_t)a),
                            vreinterpretq_bf16_f32((float32x4_t)b));
}
#elif !defined(LOCO_AMX)
VF_INLINE vf slot_multiply_add(vf sum, vf a, vf b)
{
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#endif

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
