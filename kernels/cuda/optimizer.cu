/* optimizer.cu - one step of each inner optimizer, and the gradient's norm.
 *
 * The equations and the order of operations are those of cpu/optimizer.c, each
 * one IEEE fp32 and rounded to nearest: the same bits as on a processor. This
 * file is compiled with -fmad=false, and the intrinsics say it once more.
 *
 * One pass: reads g, u, v, theta (16 bytes a parameter), writes u, v, theta
 * (12) and, where theta has a bf16 copy, that (2). The kernels are bound by
 * memory.
 *
 * sumsq: the double partial sums of chunks of SUMSQ_CHUNK, each made by one
 * block in a fixed tree; the host adds them in order. Not the bits of the
 * processor's sums, but the same bits every time.
 *
 * halves: the norms that AdLoCo's test of the batch wants, of the gradients of
 * two halves and of their sum, which takes the place of the second: one pass
 * (reads 8 bytes a parameter, writes 4) and one block for each norm that adds
 * the partial sums.
 *
 * add: the gradient of another GPU, whose part of the batch it is, is added to
 * this one's (reads 8 bytes a parameter, writes 4).
 */
#include "kernels/cuda/common.cuh"

#define THREADS 256

enum rule { ADAMW, ADOPT, ADOPT_FIRST, SGDM };

struct step_args {
    struct optimizer_op op;
    bf16 *copy; /* NULL: none */
};

template <enum rule RULE>
__device__ inline void
step_one(const struct step_args &a, float grad, float &x, float &u, float &v)
{
    float g = __fmul_rn(grad, a.op.grad_scale);

    if (RULE == ADOPT_FIRST) {
        v = __fmul_rn(g, g);
        return;
    }
    if (RULE == ADOPT) {
        float s = __fsqrt_rn(v);
        float q = __fdiv_rn(g, s > a.op.eps ? s : a.op.eps);

        q = q > a.op.limit ? a.op.limit : q;
        q = q < -a.op.limit ? -a.op.limit : q;
        u = moment(a.op.beta1, u, a.op.one_minus_beta1, q);
    } else {
        u = moment(a.op.beta1, u, a.op.one_minus_beta1, g);
    }
    if (RULE != SGDM) {
        v = moment(a.op.beta2, v, a.op.one_minus_beta2, __fmul_rn(g, g));
    }
    x = __fsub_rn(x, __fmul_rn(a.op.decay, x));
    if (RULE == ADAMW) {
        float under =
            __fadd_rn(__fmul_rn(__fsqrt_rn(v), a.op.rsqrt_bias2), a.op.eps);

        x = __fsub_rn(x, __fdiv_rn(__fmul_rn(a.op.step, u), under));
    } else {
        x = __fsub_rn(x, __fmul_rn(a.op.step, u));
    }
}

template <enum rule RULE, int V> __global__ void step_kernel(struct step_args a)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    float g[V] = {0}, x[V] = {0}, u[V] = {0}, v[V] = {0};

    if (i >= a.op.n) {
        return;
    }
    load(g, a.op.grad + i);
    if (RULE != ADOPT_FIRST) {
        load(x, a.op.theta + i);
        load(u, a.op.u + i);
    }
    if (RULE == ADAMW || RULE == ADOPT) {
        load(v, a.op.v + i);
    }
    for (int k = 0; k < V; k++) {
        step_one<RULE>(a, g[k], x[k], u[k], v[k]);
    }
    if (RULE != SGDM) {
        store(a.op.v + i, v);
    }
    if (RULE == ADOPT_FIRST) {
        return;
    }
    store(a.op.u + i, u);
    store(a.op.theta + i, x);
    if (a.copy != NULL) {
        store(a.copy + i, x);
    }
}

/* Block per chunk. */
__global__ void sumsq_kernel(const float *x, double *partial, int64_t n)
{
    SHARED(memory);
    double *sums = (double *)memory; /* (THREADS / WARP) */
    int64_t at = (int64_t)blockIdx.x * SUMSQ_CHUNK;
    int64_t end = at + SUMSQ_CHUNK < n ? at + SUMSQ_CHUNK : n;
    double sum = 0;

    for (int64_t i = at + threadIdx.x; i < end; i += THREADS) {
        double f = (double)x[i];

        sum += f * f;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) {
        sums[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int k = 0; k < THREADS / WARP; k++) {
            sum += sums[k];
        }
        partial[blockIdx.x] = sum;
    }
}

#define HALVES_NORMS 3

/* partial (HALVES_NORMS, chunks) of first, second and what second becomes.
 * Block per chunk. */
__global__ void
halves_kernel(const float *first, float *second, double *partial, int64_t n)
{
    SHARED(memory);
    double *sums = (double *)memory; /* (HALVES_NORMS, THREADS / WARP) */
    int64_t at = (int64_t)blockIdx.x * SUMSQ_CHUNK;
    int64_t end = at + SUMSQ_CHUNK < n ? at + SUMSQ_CHUNK : n;
    double norm2[HALVES_NORMS] = {0};

    for (int64_t i = at + threadIdx.x; i < end; i += THREADS) {
        float a = first[i], b = second[i], both = __fadd_rn(b, a);
        const double x[HALVES_NORMS] = {(double)a, (double)b, (double)both};

        second[i] = both;
        for (int k = 0; k < HALVES_NORMS; k++) {
            norm2[k] += x[k] * x[k];
        }
    }
    for (int k = 0; k < HALVES_NORMS; k++) {
        double sum = warp_sum(norm2[k]);

        if (threadIdx.x % WARP == 0) {
            sums[k * (THREADS / WARP) + threadIdx.x / WARP] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < HALVES_NORMS) {
        double sum = 0;

        for (int k = 0; k < THREADS / WARP; k++) {
            sum += sums[threadIdx.x * (THREADS / WARP) + k];
        }
        partial[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = sum;
    }
}

/* norms2[k] = sum of partial (.., chunks) k, each thread's every THREADS-th.
 * Block per norm. */
__global__ void
add_partials_kernel(const double *partial, double *norms2, int64_t chunks)
{
    SHARED(memory);
    double *sums = (double *)memory; /* (THREADS / WARP) */
    double sum = 0;

    for (int64_t i = threadIdx.x; i < chunks; i += THREADS) {
        sum += partial[(int64_t)blockIdx.x * chunks + i];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) {
        sums[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int k = 0; k < THREADS / WARP; k++) {
            sum += sums[k];
        }
        norms2[blockIdx.x] = sum;
    }
}

/* Four elements a thread; wide: at addresses for vectors of them. */
__global__ void
round_copy_kernel(bf16 *to, const float *from, int64_t n, bool wide)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    int64_t end = i + 4 < n ? i + 4 : n;

    if (wide && i + 4 <= n) {
        float f[4];

        load(f, from + i);
        store(to + i, f);
        return;
    }
    for (; i < end; i++) {
        set(to + i, from[i]);
    }
}

/* V elements a thread; with 4 both are aligned to 16 bytes. */
template <int V> __global__ void add_kernel(struct add_op a)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * V;
    float x[V], y[V];

    if (i >= a.n) {
        return;
    }
    load(x, a.to + i);
    load(y, a.from + i);
    for (int k = 0; k < V; k++) {
        x[k] = __fadd_rn(x[k], y[k]);
    }
    store(a.to + i, x);
}

/* ---- launchers ---------------------------------------------------------- */

template <enum rule RULE, int V>
static int launch_step(struct gpu *g, const struct step_args *args)
{
    auto kernel = step_kernel<RULE, V>;
    struct step_args a = *args;

    LAUNCH(kernel, (unsigned)blocks_for(a.op.n, THREADS * V), THREADS, 0,
           g->stream, a);
    return gpu_launched(g, "optimizer step");
}

/* The op without its first n elements. */
static struct optimizer_op after(const struct optimizer_op *op, int64_t n)
{
    struct optimizer_op rest = *op;

    rest.theta += n;
    rest.u += n;
    rest.v += n;
    rest.grad += n;
    rest.n -= n;
    return rest;
}

/* A multiple of four in vectors, the rest one by one: element-wise, so the
 * bits do not depend on where it is cut. */
template <enum rule RULE>
static int step_piece(struct gpu *g, const struct optimizer_op *op)
{
    struct step_args a = {};
    bool wide = aligned(op->theta) && aligned(op->u) && aligned(op->v) &&
                aligned(op->grad);
    int64_t n = wide ? op->n / 4 * 4 : 0;
    int rv = 0;

    a.op = *op;
    a.op.n = n;
    a.copy = (bf16 *)gpu_copy_of(g, op->theta);
    if (a.copy == NULL) {
        gpu_touched(g, op->theta, (size_t)op->n * sizeof(float));
    }
    /* copy + i is written 8 bytes at a time */
    if (((uintptr_t)a.copy & 7) != 0) {
        n = a.op.n = 0;
    }
    if (n > 0) {
        rv = launch_step<RULE, 4>(g, &a);
    }
    if (rv == 0 && n < op->n) {
        a.op = after(op, n);
        a.copy = a.copy == NULL ? NULL : a.copy + n;
        rv = launch_step<RULE, 1>(g, &a);
    }
    return rv;
}

/* Cut where the copy has its zeros. */
template <enum rule RULE>
static int step(struct gpu *g, const struct optimizer_op *op)
{
    struct optimizer_op first = *op, rest;
    int rv;

    first.n = gpu_piece_of(g, op->theta, op->n);
    rest = after(op, first.n);
    rv = step_piece<RULE>(g, &first);
    return rv == 0 && rest.n > 0 ? step_piece<RULE>(g, &rest) : rv;
}

int cuda_adamw(struct gpu *g, const struct optimizer_op *op)
{
    return step<ADAMW>(g, op);
}

int cuda_adopt(struct gpu *g, const struct optimizer_op *op)
{
    return op->limit == 0 ? step<ADOPT_FIRST>(g, op) : step<ADOPT>(g, op);
}

int cuda_sgdm(struct gpu *g, const struct optimizer_op *op)
{
    return step<SGDM>(g, op);
}

int cuda_sumsq(struct gpu *g, const struct sumsq *op)
{
    int64_t chunks = sumsq_chunks(op->n);
    const float *x = op->x;
    int64_t n = op->n;
    double *partial = NULL;
    int rv = gpu_slot(g, SLOT_SUMSQ, (size_t)chunks * sizeof(double),
                      (void **)&partial);

    if (rv != 0) {
        return rv;
    }
    LAUNCH(sumsq_kernel, (unsigned)chunks, THREADS,
           THREADS / WARP * sizeof(double), g->stream, x, partial, n);
    rv = gpu_launched(g, "sumsq");
    return rv != 0 ? rv
                   : gpu_download(g, op->partial, partial,
                                  (size_t)chunks * sizeof(double));
}

int gpu_norm2(struct gpu *g, const float *x, int64_t n, double **norm2)
{
    int64_t chunks = sumsq_chunks(n);
    double *sum = NULL, *partial;
    int rv = gpu_slot(g, SLOT_SUMSQ, (size_t)(chunks + 1) * sizeof(double),
                      (void **)norm2);

    if (rv != 0) {
        return rv;
    }
    sum = *norm2;
    partial = sum + 1;
    LAUNCH(sumsq_kernel, (unsigned)chunks, THREADS,
           THREADS / WARP * sizeof(double), g->stream, x, partial, n);
    rv = gpu_launched(g, "norm");
    if (rv != 0) {
        return rv;
    }
    LAUNCH(add_partials_kernel, 1, THREADS, THREADS / WARP * sizeof(double),
           g->stream, partial, sum, chunks);
    return gpu_launched(g, "norm");
}

int cuda_halves(struct gpu *g, const struct halves_op *op)
{
    const int64_t chunks = sumsq_chunks(op->n);
    const float *first = op->first;
    float *second = op->second;
    double *norms2 = NULL, *partial;
    int64_t n = op->n;
    int rv = gpu_slot(g, SLOT_SUMSQ,
                      (size_t)(HALVES_NORMS * (chunks + 1)) * sizeof(double),
                      (void **)&norms2);

    if (rv != 0) {
        return rv;
    }
    partial = norms2 + HALVES_NORMS;
    gpu_touched(g, second, (size_t)n * sizeof(float));
    LAUNCH(halves_kernel, (unsigned)chunks, THREADS,
           HALVES_NORMS * (THREADS / WARP) * sizeof(double), g->stream, first,
           second, partial, n);
    rv = gpu_launched(g, "norms of halves");
    if (rv != 0) {
        return rv;
    }
    LAUNCH(add_partials_kernel, HALVES_NORMS, THREADS,
           THREADS / WARP * sizeof(double), g->stream, partial, norms2, chunks);
    rv = gpu_launched(g, "norms of halves");
    return rv != 0 ? rv
                   : gpu_download(g, op->norms2, norms2,
                                  HALVES_NORMS * sizeof(double));
}

int cuda_add(struct gpu *g, const struct add_op *op)
{
    struct add_op a = *op, rest = *op;
    int rv = 0;

    gpu_touched(g, a.to, (size_t)a.n * sizeof(float));
    a.n = aligned(a.to) && aligned(a.from) ? a.n / 4 * 4 : 0;
    if (a.n > 0) {
        auto wide = add_kernel<4>;

        LAUNCH(wide, (unsigned)blocks_for(a.n, THREADS * 4), THREADS, 0,
               g->stream, a);
        rv = gpu_launched(g, "add");
    }
    rest.to += a.n;
    rest.from += a.n;
    rest.n -= a.n;
    if (rv == 0 && rest.n > 0) {
        auto one = add_kernel<1>;

        LAUNCH(one, (unsigned)blocks_for(rest.n, THREADS), THREADS, 0,
               g->stream, rest);
        rv = gpu_launched(g, "add");
    }
    return rv;
}

int cuda_round_copy(struct gpu *g, void *to, const float *from, int64_t n)
{
    bf16 *out = (bf16 *)to;
    bool wide = aligned(from) && ((uintptr_t)to & 7) == 0;

    LAUNCH(round_copy_kernel, (unsigned)blocks_for(n, THREADS * 4), THREADS, 0,
           g->stream, out, from, n, wide);
    return gpu_launched(g, "round_copy");
}
