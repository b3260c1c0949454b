/* muon.h - a step of Muon, and what its two forms share.
 *
 *   u = b u + (1 - b) g             y = b u + (1 - b) g     (Nesterov's form)
 *   x = y / (|y| + 1e-7)            |y|: the root of the sum of all squares
 *   five times  a = x x'   p = 3.4445 - 4.7750 a + 2.0315 a a   x = p x
 *   theta = theta - lr wd theta - lr 0.2 sqrt(max(rows, columns)) x
 *
 * Keller Jordan et al. 2024, "Muon: an optimizer for hidden layers"; the factor
 * 0.2 sqrt(max) is that of Liu et al. 2025 (arXiv:2502.16982): x then moves an
 * element about as far as AdamW does. Five iterations (Newton-Schulz, of odd
 * degree) bring the singular values of x into about 0.7 to 1.2; they do not
 * converge to 1, on purpose, so that small ones rise fast. A zero gradient and
 * a zero momentum make a zero step.
 *
 * a is made on the shorter side: a tall matrix has a = x' x and x = x p, which
 * is the same product transposed. With s the shorter side and l the longer one
 * an iteration costs 2 s s l + s s s multiply-adds; the fast form makes the
 * upper half of a and of a a and mirrors it: 1.5 s s l + 0.5 s s s.
 *
 * The forms: muon.c in double, the specification; fast_muon.c with the packed
 * fp32 products of its set. u has the same bits in both.
 */
#ifndef LOCO_KERNELS_CPU_MUON_H
#define LOCO_KERNELS_CPU_MUON_H

#include <math.h>

#include "kernels/cpu/moment.h"
#include "kernels/cpu/simd.h"

/* Multiply-adds of an iteration, but for a constant factor. */
static inline double muon_cost(const struct muon_matrix *m)
{
    double s = (double)(m->rows < m->columns ? m->rows : m->columns);
    double l = (double)(m->rows < m->columns ? m->columns : m->rows);

    return s * s * (3 * l + s);
}

/* The matrices from *from to *to are those of a lane. */
static inline void
muon_lane(const struct muon_op *op, int64_t lane, int64_t *from, int64_t *to)
{
    double total = 0, before = 0;

    for (int64_t i = 0; i < op->n; i++) {
        total += muon_cost(&op->matrices[i]);
    }
    *from = *to = 0;
    for (int64_t i = 0; i < op->n; i++) {
        double cost = muon_cost(&op->matrices[i]);
        double at = (before + cost / 2) / total * (double)op->lanes;

        *from += (int64_t)at < lane;
        *to += (int64_t)at <= lane;
        before += cost;
    }
}

/* u of a matrix, and y (rows columns); returns |y|. */
static inline double muon_momentum(const struct muon_op *op,
                                   const struct muon_matrix *m,
                                   float *restrict y)
{
    const float *restrict grad = op->grad + m->offset;
    float *restrict u = op->u + m->offset;
    float beta = op->beta, rest = op->one_minus_beta, scale = op->grad_scale;
    int64_t n = m->rows * m->columns;
    double sum = 0, part;

    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * scale;

        u[i] = moment(beta, u[i], rest, g);
        y[i] = moment(beta, u[i], rest, g);
    }
    for (int64_t i = 0; i < n; i += SUMSQ_CHUNK) {
        const struct sumsq q = {y + i, &part,
                                n - i < SUMSQ_CHUNK ? n - i : SUMSQ_CHUNK};

        CPU_KERNEL(sumsq)(&q, (struct kernel_range){.to = 1});
        sum += part;
    }
    return sqrt(sum);
}

/* What x is multiplied with before it is subtracted. */
static inline float muon_rate(const struct muon_op *op,
                              const struct muon_matrix *m)
{
    double most = (double)(m->rows > m->columns ? m->rows : m->columns);

    return (float)((double)op->lr * MUON_SCALE * sqrt(most));
}

#endif
