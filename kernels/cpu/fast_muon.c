/* fast_muon.c - muon.h with the packed products of one instruction set.
 *
 * One thread does a whole matrix, so the bits do not depend on how many there
 * are. a and p are symmetric: the products make blocks of rows from the
 * diagonal on, and mirror() the rest. Products stay fp32 where those of the
 * model are bf16.
 */
#include "kernels/cpu/muon.h"

#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

/* Rows of a symmetric product that are made together: what of them lies left
 * of the diagonal is work for nothing. Whole tiles of every set. */
#define ROWS 48

/* Side of the squares that mirror() copies. */
#define SQUARE 16

struct turn {
    int64_t rows, columns;
    int64_t s, l; /* shorter and longer side */
    bool wide;
    float *x, *y; /* (rows, columns): now, next */
    float *a, *p; /* (s, s) */
    struct kernel_range r;
};

static int64_t at_most(int64_t x, int64_t most)
{
    return x < most ? x : most;
}

static void product(const struct turn *t, const struct matmul *op)
{
    struct kernel_range r = t->r;

    r.from = 0;
    r.to = matmul_units(op);
    r.bf16 = false;
    CPU_KERNEL(matmul)(op, r);
}

/* The lower half of c (s, s) from the upper one. */
static void mirror(float *c, int64_t s)
{
    for (int64_t i0 = 0; i0 < s; i0 += SQUARE) {
        for (int64_t j0 = 0; j0 <= i0; j0 += SQUARE) {
            int64_t i_end = at_most(i0 + SQUARE, s);

            for (int64_t i = i0; i < i_end; i++) {
                int64_t j_end = at_most(j0 + SQUARE, i);

                for (int64_t j = j0; j < j_end; j++) {
                    c[i * s + j] = c[j * s + i];
                }
            }
        }
    }
}

/* a = x x' of a wide matrix, x' x of a tall one. */
static void gram(const struct turn *t)
{
    for (int64_t i = 0; i < t->s; i += ROWS) {
        const float *x = t->x + (t->wide ? i * t->columns : i);

        product(t, &(struct matmul){.m = at_most(t->s - i, ROWS),
                                    .n = t->s - i,
                                    .k = t->l,
                                    .a = x,
                                    .lda = t->columns,
                                    .ta = !t->wide,
                                    .b = x,
                                    .ldb = t->columns,
                                    .tb = t->wide,
                                    .c = t->a + i * t->s + i,
                                    .ldc = t->s,
                                    .alpha = 1});
    }
    mirror(t->a, t->s);
}

/* p = A + B a + C a a */
static void polynomial(const struct turn *t)
{
    int64_t s = t->s;

    memcpy(t->p, t->a, (size_t)(s * s) * sizeof *t->p);
    for (int64_t i = 0; i < s; i += ROWS) {
        product(t, &(struct matmul){.m = at_most(s - i, ROWS),
                                    .n = s - i,
                                    .k = s,
                                    .a = t->a + i * s,
                                    .lda = s,
                                    .b = t->a + i,
                                    .ldb = s,
                                    .c = t->p + i * s + i,
                                    .ldc = s,
                                    .alpha = (float)MUON_C,
                                    .beta = (float)MUON_B});
    }
    mirror(t->p, s);
    for (int64_t i = 0; i < s; i++) {
        t->p[i * s + i] += (float)MUON_A;
    }
}

/* x = p x of a wide matrix, x p of a tall one. */
static void apply(struct turn *t)
{
    float *old = t->x;

    product(t, &(struct matmul){.m = t->rows,
                                .n = t->columns,
                                .k = t->s,
                                .a = t->wide ? t->p : t->x,
                                .lda = t->s,
                                .b = t->wide ? t->x : t->p,
                                .ldb = t->columns,
                                .c = t->y,
                                .ldc = t->columns,
                                .alpha = 1});
    t->x = t->y;
    t->y = old;
}

static void step_matrix(const struct muon_op *op,
                        const struct muon_matrix *m,
                        float *scratch,
                        struct kernel_range r)
{
    int64_t n = m->rows * m->columns;
    bool wide = m->rows <= m->columns;
    int64_t s = wide ? m->rows : m->columns;
    struct turn t = {.rows = m->rows,
                     .columns = m->columns,
                     .s = s,
                     .l = wide ? m->columns : m->rows,
                     .wide = wide,
                     .x = scratch,
                     .y = scratch + n,
                     .a = scratch + 2 * n,
                     .p = scratch + 2 * n + s * s,
                     .r = r};
    float inverse = (float)(1 / (muon_momentum(op, m, t.x) + MUON_EPS));
    float rate = muon_rate(op, m), decay = op->decay;
    float *restrict theta = op->theta + m->offset;
    const float *restrict x;

    for (int64_t i = 0; i < n; i++) {
        t.x[i] *= inverse;
    }
    for (int i = 0; i < MUON_ITERATIONS; i++) {
        gram(&t);
        polynomial(&t);
        apply(&t);
    }
    x = t.x;
    for (int64_t i = 0; i < n; i++) {
        float before = theta[i] - decay * theta[i];

        theta[i] = before - rate * x[i];
    }
}

void CPU_KERNEL(muon)(const struct muon_op *op, struct kernel_range r)
{
    for (int64_t lane = r.from; lane < r.to; lane++) {
        unsigned char *scratch = op->scratch + (size_t)lane * op->lane_bytes;
        int64_t from, to;

        muon_lane(op, lane, &from, &to);
        for (int64_t i = from; i < to; i++) {
            step_matrix(op, &op->matrices[i], (float *)(void *)scratch, r);
        }
    }
}
