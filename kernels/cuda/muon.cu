/* muon.cu - a step of Muon: the formula is that of cpu/muon.h.
 *
 * The momentum u has the bits of a processor. The five iterations are fifteen
 * products (gemm.c) for each matrix, in bf16 with fp32 sums where activations
 * are bf16, as the published implementations do; their bits are those of one
 * GPU. What a product made in fp32 is rounded to an operand of the next one by
 * a kernel bound by memory:
 *
 *   a = x x'        half_a = a, p = a
 *   p = B a + C half_a half_a        half_p = p + A on the diagonal
 *   y = half_p x    x = y
 *
 * A tall matrix has a = x' x and y = x half_p. Without bf16 the "half" buffers
 * are copies in fp32. Products of symmetric results are made whole: cuBLASLt
 * has no product of one triangle.
 *
 * One matrix after the other on the one stream; nothing waits.
 */
#include "kernels/cuda/common.cuh"
#include "proto/base/err.h"

#define THREADS 256

template <class T> struct turn {
    int64_t rows, columns, n;
    int64_t s, l; /* shorter and longer side */
    bool wide;
    float *y; /* (rows, columns) */
    T *x;
    float *a, *p; /* (s, s) */
    T *half_a, *half_p;
};

struct momentum_args {
    const float *grad;
    float *u, *y;
    int64_t n;
    float beta, one_minus_beta, scale;
};

__global__ void momentum_kernel(struct momentum_args m)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < m.n) {
        float g = __fmul_rn(m.grad[i], m.scale);
        float u = moment(m.beta, m.u[i], m.one_minus_beta, g);

        m.u[i] = u;
        m.y[i] = moment(m.beta, u, m.one_minus_beta, g);
    }
}

/* x = y / (|y| + eps); a thread of each block divides for all. */
template <class T>
__global__ void
normal_kernel(T *x, const float *y, const double *norm2, int64_t n)
{
    SHARED(memory);
    float *inverse = (float *)memory;
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (threadIdx.x == 0) {
        *inverse = (float)(1 / (sqrt(*norm2) + MUON_EPS));
    }
    __syncthreads();
    if (i < n) {
        set(x + i, y[i] * *inverse);
    }
}

/* x = y; copy = y where there is one */
template <class T>
__global__ void operand_kernel(T *x, float *copy, const float *y, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < n) {
        set(x + i, y[i]);
        if (copy != NULL) {
            copy[i] = y[i];
        }
    }
}

/* half_p = p + A on the diagonal of (s, s) */
template <class T>
__global__ void diagonal_kernel(T *half_p, const float *p, int64_t s)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < s * s) {
        set(half_p + i, p[i] + (i / s == i % s ? (float)MUON_A : 0.0f));
    }
}

struct update_args {
    float *theta;
    bf16 *copy; /* NULL: none */
    const float *y;
    int64_t n;
    float decay, rate;
};

__global__ void update_kernel(struct update_args a)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < a.n) {
        float x = a.theta[i];

        x = __fsub_rn(x, __fmul_rn(a.decay, x));
        x = __fsub_rn(x, __fmul_rn(a.rate, a.y[i]));
        a.theta[i] = x;
        if (a.copy != NULL) {
            set(a.copy + i, x);
        }
    }
}

/* ---- launchers ---------------------------------------------------------- */

static unsigned grid(int64_t n)
{
    return (unsigned)blocks_for(n, THREADS);
}

static unsigned char *piece(unsigned char **at, int64_t numbers, size_t bytes)
{
    unsigned char *p = *at;

    *at += muon_device_piece(numbers, (int)bytes);
    return p;
}

template <class T>
static struct turn<T> turn_of(const struct muon_matrix *m,
                              unsigned char *scratch) {
    int64_t square;
    struct turn<T> t = {
    };

    t.rows = m->rows;
    t.columns = m->columns;
    t.n = m->rows * m->columns;
    t.wide = m->rows < m->columns;
    t.s = t.wide ? m->rows : m->columns;
    t.l = t.wide ? m->columns : m->rows;
    square = t.s * t.s;
    t.y = (float *)piece(&scratch, t.n, sizeof(float));
    t.x = (T *)piece(&scratch, t.n, sizeof(T));
    t.a = (float *)piece(&scratch, square, sizeof(float));
    t.p = (float *)piece(&scratch, square, sizeof(float));
    t.half_a = (T *)piece(&scratch, square, sizeof(T));
    t.half_p = (T *)piece(&scratch, square, sizeof(T));
    return t;
}

template <class T>
static int operand(struct gpu *g, T *x, float *copy, const float *y, int64_t n)
{
    auto kernel = operand_kernel<T>;

    LAUNCH(kernel, grid(n), THREADS, 0, g->stream, x, copy, y, n);
    return gpu_launched(g, "operand of Muon");
}

/* a = x x' or x' x */
template <class T> static int gram(struct gpu *g, const struct turn<T> *t)
{
    struct matmul op = {};

    op.m = op.n = t->s;
    op.k = t->l;
    op.a = op.b = (const float *)t->x;
    op.c = t->a;
    op.lda = op.ldb = t->columns;
    op.ldc = t->s;
    op.alpha = 1;
    op.ta = !t->wide;
    op.tb = t->wide;
    op.to_weight = true;
    return cuda_matmul(g, &op);
}

/* half_p from a */
template <class T> static int polynomial(struct gpu *g, const struct turn<T> *t)
{
    auto kernel = diagonal_kernel<T>;
    struct matmul op = {};
    T *half_p = t->half_p;
    float *p = t->p;
    int64_t s = t->s;
    int rv = operand(g, t->half_a, p, t->a, s * s);

    op.m = op.n = op.k = s;
    op.a = op.b = (const float *)t->half_a;
    op.c = p;
    op.lda = op.ldb = op.ldc = s;
    op.alpha = (float)MUON_C;
    op.beta = (float)MUON_B;
    op.to_weight = true;
    rv = rv == 0 ? cuda_matmul(g, &op) : rv;
    if (rv != 0) {
        return rv;
    }
    LAUNCH(kernel, grid(s * s), THREADS, 0, g->stream, half_p, p, s);
    return gpu_launched(g, "polynomial of Muon");
}

/* y = half_p x or x half_p */
template <class T> static int apply(struct gpu *g, const struct turn<T> *t)
{
    struct matmul op = {};

    op.m = t->rows;
    op.n = t->columns;
    op.k = t->s;
    op.a = (const float *)(t->wide ? t->half_p : t->x);
    op.b = (const float *)(t->wide ? t->x : t->half_p);
    op.c = t->y;
    op.lda = t->s;
    op.ldb = op.ldc = t->columns;
    op.alpha = 1;
    op.to_weight = true;
    return cuda_matmul(g, &op);
}

/* u, and x of length 1 */
template <class T>
static int begin(struct gpu *g,
                 const struct muon_op *op,
                 const struct muon_matrix *m,
                 const struct turn<T> *t)
{
    auto kernel = normal_kernel<T>;
    struct momentum_args a = {};
    double *norm2 = NULL;
    T *x = t->x;
    const float *y = t->y;
    int64_t n = t->n;
    int rv;

    a.grad = op->grad + m->offset;
    a.u = op->u + m->offset;
    a.y = t->y;
    a.n = n;
    a.beta = op->beta;
    a.one_minus_beta = op->one_minus_beta;
    a.scale = op->grad_scale;
    LAUNCH(momentum_kernel, grid(n), THREADS, 0, g->stream, a);
    rv = gpu_launched(g, "momentum of Muon");
    rv = rv == 0 ? gpu_norm2(g, y, n, &norm2) : rv;
    if (rv != 0) {
        return rv;
    }
    LAUNCH(kernel, grid(n), THREADS, sizeof(float), g->stream, x, y, norm2, n);
    return gpu_launched(g, "operand of Muon");
}

/* theta from y */
static int update(struct gpu *g,
                  const struct muon_op *op,
                  const struct muon_matrix *m,
                  const float *y)
{
    double most = (double)(m->rows > m->columns ? m->rows : m->columns);
    struct update_args a = {};

    a.theta = op->theta + m->offset;
    a.copy = (bf16 *)gpu_copy_of(g, a.theta);
    a.y = y;
    a.n = m->rows * m->columns;
    a.decay = op->decay;
    a.rate = (float)((double)op->lr * MUON_SCALE * sqrt(most));
    if (a.copy == NULL) {
        gpu_touched(g, a.theta, (size_t)a.n * sizeof(float));
    }
    LAUNCH(update_kernel, grid(a.n), THREADS, 0, g->stream, a);
    return gpu_launched(g, "step of Muon");
}

template <class T>
static int step_matrix(struct gpu *g,
                       const struct muon_op *op,
                       const struct muon_matrix *m)
{
    const struct turn<T> t = turn_of<T>(m, op->scratch);
    int rv = begin(g, op, m, &t);

    for (int i = 0; i < MUON_ITERATIONS && rv == 0; i++) {
        rv = i == 0 ? 0 : operand(g, t.x, (float *)NULL, t.y, t.n);
        rv = rv == 0 ? gram(g, &t) : rv;
        rv = rv == 0 ? polynomial(g, &t) : rv;
        rv = rv == 0 ? apply(g, &t) : rv;
    }
    return rv == 0 ? update(g, op, m, t.y) : rv;
}

int cuda_muon(struct gpu *g, const struct muon_op *op)
{
    int act_bytes = g->opt.bf16 ? 2 : (int)sizeof(float);
    int rv = g->broken;

    for (int64_t i = 0; i < op->n && rv == 0; i++) {
        const struct muon_matrix *m = &op->matrices[i];

        if (muon_device_bytes(m->rows, m->columns, act_bytes) >
            op->lane_bytes) {
            return LOCO_EINVAL;
        }
        rv = g->opt.bf16 ? step_matrix<bf16>(g, op, m)
                         : step_matrix<float>(g, op, m);
    }
    return rv;
}
