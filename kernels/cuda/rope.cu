/* rope.cu - rotate the pairs (j, j + D/2) of each head by time * theta^(-2j/D).
 *
 *   x (N, ld): `heads` heads of D first in a row  cos, sin (T, D/2) fp32
 *
 * In place, one block a row, V pairs a thread: bound by memory, 2 passes over
 * q and k. The angles stay in the second-level cache.
 */
#include "kernels/cuda/common.cuh"

#define THREADS 128

template <class T, int V>
__global__ void rope_kernel(T *x,
                            const float *cos,
                            const float *sin,
                            int64_t t,
                            int64_t ld,
                            int heads,
                            int half,
                            float sign)
{
    int64_t row = blockIdx.x;
    const float *cs = cos + row % t * half;
    const float *sn = sin + row % t * half;
    int per_head = half / V;

    for (int i = threadIdx.x; i < heads * per_head; i += THREADS) {
        int j = i % per_head * V;
        T *lo = x + row * ld + (int64_t)(i / per_head) * 2 * half + j;
        T *hi = lo + half;
        float a[V], b[V], c[V], s[V], first[V], second[V];

        load(a, lo);
        load(b, hi);
        load(c, cs + j);
        load(s, sn + j);
        for (int v = 0; v < V; v++) {
            first[v] = a[v] * c[v] - b[v] * s[v] * sign;
            second[v] = b[v] * c[v] + a[v] * s[v] * sign;
        }
        store(lo, first);
        store(hi, second);
    }
}

template <class T, int V> static int run(struct gpu *g, const struct rope *op)
{
    auto kernel = rope_kernel<T, V>;
    T *x = (T *)op->x;
    const float *cos = op->cos;
    const float *sin = op->sin;
    int64_t t = op->t;
    int64_t ld = op->ld;
    int heads = (int)op->heads;
    int half = (int)(op->d / 2);
    float sign = op->sign;

    LAUNCH(kernel, (unsigned)op->n, THREADS, 0, g->stream, x, cos, sin, t, ld,
           heads, half, sign);
    return gpu_launched(g, "rope");
}

int cuda_rope(struct gpu *g, const struct rope *op)
{
    bool wide = op->d % 16 == 0 && op->ld % 8 == 0 && aligned(op->x) &&
                aligned(op->cos) && aligned(op->sin);

    return FOR_TYPE(g, wide, run, g, op);
}
