/* product.h - matrix products of every kind at sizes where tiles, panels,
 * slices and blocks end, each judged by sums in double of the operands as the
 * kernel reads them. Everything around the matrices is NaN. */
#ifndef LOCO_TESTS_UNIT_KERNELS_PRODUCT_H
#define LOCO_TESTS_UNIT_KERNELS_PRODUCT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "proto/base/rng.h"

#define PAD 5

struct product {
    struct matmul op;
    float *a, *b, *c, *start;
    int64_t c_floats;
};

/* (rows, columns) random, PAD of NaN after each row. */
static inline float *matrix(int64_t rows, int64_t columns, uint64_t *rng)
{
    int64_t ld = columns + PAD;
    float *x = malloc((size_t)(rows * ld) * sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < rows * ld; i++) {
        x[i] = i % ld < columns ? rng_float(rng) * 2 - 1 : NAN;
    }
    return x;
}

/* kind: bit 0 ta, bit 1 tb, bit 2 c is added to, bit 3 upper. */
static inline void open_product(struct product *p, const int64_t *mnk, int kind)
{
    uint64_t rng = 3;
    int64_t m = mnk[0], n = mnk[1], k = mnk[2];
    bool ta = (kind & 1) != 0, tb = (kind & 2) != 0;

    p->a = ta ? matrix(k, m, &rng) : matrix(m, k, &rng);
    p->b = tb ? matrix(n, k, &rng) : matrix(k, n, &rng);
    p->start = matrix(m, n, &rng);
    p->c = matrix(m, n, &rng);
    p->c_floats = m * (n + PAD);
    p->op = (struct matmul){.m = m,
                            .n = n,
                            .k = k,
                            .a = p->a,
                            .b = p->b,
                            .c = p->c,
                            .lda = (ta ? m : k) + PAD,
                            .ldb = (tb ? k : n) + PAD,
                            .ldc = n + PAD,
                            .alpha = 0.5f,
                            .beta = (kind & 4) != 0 ? 1.0f : 0.0f,
                            .ta = ta,
                            .tb = tb,
                            .upper = (kind & 8) != 0};
}

static inline void close_product(struct product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->start);
}

/* c starts as what is added to, or as NaN. */
static inline void run(struct product *p, const struct backend *be)
{
    for (int64_t i = 0; i < p->c_floats; i++) {
        p->c[i] = p->op.beta == 0 ? NAN : p->start[i];
    }
    be->matmul(be, &p->op);
}

/* Nearest bf16, ties to even. */
static inline float bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline bool is_rounded(const struct backend *be)
{
    return be->bf16 || be->rounded != NULL;
}

/* An operand as the kernel sees it: element (i, k) is x[i * step_i + k *
 * step_k], rounded where the kernel rounds. */
struct operand {
    float *x;
    int64_t step_i, step_k;
};

static inline struct operand
operand_of(const float *x, int64_t rows, int64_t ld, bool t, bool rounded)
{
    struct operand o = {.x = malloc((size_t)(rows * ld) * sizeof *x),
                        .step_i = t ? 1 : ld,
                        .step_k = t ? ld : 1};

    assert_non_null(o.x);
    for (int64_t i = 0; i < rows * ld; i++) {
        o.x[i] = rounded ? bf16(x[i]) : x[i];
    }
    return o;
}

static inline double
dot(const float *a, int64_t step_a, const float *b, int64_t step_b, int64_t n)
{
    double sum = 0;

    for (int64_t k = 0; k < n; k++) {
        sum += (double)a[k * step_a] * (double)b[k * step_b];
    }
    return sum;
}

/* The largest error so far, as a part of the tolerance. */
static double worst;

/* `unit`: tolerance for each element of a sum. */
static inline void
check_within(const struct product *p, const struct backend *be, double unit)
{
    const struct matmul *op = &p->op;
    struct operand a = operand_of(op->a, op->ta ? op->k : op->m, op->lda,
                                  op->ta, is_rounded(be));
    struct operand b = operand_of(op->b, op->tb ? op->n : op->k, op->ldb,
                                  !op->tb, is_rounded(be));
    double most = unit * (double)(op->k + 8);

    for (int64_t at = 0; at < p->c_floats; at++) {
        int64_t i = at / op->ldc, j = at % op->ldc;
        double sum, error;

        if (j >= op->n) { /* nothing is written beside c */
            assert_true(isnan(p->c[at]));
            continue;
        }
        if (op->upper && j < i) {
            continue;
        }
        sum = (double)op->alpha * dot(a.x + i * a.step_i, a.step_k,
                                      b.x + j * b.step_i, b.step_k, op->k);
        sum += op->beta == 0 ? 0 : (double)p->start[at];
        error = fabs((double)p->c[at] - sum);
        if (!(error <= most)) {
            fail_msg("%s %s kind %d%d: c[%lld, %lld] is %.9g, not %.9g",
                     be->isa, be->bf16 ? "bf16" : "fp32", op->ta, op->tb,
                     (long long)i, (long long)j, (double)p->c[at], sum);
        }
        worst = most > 0 ? fmax(worst, error / most) : worst;
    }
    free(a.x);
    free(b.x);
}

static inline void check(const struct product *p, const struct backend *be)
{
    check_within(p, be, 2e-7);
}

/* -8 to 8 in place of what is a number. */
static inline void whole_numbers(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = rintf(x[i] * 8);
    }
}

/* Around the tile, the panel, the slice and the blocks of every set. */
static const int64_t sizes[][3] = {
    {1, 1, 1},      {13, 33, 17},  {12, 32, 16},   {64, 31, 32},
    {65, 257, 5},   {385, 7, 257}, {400, 65, 513}, {20, 1030, 30},
    {31, 64, 1025}, {3, 5, 2700}};

#define SIZE_COUNT ((int)(sizeof sizes / sizeof sizes[0]))

/* Of a symmetric c: one tile; several panels; two blocks of rows. */
static const int64_t sides[][3] = {
    {5, 5, 9}, {33, 33, 17}, {131, 131, 300}, {401, 401, 12}};

#define SIDE_COUNT ((int)(sizeof sides / sizeof sides[0]))

static inline void try_size(struct backend *be, const int64_t *mnk, int upper)
{
    for (int kind = 0; kind < 8; kind++) {
        struct product p;

        open_product(&p, mnk, kind | upper);
        run(&p, be);
        check(&p, be);
        close_product(&p);
    }
}

/* With 1, 3 and 5 threads a product has the same bits. `open` makes a backend
 * of so many; false: this processor has none such. */
static inline void
same_bits(const int64_t *mnk,
          int kind,
          bool (*open)(struct backend *be, int threads, const void *how),
          const void *how)
{
    struct product p;
    float *one;

    open_product(&p, mnk, kind);
    one = malloc((size_t)p.c_floats * sizeof *one);
    assert_non_null(one);
    for (int threads = 1; threads <= 5; threads += 2) {
        struct backend be;

        if (!open(&be, threads, how)) {
            break;
        }
        run(&p, &be);
        if (threads == 1) {
            memcpy(one, p.c, (size_t)p.c_floats * sizeof *one);
        }
        assert_memory_equal(one, p.c, (size_t)p.c_floats * sizeof *one);
        backend_close(&be);
    }
    free(one);
    close_product(&p);
}

static inline void try_all(struct backend *be)
{
    for (int i = 0; i < SIZE_COUNT; i++) {
        try_size(be, sizes[i], 0);
    }
    for (int i = 0; i < SIDE_COUNT; i++) {
        try_size(be, sides[i], 8);
    }
}

#endif
