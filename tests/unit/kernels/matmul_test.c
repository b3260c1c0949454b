/* matmul_test.c - the packed product where blocks, slices and panels end, the
 * same bits for any number of threads, and what `auto` makes of it. */
#include "kernels/cpu/kernels.h"
#include "kernels/measure.h"
#include "kernels/sets.h"
#include "proto/base/err.h"
#include "tests/unit/kernels/product.h"

#define ISA_COUNT 4

static const char *const isas[ISA_COUNT] = {"baseline", "neon", "avx2",
                                            "avx512"};

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

static bool open_dtype(struct backend *be, int threads, const void *dtype)
{
    assert_int_equal(backend_cpu(be, threads), 0);
    assert_int_equal(backend_set_dtype(be, *(const enum backend_dtype *)dtype),
                     0);
    return true;
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    static const enum backend_dtype dtypes[] = {BACKEND_FP32, BACKEND_ROUNDED};

    (void)state;
    for (int i = 0; i < SIZE_COUNT * 4; i++) {
        same_bits(sizes[i / 4], i % 4, open_dtype, &dtypes[0]);
        same_bits(sizes[i / 4], i % 4, open_dtype, &dtypes[1]);
    }
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
            assert_true(!be.bf16 ||
                        kernel_set_bf16_here(kernel_set_named(isas[i])));
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
        /* a vector of two each; BFMMLA makes four products of four */
        assert_int_equal(be.cpu->peak_bf16(100, x),
                         100 * 12 * lanes * (lanes == 4 ? 8 : 4));
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
        cmocka_unit_test(any_kernels_can_round_their_operands),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(auto_chooses_a_dtype_that_works),
        cmocka_unit_test(the_peak_counts_what_it_computes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
