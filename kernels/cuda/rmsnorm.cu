/* rmsnorm.cu - y = x / rms(x) * w, per row. Zhang & Sennrich 2019, eq. 4.
 *
 *   x, add, y, dy, dx (N, C)  w, dw (C) fp32  rrms (N) fp32
 *
 * With s = sum_c(dy w x) of a row:
 *   dx[c] += rrms (dy[c] w[c] - x[c] rrms^2 s / C)
 *   dw[c] += sum_n dy[n, c] x[n, c] rrms[n]
 *
 * Forward: a warp holds a row in registers (up to KEEP vectors a lane), adds
 * `add`, stores the sum, and norms what the store made of it: a pass that is
 * made again from the stored stream gives the same bits. 4 passes of N C with
 * `add`, 2 without.
 *
 * Backward: the same warp makes dx and its share of dw, so x and dy are read
 * once: 4 passes. Each warp keeps sums of dw in shared memory, columns owned by
 * one lane; the block adds its warps in order and writes one row of partial
 * sums, rmsnorm_join adds those rows in a fixed order. BLOCKS is a constant,
 * not the number of multiprocessors, so that all GPUs make the same bits.
 */
#include "kernels/cuda/common.cuh"
#include "proto/base/err.h"

#define FWD_WARPS   4
#define BACK_WARPS  8
#define BLOCKS      PLUGIN_NORM_BLOCKS
#define JOIN_ROWS   8
#define SHARED_MAX  (48 << 10) /* what every block may have unasked */
#define COLUMNS_MAX (SHARED_MAX / (int)sizeof(float))

/* Vectors a lane keeps between the two passes over its row; 0: read again. */
template <class T, int V, int KEEP>
__global__ void rmsnorm_fwd_kernel(T *x,
                                   const T *add,
                                   const float *w,
                                   T *y,
                                   float *rrms,
                                   int64_t n,
                                   int64_t c,
                                   float eps)
{
    int64_t row = (int64_t)blockIdx.x * FWD_WARPS + threadIdx.x / WARP;
    int lane = threadIdx.x % WARP;
    float kept[KEEP > 0 ? KEEP : 1][V];
    float sum = 0;
    float scale;

    if (row >= n) {
        return;
    }
    x += row * c;
    y += row * c;
#pragma unroll
    for (int k = 0; KEEP == 0 || k < KEEP; k++) {
        int64_t i = ((int64_t)k * WARP + lane) * V;
        float(&f)[V] = kept[KEEP > 0 ? k : 0];

        if (i >= c) {
            break;
        }
        load(f, x + i);
        if (add != NULL) {
            float a[V];

            load(a, add + row * c + i);
            for (int v = 0; v < V; v++) {
                f[v] = rounded(x, f[v] + a[v]);
            }
            store(x + i, f);
        }
        for (int v = 0; v < V; v++) {
            sum += f[v] * f[v];
        }
    }
    sum = warp_sum(sum);
    scale = 1.0f / sqrtf(sum / (float)c + eps);
    if (lane == 0) {
        rrms[row] = scale;
    }
#pragma unroll
    for (int k = 0; KEEP == 0 || k < KEEP; k++) {
        int64_t i = ((int64_t)k * WARP + lane) * V;
        float(&f)[V] = kept[KEEP > 0 ? k : 0];
        float weight[V];
        float out[V];

        if (i >= c) {
            break;
        }
        if (KEEP == 0) {
            load(f, x + i);
        }
        load(weight, w + i);
        for (int v = 0; v < V; v++) {
            out[v] = f[v] * scale * weight[v];
        }
        store(y + i, out);
    }
}

struct back_args {
    const void *x, *dy;
    const float *w, *rrms;
    void *dx;     /* NULL: not wanted */
    float *parts; /* (gridDim.x, C); NULL: dw is not wanted */
    int64_t n, c;
};

template <class T, int V, int KEEP>
__global__ void rmsnorm_back_kernel(struct back_args a)
{
    SHARED(memory);
    int warp = threadIdx.x / WARP;
    int lane = threadIdx.x % WARP;
    int warps = blockDim.x / WARP;
    float *sums = (float *)memory; /* (warps, C) */
    float *own = sums + warp * a.c;
    float xs[KEEP > 0 ? KEEP : 1][V];
    float ds[KEEP > 0 ? KEEP : 1][V];

    for (int64_t i = (int64_t)lane * V; i < a.c && a.parts != NULL;
         i += WARP * V) {
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

#pragma unroll
        for (int k = 0; KEEP == 0 || k < KEEP; k++) {
            int64_t i = ((int64_t)k * WARP + lane) * V;
            float(&xf)[V] = xs[KEEP > 0 ? k : 0];
            float(&df)[V] = ds[KEEP > 0 ? k : 0];
            float w[V];

            if (i >= a.c) {
                break;
            }
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
#pragma unroll
        for (int k = 0; KEEP == 0 || k < KEEP; k++) {
            int64_t i = ((int64_t)k * WARP + lane) * V;
            float(&xf)[V] = xs[KEEP > 0 ? k : 0];
            float(&df)[V] = ds[KEEP > 0 ? k : 0];
            float w[V];
            float out[V];

            if (i >= a.c) {
                break;
            }
            if (KEEP == 0) {
                load(xf, x + i);
                load(df, dy + i);
            }
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

template <class T, int V, int KEEP>
static int fwd(struct gpu *g, const struct rmsnorm *op)
{
    auto kernel = rmsnorm_fwd_kernel<T, V, KEEP>;
    T *x = (T *)op->x;
    const T *add = (const T *)op->add;
    T *y = (T *)op->y;
    const float *w = op->w;
    float *rrms = op->rrms;
    int64_t n = op->n;
    int64_t c = op->c;
    float eps = op->eps;

    LAUNCH(kernel, (unsigned)blocks_for(n, FWD_WARPS), FWD_WARPS * WARP, 0,
           g->stream, x, add, w, y, rrms, n, c, eps);
    return gpu_launched(g, "rmsnorm_fwd");
}

template <class T> static int fwd_of(struct gpu *g, const struct rmsnorm *op)
{
    if (op->c % 8 != 0 || !aligned(op->x) || !aligned(op->add) ||
        !aligned(op->y) || !aligned(op->w)) {
        return fwd<T, 1, 0>(g, op);
    }
    return op->c <= 4 * WARP * 8   ? fwd<T, 8, 4>(g, op)
           : op->c <= 8 * WARP * 8 ? fwd<T, 8, 8>(g, op)
                                   : fwd<T, 8, 0>(g, op);
}

int cuda_rmsnorm_fwd(struct gpu *g, const struct rmsnorm *op)
{
    return g->opt.bf16 ? fwd_of<bf16>(g, op) : fwd_of<float>(g, op);
}

/* Warps whose sums of dw fit into a block's shared memory. */
static int back_warps(const struct back_args *a)
{
    int64_t fit = a->parts == NULL ? BACK_WARPS : COLUMNS_MAX / a->c;

    return fit < BACK_WARPS ? (int)fit : BACK_WARPS;
}

static unsigned back_blocks(int64_t n, int warps)
{
    int64_t blocks = blocks_for(n, warps);

    return (unsigned)(blocks < BLOCKS ? blocks : BLOCKS);
}

template <class T, int V, int KEEP>
static int back(struct gpu *g, const struct back_args *args)
{
    auto kernel = rmsnorm_back_kernel<T, V, KEEP>;
    struct back_args a = *args;
    int warps = back_warps(args);
    size_t shared = a.parts == NULL ? 0 : (size_t)(warps * a.c) * sizeof(float);

    LAUNCH(kernel, back_blocks(a.n, warps), warps * WARP, shared, g->stream, a);
    return gpu_launched(g, "rmsnorm_back");
}

template <class T> static int back_of(struct gpu *g, const struct back_args *a)
{
    if (a->c % 8 != 0 || !aligned(a->x) || !aligned(a->dy) || !aligned(a->dx) ||
        !aligned(a->w)) {
        return back<T, 1, 0>(g, a);
    }
    return a->c <= 4 * WARP * 8 ? back<T, 8, 4>(g, a) : back<T, 8, 0>(g, a);
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
        rv = join(g, op->dw, a.parts, (int)back_blocks(a.n, back_warps(&a)),
                  op->c);
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
