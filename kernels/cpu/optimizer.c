/* optimizer.c - one step of each inner optimizer, and the gradient's norm.
 *
 *   x = x - (lr wd) x, first, in all of them
 *   sgdm   u = b1 u + (1 - b1) g         x = x - lr u
 *   adamw  u as sgdm's                   v = b2 v + (1 - b2) g g
 *          x = x - step u / (sqrt(v) rsqrt_bias2 + eps)
 *   adopt  r = g / max(sqrt(v), eps), the v before this step, cut to +-limit
 *          u = b1 u + (1 - b1) r         x = x - lr u     v as adamw's
 *          first call: v = g g, nothing else
 *
 * step = lr / (1 - b1^t), rsqrt_bias2 = 1 / sqrt(1 - b2^t), limit = the fourth
 * root of the calls before. AdamW: Loshchilov & Hutter 2019, algorithm 2;
 * ADOPT: Taniguchi et al. 2024, algorithm 2; algorithms page 0.3. sgdm with
 * b1 = 0 is plain SGD. Compiled with -ffp-contract=off in every set:
 * element-wise, one IEEE operation at a time, so the bits depend neither on
 * the compiler nor on the vector width.
 */
#include "kernels/cpu/kernels.h"

#include <math.h>

#include "kernels/cpu/moment.h"
#include "kernels/cpu/simd.h"

void CPU_KERNEL(adamw)(const struct optimizer_op *op, struct kernel_range r)
{
    float *restrict theta = op->theta;
    float *restrict u = op->u;
    float *restrict v = op->v;
    const float *restrict grad = op->grad;
    const struct optimizer_op o = *op;

    for (int64_t i = r.from; i < r.to; i++) {
        float g = grad[i] * o.grad_scale;
        float x = theta[i];

        u[i] = moment(o.beta1, u[i], o.one_minus_beta1, g);
        v[i] = moment(o.beta2, v[i], o.one_minus_beta2, g * g);
        x -= o.decay * x;
        theta[i] = x - o.step * u[i] / (sqrtf(v[i]) * o.rsqrt_bias2 + o.eps);
    }
}

static void adopt_first(const struct optimizer_op *op, struct kernel_range r)
{
    for (int64_t i = r.from; i < r.to; i++) {
        float g = op->grad[i] * op->grad_scale;

        op->v[i] = g * g;
    }
}

void CPU_KERNEL(adopt)(const struct optimizer_op *op, struct kernel_range r)
{
    float *restrict theta = op->theta;
    float *restrict u = op->u;
    float *restrict v = op->v;
    const float *restrict grad = op->grad;
    const struct optimizer_op o = *op;

    if (o.limit == 0) {
        adopt_first(op, r);
        return;
    }
    for (int64_t i = r.from; i < r.to; i++) {
        float g = grad[i] * o.grad_scale;
        float x = theta[i];
        float s = sqrtf(v[i]);
        float q = g / (s > o.eps ? s : o.eps);

        q = q > o.limit ? o.limit : q;
        q = q < -o.limit ? -o.limit : q;
        u[i] = moment(o.beta1, u[i], o.one_minus_beta1, q);
        v[i] = moment(o.beta2, v[i], o.one_minus_beta2, g * g);
        x -= o.decay * x;
        theta[i] = x - o.step * u[i];
    }
}

void CPU_KERNEL(sgdm)(const struct optimizer_op *op, struct kernel_range r)
{
    float *restrict theta = op->theta;
    float *restrict u = op->u;
    const float *restrict grad = op->grad;
    const struct optimizer_op o = *op;

    for (int64_t i = r.from; i < r.to; i++) {
        float g = grad[i] * o.grad_scale;
        float x = theta[i];

        u[i] = moment(o.beta1, u[i], o.one_minus_beta1, g);
        x -= o.decay * x;
        theta[i] = x - o.step * u[i];
    }
}

/* Eight running sums in double, element i in sum i mod 8; then in order. */
#define SUMS 8

static double sumsq_chunk(const float *x, int64_t n)
{
    double acc[SUMS] = {0};
    double sum = 0;
    int64_t i = 0;

    for (; i + SUMS <= n; i += SUMS) {
        for (int64_t l = 0; l < SUMS; l++) {
            acc[l] += (double)x[i + l] * (double)x[i + l];
        }
    }
    for (int64_t l = 0; i + l < n; l++) {
        acc[l] += (double)x[i + l] * (double)x[i + l];
    }
    for (int64_t l = 0; l < SUMS; l++) {
        sum += acc[l];
    }
    return sum;
}

void CPU_KERNEL(sumsq)(const struct sumsq *op, struct kernel_range r)
{
    for (int64_t i = r.from; i < r.to; i++) {
        int64_t at = i * SUMSQ_CHUNK;
        int64_t n = op->n - at < SUMSQ_CHUNK ? op->n - at : SUMSQ_CHUNK;

        op->partial[i] = sumsq_chunk(op->x + at, n);
    }
}
