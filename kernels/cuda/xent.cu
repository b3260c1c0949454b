/* xent.cu - loss[n] = log(sum_v exp(z[n, v])) - z[n, target].
 *
 *   logits z (N, V)  targets (N)  loss (N) fp32
 *   with grad: z[n, v] becomes softmax(z)[v] - (v == target)
 *
 * One block a row. The first pass keeps a maximum and a sum that is scaled
 * down whenever the maximum grows (Milakov & Gimelshein 2018), so the row is
 * read once from memory; the second reads it from the cache and writes the
 * gradient in its place. The caller makes logits for a chunk of rows at a time,
 * so (N, V) never exists.
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

template <class T, int V>
__global__ void xent_kernel(
    T *logits, const uint32_t *targets, float *loss, int64_t vocab, bool grad)
{
    SHARED(memory);
    struct partial *parts = (struct partial *)memory; /* (WARPS) */
    T *z = logits + blockIdx.x * vocab;
    uint32_t target = targets[blockIdx.x];
    int warp = threadIdx.x / WARP;
    struct partial p = {-INFINITY, 0};
    float scale;
    float target_z;

    if (target == XENT_IGNORE) { /* the whole block */
        if (threadIdx.x == 0) {
            loss[blockIdx.x] = 0;
        }
        for (int64_t i = (int64_t)threadIdx.x * V; grad && i < vocab;
             i += THREADS * V) {
            const float none[V] = {0};

            store(z + i, none);
        }
        return;
    }
    target_z = to_float(z[target]);
    for (int64_t i = (int64_t)threadIdx.x * V; i < vocab; i += THREADS * V) {
        float f[V];
        struct partial next = {-INFINITY, 0};

        load(f, z + i);
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
        loss[blockIdx.x] = logf(p.sum) + p.max - target_z;
    }
    if (!grad) {
        return;
    }
    scale = 1.0f / p.sum;
    for (int64_t i = (int64_t)threadIdx.x * V; i < vocab; i += THREADS * V) {
        float f[V];

        load(f, z + i);
        for (int v = 0; v < V; v++) {
            f[v] = expf(f[v] - p.max) * scale - (i + v == target ? 1.0f : 0.0f);
        }
        store(z + i, f);
    }
}

template <class T, int V>
static int run(struct gpu *g, const struct xent *op, const uint32_t *targets)
{
    auto kernel = xent_kernel<T, V>;
    T *logits = (T *)op->logits;
    float *loss = op->loss;
    int64_t vocab = op->v;
    bool grad = op->grad;

    LAUNCH(kernel, (unsigned)op->n, THREADS, WARPS * sizeof(struct partial),
           g->stream, logits, targets, loss, vocab, grad);
    return gpu_launched(g, "xent");
}

int cuda_xent(struct gpu *g, const struct xent *op)
{
    bool wide = op->v % 8 == 0 && aligned(op->logits);
    void *p = NULL;
    int rv = gpu_upload(g, SLOT_TARGETS, op->targets,
                        (size_t)op->n * sizeof *op->targets, &p);
    const uint32_t *targets = (const uint32_t *)p;

    return rv != 0 ? rv : FOR_TYPE(g, wide, run, g, op, targets);
}
