/* bf16_test.c - products of operands rounded to bf16: those of every set that
 * this processor has, and AMX's by a model of its instructions.
 *
 * Judge and tolerance are those of fp32 (product.h), with operands rounded
 * first: 2e-7 (k + 8) for elements below 1. An instruction may round each of
 * its sums to odd (one unit in the last place, 1.2e-7, in place of a half) and
 * take subnormals for 0, so it has no smaller bar than fp32; what it is off is
 * printed.
 */
#include "kernels/cpu/kernels.h"
#include "kernels/sets.h"
#include "proto/base/err.h"
#include "tests/unit/kernels/product.h"

#define MODEL "amx, by a model"

static int parts; /* in which the model does its work */

#ifdef LOCO_AMX_MODEL

/* kernels/cpu/fast_matmul.c with amx_model.h */
void matmul_bf16_model(const struct matmul *op, struct kernel_range r);

static void model_matmul(const struct backend *be, const struct matmul *op)
{
    int64_t units = matmul_units(op);

    for (int i = 0; i < parts; i++) {
        struct kernel_range r = {.from = units * i / parts,
                                 .to = units * (i + 1) / parts,
                                 .scratch = be->scratch};

        if (r.from < r.to) {
            matmul_bf16_model(op, r);
        }
    }
}

#define MODEL_ISA MODEL
#else /* another processor, emulated: the model would only take longer */
#define MODEL_ISA    NULL
#define model_matmul NULL
#endif

/* False: this processor has no such products. */
static bool open_bf16(struct backend *be, const char *isa, int threads)
{
    bool model = strcmp(isa, MODEL) == 0;

    if (backend_cpu_isa(be, model ? 1 : threads, model ? "auto" : isa) != 0) {
        return false;
    }
    if (model) {
        be->isa = MODEL;
        be->bf16 = true;
        be->matmul = model_matmul;
        parts = threads;
    } else if (backend_set_dtype(be, BACKEND_BF16) != 0) {
        backend_close(be);
        return false;
    }
    assert_true(be->bf16);
    return true;
}

typedef void (*body)(struct backend *be);

/* Each row of sets.def, then the model. */
static const char *isa_at(size_t i)
{
    size_t n;
    const struct kernel_set *sets = kernel_sets(&n);

    return i < n ? sets[i].name : i == n ? MODEL_ISA : NULL;
}

static void for_each(body of, int threads)
{
    struct backend be;

    for (size_t i = 0; isa_at(i) != NULL; i++) {
        if (open_bf16(&be, isa_at(i), threads)) {
            of(&be);
            backend_close(&be);
        }
    }
}

static void try_products(struct backend *be)
{
    worst = 0;
    try_all(be);
    print_message("%s: products in bf16 ran, worst error %.2g of the "
                  "tolerance\n",
                  be->isa, worst);
}

static void bf16_products_are_those_of_rounded_operands(void **state)
{
    (void)state;
    for_each(try_products, 1);
}

/* Whole numbers, whose sums no way of rounding alters. */
static void try_exact(struct backend *be)
{
    for (int i = 0; i < SIZE_COUNT * 4; i++) {
        struct product p;
        struct matmul *op = &p.op;

        open_product(&p, sizes[i / 4], i % 4);
        op->alpha = 1;
        whole_numbers(p.a, (op->ta ? op->k : op->m) * op->lda);
        whole_numbers(p.b, (op->tb ? op->n : op->k) * op->ldb);
        run(&p, be);
        check_within(&p, be, 0);
        close_product(&p);
    }
}

static void sums_that_need_no_rounding_are_exact(void **state)
{
    (void)state;
    for_each(try_exact, 1);
}

/* c of ones times `x` in element (1, 2) of a. */
static float with(struct backend *be, float x, bool everywhere)
{
    enum { M = 3, N = 5, K = 40 };
    float a[M * K], b[K * N], c[M * N];
    struct matmul op = {.m = M,
                        .n = N,
                        .k = K,
                        .a = a,
                        .b = b,
                        .c = c,
                        .lda = K,
                        .ldb = N,
                        .ldc = N,
                        .alpha = 1};

    for (int i = 0; i < M * K; i++) {
        a[i] = everywhere || i == K + 2 ? x : 1;
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = 1;
    }
    be->matmul(be, &op);
    for (int i = 0; i < M * N; i++) {
        if (everywhere || i / N == 1) {
            assert_memory_equal(&c[i], &c[N], sizeof c[i]);
        } else {
            assert_true(c[i] == K);
        }
    }
    return c[N];
}

static void try_odd_numbers(struct backend *be)
{
    float subnormals = with(be, 1e-39f, true);

    assert_true(isnan(with(be, NAN, false)));
    assert_true(with(be, INFINITY, false) == INFINITY);
    assert_true(with(be, -INFINITY, false) == -INFINITY);
    assert_true(with(be, 3.4e38f, false) > 3e38f); /* rounds up to infinity */
    assert_true(subnormals >= 0 && subnormals < 41e-39f);
}

static void nan_and_infinity_pass_and_subnormals_may_be_zero(void **state)
{
    (void)state;
    for_each(try_odd_numbers, 1);
}

static bool open_set(struct backend *be, int threads, const void *isa)
{
    return open_bf16(be, isa, threads);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t set = 0; isa_at(set) != NULL; set++) {
        for (int i = 0; i < SIZE_COUNT * 4; i++) {
            same_bits(sizes[i / 4], i % 4, open_set, isa_at(set));
        }
    }
}

static void what_is_not_here_is_refused(void **state)
{
    size_t n;
    const struct kernel_set *sets = kernel_sets(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        struct backend be;

        assert_int_equal(open_bf16(&be, sets[i].name, 1),
                         kernel_set_bf16_here(&sets[i]));
        if (kernel_set_bf16_here(&sets[i])) {
            assert_non_null(sets[i].bf16);
            backend_close(&be);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_products_are_those_of_rounded_operands),
        cmocka_unit_test(sums_that_need_no_rounding_are_exact),
        cmocka_unit_test(nan_and_infinity_pass_and_subnormals_may_be_zero),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(what_is_not_here_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
