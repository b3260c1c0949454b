/* attention_hopper_dkv.cu - the gradient of keys and values on Hopper:
 * attention_hopper.cuh.
 *
 *   qkv, dqkv (N, (H + 2 KV) D)  dout (N, H D)  lse, delta (B, H, T) fp32
 */
#include "kernels/cuda/attention_hopper.cuh"

/* What a block of hopper_dkv walks over: the query tiles from `first` to `end`
 * of the group's query heads. h, tile: what is copied next. */
struct query_walk {
    bf16 *ring;
    float *numbers; /* of a stage: lse, then delta */
    int h, tile, first, end;
    struct slab_share mine, mine_out; /* of qkv and dout */
};

/* The next tile into stage i % STAGES. A query that does not exist has zeros
 * everywhere: it adds nothing. */
__device__ inline void
load_queries(struct query_walk &w, const struct flash_args &a, int i)
{
    bf16 *q = w.ring + i % STAGES * 2 * SLAB;
    float *numbers = w.numbers + i % STAGES * 2 * WALKED;
    int q0 = w.tile * WALKED;
    int64_t row = (int64_t)blockIdx.z * a.t + q0;
    int64_t number = ((int64_t)blockIdx.z * a.heads + w.h) * a.t + q0;
    const float *from = threadIdx.x < WALKED ? a.lse : a.delta;

    slab_load<WALKED, THREADS>(q, a.qkv + row * a.ld + w.h * 64, a.ld, w.mine,
                               a.t - q0);
    slab_load<WALKED, THREADS>(q + SLAB, a.dout + (row * a.heads + w.h) * 64,
                               (int64_t)a.heads * 64, w.mine_out, a.t - q0);
    if (threadIdx.x < 2 * WALKED) {
        int k = threadIdx.x % WALKED;

        copy_4(numbers + threadIdx.x, from + number + k, k < a.t - q0);
    }
    if (++w.tile == w.end) {
        w.tile = w.first;
        w.h++;
    }
}

/* Two neighbours, the first at a multiple of 8 bytes. */
__device__ inline void pair(float (&x)[2], const float *from)
{
    uint2 bits = *(const uint2 *)from;

    x[0] = __uint_as_float(bits.x);
    x[1] = __uint_as_float(bits.y);
}

/* S' becomes P' = exp(S' / sqrt(D) - lse), 0 for keys behind their query. */
__device__ inline void
probabilities(float (&p)[8][4], const float *lse, float c, int k0, int q0)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int n = 0; n < 8; n++) {
        float minus[2];

        pair(minus, lse + n * 8 + lane % 4 * 2);
        minus[0] *= LOG2E;
        minus[1] *= LOG2E;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            p[n][i] = fast_exp2(p[n][i] * c - minus[i % 2]);
        }
    }
    if (k0 + 15 <= q0) {
        return; /* no key of this warp is behind a query */
    }
#pragma unroll
    for (int n = 0; n < 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int query = q0 + n * 8 + lane % 4 * 2 + i % 2;
            int key = k0 + lane / 4 + i / 2 * 8;

            p[n][i] = key > query ? 0 : p[n][i];
        }
    }
}

struct dkv_state {
    uint32_t k, v; /* the lower halves of the warpgroup's descriptors */
    float dk[8][4], dv[8][4];
};

/* dP' becomes dS' = P' (dP' - delta); P' as the bf16 of slab_a_from(). */
__device__ inline void gradient_of_queries(float (&ds)[8][4],
                                           const uint32_t (&p)[4][4],
                                           const float *delta)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int n = 0; n < 8; n++) {
        float minus[2];

        pair(minus, delta + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t two = p[n / 2][n % 2 * 2 + half];
            float *x = &ds[n][2 * half];

            x[0] = __uint_as_float(two << 16) * (x[0] - minus[0]);
            x[1] = __uint_as_float(two & 0xffff0000u) * (x[1] - minus[1]);
        }
    }
}

/* One tile of queries; low: of its stage, k0: the first key of this warp. */
__device__ inline void visit_queries(struct dkv_state &w,
                                     uint32_t low,
                                     const float *numbers,
                                     float c,
                                     int k0,
                                     int q0)
{
    float p[8][4], ds[8][4];
    uint32_t pa[4][4];

    wgmma_begin();
    slab_product_shared<SLAB_COLUMNS>(p, w.k, low, false);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(p);
    probabilities(p, numbers, c, k0, q0);
    slab_a_from(pa, p);
    wgmma_begin();
    slab_product<SLAB_ROWS>(w.dv, pa, low + NEXT, true);
    wgmma_commit();
    slab_product_shared<SLAB_COLUMNS>(ds, w.v, low + NEXT, false);
    wgmma_commit();
    wgmma_wait<0>(); /* dP' */
    wgmma_hold(ds);
    wgmma_hold(w.dv);
    wgmma_hold_a(pa);
    gradient_of_queries(ds, pa, numbers + WALKED);
    slab_a_from(pa, ds);
    wgmma_begin();
    slab_product<SLAB_ROWS>(w.dk, pa, low, true);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(w.dk);
    wgmma_hold(w.dv);
}

/* Block (key tiles, KV, B). */
__global__ void __launch_bounds__(THREADS, 2)
    hopper_dkv_kernel(struct flash_args a)
{
    SHARED(memory);
    bf16 *k_tile = slabs_in(memory);
    bf16 *v_tile = k_tile + OWNED * 64;
    int group = a.heads / a.kv_heads;
    int k0 = (int)blockIdx.x * OWNED;
    int warp = warp_number();
    int group_k0 = k0 + warp / 4 * 64;
    int64_t at =
        ((int64_t)blockIdx.z * a.t + k0) * a.ld + (a.heads + blockIdx.y) * 64;
    int64_t to_v = (int64_t)a.kv_heads * 64;
    struct query_walk walk;
    struct dkv_state w;
    uint32_t low;
    int all, q0 = k0;

    walk.ring = v_tile + OWNED * 64;
    walk.numbers = (float *)(walk.ring + STAGES * 2 * SLAB);
    walk.h = (int)blockIdx.y * group;
    walk.first = walk.tile = k0 / WALKED;
    walk.end = (a.t + WALKED - 1) / WALKED;
    all = (walk.end - walk.first) * group;
    walk.mine = slab_mine<THREADS>(a.ld);
    walk.mine_out = slab_mine<THREADS>((int64_t)a.heads * 64);
    low = slab_low(walk.ring);
    w.k = slab_low(k_tile + warp / 4 * SLAB);
    w.v = slab_low(v_tile + warp / 4 * SLAB);
    zero(w.dk);
    zero(w.dv);
    slab_load<OWNED, THREADS>(k_tile, a.qkv + at, a.ld,
                              slab_mine<THREADS>(a.ld), a.t - k0);
    slab_load<OWNED, THREADS>(v_tile, a.qkv + at + to_v, a.ld,
                              slab_mine<THREADS>(a.ld), a.t - k0);
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < all) {
            load_queries(walk, a, i);
        }
        copies_commit();
    }
#pragma unroll 1
    for (int i = 0; i < all; i++) {
        copies_wait<STAGES - 2>();
        wgmma_fence_copies();
        __syncthreads(); /* tile i is here; nobody reads tile i - 1 any more */
        if (i + STAGES - 1 < all) {
            load_queries(walk, a, i + STAGES - 1);
        }
        copies_commit();
        if (q0 + WALKED > group_k0 && group_k0 < a.t) {
            visit_queries(w, low + (uint32_t)(i % STAGES * 2 * NEXT),
                          walk.numbers + i % STAGES * 2 * WALKED,
                          a.scale * LOG2E, k0 + warp * 16, q0);
        }
        q0 += WALKED;
        q0 = q0 < a.t ? q0 : k0; /* the next head */
    }
    copies_wait<0>();
    rows_store<64>(a.to + at, a.ld, w.dk, a.scale, a.scale, warp * 16, a.t - k0,
                   64);
    rows_store<64>(a.to + at + to_v, a.ld, w.dv, 1, 1, warp * 16, a.t - k0, 64);
}

int cuda_attention_dkv_hopper(struct gpu *g,
                              const struct attention *op,
                              const float *delta)
{
    struct flash_args a = flash_args_of(op);
    dim3 grid((unsigned)blocks_for(op->t, OWNED), (unsigned)op->kv_heads,
              (unsigned)op->b);

    a.to = (bf16 *)op->dqkv;
    a.delta = delta;
    LAUNCH_FLASH(g, "attention_dkv", hopper_dkv_kernel, grid, THREADS,
                 SHARED_BYTES, a);
    return gpu_launched(g, "attention_dkv");
}
