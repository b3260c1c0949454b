/* emu_mma.h - the functions of kernels/cuda/mma.cuh on a processor.
 *
 * The fragments' layouts are written down a second time here, from the PTX ISA
 * and not from mma.cuh: a lane that holds the wrong element gives wrong
 * products.
 */
#ifndef LOCO_TESTS_EMU_EMU_MMA_H
#define LOCO_TESTS_EMU_EMU_MMA_H

#include "tests/emu/emu.h"

static inline uint32_t emu_bf16(float x)
{
    uint32_t bits = __float_as_uint(x);

    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff; /* what cvt makes of a NaN */
    }
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

static inline uint32_t pack_bf16(float low, float high)
{
    return emu_bf16(low) | emu_bf16(high) << 16;
}

static inline void forget_made_of(uint4 &)
{
}

static inline float fast_exp2(float x)
{
    float y = exp2f(x);

    return y < 0x1p-126f ? 0 : y; /* .ftz */
}

uint16_t half_bits(float x);
float half_value(uint16_t h);

void emu_mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1);
void emu_ldmatrix(uint32_t *r, const void *row, bool trans);
void emu_copy_16(void *to, const void *from, bool inside);
void emu_copy_4(void *to, const void *from, bool inside);
void emu_copies_commit(void);
void emu_copies_wait(int left);

static inline void
mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    emu_mma(c, a, b0, b1);
}

static inline void ldmatrix(uint32_t (&r)[4], const bf16 *row)
{
    emu_ldmatrix(r, row, false);
}

static inline void ldmatrix_trans(uint32_t (&r)[4], const bf16 *row)
{
    emu_ldmatrix(r, row, true);
}

static inline void copy_16(void *to, const void *from, bool inside)
{
    emu_copy_16(to, from, inside);
}

static inline void copy_4(void *to, const void *from, bool inside)
{
    emu_copy_4(to, from, inside);
}

static inline void copies_commit()
{
    emu_copies_commit();
}

template <int LEFT> static inline void copies_wait()
{
    emu_copies_wait(LEFT);
}

#endif
