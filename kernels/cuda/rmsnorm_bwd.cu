/* rmsnorm_bwd.cu - the gradient of y = x / rms(x) * w.
 *
 *   x, dy, dx (N, C)  w, dw (C) fp32  rrms (N) fp32
 *
 * With s = sum_c(dy w x) of a row:
 *   dx[c] += rrms (dy[c] w[c] - x[c] rrms^2 s / C)
 *   dw[c] += sum_n dy[n, c] x[n, c] rrms[n]
 *
 * The same warp makes dx and its share of dw, so x and dy are read once: 4
 * passes. Up to 2,048 channels of bf16 a warp has a whole row of x, dy and dx
 * on their way before it needs the first, and each lane its columns' sums of dw
 * in registers (rmsnorm_kept); otherwise sums lie in shared memory and a row is
 * read twice. The block adds its warps in order and writes one row of partial
 * sums, rmsnorm_join adds those rows in a fixed order. BLOCKS is a constant,
 * not the number of multiprocessors, so that all GPUs make the same bits.
 */
#include "kernels/cuda/common.cuh"
#include "proto/base/err.h"

#define BACK_WARPS  8
#define BLOCKS      PLUGIN_NORM_BLOCKS
#define JOIN_ROWS   8
#define SHARED_MAX  (48 << 10) /* what every block may have unasked */
#define COLUMNS_MAX (SHARED_MAX / (int)sizeof(float))

struct back_args {
    const void *x, *dy;
    const float *w, *rrms;
    void *dx;     /* NULL: not wanted */
    float *parts; /* (gridDim.x, C); NULL: dw is not wanted */
    int64_t n, c;
    int blocks; /* of the launch, and rows of parts */
};

template <class T, int V>
__global__ void rmsnorm_back_kernel(struct back_args a)
{
    SHARED(memory);
    int warp = threadIdx.x / WARP;
    int64_t first = threadIdx.x % WARP * V;
    int warps = blockDim.x / WARP;
    float *sums = (float *)memory; /* (warps, C) */
    float *own = sums + warp * a.c;

    for (int64_t i = first; i < a.c && a.parts != NULL; i += WARP * V) {
        for (int v = 0; v < V; v++) {
            own[i + v] = 0;
        }
    }
    for (int64_t row = (int64_t)blockIdx.x * warps + warp; row < a.n;
         row += (int64_t)gridDim.x * warps) {
        const T *x = (const T *)a.x + row * a.c;
        const T *dy = (const T *)a.dy + row * a.c;
        T *dx = (T *)a.dx + (a.dx == NULL ? 0 : row * a.c);
        float rrms = a.rrms[row];
        float s = 0;

        for (int64_t i = first; i < a.c; i += WARP * V) {
            float xf[V], df[V], w[V];

            load(xf, x + i);
            load(df, dy + i);
            load(w, a.w + i);
            for (int v = 0; v < V; v++) {
                s += df[v] * w[v] * xf[v];
            }
            for (int v = 0; v < V && a.parts != NULL; v++) {
                own[i + v] += df[v] * xf[v] * rrms;
            }
        }
        if (a.dx == NULL) {
            continue; /* the same for all lanes */
        }
        s = warp_sum(s) * rrms * rrms / (float)a.c;
        for (int64_t i = first; i < a.c; i += WARP * V) {
            float xf[V], df[V], w[V], out[V];

            load(xf, x + i);
            load(df, dy + i);
            load(w, a.w + i);
            load(out, dx + i);
            for (int v = 0; v < V; v++) {
                out[v] += rrms * (df[v] * w[v] - xf[v] * s);
            }
            store(dx + i, out);
        }
    }
    if (a.parts == NULL) {
        return;
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.c; i += blockDim.x) {
        float sum = 0;

        for (int k = 0; k < warps; k++) {
            sum += sums[k * a.c + i];
        }
        a.parts[blockIdx.x * a.c + i] = sum;
    }
}

/* The block's sums of dw, one warp after the other; sums: (C). */
template <int KEEP>
__device__ inline void
join_warps(const struct back_args &a, float *sums, const float (&own)[KEEP][8])
{
    int warp = threadIdx.x / WARP;
    int lane = threadIdx.x % WARP;

    for (int turn = 0; turn < BACK_WARPS; turn++) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            int i = (k * WARP + lane) * 8;

            for (int v = 0; v < 8 && warp == turn && i < a.c; v++) {
                sums[i + v] = (turn == 0 ? 0 : sums[i + v]) + own[k][v];
            }
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.c; i += blockDim.x) {
        a.parts[blockIdx.x * a.c + i] = sums[i];
    }
}

/* As rmsnorm_back, of bf16, C at most KEEP * 256 and a multiple of 8. Shared
 * memory: w, then sums of dw. */
template <int KEEP>
__global__ void __launch_bounds__(BACK_WARPS *WARP, KEEP > 4 ? 1 : 2)
    rmsnorm_kept_kernel(struct back_args a)
{
    SHARED(memory);
    int lane = threadIdx.x % WARP;
    float *weights = (float *)memory;
    float own[KEEP][8] = {};

    for (int i = threadIdx.x; i < a.c; i += blockDim.x) {
        weights[i] = a.w[i];
    }
    __syncthreads();
    for (int64_t row = (int64_t)blockIdx.x * BACK_WARPS + threadIdx.x / WARP;
         row < a.n; row += (int64_t)gridDim.x * BACK_WARPS) {
        const bf16 *x = (const bf16 *)a.x + row * a.c;
        const bf16 *dy = (const bf16 *)a.dy + row * a.c;
        bf16 *dx = (bf16 *)a.dx + (a.dx == NULL ? 0 : row * a.c);
        uint4 xs[KEEP], ds[KEEP], outs[KEEP];
        float rrms = a.rrms[row];
        float s = 0;

#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            int i = (k * WARP + lane) * 8;

            xs[k] = ds[k] = outs[k] = make_uint4(0, 0, 0, 0);
            if (i < a.c) {
                xs[k] = *(const uint4 *)(x + i);
                ds[k] = *(const uint4 *)(dy + i);
                if (a.dx != NULL) {
                    outs[k] = *(const uint4 *)(dx + i);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            int i = (k * WARP + lane) * 8;
            float xf[8], df[8], w[8];

            if (i < a.c) {
                unpack(xf, xs[k]);
                unpack(df, ds[k]);
                load(w, weights + i);
                for (int v = 0; v < 8; v++) {
                    s += df[v] * w[v] * xf[v];
                    own[k][v] += df[v] * xf[v] * rrms;
                }
            }
        }
        s = warp_sum(s) * rrms * rrms / (float)a.c;
#pragma unroll
        for (int k = 0; k < KEEP; k++) {
            int i = (k * WARP + lane) * 8;
            float xf[8], df[8], w[8], out[8];

            if (i < a.c && a.dx != NULL) {
                unpack(xf, xs[k]);
                unpack(df, ds[k]);
                unpack(out, outs[k]);
                load(w, weights + i);
                for (int v = 0; v < 8; v++) {
                    out[v] += rrms * (df[v] * w[v] - xf[v] * s);
                }
                store(dx + i, out);
            }
        }
    }
    if (a.parts != NULL) {
        join_warps<KEEP>(a, weights + a.c, own);
    }
}

/* dw[c] += sum of column c of parts (rows, C), in a fixed order. Block of
 * (32, JOIN_ROWS) threads. */
__global__ void
rmsnorm_join_kernel(float *dw, const float *parts, int rows, int64_t c)
{
    SHARED(memory);
    float *sums = (float *)memory; /* (JOIN_ROWS, 32) */
    int64_t i = (int64_t)blockIdx.x * WARP + threadIdx.x;
    float sum = 0;

    for (int r = threadIdx.y; r < rows && i < c; r += JOIN_ROWS) {
        sum += parts[r * c + i];
    }
    sums[threadIdx.y * WARP + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || i >= c) {
        return;
    }
    sum = 0;
    for (int r = 0; r < JOIN_ROWS; r++) {
        sum += sums[r * WARP + threadIdx.x];
    }
    dw[i] += sum;
}

/* ---- launchers ---------------------------------------------------------- */

/* Warps whose sums of dw fit into a block's shared memory. */
static int back_warps(const struct back_args *a)
{
    int64_t fit = a->parts == NULL ? BACK_WARPS : COLUMNS_MAX / a->c;

    return fit < BACK_WARPS ? (int)fit : BACK_WARPS;
}

static int back_blocks(int64_t n, int warps)
{
    int64_t blocks = blocks_for(n, warps);

    return (int)(blocks < BLOCKS ? blocks : BLOCKS);
}

template <class T, int V> static int back(struct gpu *g, struct back_args *args)
{
    auto kernel = rmsnorm_back_kernel<T, V>;
    int warps = back_warps(args);
    size_t shared =
        args->parts == NULL ? 0 : (size_t)(warps * args->c) * sizeof(float);
    struct back_args a;

    args->blocks = back_blocks(args->n, warps);
    a = *args;
    LAUNCH(kernel, (unsigned)a.blocks, warps * WARP, shared, g->stream, a);
    return gpu_launched(g, "rmsnorm_back");
}

template <int KEEP> static int kept(struct gpu *g, struct back_args *args)
{
    auto kernel = rmsnorm_kept_kernel<KEEP>;
    size_t shared = 2 * (size_t)args->c * sizeof(float);
    struct back_args a;

    args->blocks = back_blocks(args->n, BACK_WARPS);
    a = *args;
    LAUNCH(kernel, (unsigned)a.blocks, BACK_WARPS * WARP, shared, g->stream, a);
    return gpu_launched(g, "rmsnorm_back");
}

template <class T> static int back_of(struct gpu *g, struct back_args *a)
{
    if (a->c % 8 != 0 || !aligned(a->x) || !aligned(a->dy) || !aligned(a->dx) ||
        !aligned(a->w)) {
        return back<T, 1>(g, a);
    }
    if (g->opt.bf16 && a->c <= 8 * WARP * 8) {
        return a->c <= 4 * WARP * 8 ? kept<4>(g, a) : kept<8>(g, a);
    }
    return back<T, 8>(g, a);
}

static int
join(struct gpu *g, float *dw, const float *parts, int rows, int64_t c)
{
    LAUNCH(rmsnorm_join_kernel, (unsigned)blocks_for(c, WARP),
           dim3(WARP, JOIN_ROWS), WARP * JOIN_ROWS * sizeof(float), g->stream,
           dw, parts, rows, c);
    return gpu_launched(g, "rmsnorm_join");
}

static int
run_back(struct gpu *g, const struct rmsnorm *op, bool want_dx, bool want_dw)
{
    struct back_args a = {};
    int rv = 0;

    a.x = op->x;
    a.dy = op->dy;
    a.w = op->w;
    a.rrms = op->rrms;
    a.dx = want_dx ? op->dx : NULL;
    a.n = op->n;
    a.c = op->c;
    if (want_dw && op->c > COLUMNS_MAX) {
        return gpu_fail(g, LOCO_EINVAL, "rmsnorm_dw",
                        "a model wider than 12,288 channels");
    }
    if (want_dw) {
        rv =
            gpu_slot(g, SLOT_NORM_PARTS, BLOCKS * (size_t)op->c * sizeof(float),
                     (void **)&a.parts);
    }
    if (rv == 0) {
        rv = g->opt.bf16 ? back_of<bf16>(g, &a) : back_of<float>(g, &a);
    }
    if (rv == 0 && want_dw) {
        rv = join(g, op->dw, a.parts, a.blocks, op->c);
    }
    return rv;
}

int cuda_rmsnorm_bwd(struct gpu *g, const struct rmsnorm *op)
{
    return run_back(g, op, true, false);
}

int cuda_rmsnorm_dw(struct gpu *g, const struct rmsnorm *op)
{
    return run_back(g, op, false, true);
}

int cuda_rmsnorm_back(struct gpu *g, const struct rmsnorm *op)
{
    return run_back(g, op, true, true);
}
