/* attention_plain.cu - causal attention with grouped heads, a warp a row.
 *
 *   qkv (N, (H + 2 KV) D)  out (N, H D)  lse (B, H, T) fp32
 *   equations: cpu/attention.c
 *
 * For fp32 (the tests' exact mode) and for head sizes that attention.cu has no
 * tiles for; any D up to 256. A lane makes the score of one of 32 keys, then
 * owns channels lane, lane + 32, .. of the sums while the weights go round by
 * shuffles. Backward: one kernel with a warp per query for dq, one with a warp
 * per key, which goes through all query heads of its group, for dk and dv; no
 * atomics. Simple, and slow: no shared memory, no tensor cores. More sequences
 * than a grid has blocks (65,535) are refused as LOCO_ENOMEM: the launch would
 * fail and break the GPU, while a smaller micro-batch works.
 */
#include "kernels/cuda/common.cuh"
#include "proto/base/err.h"

#define GRID_MAX 65535 /* blocks in y and in z */
#define WARPS    4
#define D_MAX    256
#define OWN      (D_MAX / WARP) /* channels of a lane */

struct plain_args {
    const void *qkv, *out, *dout;
    void *to; /* out or dqkv */
    float *lse;
    const float *delta;
    int64_t b, t;
    int heads, kv_heads, d;
    int64_t ld;
    float scale;
};

/* q . k over d */
template <class T> __device__ inline float dot(const T *x, const T *y, int d)
{
    float sum = 0;

    for (int i = 0; i < d; i++) {
        sum += to_float(x[i]) * to_float(y[i]);
    }
    return sum;
}

/* sums[i] += weight of lane k * row k's channels, for 32 rows from `rows` */
template <class T>
__device__ inline void add_rows(float (&sums)[OWN],
                                float weight,
                                const T *rows,
                                int64_t ld,
                                int64_t count,
                                int d)
{
    int lane = threadIdx.x % WARP;

    for (int k = 0; k < WARP; k++) {
        float w = __shfl_sync(ALL, weight, k);

        if (k >= count) {
            break; /* the same for all lanes */
        }
        for (int i = 0; i < OWN; i++) {
            int c = i * WARP + lane;

            if (c < d) {
                sums[i] += w * to_float(rows[k * ld + c]);
            }
        }
    }
}

template <class T>
__device__ inline void
write_row(T *to, const float (&sums)[OWN], float scale, int d)
{
    for (int i = 0; i < OWN; i++) {
        int c = i * WARP + threadIdx.x % WARP;

        if (c < d) {
            set(to + c, sums[i] * scale);
        }
    }
}

/* Block (query rows, H, B). */
template <class T> __global__ void plain_fwd_kernel(struct plain_args a)
{
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int h = blockIdx.y;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    const T *base = (const T *)a.qkv + row0 * a.ld;
    const T *q = base + i * a.ld + h * a.d;
    const T *k = base + (a.heads + h / (a.heads / a.kv_heads)) * a.d;
    const T *v = k + a.kv_heads * a.d;
    float sums[OWN] = {0};
    float max = -INFINITY;
    float total = 0;

    if (i >= a.t) {
        return;
    }
    for (int64_t j0 = 0; j0 <= i; j0 += WARP) {
        int64_t j = j0 + threadIdx.x % WARP;
        float s = j <= i ? dot(q, k + j * a.ld, a.d) * a.scale : -INFINITY;
        float grown = fmaxf(max, warp_max(s));
        float shrink = expf(max - grown);
        float p = expf(s - grown);

        total = total * shrink + warp_sum(p);
        for (int c = 0; c < OWN; c++) {
            sums[c] *= shrink;
        }
        add_rows(sums, p, v + j0 * a.ld, a.ld, i - j0 + 1, a.d);
        max = grown;
    }
    write_row((T *)a.to + (row0 + i) * a.heads * a.d + h * a.d, sums,
              1.0f / total, a.d);
    if (threadIdx.x % WARP == 0) {
        a.lse[((int64_t)blockIdx.z * a.heads + h) * a.t + i] =
            max + logf(total);
    }
}

template <class T> __global__ void plain_dq_kernel(struct plain_args a)
{
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int h = blockIdx.y;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    int64_t at = ((int64_t)blockIdx.z * a.heads + h) * a.t + i;
    const T *base = (const T *)a.qkv + row0 * a.ld;
    const T *q = base + i * a.ld + h * a.d;
    const T *k = base + (a.heads + h / (a.heads / a.kv_heads)) * a.d;
    const T *v = k + a.kv_heads * a.d;
    const T *dout = (const T *)a.dout + (row0 + i) * a.heads * a.d + h * a.d;
    float sums[OWN] = {0};

    if (i >= a.t) {
        return;
    }
    for (int64_t j0 = 0; j0 <= i; j0 += WARP) {
        int64_t j = j0 + threadIdx.x % WARP;
        float ds = 0;

        if (j <= i) {
            float s = dot(q, k + j * a.ld, a.d) * a.scale;

            ds = expf(s - a.lse[at]) *
                 (dot(dout, v + j * a.ld, a.d) - a.delta[at]);
        }
        add_rows(sums, ds, k + j0 * a.ld, a.ld, i - j0 + 1, a.d);
    }
    write_row((T *)a.to + (row0 + i) * a.ld + h * a.d, sums, a.scale, a.d);
}

/* Block (key rows, KV, B). */
template <class T> __global__ void plain_dkv_kernel(struct plain_args a)
{
    int64_t j = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int kv = blockIdx.y;
    int group = a.heads / a.kv_heads;
    int64_t row0 = (int64_t)blockIdx.z * a.t;
    int64_t ldo = (int64_t)a.heads * a.d;
    const T *base = (const T *)a.qkv + row0 * a.ld;
    const T *k = base + j * a.ld + (a.heads + kv) * a.d;
    const T *v = k + a.kv_heads * a.d;
    T *dk = (T *)a.to + (row0 + j) * a.ld + (a.heads + kv) * a.d;
    float dks[OWN] = {0};
    float dvs[OWN] = {0};

    if (j >= a.t) {
        return;
    }
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        int64_t at = ((int64_t)blockIdx.z * a.heads + h) * a.t;
        const T *q = base + h * a.d;
        const T *dout = (const T *)a.dout + row0 * ldo + h * a.d;

        for (int64_t i0 = j; i0 < a.t; i0 += WARP) {
            int64_t i = i0 + threadIdx.x % WARP;
            float p = 0;
            float ds = 0;

            if (i < a.t) {
                p = expf(dot(q + i * a.ld, k, a.d) * a.scale - a.lse[at + i]);
                ds = p * (dot(dout + i * ldo, v, a.d) - a.delta[at + i]);
            }
            add_rows(dks, ds, q + i0 * a.ld, a.ld, a.t - i0, a.d);
            add_rows(dvs, p, dout + i0 * ldo, ldo, a.t - i0, a.d);
        }
    }
    write_row(dk, dks, a.scale, a.d);
    write_row(dk + a.kv_heads * a.d, dvs, 1.0f, a.d);
}

/* delta = sum of dout * out over a head; a warp an item. */
template <class T> __global__ void delta_kernel(struct plain_args a, float *to)
{
    int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    int64_t n = i / a.heads;
    int h = (int)(i % a.heads);
    int64_t at = i * a.d; /* rows are heads after heads */
    float sum = 0;

    if (i >= a.b * a.t * a.heads) {
        return;
    }
    for (int c = threadIdx.x % WARP; c < a.d; c += WARP) {
        sum += to_float(((const T *)a.dout)[at + c]) *
               to_float(((const T *)a.out)[at + c]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) {
        to[(n / a.t * a.heads + h) * a.t + n % a.t] = sum;
    }
}

/* ---- launchers ---------------------------------------------------------- */

static struct plain_args args_of(const struct attention *op)
{
    struct plain_args a = {};

    a.qkv = op->qkv;
    a.out = op->out;
    a.dout = op->dout;
    a.lse = op->lse;
    a.b = op->b;
    a.t = op->t;
    a.heads = (int)op->heads;
    a.kv_heads = (int)op->kv_heads;
    a.d = (int)op->d;
    a.ld = (op->heads + 2 * op->kv_heads) * op->d;
    a.scale = (float)(1.0 / sqrt((double)op->d));
    return a;
}

static int check(struct gpu *g, const struct attention *op)
{
    return op->d <= D_MAX
               ? cuda_attention_fits(g, op)
               : gpu_fail(g, LOCO_EINVAL, "attention", "heads larger than 256");
}

static dim3 grid_of(const struct attention *op, int64_t heads)
{
    return dim3((unsigned)blocks_for(op->t, WARPS), (unsigned)heads,
                (unsigned)op->b);
}

template <class T> static int fwd(struct gpu *g, const struct attention *op)
{
    auto kernel = plain_fwd_kernel<T>;
    struct plain_args a = args_of(op);

    a.to = op->out;
    LAUNCH(kernel, grid_of(op, op->heads), WARPS * WARP, 0, g->stream, a);
    return gpu_launched(g, "attention_fwd_plain");
}

template <class T>
static int bwd(struct gpu *g, const struct attention *op, const float *delta)
{
    auto dq = plain_dq_kernel<T>;
    auto dkv = plain_dkv_kernel<T>;
    struct plain_args a = args_of(op);
    int rv;

    a.to = op->dqkv;
    a.delta = delta;
    LAUNCH(dq, grid_of(op, op->heads), WARPS * WARP, 0, g->stream, a);
    rv = gpu_launched(g, "attention_dq_plain");
    if (rv != 0) {
        return rv;
    }
    LAUNCH(dkv, grid_of(op, op->kv_heads), WARPS * WARP, 0, g->stream, a);
    return gpu_launched(g, "attention_dkv_plain");
}

int cuda_attention_delta(struct gpu *g,
                         const struct attention *op,
                         float *delta)
{
    auto half = delta_kernel<bf16>;
    auto full = delta_kernel<float>;
    struct plain_args a = args_of(op);
    unsigned blocks = (unsigned)blocks_for(op->b * op->t * op->heads, WARPS);

    if (g->opt.bf16) {
        LAUNCH(half, blocks, WARPS * WARP, 0, g->stream, a, delta);
    } else {
        LAUNCH(full, blocks, WARPS * WARP, 0, g->stream, a, delta);
    }
    return gpu_launched(g, "attention_delta");
}

int cuda_attention_fits(struct gpu *g, const struct attention *op)
{
    return op->b <= GRID_MAX && op->heads <= GRID_MAX
               ? 0
               : gpu_fail(g, LOCO_ENOMEM, "attention",
                          "more than 65,535 sequences at a time");
}

int cuda_attention_fwd_plain(struct gpu *g, const struct attention *op)
{
    int rv = check(g, op);

    return rv != 0 ? rv : g->opt.bf16 ? fwd<bf16>(g, op) : fwd<float>(g, op);
}

int cuda_attention_bwd_plain(struct gpu *g, const struct attention *op)
{
    float *delta = NULL;
    int rv = check(g, op);

    if (rv == 0) {
        rv = gpu_slot(g, SLOT_DELTA,
                      (size_t)(op->b * op->heads * op->t) * sizeof *delta,
                      (void **)&delta);
    }
    rv = rv == 0 ? cuda_attention_delta(g, op, delta) : rv;
    return rv != 0       ? rv
           : g->opt.bf16 ? bwd<bf16>(g, op, delta)
                         : bwd<float>(g, op, delta);
}
