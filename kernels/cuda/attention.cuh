/* attention.cuh - tiles of a head in shared memory, and products of them.
 *
 * A tile is ROWS x D bf16, D the head size padded to one of 32, 64, 80, 128,
 * in rows of LD = D + 8 elements: 16 bytes more than a power of two, so that
 * the eight rows of an ldmatrix lie in different banks (for D 32, 64, 80 and
 * 128 the row starts are distinct multiples of 4 modulo 32 words). Rows and
 * channels that do not exist are zeros.
 */
#ifndef LOCO_KERNELS_CUDA_ATTENTION_CUH
#define LOCO_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/common.cuh"

#define TILE_THREADS 128 /* 4 warps */

struct flash_args {
    const bf16 *qkv, *out, *dout;
    bf16 *to; /* out (fwd) or dqkv (bwd) */
    float *lse;
    const float *delta;
    int t, heads, kv_heads, d;
    int64_t ld; /* of qkv and dqkv */
    float scale;
};

template <int D> __host__ __device__ constexpr int tile_ld()
{
    return D + 8;
}

template <int D> __host__ __device__ constexpr size_t tile_bytes(int rows)
{
    return (size_t)rows * tile_ld<D>() * sizeof(bf16);
}

/* Begin to copy rows 0 .. ROWS of a head whose rows are ld apart; `rows` of
 * them exist (at least one), `d` channels exist. */
template <int D, int ROWS>
__device__ inline void
tile_load(bf16 *to, const bf16 *from, int64_t ld, int rows, int d)
{
    constexpr int VECTORS = D / 8;

    for (int i = threadIdx.x; i < ROWS * VECTORS; i += TILE_THREADS) {
        int row = i / VECTORS;
        int c = i % VECTORS * 8;
        bool inside = row < rows && c < d;

        copy_16(to + row * tile_ld<D>() + c,
                inside ? from + row * ld + c : from, inside);
    }
}

/* The addresses that ldmatrix wants from this lane, see mma.cuh: tiles 0, 1
 * are rows 0-7 and 8-15 (of A), or columns 0-7 and 8-15 of the same rows (B
 * from rows that are its columns; B transposed). */
__device__ inline int lane_row_a()
{
    return threadIdx.x % 16;
}

__device__ inline int lane_column_a()
{
    return threadIdx.x % WARP / 16 * 8;
}

__device__ inline int lane_row_b()
{
    return threadIdx.x % 8 + threadIdx.x % WARP / 16 * 8;
}

__device__ inline int lane_column_b()
{
    return threadIdx.x % 16 / 8 * 8;
}

/* A: rows row .. row + 15, channels 16 step .. of a tile. */
template <int D>
__device__ inline void
tile_a(uint32_t (&a)[4], const bf16 *tile, int row, int step)
{
    ldmatrix(a, tile + (row + lane_row_a()) * tile_ld<D>() + step * 16 +
                    lane_column_a());
}

/* B whose columns are rows row .. row + 15 of a tile, k = channels 16 step ..:
 * b[0], b[1] for columns 0-7, b[2], b[3] for 8-15. */
template <int D>
__device__ inline void
tile_b(uint32_t (&b)[4], const bf16 *tile, int row, int step)
{
    ldmatrix(b, tile + (row + lane_row_b()) * tile_ld<D>() + step * 16 +
                    lane_column_b());
}

/* B whose k are rows row .. row + 15 of a tile, columns = channels 16 step ..;
 * the same order of registers. */
template <int D>
__device__ inline void
tile_b_trans(uint32_t (&b)[4], const bf16 *tile, int row, int step)
{
    ldmatrix_trans(b, tile + (row + lane_row_a()) * tile_ld<D>() + step * 16 +
                          lane_column_a());
}

/* A of the next product from two neighbouring 16 x 8 results. */
__device__ inline void
a_from(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4])
{
    a[0] = pack_bf16(left[0], left[1]);
    a[1] = pack_bf16(left[2], left[3]);
    a[2] = pack_bf16(right[0], right[1]);
    a[3] = pack_bf16(right[2], right[3]);
}

template <int N> __device__ inline void zero(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        for (int i = 0; i < 4; i++) {
            c[n][i] = 0;
        }
    }
}

template <int M, int N> __device__ inline void zero(float (&c)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++) {
        zero(c[m]);
    }
}

/* What a warp multiplies from the left at every tile: rows row .. row + 16 M - 1
 * of a tile in shared memory, or (KEPT) its registers, which read it once. */
template <int D, int M, bool KEPT> struct left_rows {
    const bf16 *tile;
    int row;
    uint32_t kept[KEPT ? D / 16 : 1][M][4];
};

template <int D, int M, bool KEPT>
__device__ inline struct left_rows<D, M, KEPT> rows_of(const bf16 *tile,
                                                       int row)
{
    struct left_rows<D, M, KEPT> left;

    left.tile = tile;
    left.row = row;
    return left;
}

/* The tile is here; after a barrier its place can be another's. */
template <int D, int M>
__device__ inline void keep_rows(struct left_rows<D, M, true> &left)
{
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            tile_a<D>(left.kept[step][m], left.tile, left.row + m * 16, step);
        }
    }
}

/* Read rows that were copied before; then their places are free. */
template <class... ROWS> __device__ inline void keep_arrived(ROWS &...left)
{
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    (keep_rows(left), ...);
    __syncthreads();
}

/* c (16 M, 8 N) += a, channels 16 step .., times those of the rows of `right` */
template <int D, int M, int N>
__device__ inline void multiply_step(float (&c)[M][N][4],
                                     const uint32_t (&a)[M][4],
                                     const bf16 *right,
                                     int step)
{
#pragma unroll
    for (int n = 0; n < N / 2; n++) {
        uint32_t b[4];

        tile_b<D>(b, right, n * 16, step);
#pragma unroll
        for (int m = 0; m < M; m++) {
            mma_bf16(c[m][2 * n], a[m], b[0], b[1]);
            mma_bf16(c[m][2 * n + 1], a[m], b[2], b[3]);
        }
    }
}

/* c (16 M, 8 N) = `left` times the rows of `right` (8 N of them), D wide. */
template <int D, int M, int N, bool KEPT>
__device__ inline void multiply(float (&c)[M][N][4],
                                const struct left_rows<D, M, KEPT> &left,
                                const bf16 *right)
{
    zero(c);
#pragma unroll
    for (int step = 0; step < D / 16; step++) {
        if constexpr (KEPT) {
            multiply_step<D>(c, left.kept[step], right, step);
        } else {
            uint32_t a[M][4];

#pragma unroll
            for (int m = 0; m < M; m++) {
                tile_a<D>(a[m], left.tile, left.row + m * 16, step);
            }
            multiply_step<D>(c, a, right, step);
        }
    }
}

/* sum (16 M, D) += x (16 M, 8 N) times `tile` (8 N rows, D) */
template <int D, int M, int N>
__device__ inline void accumulate(float (&sum)[M][D / 8][4],
                                  const float (&x)[M][N][4],
                                  const bf16 *tile)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        uint32_t a[M][4];

#pragma unroll
        for (int m = 0; m < M; m++) {
            a_from(a[m], x[m][2 * k], x[m][2 * k + 1]);
        }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];

            tile_b_trans<D>(b, tile, k * 16, n);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma_bf16(sum[m][2 * n], a[m], b[0], b[1]);
                mma_bf16(sum[m][2 * n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

/* Write 16 rows of a result: c[n] are columns 8 n ..; rows from `first` below
 * `rows`, channels below d. */
template <int D>
__device__ inline void rows_store(bf16 *to,
                                  int64_t ld,
                                  const float (&c)[D / 8][4],
                                  float low,
                                  float high,
                                  int first,
                                  int rows,
                                  int d)
{
    int lane = threadIdx.x % WARP;

    for (int half = 0; half < 2; half++) {
        int row = first + lane / 4 + half * 8;
        float scale = half == 0 ? low : high;

#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            int at = n * 8 + lane % 4 * 2;

            if (row < rows && at < d) {
                *(uint32_t *)(to + row * ld + at) = pack_bf16(
                    c[n][2 * half] * scale, c[n][2 * half + 1] * scale);
            }
        }
    }
}

/* ---- softmax over tiles of 64 keys -------------------------------------- */

#define KEYS 64

/* Of the two rows that a lane has a share of, g and g + 8 of a warp's 16: the
 * maximum so far, unscaled; the sum of this lane's columns. */
struct softmax_rows {
    float max[2], sum[2];
};

__device__ inline struct softmax_rows softmax_none()
{
    return {{-INFINITY, -INFINITY}, {0, 0}};
}

/* Keys behind their query count nothing. q0, k0: what row 0 of the warp's 16
 * and column 0 are. */
__device__ inline void mask_keys(float (&s)[KEYS / 8][4], int q0, int k0)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = q0 + lane / 4 + i / 2 * 8;
            int key = k0 + n * 8 + lane % 4 * 2 + i % 2;

            s[n][i] = key > row ? -INFINITY : s[n][i];
        }
    }
}

/* S becomes P; the rows follow the new maximum, and so must O, by `shrink`. */
__device__ inline void soften(float (&s)[KEYS / 8][4],
                              struct softmax_rows &rows,
                              float (&shrink)[2],
                              float c)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = rows.max[half];
        float sum = 0;

#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
            top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        }
        top = fmaxf(top, __shfl_xor_sync(ALL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL, top, 2));
        shrink[half] = fast_exp2((rows.max[half] - top) * c);
        rows.max[half] = top;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = fast_exp2(s[n][i] * c - top * c);
                sum += s[n][i];
            }
        }
        rows.sum[half] = rows.sum[half] * shrink[half] + sum;
    }
}

template <int N>
__device__ inline void scale_rows(float (&o)[N][4], const float (&by)[2])
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        o[n][0] *= by[0];
        o[n][1] *= by[0];
        o[n][2] *= by[1];
        o[n][3] *= by[1];
    }
}

/* What O must be multiplied by, and lse of rows `first` and on. */
__device__ inline void softmax_end(const struct softmax_rows &rows,
                                   float (&inverse)[2],
                                   float *lse,
                                   const struct flash_args &a,
                                   int first)
{
    int lane = threadIdx.x % WARP;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = rows.sum[half];
        int row = first + lane / 4 + half * 8;

        sum += __shfl_xor_sync(ALL, sum, 1);
        sum += __shfl_xor_sync(ALL, sum, 2);
        inverse[half] = 1.0f / sum;
        if (lane % 4 == 0 && row < a.t) {
            lse[row] = rows.max[half] * a.scale + logf(sum);
        }
    }
}

/* A multiprocessor with 100 KB of shared memory (sm_86, sm_89, sm_120) holds one
 * block of the forms that others take, but for heads of 32. Its forms have less
 * of it, so that two or three blocks fit; each row is made by the same sums in
 * the same order, so the bits are those of the others. */
#define FLASH_SMALL ((size_t)100 << 10)

template <int D> static inline bool flash_small(const struct gpu *g)
{
    return D > 32 && g->shared_bytes <= FLASH_SMALL;
}

/* Shared memory above 48 KB must be asked for. */
#define LAUNCH_FLASH(g, name, kernel, grid, threads, shared, args)             \
    do {                                                                       \
        int asked = gpu_check(                                                 \
            g,                                                                 \
            cudaFuncSetAttribute((const void *)(kernel),                       \
                                 cudaFuncAttributeMaxDynamicSharedMemorySize,  \
                                 (int)(shared)),                               \
            name);                                                             \
                                                                               \
        if (asked != 0) {                                                      \
            return asked;                                                      \
        }                                                                      \
        LAUNCH(kernel, grid, threads, shared, (g)->stream, args);              \
    } while (0)

static inline struct flash_args flash_args_of(const struct attention *op)
{
    struct flash_args a = {};

    a.qkv = (const bf16 *)op->qkv;
    a.out = (const bf16 *)op->out;
    a.dout = (const bf16 *)op->dout;
    a.lse = op->lse;
    a.t = (int)op->t;
    a.heads = (int)op->heads;
    a.kv_heads = (int)op->kv_heads;
    a.d = (int)op->d;
    a.ld = (op->heads + 2 * op->kv_heads) * op->d;
    a.scale = (float)(1.0 / sqrt((double)op->d));
    return a;
}

/* Whether the tiles can serve: 16-byte rows, a head of at most 128. */
static inline bool flash_serves(const struct gpu *g, const struct attention *op)
{
    return g->opt.bf16 && op->d % 8 == 0 && op->d <= 128 && aligned(op->qkv) &&
           aligned(op->out) && aligned(op->dout) && aligned(op->dqkv);
}

/* Run f<D> for the smallest padded head size. */
#define FOR_HEAD_SIZE(d, f, ...)                                               \
    ((d) <= 32   ? f<32>(__VA_ARGS__)                                          \
     : (d) <= 64 ? f<64>(__VA_ARGS__)                                          \
     : (d) <= 80 ? f<80>(__VA_ARGS__)                                          \
                 : f<128>(__VA_ARGS__))

#endif
