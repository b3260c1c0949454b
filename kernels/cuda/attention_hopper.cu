/* attention_hopper.cu - causal attention forward as attention.cu makes it, by
 * Hopper's warpgroup products (wgmma.cuh). Heads of 64 or 128, bf16, sm_90
 * only.
 *
 *   qkv (N, (H + 2 KV) D)  out (N, H D)  lse (B, H, T) fp32
 *
 * A block makes 128 query rows of one head, each of its two warpgroups 64. It
 * walks over tiles of 64 keys up to the diagonal; the next AHEAD tiles are on
 * their way. Q comes through registers as A of the first product, P goes
 * from its registers into those of the second, so that the tensor cores read K
 * and V alone from shared memory.
 *
 * Two blocks a multiprocessor (heads of 64): while one warpgroup makes its
 * exponents, the products of the others run, and its own O += P V of the tile
 * before (Shah et al. 2024, FlashAttention-3, algorithm 2). At heads of 64 both
 * take the same time: 64 x 64 x 64 x 2 products at 4,096 operations a clock, 64
 * x 64 exponents at 16 a clock. So instructions count: O is scaled only when a
 * maximum of the warp grew by more than LAZY, as FlashAttention-4 does; P is
 * then at most 2^LAZY.
 */
#include "kernels/cuda/attention_hopper.cuh"

#define AHEAD 2 /* tiles on their way; one more is still read */
#define LAZY  8.0f

/* q: D / 64 slabs of OWNED rows; then a stage after the other, K and V. */
template <int D> __host__ __device__ constexpr size_t shared_bytes()
{
    return SLAB_ALIGN +
           (size_t)(OWNED + 2 * WALKED * STAGES) * D * sizeof(bf16);
}

/* A warp's 16 rows, at work. */
template <int D> struct hopper_state {
    const bf16 *q; /* in shared memory, this warp's rows */
    float s[8][4];
    uint32_t p[4][4];
    float o[D / 64][8][4];
    struct softmax_rows rows;
};

/* S becomes P. True: the maximum moved, and O must be multiplied by `shrink`.
 */
__device__ inline bool soften_lazily(float (&s)[8][4],
                                     struct softmax_rows &rows,
                                     float (&shrink)[2],
                                     float c)
{
    float top[2];
    bool moved;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        top[half] = rows.max[half];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            top[half] =
                fmaxf(top[half], fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        }
        top[half] = fmaxf(top[half], __shfl_xor_sync(ALL, top[half], 1));
        top[half] = fmaxf(top[half], __shfl_xor_sync(ALL, top[half], 2));
    }
    moved = __any_sync(ALL, (top[0] - rows.max[0]) * c > LAZY ||
                                (top[1] - rows.max[1]) * c > LAZY);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float minus;

        shrink[half] = 1;
        if (moved) {
            shrink[half] = fast_exp2((rows.max[half] - top[half]) * c);
            rows.sum[half] *= shrink[half];
            rows.max[half] = top[half];
        }
        minus = rows.max[half] * c;
#pragma unroll
        for (int n = 0; n < 8; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = fast_exp2(s[n][i] * c - minus);
                rows.sum[half] += s[n][i];
            }
        }
    }
    return moved;
}

/* S of one tile of keys is asked for; low: of its stage. */
template <int D>
__device__ inline void ask_scores(struct hopper_state<D> &w, uint32_t low)
{
    uint32_t a[D / 64][4][4];

#pragma unroll
    for (int h = 0; h < D / 64; h++) {
        slab_rows(a[h], w.q + h * OWNED * 64);
    }
    wgmma_begin();
#pragma unroll
    for (int h = 0; h < D / 64; h++) {
        slab_product<SLAB_COLUMNS>(w.s, a[h], low + h * NEXT, h > 0);
    }
    wgmma_commit();
}

/* O += P V is asked for; low: of the stage of P's keys. */
template <int D>
__device__ inline void ask_out(struct hopper_state<D> &w, uint32_t low)
{
#pragma unroll
    for (int h = 0; h < D / 64; h++) {
        slab_product<SLAB_ROWS>(w.o[h], w.p, low + (D / 64 + h) * NEXT, true);
    }
    wgmma_commit();
}

template <int D> __device__ inline void out_is_there(struct hopper_state<D> &w)
{
    wgmma_wait<0>();
#pragma unroll
    for (int h = 0; h < D / 64; h++) {
        wgmma_hold(w.o[h]);
    }
}

/* The first tile. */
template <int D>
__device__ inline void
begin(struct hopper_state<D> &w, uint32_t low, float c, int q0)
{
    float shrink[2];

    ask_scores<D>(w, low);
    wgmma_wait<0>();
    wgmma_hold(w.s);
    if (WALKED - 1 > q0) {
        mask_keys(w.s, q0, 0);
    }
    (void)soften_lazily(w.s, w.rows, shrink, c);
    slab_a_from(w.p, w.s);
}

/* Another tile: while its exponents are made, the product of the last runs. */
template <int D>
__device__ inline void go_on(struct hopper_state<D> &w,
                             uint32_t low,
                             uint32_t last,
                             float c,
                             int q0,
                             int k0)
{
    float shrink[2];
    bool moved;

    ask_scores<D>(w, low);
    ask_out<D>(w, last);
    wgmma_wait<1>();
    wgmma_hold(w.s);
    if (k0 + WALKED - 1 > q0) {
        mask_keys(w.s, q0, k0);
    }
    moved = soften_lazily(w.s, w.rows, shrink, c);
    out_is_there<D>(w);
    if (moved) {
#pragma unroll
        for (int h = 0; h < D / 64; h++) {
            scale_rows(w.o[h], shrink);
        }
    }
    slab_a_from(w.p, w.s);
}

/* Block (query tiles, H, B); the longest rows first. */
template <int D>
__global__ void __launch_bounds__(THREADS, D == 64 ? 2 : 1)
    hopper_fwd_kernel(struct flash_args a)
{
    SHARED(memory);
    bf16 *q_tile = slabs_in(memory);
    bf16 *ring = q_tile + OWNED * D;
    uint32_t low = slab_low(ring);
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * OWNED;
    int h = blockIdx.y;
    int warp = warp_number();
    int warp_q0 = q0 + warp * 16;
    int group_q0 = q0 + warp / 4 * 64;
    constexpr int STAGE = 2 * (D / 64) * NEXT;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    const bf16 *base = a.qkv + row0 * a.ld;
    const bf16 *k = base + (a.heads + h / (a.heads / a.kv_heads)) * D;
    const struct slab_share mine = slab_mine<THREADS>(a.ld);
    int end = q0 + OWNED < a.t ? q0 + OWNED : a.t;
    int tiles = (end + WALKED - 1) / WALKED;
    int own = group_q0 < a.t ? group_q0 / WALKED + 1 : 0; /* tiles it sees */
    struct hopper_state<D> w;

    w.q = q_tile + warp * 16 * 64;
    w.rows = softmax_none();
    zero(w.o);
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        slab_load<OWNED, THREADS>(q_tile + i * OWNED * 64,
                                  base + q0 * a.ld + h * D + i * 64, a.ld, mine,
                                  a.t - q0);
    }
    for (int j = 0; j < AHEAD; j++) { /* Q comes with the first */
        if (j < tiles) {
            load_keys<D>(ring, k, mine, a, j);
        }
        copies_commit();
    }
#pragma unroll 1
    for (int j = 0; j < tiles; j++) {
        copies_wait<AHEAD - 1>();
        wgmma_fence_copies();
        /* Tile j is here. Of the others only V of tile j - 1 is still read. */
        __syncthreads();
        if (j + AHEAD < tiles) {
            load_keys<D>(ring, k, mine, a, j + AHEAD);
        }
        copies_commit();
        if (j < own) {
            uint32_t here = low + (uint32_t)(j % STAGES * STAGE);

            if (j == 0) {
                begin<D>(w, here, a.scale * LOG2E, warp_q0);
            } else {
                go_on<D>(w, here, low + (uint32_t)((j - 1) % STAGES * STAGE),
                         a.scale * LOG2E, warp_q0, j * WALKED);
            }
        }
    }
    if (own > 0) {
        wgmma_begin();
        ask_out<D>(w, low + (uint32_t)((own - 1) % STAGES * STAGE));
        out_is_there<D>(w);
    }
    copies_wait<0>();

    bf16 *out = a.to + row0 * a.heads * D + h * D;
    float *lse = a.lse + ((int64_t)blockIdx.z * a.heads + h) * a.t;
    float inverse[2];

    softmax_end(w.rows, inverse, lse, a, warp_q0);
#pragma unroll
    for (int i = 0; i < D / 64; i++) {
        rows_store<64>(out + i * 64, (int64_t)a.heads * D, w.o[i], inverse[0],
                       inverse[1], warp_q0, a.t, 64);
    }
}

template <int D> static int run(struct gpu *g, const struct attention *op)
{
    auto kernel = hopper_fwd_kernel<D>;
    struct flash_args a = flash_args_of(op);
    dim3 grid((unsigned)blocks_for(op->t, OWNED), (unsigned)op->heads,
              (unsigned)op->b);

    a.to = (bf16 *)op->out;
    LAUNCH_FLASH(g, "attention_fwd", kernel, grid, THREADS, shared_bytes<D>(),
                 a);
    return gpu_launched(g, "attention_fwd");
}

int cuda_attention_fwd_hopper(struct gpu *g, const struct attention *op)
{
    return op->d == 64 ? run<64>(g, op) : run<128>(g, op);
}
