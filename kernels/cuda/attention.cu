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
 * Shared memory: at most 87 KB (D 128). Without __launch_bounds__ heads of 80
 * and 128 spill registers on sm_86, 89 and 90.
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
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES;
    int h = blockIdx.y;
    int warp_q0 = q0 + (int)(threadIdx.x / WARP) * 16 * M;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    const bf16 *base = a.qkv + row0 * a.ld;
    const bf16 *k = base + (a.heads + h / (a.heads / a.kv_heads)) * a.d;
    const bf16 *v = k + a.kv_heads * a.d;
    int end = q0 + QUERIES < a.t ? q0 + QUERIES : a.t;
    int tiles = (end + KEYS - 1) / KEYS;
    struct flash_state<D, M> w;

#pragma unroll
    for (int m = 0; m < M; m++) {
        w.rows[m] = softmax_none();
    }
    zero(w.o);
    tile_load<D, QUERIES>(q_tile, base + q0 * a.ld + h * a.d, a.ld, a.t - q0,
                          a.d);
    tile_load<D, KEYS>(k_tile, k, a.ld, a.t, a.d);
    tile_load<D, KEYS>(v_tile, v, a.ld, a.t, a.d);
    copies_commit();
    for (int j = 0; j < tiles; j++) {
        int k0 = j * KEYS;
        int stage = j % 2 * KEYS * tile_ld<D>();
        int next = KEYS * tile_ld<D>() - stage;

        if (j + 1 < tiles) {
            int64_t at = (int64_t)(k0 + KEYS) * a.ld;

            tile_load<D, KEYS>(k_tile + next, k + at, a.ld, a.t - k0 - KEYS,
                               a.d);
            tile_load<D, KEYS>(v_tile + next, v + at, a.ld, a.t - k0 - KEYS,
                               a.d);
            copies_commit();
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads(); /* everybody's copies of this tile are here */
        multiply<D>(w.s, q_tile, warp_q0 - q0, k_tile + stage);
#pragma unroll
        for (int m = 0; m < M; m++) {
            float shrink[2];

            if (k0 + KEYS - 1 > warp_q0) {
                mask_keys(w.s[m], warp_q0 + m * 16, k0);
            }
            soften(w.s[m], w.rows[m], shrink, a.scale * LOG2E);
            scale_rows(w.o[m], shrink);
        }
        accumulate<D>(w.o, w.s, v_tile + stage);
        __syncthreads(); /* nobody reads this stage any more */
    }
    bf16 *out = a.to + row0 * a.heads * a.d + h * a.d;
    float *lse = a.lse + ((int64_t)blockIdx.z * a.heads + h) * a.t;

#pragma unroll
    for (int m = 0; m < M; m++) {
        float inverse[2];

        softmax_end(w.rows[m], inverse, lse, a, warp_q0 + m * 16);
        rows_store<D>(out, (int64_t)a.heads * a.d, w.o[m], inverse[0],
                      inverse[1], warp_q0 + m * 16, a.t, a.d);
    }
}

template <int D> static int run(struct gpu *g, const struct attention *op)
{
    constexpr int M = D <= 64 ? 2 : 1;
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
