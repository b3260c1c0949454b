/* xent.cu - loss[n] = log(sum_v exp(z[n, v])) - z[n, target].
 *
 *   logits z (N, ld), V of them used  targets (N)  loss (N) fp32
 *   with grad: z[n, v] becomes softmax(z)[v] - (v == target), behind V 0
 *
 * Behind the V logits of a row lies what fills it up to whole vectors. A vector
 * that holds some of either takes the others for -inf: they are no maximum and
 * add nothing.
 *
 * One block a row. Up to 32,768 columns of bf16 stay in registers: read once, a
 * maximum, a sum, written (xent_kept). Otherwise the first pass keeps a maximum
 * and a sum that is scaled down whenever the maximum grows (Milakov &
 * Gimelshein 2018), so the row is read once from memory; the second reads it
 * from the cache and writes the gradient in its place. The caller makes logits
 * for a chunk of rows at a time, so (N, V) never exists.
 *
 * A NaN among the logits reaches the loss: fmaxf ignores it, the sum does not.
 */
#include "kernels/cuda/common.cuh"

#define THREADS 512
#define WARPS   (THREADS / WARP)

/* sum of exp(z - max) */
struct partial {
    float max, sum;
};

__device__ inline struct partial merge(struct partial a, struct partial b)
{
    struct partial out;

    out.max = fmaxf(a.max, b.max);
    /* -inf - -inf is NaN: an empty side adds nothing */
    out.sum = (a.max == -INFINITY ? a.sum : a.sum * expf(a.max - out.max)) +
              (b.max == -INFINITY ? b.sum : b.sum * expf(b.max - out.max));
    return out;
}

__device__ inline struct partial merge_warp(struct partial p)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        struct partial other;

        other.max = __shfl_xor_sync(ALL, p.max, step);
        other.sum = __shfl_xor_sync(ALL, p.sum, step);
        p = merge(p, other);
    }
    return p;
}

struct xent_args {
    const uint32_t *targets;
    float *loss;
    int64_t vocab, ld;
    bool grad;
};

/* f as if there were no more than the first `left` of it. */
template <int V> __device__ inline void hide(float (&f)[V], int64_t left)
{
    for (int v = 0; v < V; v++) {
        f[v] = v < left ? f[v] : -INFINITY;
    }
}

template <class T, int V>
__global__ void xent_kernel(T *logits, struct xent_args a)
{
    SHARED(memory);
    struct partial *parts = (struct partial *)memory; /* (WARPS) */
    T *z = logits + blockIdx.x * a.ld;
    uint32_t target = a.targets[blockIdx.x];
    int warp = threadIdx.x / WARP;
    struct partial p = {-INFINITY, 0};
    float scale;
    float target_z;

    if (target == XENT_IGNORE) { /* the whole block */
        if (threadIdx.x == 0) {
            a.loss[blockIdx.x] = 0;
        }
        for (int64_t i = (int64_t)threadIdx.x * V; a.grad && i < a.ld;
             i += THREADS * V) {
            const float none[V] = {0};

            store(z + i, none);
        }
        return;
    }
    target_z = to_float(z[target]);
    for (int64_t i = (int64_t)threadIdx.x * V; i < a.vocab; i += THREADS * V) {
        float f[V];
        struct partial next = {-INFINITY, 0};

        load(f, z + i);
        if (i + V > a.vocab) {
            hide(f, a.vocab - i);
        }
        for (int v = 0; v < V; v++) {
            next.max = fmaxf(next.max, f[v]);
        }
        for (int v = 0; v < V; v++) { /* -inf - -inf is NaN */
            next.sum += expf(f[v] - (next.max == -INFINITY ? 0 : next.max));
        }
        p = merge(p, next);
    }
    p = merge_warp(p);
    if (threadIdx.x % WARP == 0) {
        parts[warp] = p;
    }
    __syncthreads();
    p = parts[0];
    for (int k = 1; k < WARPS; k++) {
        p = merge(p, parts[k]);
    }
    if (threadIdx.x == 0) {
        a.loss[blockIdx.x] = logf(p.sum) + p.max - target_z;
    }
    if (!a.grad) {
        return;
    }
    scale = 1.0f / p.sum;
    for (int64_t i = (int64_t)threadIdx.x * V; i < a.ld; i += THREADS * V) {
        float f[V];

        load(f, z + i);
        for (int v = 0; v < V; v++) {
            f[v] = expf(f[v] - p.max) * scale - (i + v == target ? 1.0f : 0.0f);
        }
        for (int v = 0; v < V && i + V > a.vocab; v++) {
            f[v] = i + v < a.vocab ? f[v] : 0;
        }
        store(z + i, f);
    }
}

/* The same number in all threads: of all their x the largest, or the sum in the
 * order of the warps. parts: (WARPS), and nobody reads it any more. */
__device__ inline float block_max(float x, float *parts)
{
    x = warp_max(x);
    if (threadIdx.x % WARP == 0) {
        parts[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    for (int k = 0; k < WARPS; k++) {
        x = fmaxf(x, parts[k]);
    }
    return x;
}

__device__ inline float block_sum(float x, float *parts)
{
    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) {
        parts[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    x = 0;
    for (int k = 0; k < WARPS; k++) {
        x += parts[k];
    }
    return x;
}

#define KEEP 8 /* vectors of 8 that a thread holds */

#define NONE 0xff80ff80u /* two times -inf */

/* Two numbers as if there were no more than the first `left`. */
__device__ inline uint32_t hide_pair(uint32_t x, int left)
{
    return left > 1    ? x
           : left == 1 ? (x & 0xffffu) | (NONE & 0xffff0000u)
                       : NONE;
}

__device__ inline void hide(uint4 &x, int left)
{
    x.x = hide_pair(x.x, left);
    x.y = hide_pair(x.y, left - 2);
    x.z = hide_pair(x.z, left - 4);
    x.w = hide_pair(x.w, left - 6);
}

/* ld a multiple of 8, at most THREADS * KEEP * 8. What does not exist is -inf:
 * it is no maximum and adds nothing. */
__global__ void __launch_bounds__(THREADS, 2)
    xent_kept_kernel(bf16 *logits,
                     const uint32_t *targets,
                     float *loss,
                     int vocab,
                     int ld,
                     bool grad)
{
    SHARED(memory);
    float *parts = (float *)memory; /* (2, WARPS) */
    bf16 *z = logits + (int64_t)blockIdx.x * ld;
    uint32_t target = targets[blockIdx.x];
    int first = (int)threadIdx.x * 8;
    uint4 held[KEEP];
    float target_z, max = -INFINITY, sum = 0, scale, minus;

    if (target == XENT_IGNORE) { /* the whole block */
        if (threadIdx.x == 0) {
            loss[blockIdx.x] = 0;
        }
        for (int i = first; grad && i < ld; i += THREADS * 8) {
            *(uint4 *)(z + i) = make_uint4(0, 0, 0, 0);
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        held[k] = make_uint4(NONE, NONE, NONE, NONE);
        if (first + k * THREADS * 8 < vocab) {
            held[k] = *(const uint4 *)(z + first + k * THREADS * 8);
        }
        if (vocab % 8 != 0 && first + k * THREADS * 8 == vocab / 8 * 8) {
            hide(held[k], vocab % 8);
        }
    }
    target_z = to_float(z[target]);
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        float f[8];

        unpack(f, held[k]);
        for (int v = 0; v < 8; v++) {
            max = fmaxf(max, f[v]);
        }
    }
    max = block_max(max, parts);
    minus = (max == -INFINITY ? 0 : max) * LOG2E; /* -inf - -inf is NaN */
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        float f[8];

        forget_made_of(held[k]);
        unpack(f, held[k]);
        for (int v = 0; v < 8; v++) {
            sum += fast_exp2(f[v] * LOG2E - minus);
        }
    }
    sum = block_sum(sum, parts + WARPS); /* and everybody has read z[target] */
    if (threadIdx.x == 0) {
        loss[blockIdx.x] = logf(sum) + max - target_z;
    }
    if (!grad) {
        return;
    }
    scale = 1.0f / sum;
#pragma unroll
    for (int k = 0; k < KEEP; k++) {
        float f[8];

        forget_made_of(held[k]);
        unpack(f, held[k]);
        for (int v = 0; v < 8; v++) {
            f[v] = fast_exp2(f[v] * LOG2E - minus) * scale;
        }
        if (first + k * THREADS * 8 < ld) {
            store(z + first + k * THREADS * 8, f);
        }
    }
    if (target / 8 % THREADS == threadIdx.x) { /* who has just written it */
        set(z + target, fast_exp2(target_z * LOG2E - minus) * scale - 1);
    }
}

static int
run_kept(struct gpu *g, const struct xent *op, const uint32_t *targets)
{
    bf16 *logits = (bf16 *)op->logits;
    float *loss = op->loss;
    int vocab = (int)op->v, ld = (int)op->ld;
    bool grad = op->grad;

    LAUNCH(xent_kept_kernel, (unsigned)op->n, THREADS,
           2 * WARPS * sizeof(float), g->stream, logits, targets, loss, vocab,
           ld, grad);
    return gpu_launched(g, "xent");
}

template <class T, int V>
static int run(struct gpu *g, const struct xent *op, const uint32_t *targets)
{
    auto kernel = xent_kernel<T, V>;
    T *logits = (T *)op->logits;
    struct xent_args a = {};

    a.targets = targets;
    a.loss = op->loss;
    a.vocab = op->v;
    a.ld = op->ld;
    a.grad = op->grad;
    LAUNCH(kernel, (unsigned)op->n, THREADS, WARPS * sizeof(struct partial),
           g->stream, logits, a);
    return gpu_launched(g, "xent");
}

int cuda_xent(struct gpu *g, const struct xent *op)
{
    bool wide = op->ld % 8 == 0 && aligned(op->logits);
    void *p = NULL;
    int rv = gpu_upload(g, SLOT_TARGETS, op->targets,
                        (size_t)op->n * sizeof *op->targets, &p);
    const uint32_t *targets = (const uint32_t *)p;

    if (rv == 0 && wide && g->opt.bf16 && op->ld <= THREADS * KEEP * 8) {
        return run_kept(g, op, targets);
    }
    return rv != 0 ? rv : FOR_TYPE(g, wide, run, g, op, targets);
}
