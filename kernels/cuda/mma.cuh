/* mma.cuh - the tensor cores' instructions, and asynchronous copies, by name.
 *
 * PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type". With
 * g = lane / 4 and t = lane % 4, a lane holds of
 *
 *   A (16 x 16, row)  a[0] = (g, 2t..2t+1)      a[1] = (g + 8, 2t..)
 *                     a[2] = (g, 2t + 8..)      a[3] = (g + 8, 2t + 8..)
 *   B (16 x 8, col)   b[0] = (2t..2t+1, g)      b[1] = (2t + 8.., g)
 *   C (16 x 8)        c[0], c[1] = (g, 2t..2t+1)  c[2], c[3] = (g + 8, 2t..)
 *
 * two bf16 in a register, the lower index in the low half. So C of one product,
 * rounded, is A of the next: a[0], a[1] from the 8 columns at 0, a[2], a[3]
 * from those at 8.
 *
 * ldmatrix.x4 reads four 8 x 8 tiles: lanes 8 i .. 8 i + 7 give the addresses
 * of the rows of tile i; register i of a lane is row g, columns 2t..2t+1 of
 * tile i; with .trans row 2t..2t+1, column g.
 *
 * sm_80 and later. The emulator (tests/emu) brings its own of these functions.
 */
#ifndef LOCO_KERNELS_CUDA_MMA_CUH
#define LOCO_KERNELS_CUDA_MMA_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* bfloat16: the upper half of an fp32. */
struct bf16 {
    uint16_t bits;
};

#ifdef LOCO_CUDA_EMULATED
#include "tests/emu/emu_mma.h"
#else

/* Two bf16 in a register, rounded to nearest even; `low` is the first one. */
__device__ inline uint32_t pack_bf16(float low, float high)
{
    uint32_t d;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

/* What was made of x before is made again after: it would take registers. */
__device__ inline void forget_made_of(uint4 &x)
{
    asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w));
}

__device__ inline float fast_exp2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* IEEE binary16 of x, rounded to nearest even; and back. */
__device__ inline uint16_t half_bits(float x)
{
    uint16_t h;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

__device__ inline float half_value(uint16_t h)
{
    float x;

    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

__device__ inline void
mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}

__device__ inline void ldmatrix(uint32_t (&r)[4], const bf16 *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ inline void ldmatrix_trans(uint32_t (&r)[4], const bf16 *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);

    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"(at)
        : "memory");
}

/* 16 bytes to shared memory, zeros where !inside; `from` is then any address
 * that may be read. Arrives by copies_wait() and a barrier. */
__device__ inline void copy_16(void *to, const void *from, bool inside)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(at), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

/* The same of 4 bytes. */
__device__ inline void copy_4(void *to, const void *from, bool inside)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);

    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(at), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}

/* The copies of this thread since the last call are one group. */
__device__ inline void copies_commit()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Until at most LEFT of this thread's groups are on their way. */
template <int LEFT> __device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

#endif
#endif
