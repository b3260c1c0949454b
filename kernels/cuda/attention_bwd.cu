/* attention_bwd.cu - the gradient of causal attention, tiled, on tensor cores.
 * Dao 2023 (FlashAttention-2), algorithm 2, without its atomics.
 *
 *   qkv, dqkv (N, (H + 2 KV) D)  out, dout (N, H D)  lse, delta (B, H, T) fp32
 *
 *   delta[i] = dout[i] . out[i]          P = exp(S / sqrt(D) - lse)
 *   dP = dO V'                           dS = P (dP - delta)
 *   dV = P' dO   dK = dS' Q / sqrt(D)    dQ = dS K / sqrt(D)
 *
 * Three kernels, each of whose results one block owns, so the same bits come
 * out every time:
 *   flash_delta  8 lanes a row of a head, one pass over dout and out
 *   flash_dkv    a block owns 64 M keys of a key/value head and walks over the
 *                query tiles from the diagonal on, for all query heads of the
 *                group. Scores are made transposed (keys are rows), so that P'
 *                and dS' go from the registers of one product into the next
 *   flash_dq     a block owns 64 M queries and walks over the key tiles
 * A warp has 16 M of them; M = 2 (run_wide) reads fewer fragments a product.
 * S and dP are made in both: 7 products instead of 5, the price of the order.
 * Shared memory: at most 70 KB. Where a multiprocessor has 100 KB of it, heads
 * above 32 have forms with at most 35 KB: shorter walked tiles, and fragments of
 * K (dkv), or of Q and dO (dq), in registers for the whole walk.
 */
#include "kernels/cuda/attention.cuh"

/* Rows that a block owns: 16 M a warp. */
template <int M> __host__ __device__ constexpr int owned()
{
    return 64 * M;
}

/* ---- delta -------------------------------------------------------------- */

#define DELTA_LANES 8

/* d a multiple of 8; rows of out are heads after heads. */
__global__ void flash_delta_kernel(float *delta, struct flash_args a, int64_t n)
{
    int64_t i =
        ((int64_t)blockIdx.x * TILE_THREADS + threadIdx.x) / DELTA_LANES;
    int64_t item = i < n ? i : n - 1; /* all lanes take part in the shuffles */
    int64_t row = item / a.heads;
    int64_t h = item % a.heads;
    float sum = 0;

    for (int c = threadIdx.x % DELTA_LANES * 8; c < a.d; c += DELTA_LANES * 8) {
        float x[8], y[8];

        load(x, a.dout + item * a.d + c);
        load(y, a.out + item * a.d + c);
        for (int v = 0; v < 8; v++) {
            sum += x[v] * y[v];
        }
    }
    for (int step = DELTA_LANES / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(ALL, sum, step);
    }
    if (i < n && threadIdx.x % DELTA_LANES == 0) {
        delta[(row / a.t * a.heads + h) * a.t + row % a.t] = sum;
    }
}

/* ---- dk, dv ------------------------------------------------------------- */

/* Begin to copy lse and delta of query rows from q0. Zeros for a row that does
 * not exist: its Q and dO are zeros too, so it adds zeros. */
template <int ROWS>
__device__ inline void load_numbers(
    float *lse, float *delta, const struct flash_args &a, int64_t at, int q0)
{
    for (int i = threadIdx.x; i < 2 * ROWS; i += TILE_THREADS) {
        const float *from = i < ROWS ? a.lse : a.delta;
        float *to = i < ROWS ? lse : delta;
        int row = q0 + i % ROWS;

        copy_4(to + i % ROWS, from + at + (row < a.t ? row : 0), row < a.t);
    }
}

/* One walked tile of Q queries: what a block of flash_dkv needs of it. */
template <int D, int Q> struct query_stage {
    bf16 *q, *dout;
    float *lse, *delta;
};

/* Stage 0 or 1; tiles and numbers are where flash_dkv_kernel laid them. */
template <int D, int Q>
__device__ inline struct query_stage<D, Q> query_stage_at(bf16 *tiles,
                                                          int which) {
    constexpr int TILE = Q * tile_ld<D>();
    struct query_stage<D, Q> s;

    s.q = tiles + which * 2 * TILE;
    s.dout = s.q + TILE;
    s.lse = (float *)(tiles + 4 * TILE) + which * 2 * Q;
    s.delta = s.lse + Q;
    return s;
}

template <int D, int Q>
__device__ inline void load_queries(const struct query_stage<D, Q> &s,
                                    const struct flash_args &a,
                                    int h,
                                    int q0)
{
    int64_t row = (int64_t)blockIdx.z * a.t + q0;
    int64_t ldo = (int64_t)a.heads * a.d;

    tile_load<D, Q>(s.q, a.qkv + row * a.ld + h * a.d, a.ld, a.t - q0, a.d);
    tile_load<D, Q>(s.dout, a.dout + row * ldo + h * a.d, ldo, a.t - q0, a.d);
    load_numbers<Q>(s.lse, s.delta, a,
                    ((int64_t)blockIdx.z * a.heads + h) * a.t, q0);
}

/* p = exp(S' / sqrt(D) - lse), 0 for keys behind their query. */
template <int N>
__device__ inline void
probabilities(float (&p)[N][4], const float *lse, float c, int k0, int q0)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int query = n * 8 + lane % 4 * 2 + i % 2;
            int key = k0 + lane / 4 + i / 2 * 8;
            float x = fast_exp2(p[n][i] * c - __fmul_rn(lse[query], LOG2E));

            p[n][i] = key > q0 + query ? 0 : x;
        }
    }
}

/* dS' = P' (dP' - delta) where dP' was. */
template <int N>
__device__ inline void
scores_from(float (&ds)[N][4], const float (&p)[N][4], const float *delta)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int query = n * 8 + threadIdx.x % 4 * 2 + i % 2;

            ds[n][i] = p[n][i] * (ds[n][i] - delta[query]);
        }
    }
}

/* Block (key tiles, KV, B). Walks over Q queries at a time. KEPT: K is in
 * registers, and its tile lies where later the queries do. */
template <int D, int M, int Q, int KEPT>
__global__ void __launch_bounds__(TILE_THREADS)
    flash_dkv_kernel(struct flash_args a)
{
    constexpr int OWNED = owned<M>();
    static_assert(KEPT == 0 || 4 * Q >= OWNED, "no place for K");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
    if (M == 2) {
        return; /* never called there, and ptxas would spill registers */
    }
#endif
    SHARED(memory);
    bf16 *v_tile = (bf16 *)memory;
    bf16 *k_tile = v_tile + OWNED * tile_ld<D>();
    bf16 *query_tiles = k_tile + (1 - KEPT) * OWNED * tile_ld<D>();
    int k0 = (int)blockIdx.x * OWNED;
    int warp_row = (int)(threadIdx.x / WARP) * 16 * M;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    int64_t at = (row0 + k0) * a.ld + (a.heads + blockIdx.y) * a.d;
    int head = (int)blockIdx.y * (a.heads / a.kv_heads);
    int heads_end = head + a.heads / a.kv_heads;
    int first = k0 / Q * Q; /* query on the diagonal */
    int q0 = first;
    auto k = rows_of<D, M, KEPT == 1>(k_tile, warp_row);
    auto v = rows_of<D, M, false>(v_tile, warp_row);
    float dk[M][D / 8][4];
    float dv[M][D / 8][4];

    zero(dk);
    zero(dv);
    tile_load<D, OWNED>(k_tile, a.qkv + at, a.ld, a.t - k0, a.d);
    tile_load<D, OWNED>(v_tile, a.qkv + at + a.kv_heads * a.d, a.ld, a.t - k0,
                        a.d);
    if constexpr (KEPT == 1) {
        keep_arrived(k);
    }
    load_queries(query_stage_at<D, Q>(query_tiles, 0), a, head, q0);
    copies_commit();
    for (int i = 0; head < heads_end; i++) {
        const struct query_stage<D, Q> s =
            query_stage_at<D, Q>(query_tiles, i % 2);
        int next_q0 = q0 + Q < a.t ? q0 + Q : first;
        float p[M][Q / 8][4];
        float ds[M][Q / 8][4];

        head += q0 + Q < a.t ? 0 : 1;
        if (head < heads_end) {
            load_queries(query_stage_at<D, Q>(query_tiles, (i + 1) % 2), a,
                         head, next_q0);
            copies_commit();
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        multiply(p, k, s.q);
#pragma unroll
        for (int m = 0; m < M; m++) {
            probabilities(p[m], s.lse, a.scale * LOG2E,
                          k0 + warp_row + m * 16, q0);
        }
        multiply(ds, v, s.dout);
#pragma unroll
        for (int m = 0; m < M; m++) {
            scores_from(ds[m], p[m], s.delta);
        }
        accumulate<D>(dv, p, s.dout);
        accumulate<D>(dk, ds, s.q);
        q0 = next_q0;
        __syncthreads(); /* nobody reads this stage any more */
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        rows_store<D>(a.to + at, a.ld, dk[m], a.scale, a.scale,
                      warp_row + m * 16, a.t - k0, a.d);
        rows_store<D>(a.to + at + a.kv_heads * a.d, a.ld, dv[m], 1, 1,
                      warp_row + m * 16, a.t - k0, a.d);
    }
}

/* ---- dq ----------------------------------------------------------------- */

/* p = exp(S / sqrt(D) - lse), then dS = p (dP - delta) into ds. */
template <int N>
__device__ inline void gradient_of_scores(float (&ds)[N][4],
                                          const float (&p)[N][4],
                                          const float (&lse)[2],
                                          const float (&delta)[2],
                                          float c,
                                          int q0,
                                          int k0)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = k0 + n * 8 + lane % 4 * 2 + i % 2;
            int query = q0 + lane / 4 + i / 2 * 8;
            float x = fast_exp2(p[n][i] * c - lse[i / 2]);

            ds[n][i] = key > query ? 0 : x * (ds[n][i] - delta[i / 2]);
        }
    }
}

/* lse (for exp2) and delta of the rows that a lane has a share of; a row that
 * does not exist gets probability 0. */
template <int M>
__device__ inline void own_numbers(float (&lse)[M][2],
                                   float (&delta)[M][2],
                                   const struct flash_args &a,
                                   int64_t at,
                                   int first)
{
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int row = first + (int)(threadIdx.x % WARP) / 4 + i * 8;
        int64_t number = at + row;

        lse[i / 2][i % 2] = row < a.t ? a.lse[number] * LOG2E : INFINITY;
        delta[i / 2][i % 2] = row < a.t ? a.delta[number] : 0;
    }
}

/* Block (query tiles, H, B). Walks over K keys at a time. KEPT: Q and dO are in
 * registers, and their tiles lie where later keys and values do. */
template <int D, int M, int K, int KEPT>
__global__ void __launch_bounds__(TILE_THREADS)
    flash_dq_kernel(struct flash_args a)
{
    constexpr int OWNED = owned<M>();
    constexpr int LD = tile_ld<D>();
    static_assert(KEPT == 0 || 4 * K >= 2 * OWNED, "no place for Q and dO");
    SHARED(memory);
    bf16 *q_tile = (bf16 *)memory;
    bf16 *dout_tile = q_tile + OWNED * LD;
    bf16 *k_tile = q_tile + (2 - KEPT) * OWNED * LD; /* 2 stages */
    bf16 *v_tile = k_tile + 2 * K * LD;
    int q0 = (int)(gridDim.x - 1 - blockIdx.x) * OWNED;
    int h = blockIdx.y;
    int warp_row = (int)(threadIdx.x / WARP) * 16 * M;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    int64_t ldo = (int64_t)a.heads * a.d;
    int64_t at = (row0 + q0) * a.ld + h * a.d;
    const bf16 *k =
        a.qkv + row0 * a.ld + (a.heads + h / (a.heads / a.kv_heads)) * a.d;
    const bf16 *v = k + a.kv_heads * a.d;
    int end = q0 + OWNED < a.t ? q0 + OWNED : a.t;
    int tiles = (end + K - 1) / K;
    auto q = rows_of<D, M, KEPT == 2>(q_tile, warp_row);
    auto dout = rows_of<D, M, KEPT == 2>(dout_tile, warp_row);
    float lse[M][2];
    float delta[M][2];
    float dq[M][D / 8][4];

    own_numbers(lse, delta, a, ((int64_t)blockIdx.z * a.heads + h) * a.t,
                q0 + warp_row);
    zero(dq);
    tile_load<D, OWNED>(q_tile, a.qkv + at, a.ld, a.t - q0, a.d);
    tile_load<D, OWNED>(dout_tile, a.dout + (row0 + q0) * ldo + h * a.d, ldo,
                        a.t - q0, a.d);
    if constexpr (KEPT == 2) {
        keep_arrived(q, dout);
    }
    tile_load<D, K>(k_tile, k, a.ld, a.t, a.d);
    tile_load<D, K>(v_tile, v, a.ld, a.t, a.d);
    copies_commit();
    for (int j = 0; j < tiles; j++) {
        int stage = j % 2 * K * LD;
        int next = K * LD - stage;
        float p[M][K / 8][4];
        float ds[M][K / 8][4];

        if (j + 1 < tiles) {
            int64_t row = (int64_t)(j + 1) * K;

            tile_load<D, K>(k_tile + next, k + row * a.ld, a.ld, a.t - (int)row,
                            a.d);
            tile_load<D, K>(v_tile + next, v + row * a.ld, a.ld, a.t - (int)row,
                            a.d);
            copies_commit();
            copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        __syncthreads();
        multiply(p, q, k_tile + stage);
        multiply(ds, dout, v_tile + stage);
#pragma unroll
        for (int m = 0; m < M; m++) {
            gradient_of_scores(ds[m], p[m], lse[m], delta[m], a.scale * LOG2E,
                               q0 + warp_row + m * 16, j * K);
        }
        accumulate<D>(dq, ds, k_tile + stage);
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        rows_store<D>(a.to + at, a.ld, dq[m], a.scale, a.scale,
                      warp_row + m * 16, a.t - q0, a.d);
    }
}

/* ---- launchers ---------------------------------------------------------- */

template <int D, int M, int Q, int KEPT>
static int run_dkv(struct gpu *g,
                   const struct attention *op,
                   const struct flash_args &a)
{
    auto dkv = flash_dkv_kernel<D, M, Q, KEPT>;
    size_t shared = tile_bytes<D>((2 - KEPT) * owned<M>() + 4 * Q) +
                    4 * Q * sizeof(float);
    dim3 grid((unsigned)blocks_for(op->t, owned<M>()), (unsigned)op->kv_heads,
              (unsigned)op->b);

    LAUNCH_FLASH(g, "attention_dkv", dkv, grid, TILE_THREADS, shared, a);
    return gpu_launched(g, "attention_dkv");
}

template <int D, int M, int K, int KEPT>
static int run_dq(struct gpu *g,
                  const struct attention *op,
                  const struct flash_args &a)
{
    auto dq = flash_dq_kernel<D, M, K, KEPT>;
    size_t shared = tile_bytes<D>((2 - KEPT) * owned<M>() + 4 * K);
    dim3 grid((unsigned)blocks_for(op->t, owned<M>()), (unsigned)op->heads,
              (unsigned)op->b);

    LAUNCH_FLASH(g, "attention_dq", dq, grid, TILE_THREADS, shared, a);
    return gpu_launched(g, "attention_dq");
}

/* Heads of 64 have 32 rows a warp where registers allow it, so that a fragment
 * of the walked tile serves two products: keys on sm_80 and sm_100, queries on
 * sm_80 alone (of 16 each, sm_100 holds four blocks for two of 32 each). */
static int run_wide(struct gpu *g,
                    const struct attention *op,
                    const struct flash_args &a)
{
    int rv = run_dkv<64, 2, 32, 0>(g, op, a);

    if (rv != 0 || g->sm >= 100) {
        return rv != 0 ? rv : run_dq<64, 1, 64, 0>(g, op, a);
    }
    return run_dq<64, 2, 32, 0>(g, op, a);
}

template <int D>
static int run(struct gpu *g, const struct attention *op, const float *delta)
{
    /* Larger heads take fewer, for the 99 KB that a block can have at most. */
    constexpr int WALKED = D <= 80 ? 64 : 32;
    struct flash_args a = flash_args_of(op);
    int rv;

    a.to = (bf16 *)op->dqkv;
    a.delta = delta;
    if constexpr (D > 32) {
        if (flash_small<D>(g)) {
            rv = run_dkv<D, 1, D <= 80 ? 32 : 16, 1>(g, op, a);
            return rv != 0 ? rv : run_dq<D, 1, 32, 2>(g, op, a);
        }
    }
    if (D == 64 && g->sm != 90) {
        return run_wide(g, op, a);
    }
    rv = run_dkv<D, 1, WALKED, 0>(g, op, a);
    return rv != 0 ? rv : run_dq<D, 1, WALKED, 0>(g, op, a);
}

static int run_delta(struct gpu *g, const struct attention *op, float *delta)
{
    struct flash_args a = flash_args_of(op);
    int64_t n = op->b * op->t * op->heads;

    LAUNCH(flash_delta_kernel,
           (unsigned)blocks_for(n * DELTA_LANES, TILE_THREADS), TILE_THREADS, 0,
           g->stream, delta, a, n);
    return gpu_launched(g, "attention_delta");
}

int cuda_attention_bwd(struct gpu *g, const struct attention *op)
{
    float *delta = NULL;
    int rv;

    if (!flash_serves(g, op)) {
        return cuda_attention_bwd_plain(g, op);
    }
    rv = cuda_attention_fits(g, op);
    rv = rv != 0 ? rv
                 : gpu_slot(g, SLOT_DELTA,
                            (size_t)(op->b * op->heads * op->t) * sizeof *delta,
                            (void **)&delta);
    rv = rv == 0 ? run_delta(g, op, delta) : rv;
    if (rv == 0 && g->sm == 90 && op->d == 64) {
        rv = cuda_attention_dkv_hopper(g, op, delta);
        return rv != 0 ? rv : cuda_attention_dq_hopper(g, op, delta);
    }
    return rv != 0 ? rv : FOR_HEAD_SIZE(op->d, run, g, op, delta);
}
