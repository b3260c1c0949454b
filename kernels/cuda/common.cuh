/* common.cuh - what all kernels share: number types, vector loads, reductions.
 *
 * The kernels are plain CUDA C with templates for the type of an activation
 * (float or bf16) and for the width of a load. They use no CUDA library and no
 * inline assembly but that of mma.cuh and wgmma.cuh, so the same files compile
 * as C++ for the emulator of tests/emu, which runs them on a processor.
 *
 * Rules that the emulator and the tests rest on:
 *   - shared memory is dynamic only (SHARED below), launches go through LAUNCH;
 *   - a warp leaves a kernel whole or not at all before a shuffle;
 *   - no atomics, no order that depends on timing: the same input gives the
 *     same bits;
 *   - a vector is V = 8 elements where rows and addresses allow it, else V = 1;
 *   - sums of activations are fp32, and an activation is rounded once, when it
 *     is stored.
 */
#ifndef LOCO_KERNELS_CUDA_COMMON_CUH
#define LOCO_KERNELS_CUDA_COMMON_CUH

#include <cuda_runtime.h>
#include <float.h>
#include <stdint.h>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/mma.cuh"

#define WARP 32
#define ALL  0xffffffffu

#define LOG2E 1.44269504088896341f /* exp(x) = exp2(x LOG2E) */

#ifdef LOCO_CUDA_EMULATED
#define LAUNCH(kernel, grid, block, shared, stream, ...)                       \
    emu_launch((const void *)(kernel), grid, block, shared, stream,            \
               [=] { kernel(__VA_ARGS__); })
#define SHARED(name) unsigned char *name = emu_shared()
#else
#define LAUNCH(kernel, grid, block, shared, stream, ...)                       \
    kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#define SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#endif

/* ---- numbers ------------------------------------------------------------ */

__device__ inline float to_float(float x)
{
    return x;
}

__device__ inline float to_float(bf16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

__device__ inline void set(float *to, float x)
{
    *to = x;
}

__device__ inline void set(bf16 *to, float x)
{
    to->bits = (uint16_t)pack_bf16(x, 0.0f);
}

/* What a store and a load make of x. */
__device__ inline float rounded(const float *, float x)
{
    return x;
}

__device__ inline float rounded(const bf16 *, float x)
{
    return __uint_as_float(pack_bf16(x, 0.0f) << 16);
}

/* beta m + (1 - beta) x; nothing below the smallest normal number */
__device__ inline float
moment(float beta, float m, float one_minus_beta, float x)
{
    float y = __fadd_rn(__fmul_rn(beta, m), __fmul_rn(one_minus_beta, x));

    return fabsf(y) < FLT_MIN ? 0 : y;
}

/* ---- vectors: V elements at p, aligned to 16 bytes where V is 8 --------- */

template <int V> __device__ inline void load(float (&f)[V], const float *p)
{
    if constexpr (V == 8 || V == 4) {
        for (int i = 0; i < V; i += 4) {
            const float4 x = *(const float4 *)(p + i);

            f[i] = x.x;
            f[i + 1] = x.y;
            f[i + 2] = x.z;
            f[i + 3] = x.w;
        }
    } else {
        f[0] = *p;
    }
}

/* Eight bf16 as they lie in memory. */
__device__ inline void unpack(float (&f)[8], const uint4 &x)
{
    const uint32_t w[4] = {x.x, x.y, x.z, x.w};

    for (int i = 0; i < 4; i++) {
        f[2 * i] = __uint_as_float(w[i] << 16);
        f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
    }
}

template <int V> __device__ inline void load(float (&f)[V], const bf16 *p)
{
    static_assert(V == 8 || V == 1, "no load of this width");
    if constexpr (V == 8) {
        unpack(f, *(const uint4 *)p);
    } else {
        f[0] = to_float(*p);
    }
}

template <int V> __device__ inline void store(float *p, const float (&f)[V])
{
    if constexpr (V == 8 || V == 4) {
        for (int i = 0; i < V; i += 4) {
            *(float4 *)(p + i) =
                make_float4(f[i], f[i + 1], f[i + 2], f[i + 3]);
        }
    } else {
        *p = f[0];
    }
}

template <int V> __device__ inline void store(bf16 *p, const float (&f)[V])
{
    if constexpr (V == 8) {
        *(uint4 *)p = make_uint4(pack_bf16(f[0], f[1]), pack_bf16(f[2], f[3]),
                                 pack_bf16(f[4], f[5]), pack_bf16(f[6], f[7]));
    } else if constexpr (V == 4) {
        *(uint2 *)p = make_uint2(pack_bf16(f[0], f[1]), pack_bf16(f[2], f[3]));
    } else {
        set(p, f[0]);
    }
}

/* ---- sums over a warp: every lane gets the same bits -------------------- */

template <class F> __device__ inline F warp_sum(F x)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(ALL, x, step);
    }
    return x;
}

__device__ inline float warp_max(float x)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL, x, step));
    }
    return x;
}

/* ---- on the host: may all of these be read eight at a time? ------------- */

static inline bool aligned(const void *p)
{
    return ((uintptr_t)p & 15) == 0; /* NULL is */
}

/* Run f<T, V>: activations as the GPU has them, vectors as `wide` says. */
#define FOR_TYPE(g, wide, f, ...)                                              \
    ((g)->opt.bf16                                                             \
         ? (wide) ? f<bf16, 8>(__VA_ARGS__) : f<bf16, 1>(__VA_ARGS__)          \
     : (wide) ? f<float, 8>(__VA_ARGS__)                                       \
              : f<float, 1>(__VA_ARGS__))

static inline int64_t blocks_for(int64_t n, int64_t per_block)
{
    return (n + per_block - 1) / per_block;
}

#endif
