/* fast_muon.c - muon.h with the packed products of one instruction set.
 *
 * One thread does a whole matrix, so the bits do not depend on how many there
 * are. a and p are symmetric: the products make the tiles that the diagonal
 * crosses and those right of it, mirror() the rest. Products stay fp32 where
 * those of the model are bf16.
 *
 * A left operand that is symmetric is read as its transpose: its columns then
 * lie in order as tiles want them, and packing need not turn them. For the same
 * reason a square matrix is done as a tall one.
 */
#include "kernels/cpu/muon.h"

#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/transpose.h"

struct turn {
    int64_t rows, columns;
    int64_t s, l; /* shorter and longer side */
    bool wide;
    float *x, *y; /* (rows, columns): now, next */
    float *a, *p; /* (s, s) */
    struct kernel_range r;
};

static void product(const struct turn *t, const struct matmul *op)
{
    struct kernel_range r = t->r;

    r.from = 0;
    r.to = matmul_units(op);
    r.bf16 = false;
    CPU_KERNEL(matmul)(op, r);
}

/* The lower half of c (s, s) from the upper one: squares on the diagonal, and
 * below each of them what stands right of it. */
static void mirror(float *c, int64_t s)
{
    for (int64_t d = 0; d < s; d += VF_LANES) {
        int64_t end = s - d < VF_LANES ? s : d + VF_LANES;

        for (int64_t i = d; i < end; i++) {
            for (int64_t j = d; j < i; j++) {
                c[i * s + j] = c[j * s + i];
            }
        }
        transpose(c + end * s + d, s, c + d * s + end, s, end - d, s - end);
    }
}

/* a = x x' of a wide matrix, x' x of a tall one. */
static void gram(const struct turn *t)
{
    product(t, &(struct matmul){.m = t->s,
                                .n = t->s,
                                .k = t->l,
                                .a = t->x,
                                .lda = t->columns,
                                .ta = !t->wide,
                                .b = t->x,
                                .ldb = t->columns,
                                .tb = t->wide,
                                .c = t->a,
                                .ldc = t->s,
                                .alpha = 1,
                                .upper = true});
    mirror(t->a, t->s);
}

/* p = A + B a + C a a */
static void polynomial(const struct turn *t)
{
    int64_t s = t->s;

    memcpy(t->p, t->a, (size_t)(s * s) * sizeof *t->p);
    product(t, &(struct matmul){.m = s,
                                .n = s,
                                .k = s,
                                .a = t->a,
                                .lda = s,
                                .ta = true, /* symmetric */
                                .b = t->a,
                                .ldb = s,
                                .c = t->p,
                                .ldc = s,
                                .alpha = (float)MUON_C,
                                .beta = (float)MUON_B,
                                .upper = true});
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
                                .ta = t->wide, /* p is symmetric */
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
    bool wide = m->rows < m->columns;
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
