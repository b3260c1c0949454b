/* muon.c - muon.h in double: plain loops, the specification. */
#include "kernels/cpu/muon.h"

#include "kernels/cpu/kernels.h"

/* A matrix as the iteration sees it: element (i, k), i of the shorter side, is
 * x[i * row + k * step]. */
struct view {
    int64_t s, l;
    int64_t row, step;
};

static struct view view_of(const struct muon_matrix *m)
{
    return m->rows <= m->columns
               ? (struct view){m->rows, m->columns, m->columns, 1}
               : (struct view){m->columns, m->rows, 1, m->columns};
}

/* a (s, s) = x x' */
static void gram(const struct view *v, const double *x, double *a)
{
    for (int64_t i = 0; i < v->s; i++) {
        for (int64_t j = 0; j < v->s; j++) {
            double sum = 0;

            for (int64_t k = 0; k < v->l; k++) {
                sum +=
                    x[i * v->row + k * v->step] * x[j * v->row + k * v->step];
            }
            a[i * v->s + j] = sum;
        }
    }
}

/* p (s, s) = A + B a + C a a */
static void polynomial(int64_t s, const double *a, double *p)
{
    for (int64_t i = 0; i < s; i++) {
        for (int64_t j = 0; j < s; j++) {
            double sum = 0;

            for (int64_t k = 0; k < s; k++) {
                sum += a[i * s + k] * a[k * s + j];
            }
            p[i * s + j] =
                (i == j ? MUON_A : 0) + MUON_B * a[i * s + j] + MUON_C * sum;
        }
    }
}

/* y = p x */
static void
apply(const struct view *v, const double *p, const double *x, double *y)
{
    for (int64_t i = 0; i < v->s; i++) {
        for (int64_t k = 0; k < v->l; k++) {
            double sum = 0;

            for (int64_t j = 0; j < v->s; j++) {
                sum += p[i * v->s + j] * x[j * v->row + k * v->step];
            }
            y[i * v->row + k * v->step] = sum;
        }
    }
}

static void step_matrix(const struct muon_op *op,
                        const struct muon_matrix *m,
                        unsigned char *scratch)
{
    struct view v = view_of(m);
    int64_t n = v.s * v.l;
    double *x = (double *)(void *)scratch;
    double *y = x + n, *a = y + n, *p = a + v.s * v.s;
    float *momentum = (float *)(void *)y;
    float *theta = op->theta + m->offset;
    double norm = muon_momentum(op, m, momentum);
    float rate = muon_rate(op, m);

    for (int64_t i = 0; i < n; i++) {
        x[i] = (double)momentum[i] / (norm + MUON_EPS);
    }
    for (int i = 0; i < MUON_ITERATIONS; i++) {
        double *old = x;

        gram(&v, x, a);
        polynomial(v.s, a, p);
        apply(&v, p, x, y);
        x = y;
        y = old;
    }
    for (int64_t i = 0; i < n; i++) {
        float before = theta[i] - op->decay * theta[i];

        theta[i] = before - rate * (float)x[i];
    }
}

void CPU_KERNEL(muon)(const struct muon_op *op, struct kernel_range r)
{
    for (int64_t lane = r.from; lane < r.to; lane++) {
        int64_t from, to;

        muon_lane(op, lane, &from, &to);
        for (int64_t i = from; i < to; i++) {
            step_matrix(op, &op->matrices[i],
                        op->scratch + (size_t)lane * op->lane_bytes);
        }
    }
}
