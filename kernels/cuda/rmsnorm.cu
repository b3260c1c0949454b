/* rmsnorm.cu - y = x / rms(x) * w, per row. Zhang & Sennrich 2019, eq. 4.
 *
 *   x, add, y (N, C)  w (C) fp32  rrms (N) fp32
 *
 * A warp holds a row in registers (up to KEEP vectors a lane), adds `add`,
 * stores the sum, and norms what the store made of it: a pass that is made
 * again from the stored stream gives the same bits. 4 passes of N C with `add`,
 * 2 without. The gradient: rmsnorm_bwd.cu.
 */
#include "kernels/cuda/common.cuh"

#define FWD_WARPS 4

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
