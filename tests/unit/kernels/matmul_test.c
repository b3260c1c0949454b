/* matmul_test.c - the packed product where blocks, slices and panels end, with
 * bf16 operands, and the same bits for any number of threads. Sums in double
 * are the judge; everything around the matrices is NaN. */
#include "kernels/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/kernels.h"
#include "kernels/measure.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define ISA_COUNT 4
#define PAD       5

static const char *const isas[ISA_COUNT] = {"baseline", "neon", "avx2",
                                            "avx512"};

struct product {
    struct matmul op;
    float *a, *b, *c, *start;
    int64_t c_floats;
};

/* (rows, columns) random, PAD of NaN after each row. */
static float *matrix(int64_t rows, int64_t columns, uint64_t *rng)
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
static void open_product(struct product *p, const int64_t *mnk, int kind)
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

static void close_product(struct product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->start);
}

/* c starts as what is added to, or as NaN. */
static void run(struct product *p, const struct backend *be)
{
    for (int64_t i = 0; i < p->c_floats; i++) {
        p->c[i] = p->op.beta == 0 ? NAN : p->start[i];
    }
    be->matmul(be, &p->op);
}

/* Nearest bf16, ties to even. */
static float bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool is_rounded(const struct backend *be)
{
    return be->bf16 || be->rounded != NULL;
}

/* An operand as the kernel sees it: element (i, k) is x[i * step_i + k *
 * step_k], rounded where the kernel rounds. */
struct operand {
    float *x;
    int64_t step_i, step_k;
};

static struct operand
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

static double
dot(const float *a, int64_t step_a, const float *b, int64_t step_b, int64_t n)
{
    double sum = 0;

    for (int64_t k = 0; k < n; k++) {
        sum += (double)a[k * step_a] * (double)b[k * step_b];
    }
    return sum;
}

static void check(const struct product *p, const struct backend *be)
{
    const struct matmul *op = &p->op;
    struct operand a = operand_of(op->a, op->ta ? op->k : op->m, op->lda,
                                  op->ta, is_rounded(be));
    struct operand b = operand_of(op->b, op->tb ? op->n : op->k, op->ldb,
                                  !op->tb, is_rounded(be));

    for (int64_t at = 0; at < p->c_floats; at++) {
        int64_t i = at / op->ldc, j = at % op->ldc;
        double sum;

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
        if (!(fabs((double)p->c[at] - sum) <= 2e-7 * (double)(op->k + 8))) {
            fail_msg("%s %s kind %d%d: c[%lld, %lld] is %.9g, not %.9g",
                     be->isa, be->bf16 ? "bf16" : "fp32", op->ta, op->tb,
                     (long long)i, (long long)j, (double)p->c[at], sum);
        }
    }
    free(a.x);
    free(b.x);
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

static void try_size(struct backend *be, const int64_t *mnk, int upper)
{
    for (int kind = 0; kind < 8; kind++) {
        struct product p;

        open_product(&p, mnk, kind | upper);
        run(&p, be);
        check(&p, be);
        close_product(&p);
    }
}

static void try_all(struct backend *be)
{
    for (int i = 0; i < SIZE_COUNT; i++) {
        try_size(be, sizes[i], 0);
    }
    for (int i = 0; i < SIDE_COUNT; i++) {
        try_size(be, sides[i], 8);
    }
}

static void products_are_right_where_blocks_end(void **state)
{
    (void)state;
    for (int i = 0; i < ISA_COUNT; i++) {
        struct backend be;

        if (backend_cpu_isa(&be, 1 + i % 2, isas[i]) == 0) {
            try_all(&be);
            backend_close(&be);
        }
    }
}

static void bf16_products_are_those_of_rounded_operands(void **state)
{
    struct backend be;

    (void)state;
    assert_int_equal(backend_cpu(&be, 1), 0);
    if (backend_set_dtype(&be, BACKEND_BF16) != 0) {
        backend_close(&be);
        print_message("skipped: this processor has no bf16 dot products\n");
        skip();
    }
    assert_true(be.bf16);
    try_all(&be);
    backend_close(&be);
}

static void any_kernels_can_round_their_operands(void **state)
{
    (void)state;
    for (int i = 0; i < ISA_COUNT; i++) {
        struct backend be;

        if (backend_cpu_isa(&be, 1, isas[i]) == 0) {
            assert_int_equal(backend_set_dtype(&be, BACKEND_ROUNDED), 0);
            assert_non_null(be.rounded);
            try_all(&be);
            backend_close(&be);
        }
    }
}

static void same_bits(enum backend_dtype dtype)
{
    for (int i = 0; i < SIZE_COUNT * 4; i++) {
        struct product p;
        float *one;

        open_product(&p, sizes[i / 4], i % 4);
        one = malloc((size_t)p.c_floats * sizeof *one);
        assert_non_null(one);
        for (int threads = 1; threads <= 5; threads += 2) {
            struct backend be;

            assert_int_equal(backend_cpu(&be, threads), 0);
            if (backend_set_dtype(&be, dtype) == 0) {
                run(&p, &be);
                if (threads == 1) {
                    memcpy(one, p.c, (size_t)p.c_floats * sizeof *one);
                }
                assert_memory_equal(one, p.c, (size_t)p.c_floats * sizeof *one);
            }
            backend_close(&be);
        }
        free(one);
        close_product(&p);
    }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    same_bits(BACKEND_FP32);
    same_bits(BACKEND_BF16);
    same_bits(BACKEND_ROUNDED);
}

static void auto_chooses_a_dtype_that_works(void **state)
{
    struct backend be;
    enum backend_dtype dtype;

    (void)state;
    assert_true(backend_dtype_named("auto", &dtype));
    assert_int_equal(dtype, BACKEND_AUTO);
    assert_true(backend_dtype_named("fp32", &dtype));
    assert_int_equal(dtype, BACKEND_FP32);
    assert_false(backend_dtype_named("fp64", &dtype));
    for (int i = 0; i < ISA_COUNT; i++) {
        if (backend_cpu_isa(&be, 1, isas[i]) == 0) {
            assert_int_equal(backend_set_dtype(&be, BACKEND_AUTO), 0);
            assert_true(!be.bf16 || i == ISA_COUNT - 1);
            try_size(&be, sizes[1],
                     0); /* all sizes of what it chose are above */
            assert_int_equal(backend_set_dtype(&be, BACKEND_FP32), 0);
            assert_false(be.bf16);
            backend_close(&be);
        }
    }
    backend_cpu_ref(&be);
    assert_int_equal(backend_set_dtype(&be, BACKEND_BF16), LOCO_EDEVICE);
    assert_int_equal(backend_set_dtype(&be, BACKEND_AUTO), 0);
    assert_false(be.bf16);
}

/* x = 1 + x / 2 ends at 2 in every lane of every register. */
static void try_peak(const char *isa, int lanes)
{
    struct backend be;
    float x[3] = {0.5F, 1, 0};

    if (backend_cpu_isa(&be, 2, isa) != 0) {
        return;
    }
    assert_int_equal(be.cpu->peak(100, x), 100 * 12 * lanes * 2);
    assert_true(x[2] == (float)(2 * 12 * lanes));
    assert_true(backend_peak_flops(&be) > 0);
    if (backend_set_dtype(&be, BACKEND_BF16) == 0) {
        assert_int_equal(be.cpu->peak_bf16(100, x), 100 * 12 * lanes * 4);
        assert_true(isfinite(x[2]) && backend_peak_flops(&be) > 0);
    }
    assert_int_equal(backend_set_dtype(&be, BACKEND_ROUNDED), 0);
    assert_true(backend_peak_flops(&be) == 0);
    backend_close(&be);
}

static void the_peak_counts_what_it_computes(void **state)
{
    struct backend be;

    (void)state;
    try_peak("baseline", 4);
    try_peak("neon", 4);
    try_peak("avx2", 8);
    try_peak("avx512", 16);
    backend_cpu_ref(&be);
    assert_true(backend_peak_flops(&be) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right_where_blocks_end),
        cmocka_unit_test(bf16_products_are_those_of_rounded_operands),
        cmocka_unit_test(any_kernels_can_round_their_operands),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(auto_chooses_a_dtype_that_works),
        cmocka_unit_test(the_peak_counts_what_it_computes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
