/* matmul.cu - c = op(a) op(b) + beta c without a library.
 *
 *   op(a) (m, k)  op(b) (k, n)  c (m, n)
 *
 * Products go to cuBLASLt (gemm.c). This kernel is for the shapes that it has
 * no algorithm for (odd rows of bf16 on some GPUs) and for the tests: tiles of
 * 16 x 16 in shared memory, fp32 sums over k in order, any shape and stride.
 * Types: a, b activations and c fp32 with to_weight; otherwise b is a weight
 * (bf16 where theta has a copy) and c an activation.
 */
#include "kernels/cuda/common.cuh"

#define TILE 16

template <class A, class B, class C> struct matmul_args {
    const A *a;
    const B *b;
    C *c;
    int64_t m, n, k, lda, ldb, ldc;
    bool ta, tb;
    float alpha, beta;
};

template <class A, class B, class C>
__global__ void matmul_kernel(struct matmul_args<A, B, C> op)
{
    SHARED(memory);
    float *as = (float *)memory;        /* (TILE, TILE + 1): [i][k] */
    float *bs = as + TILE * (TILE + 1); /* [k][j] */
    int x = threadIdx.x;
    int y = threadIdx.y;
    int64_t i = (int64_t)blockIdx.x * TILE + y;
    int64_t j = (int64_t)blockIdx.y * TILE + x;
    float sum = 0;

    for (int64_t k0 = 0; k0 < op.k; k0 += TILE) {
        float av = 0;
        float bv = 0;

        if (i < op.m && k0 + x < op.k) {
            av = to_float(
                op.a[op.ta ? (k0 + x) * op.lda + i : i * op.lda + k0 + x]);
        }
        if (j < op.n && k0 + y < op.k) {
            bv = to_float(
                op.b[op.tb ? j * op.ldb + k0 + y : (k0 + y) * op.ldb + j]);
        }
        as[y * (TILE + 1) + x] = av;
        bs[y * (TILE + 1) + x] = bv;
        __syncthreads();
        for (int k = 0; k < TILE; k++) {
            sum += as[y * (TILE + 1) + k] * bs[k * (TILE + 1) + x];
        }
        __syncthreads();
    }
    if (i < op.m && j < op.n) {
        C *c = op.c + i * op.ldc + j;

        sum *= op.alpha;
        if (op.beta != 0) { /* never read otherwise */
            sum += op.beta * to_float(*c);
        }
        set(c, sum);
    }
}

template <class A, class B, class C>
static int run(struct gpu *g, const struct matmul *op, const void *b)
{
    auto kernel = matmul_kernel<A, B, C>;
    struct matmul_args<A, B, C> x = {
    };

    x.a = (const A *)op->a;
    x.b = (const B *)b;
    x.c = (C *)op->c;
    x.m = op->m;
    x.n = op->n;
    x.k = op->k;
    x.lda = op->lda;
    x.ldb = op->ldb;
    x.ldc = op->ldc;
    x.ta = op->ta;
    x.tb = op->tb;
    x.alpha = op->alpha;
    x.beta = op->beta;
    LAUNCH(
        kernel,
        dim3((unsigned)blocks_for(x.m, TILE), (unsigned)blocks_for(x.n, TILE)),
        dim3(TILE, TILE), 2 * TILE * (TILE + 1) * sizeof(float), g->stream, x);
    return gpu_launched(g, "matmul");
}

int cuda_matmul_plain(struct gpu *g, const struct matmul *op)
{
    const void *copy = op->to_weight ? NULL : gpu_copy_of(g, op->b);

    if (!g->opt.bf16) {
        return run<float, float, float>(g, op, op->b);
    }
    if (op->to_weight) {
        return run<bf16, bf16, float>(g, op, op->b);
    }
    return copy != NULL ? run<bf16, bf16, bf16>(g, op, copy)
                        : run<bf16, float, bf16>(g, op, op->b);
}
