/* attention_hopper_dq.cu - the gradient of queries on Hopper:
 * attention_hopper.cuh.
 *
 *   qkv, dqkv (N, (H + 2 KV) D)  dout (N, H D)  lse, delta (B, H, T) fp32
 */
#include "kernels/cuda/attention_hopper.cuh"

struct dq_state {
    const bf16 *q; /* in shared memory, this warp's rows */
    uint32_t dout; /* the lower half of its warpgroup's descriptor */
    float dq[8][4];
    float lse[2], delta[2];
};

/* dP becomes dS = P (dP - delta), 0 for keys behind their query. P comes as the
 * bf16 of slab_a_from(): in 16 registers, so that two blocks fit. */
__device__ inline void gradient_of_scores(float (&ds)[8][4],
                                          const uint32_t (&p)[4][4],
                                          const struct dq_state &w,
                                          int q0,
                                          int k0)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t two = p[n / 2][n % 2 * 2 + half];
            float *x = &ds[n][2 * half];

            x[0] = __uint_as_float(two << 16) * (x[0] - w.delta[half]);
            x[1] = __uint_as_float(two & 0xffff0000u) * (x[1] - w.delta[half]);
        }
    }
    if (k0 + WALKED - 1 <= q0) {
        return;
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = k0 + n * 8 + lane % 4 * 2 + i % 2;
            int query = q0 + lane / 4 + i / 2 * 8;

            ds[n][i] = key > query ? 0 : ds[n][i];
        }
    }
}

/* One tile of keys; low: of its stage. */
__device__ inline void
visit_keys(struct dq_state &w, uint32_t low, float c, int q0, int k0)
{
    float s[8][4], ds[8][4];
    uint32_t a[4][4], p[4][4];

    slab_rows(a, w.q);
    wgmma_begin();
    slab_product<SLAB_COLUMNS>(s, a, low, false);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(s);
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[n][i] = fast_exp2(s[n][i] * c - w.lse[i / 2]);
        }
    }
    slab_a_from(p, s);
    wgmma_begin();
    slab_product_shared<SLAB_COLUMNS>(ds, w.dout, low + NEXT, false);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(ds);
    wgmma_hold_a(p);
    gradient_of_scores(ds, p, w, q0, k0);
    slab_a_from(p, ds);
    wgmma_begin();
    slab_product<SLAB_ROWS>(w.dq, p, low, true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(w.dq);
}

/* Block (query tiles, H, B); the longest rows first. */
__global__ void __launch_bounds__(THREADS, 2)
    hopper_dq_kernel(struct flash_args a)
{
    SHARED(memory);
    bf16 *q_tile = slabs_in(memory);
    bf16 *dout_tile = q_tile + OWNED * 64;
    bf16 *ring = dout_tile + OWNED * 64;
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * OWNED;
    int h = blockIdx.y;
    int warp = warp_number();
    int group_q0 = q0 + warp / 4 * 64;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    int64_t ldo = (int64_t)a.heads * 64;
    int64_t at = (row0 + q0) * a.ld + h * 64;
    const bf16 *k =
        a.qkv + row0 * a.ld + (a.heads + h / (a.heads / a.kv_heads)) * 64;
    int end = q0 + OWNED < a.t ? q0 + OWNED : a.t;
    int tiles = (end + WALKED - 1) / WALKED;
    const struct slab_share mine = slab_mine<THREADS>(a.ld);
    uint32_t low = slab_low(ring);
    struct dq_state w;

    w.q = q_tile + warp * 16 * 64;
    w.dout = slab_low(dout_tile + warp / 4 * SLAB);
    for (int half = 0; half < 2; half++) {
        int row = q0 + warp * 16 + (int)(threadIdx.x % WARP) / 4 + half * 8;
        int64_t number = ((int64_t)blockIdx.z * a.heads + h) * a.t + row;

        w.lse[half] = row < a.t ? a.lse[number] * LOG2E : INFINITY;
        w.delta[half] = row < a.t ? a.delta[number] : 0;
    }
    zero(w.dq);
    slab_load<OWNED, THREADS>(q_tile, a.qkv + at, a.ld, mine, a.t - q0);
    slab_load<OWNED, THREADS>(dout_tile, a.dout + (row0 + q0) * ldo + h * 64,
                              ldo, slab_mine<THREADS>(ldo), a.t - q0);
    for (int j = 0; j < STAGES - 1; j++) {
        if (j < tiles) {
            load_keys<64>(ring, k, mine, a, j);
        }
        copies_commit();
    }
#pragma unroll 1
    for (int j = 0; j < tiles; j++) {
        copies_wait<STAGES - 2>();
        wgmma_fence_copies();
        __syncthreads(); /* tile j is here; nobody reads tile j - 1 any more */
        if (j + STAGES - 1 < tiles) {
            load_keys<64>(ring, k, mine, a, j + STAGES - 1);
        }
        copies_commit();
        if (j * WALKED < group_q0 + 64 && group_q0 < a.t) {
            visit_keys(w, low + (uint32_t)(j % STAGES * 2 * NEXT),
                       a.scale * LOG2E, q0 + warp * 16, j * WALKED);
        }
    }
    copies_wait<0>();
    rows_store<64>(a.to + at, a.ld, w.dq, a.scale, a.scale, warp * 16, a.t - q0,
                   64);
}

int cuda_attention_dq_hopper(struct gpu *g,
                             const struct attention *op,
                             const float *delta)
{
    struct flash_args a = flash_args_of(op);
    dim3 grid((unsigned)blocks_for(op->t, OWNED), (unsigned)op->heads,
              (unsigned)op->b);

    a.to = (bf16 *)op->dqkv;
    a.delta = delta;
    LAUNCH_FLASH(g, "attention_dq", hopper_dq_kernel, grid, THREADS,
                 SHARED_BYTES, a);
    return gpu_launched(g, "attention_dq");
}
