/* emu.h - CUDA kernels on a processor: the same .cu files, compiled as C++.
 *
 * A launch runs its blocks one after the other. The threads of a block are
 * fibers: one runs until it meets a barrier, a shuffle or another instruction
 * of its whole warp, or ends. This shows what a GPU shows only sometimes:
 *
 *   - emu_control.schedule picks the order of blocks, warps and lanes (as they
 *     are numbered, backwards, or shuffled at every turn): a kernel that leaves
 *     out a barrier or leans on another block gives other bits;
 *   - device and shared memory begin as NaN, with guard bytes around, checked
 *     when a block ends and memory is freed; built with AddressSanitizer every
 *     access is checked;
 *   - asynchronous copies happen as late as they may (at the wait), so a wait
 *     that is missing leaves NaN;
 *   - threads of a warp that wait at different places, or shuffles with lanes
 *     that have left, end the program with a sentence.
 *
 * Streams run as late as they may, or at once (emu_stream.cpp); emu_control
 * injects failures.
 *
 * What it does not show:
 *   - speed, bank conflicts, occupancy, caches, the cost of a launch;
 *   - how tensor cores round and add (sums here are rounded once for each
 *     product of 16), the last bits of ex2.approx;
 *   - the memory model between barriers: a __syncwarp that is missing where
 *     lanes share memory;
 *   - lanes of one warp at different instructions of the same kind: it counts
 *     how many have come, not to which one;
 *   - registers and spills (tests/cuda_plugin.py reads what ptxas says);
 *   - what cuBLASLt chooses, and how that rounds;
 *   - an error that comes later than the call that made it, and what a reset
 *     does to a context;
 *   - indices above 2^31: these were read, not run.
 */
#ifndef LOCO_TESTS_EMU_EMU_H
#define LOCO_TESTS_EMU_EMU_H

#include <functional>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_runtime_api.h"
#include "tests/emu/emu_control.h"

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}

static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}

/* Where the running thread is. */
struct emu_place {
    dim3 thread, block, threads, blocks;
};
extern struct emu_place emu_here;

#define threadIdx emu_here.thread
#define blockIdx  emu_here.block
#define blockDim  emu_here.threads
#define gridDim   emu_here.blocks

unsigned char *emu_shared(void);

void emu_launch(const void *kernel,
                dim3 grid,
                dim3 block,
                size_t shared,
                cudaStream_t stream,
                const std::function<void()> &body);

void __syncthreads(void);

/* All lanes of the warp hand in `bytes` at `mine`; returns what they handed in,
 * EMU_SLOT bytes a lane, until the warp's next such instruction but one. */
#define EMU_SLOT 32
const unsigned char *emu_exchange(const void *mine, size_t bytes);
int emu_lane(void);

static inline void __syncwarp(unsigned = 0xffffffffu)
{
    char none = 0;

    (void)emu_exchange(&none, 1);
}

template <class T> T __shfl_sync(unsigned, T x, int lane)
{
    T out;

    memcpy(&out, emu_exchange(&x, sizeof x) + EMU_SLOT * (lane & 31),
           sizeof out);
    return out;
}

template <class T> T __shfl_xor_sync(unsigned mask, T x, int with)
{
    return __shfl_sync(mask, x, emu_lane() ^ with);
}

static inline int __any_sync(unsigned, int x)
{
    const unsigned char *all = emu_exchange(&x, sizeof x);
    int any = 0;

    for (int lane = 0; lane < 32; lane++) {
        int other;

        memcpy(&other, all + lane * EMU_SLOT, sizeof other);
        any |= other != 0;
    }
    return any;
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

/* ---- arithmetic: one IEEE operation each (built with -ffp-contract=off) - */

static inline float __uint_as_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}

static inline float __fsub_rn(float a, float b)
{
    return a - b;
}

static inline float __fmul_rn(float a, float b)
{
    return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}

static inline int __float2int_rz(float a)
{
    return (int)a;
}

#endif
