/* attention_hopper.cuh - what the kernels of attention on Hopper share: the
 * shape of a block, and how tiles of keys come. bf16, sm_90 only; products by
 * warpgroups (wgmma.cuh).
 *
 *   hopper_fwd: a block owns 128 queries of a head of 64 or 128 and walks over
 *     tiles of 64 keys up to the diagonal; attention_hopper.cu.
 *
 * The gradient, heads of 64; equations and delta: attention_bwd.cu.
 *
 *   hopper_dkv: a block owns 128 keys of a key/value head, a warpgroup 64, and
 *     walks over tiles of 64 queries from the diagonal on, for all query heads
 *     of the group. S' = K Q' and dP' = V dO' have keys as rows, so that P' and
 *     dS' go from the registers of one product into those of the next:
 *     dV += P' dO, dK += dS' Q
 *   hopper_dq: a block owns 128 queries and walks over tiles of 64 keys:
 *     S = Q K', dP = dO V', dQ += dS K
 *
 * Two blocks a multiprocessor: what counts is that four warpgroups are there,
 * one of which makes exponents while others multiply. So a thread may have 128
 * registers and no more: what is owned is read from shared memory as A where
 * registers are short, and P waits for dP as bf16, rounded as it is for dV.
 * With 215 registers, two warpgroups and every product asked for early both
 * kernels together took 1.6 ms on an H100 where these take 1.2.
 */
#ifndef LOCO_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define LOCO_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/wgmma.cuh"

#define THREADS 256
#define OWNED   128 /* rows that a block owns; 64 a warpgroup */
#define WALKED  64
#define STAGES  4                     /* a power of two */
#define SLAB    (WALKED * SLAB_WIDTH) /* elements */
#define NEXT    (SLAB * 2 / 16) /* what the next slab's descriptor has more */

/* Of the gradient's kernels: two owned slabs, then a stage after the other: two
 * slabs each; then, of hopper_dkv, lse and delta of a stage. */
#define SHARED_BYTES                                                           \
    (SLAB_ALIGN + (2 * OWNED + 2 * WALKED * STAGES) * SLAB_WIDTH * 2 +         \
     2 * WALKED * STAGES * 4)

/* Tile j of the keys and values of a head, into its stage: the slabs of K, then
 * those of V. */
template <int D>
__device__ inline void load_keys(bf16 *ring,
                                 const bf16 *k,
                                 const struct slab_share &mine,
                                 const struct flash_args &a,
                                 int j)
{
    bf16 *to = ring + j % STAGES * 2 * WALKED * D;
    const bf16 *from = k + (int64_t)j * WALKED * a.ld;

#pragma unroll
    for (int h = 0; h < D / 64; h++) {
        slab_load<WALKED, THREADS>(to + h * SLAB, from + h * 64, a.ld, mine,
                                   a.t - j * WALKED);
        slab_load<WALKED, THREADS>(to + (D / 64 + h) * SLAB,
                                   from + a.kv_heads * D + h * 64, a.ld, mine,
                                   a.t - j * WALKED);
    }
}

#endif
