/* swiglu.cu - h = silu(g) u with silu(g) = g sig(g). Shazeer 2020, eq. 6.
 *
 *   gu, dgu (N, 2F): g then u in each row  h, dh (N, F)
 *   dg = dh u sig (1 + g (1 - sig))  du = dh g sig
 *
 * Element-wise and bound by memory: 3 and 5 passes of N F. sig(-x) is computed
 * for the negative side, so that no exponent overflows.
 */
#include "kernels/cuda/common.cuh"

/* 1 / (1 + exp(-x)) */
__device__ inline float sigmoid(float x)
{
    float e = expf(-fabsf(x));

    /* fabsf and a choice keep NaN */
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/* Block (row, columns). */
template <class T, int V>
__global__ void swiglu_fwd_kernel(T *h, const T *gu, int64_t f)
{
    int64_t row = blockIdx.x;
    int64_t i = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float g[V], u[V], out[V];

    if (i >= f) {
        return;
    }
    load(g, gu + row * 2 * f + i);
    load(u, gu + row * 2 * f + f + i);
    for (int v = 0; v < V; v++) {
        out[v] = g[v] * sigmoid(g[v]) * u[v];
    }
    store(h + row * f + i, out);
}

template <class T, int V>
__global__ void swiglu_bwd_kernel(T *dgu, const T *gu, const T *dh, int64_t f)
{
    int64_t row = blockIdx.x;
    int64_t i = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float g[V], u[V], d[V], dg[V], du[V];

    if (i >= f) {
        return;
    }
    load(g, gu + row * 2 * f + i);
    load(u, gu + row * 2 * f + f + i);
    load(d, dh + row * f + i);
    for (int v = 0; v < V; v++) {
        float sig = sigmoid(g[v]);

        dg[v] = d[v] * u[v] * sig * (1.0f + g[v] * (1.0f - sig));
        du[v] = d[v] * g[v] * sig;
    }
    store(dgu + row * 2 * f + i, dg);
    store(dgu + row * 2 * f + f + i, du);
}

/* Columns of a block: a row in as few blocks of at most 256 threads as can be,
 * evenly. */
static unsigned threads_for(int64_t vectors)
{
    int64_t blocks = blocks_for(vectors, 256);

    return (unsigned)(blocks_for(blocks_for(vectors, blocks), WARP) * WARP);
}

template <class T, int V>
static int run(struct gpu *g, const struct swiglu *op, bool backward)
{
    auto fwd = swiglu_fwd_kernel<T, V>;
    auto bwd = swiglu_bwd_kernel<T, V>;
    int64_t f = op->f;
    unsigned threads = threads_for(f / V);
    dim3 grid((unsigned)op->n, (unsigned)blocks_for(f / V, threads));
    const T *gu = (const T *)op->gu;
    const T *dh = (const T *)op->dh;
    T *h = (T *)op->h;
    T *dgu = (T *)op->dgu;

    if (backward) {
        LAUNCH(bwd, grid, threads, 0, g->stream, dgu, gu, dh, f);
        return gpu_launched(g, "swiglu_bwd");
    }
    LAUNCH(fwd, grid, threads, 0, g->stream, h, gu, f);
    return gpu_launched(g, "swiglu_fwd");
}

static int swiglu(struct gpu *g, const struct swiglu *op, bool backward)
{
    bool wide =
        op->f % 8 == 0 && aligned(op->gu) &&
        (backward ? aligned(op->dh) && aligned(op->dgu) : aligned(op->h));

    return FOR_TYPE(g, wide, run, g, op, backward);
}

int cuda_swiglu_fwd(struct gpu *g, const struct swiglu *op)
{
    return swiglu(g, op, false);
}

int cuda_swiglu_bwd(struct gpu *g, const struct swiglu *op)
{
    return swiglu(g, op, true);
}
