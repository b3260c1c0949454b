/* attention.cu - causal attention forward with grouped heads, tiled, on tensor
 * cores. Dao 2023 (FlashAttention-2), algorithm 1.
 *
 *   qkv (N, (H + 2 KV) D)  out (N, H D)  lse (B, H, T) fp32
 *
 * A block makes 64 M query rows of one head, a warp 16 M of them (M = 2 up to
 * D 64, where registers allow it: each key fragment that is read then serves
 * two products). It walks over tiles of 64 keys up to the diagonal; the next
 * tile is on its way (cp.async, two stages) while one is used:
 *
 *   S = Q K'                    16 x 64 a warp, fp32 in registers
 *   m' = max(m, rowmax S)       the maximum so far
 *   P = exp2((S - m') c)        c = log2(e) / sqrt(D)
 *   l = l exp2((m - m') c) + rowsum P;  O = O exp2((m - m') c) + P V
 *
 * P goes from the registers of one product into those of the next, rounded to
 * bf16. At the end out = O / l and lse = m / sqrt(D) + ln l. Only tiles on the
 * diagonal are masked; the longest rows go first, so that the last blocks are
 * short ones.
 *
 * Shared memory: at most 87 KB (D 128); where a multiprocessor has 100 KB of it,
 * heads above 32 have another form (flash_fwd_small) with at most 35 KB. Without
 * __launch_bounds__ heads of 80 and 128 spill registers on sm_86, 89 and 90.
 *
 * sm_90 has its own by wgmma (attention_hopper.cu) where that serves the shape.
 */
#include "kernels/cuda/attention.cuh"

/* A warp's rows 16 by 16, at work. */
template <int D, int M> struct flash_state {
    float s[M][KEYS / 8][4];
    float o[M][D / 8][4];
    struct softmax_rows rows[M];
};

template <int D, int M>
__device__ inline void flash_begin(struct flash_state<D, M> &w)
{
#pragma unroll
    for (int m = 0; m < M; m++) {
        w.rows[m] = softmax_none();
    }
    zero(w.o);
}

/* S of keys k0 .. becomes P, and O follows. q0: the warp's first query. */
template <int D, int M>
__device__ inline void
flash_soften(struct flash_state<D, M> &w, float c, int q0, int k0)
{
#pragma unroll
    for (int m = 0; m < M; m++) {
        float shrink[2];

        if (k0 + KEYS - 1 > q0) {
            mask_keys(w.s[m], q0 + m * 16, k0);
        }
        soften(w.s[m], w.rows[m], shrink, c);
        scale_rows(w.o[m], shrink);
    }
}

template <int D, int M>
__device__ inline void
flash_end(struct flash_state<D, M> &w, const struct flash_args &a, int q0)
{
    int h = blockIdx.y;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    bf16 *out = a.to + row0 * a.heads * a.d + h * a.d;
    float *lse = a.lse + ((int64_t)blockIdx.z * a.heads + h) * a.t;

#pragma unroll
    for (int m = 0; m < M; m++) {
        float inverse[2];

        softmax_end(w.rows[m], inverse, lse, a, q0 + m * 16);
        rows_store<D>(out, (int64_t)a.heads * a.d, w.o[m], inverse[0],
                      inverse[1], q0 + m * 16, a.t, a.d);
    }
}

/* Where the rows of a block's head begin in qkv; its first query, and how many
 * tiles of keys it walks over. */
struct flash_head {
    const bf16 *q, *k, *v;
    int q0, tiles;
};

template <int QUERIES>
__device__ inline struct flash_head flash_head_of(const struct flash_args &a)
{
    const bf16 *base = a.qkv + (int64_t)blockIdx.z * a.t * a.ld;
    int h = blockIdx.y;
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES;
    int end = q0 + QUERIES < a.t ? q0 + QUERIES : a.t;
    struct flash_head at;

    at.q = base + q0 * a.ld + h * a.d;
    at.k = base + (a.heads + h / (a.heads / a.kv_heads)) * a.d;
    at.v = at.k + a.kv_heads * a.d;
    at.q0 = q0;
    at.tiles = (end + KEYS - 1) / KEYS;
    return at;
}

/* Block (query tiles, H, B). Two blocks a multiprocessor are enough to ask for:
 * ptxas, left alone, spills registers for more (D 80, 128). */
template <int D, int M>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    flash_fwd_kernel(struct flash_args a)
{
    constexpr int QUERIES = 64 * M;
    SHARED(memory);
    bf16 *q_tile = (bf16 *)memory;
    bf16 *k_tile = q_tile + QUERIES * tile_ld<D>(); /* 2 stages */
    bf16 *v_tile = k_tile + 2 * KEYS * tile_ld<D>();
    const struct flash_head at = flash_head_of<QUERIES>(a);
    int warp_row = (int)(threadIdx.x / WARP) * 16 * M;
    auto q = rows_of<D, M, false>(q_tile, warp_row);
    struct flash_state<D, M> w;

    flash_begin(w);
    tile_load<D, QUERIES>(q_tile, at.q, a.ld, a.t - at.q0, a.d);
    tile_load<D, KEYS>(k_tile, at.k, a.ld, a.t, a.d);
    tile_load<D, KEYS>(v_tile, at.v, a.ld, a.t, a.d);
    copies_commit();
    for (int j = 0; j < at.tiles; j++) {
        int k0 = j * KEYS;
        int stage = j % 2 * KEYS * tile_ld<D>();
        int next = KEYS * tile_ld<D>() - stage;

        if (j + 1 < at.tiles) {
            int64_t then = (int64_t)(k0 + KEYS) * a.ld;

            tile_load<D, KEYS>(k_tile + next, at.k + then, a.ld,
                               a.t - k0 - KEYS, a.d);
            tile_load<D, KEYS>(v_tile + next, at.v + then, a.ld,
                               a.t - k0 - KEYS, a.d);
            copies_commit();
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads(); /* everybody's copies of this tile are here */
        multiply(w.s, q, k_tile + stage);
        flash_soften(w, a.scale * LOG2E, at.q0 + warp_row, k0);
        accumulate<D>(w.o, w.s, v_tile + stage);
        __syncthreads(); /* nobody reads this stage any more */
    }
    flash_end(w, a, at.q0 + warp_row);
}

/* The same with a tile of K and one of V, for 64 queries that the registers
 * keep: V is on its way while S is made, the next K while O is. */
template <int D>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    flash_fwd_small_kernel(struct flash_args a)
{
    SHARED(memory);
    bf16 *k_tile = (bf16 *)memory;
    bf16 *v_tile = k_tile + KEYS * tile_ld<D>();
    const struct flash_head at = flash_head_of<KEYS>(a);
    int warp_row = (int)(threadIdx.x / WARP) * 16;
    auto q = rows_of<D, 1, true>(v_tile, warp_row);
    struct flash_state<D, 1> w;

    flash_begin(w);
    tile_load<D, KEYS>(v_tile, at.q, a.ld, a.t - at.q0, a.d);
    tile_load<D, KEYS>(k_tile, at.k, a.ld, a.t, a.d);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    keep_rows(q);
    for (int j = 0; j < at.tiles; j++) {
        int k0 = j * KEYS;
        int64_t row = k0;

        __syncthreads(); /* K is here, and nobody reads V's place any more */
        tile_load<D, KEYS>(v_tile, at.v + row * a.ld, a.ld, a.t - k0, a.d);
        copies_commit();
        multiply(w.s, q, k_tile);
        flash_soften(w, a.scale * LOG2E, at.q0 + warp_row, k0);
        copies_wait<0>();
        __syncthreads(); /* V is here, and nobody reads K any more */
        if (j + 1 < at.tiles) {
            tile_load<D, KEYS>(k_tile, at.k + (row + KEYS) * a.ld, a.ld,
                               a.t - k0 - KEYS, a.d);
            copies_commit();
        }
        accumulate<D>(w.o, w.s, v_tile);
        copies_wait<0>();
    }
    flash_end(w, a, at.q0 + warp_row);
}

template <int D> static int run_small(struct gpu *g, const struct attention *op)
{
    auto kernel = flash_fwd_small_kernel<D>;
    struct flash_args a = flash_args_of(op);
    size_t shared = tile_bytes<D>(2 * KEYS);
    dim3 grid((unsigned)blocks_for(op->t, KEYS), (unsigned)op->heads,
              (unsigned)op->b);

    a.to = (bf16 *)op->out;
    LAUNCH_FLASH(g, "attention_fwd", kernel, grid, TILE_THREADS, shared, a);
    return gpu_launched(g, "attention_fwd");
}

template <int D> static int run(struct gpu *g, const struct attention *op)
{
    constexpr int M = D <= 64 ? 2 : 1;

    if constexpr (D > 32) {
        if (flash_small<D>(g)) {
            return run_small<D>(g, op);
        }
    }
    auto kernel = flash_fwd_kernel<D, M>;
    struct flash_args a = flash_args_of(op);
    size_t shared = tile_bytes<D>(64 * M + 4 * KEYS);
    dim3 grid((unsigned)blocks_for(op->t, 64 * M), (unsigned)op->heads,
              (unsigned)op->b);

    a.to = (bf16 *)op->out;
    LAUNCH_FLASH(g, "attention_fwd", kernel, grid, TILE_THREADS, shared, a);
    return gpu_launched(g, "attention_fwd");
}

int cuda_attention_fwd(struct gpu *g, const struct attention *op)
{
    int rv;

    if (!flash_serves(g, op)) {
        return cuda_attention_fwd_plain(g, op);
    }
    rv = cuda_attention_fits(g, op);
    if (rv == 0 && g->sm == 90 && (op->d == 64 || op->d == 128)) {
        return cuda_attention_fwd_hopper(g, op);
    }
    return rv != 0 ? rv : FOR_HEAD_SIZE(op->d, run, g, op);
}
