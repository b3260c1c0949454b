/* bench_test.c - the benchmark measures what it says. */
#include "train/replica/bench.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "train/model/llama.h"

static const struct llama_config tiny = {16, 2, 2,    1,    24,
                                         11, 8, true, 1e4f, 1e-5f};

static void figures_are_filled_and_agree_with_each_other(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        struct bench_train_options opt = {.config = tiny,
                                          .batch = 3,
                                          .seq = 5,
                                          .threads = threads,
                                          .steps = 4,
                                          .micro_batch = threads == 1 ? 0 : 2,
                                          .isa = threads == 1 ? "reference"
                                                              : NULL};
        struct bench_train_result r;
        struct llama_config c = tiny;

        c.seq = 5;
        assert_int_equal(bench_train(&opt, &r), 0);
        assert_int_equal(r.parameters, llama_numel(&tiny));
        assert_int_equal(r.steps, 4);
        assert_true(r.ms_per_step > 0);
        assert_true(r.cpu_ms_per_step > 0);
        assert_true(fabs(r.tokens_per_s * r.ms_per_step / 15e3 - 1) < 1e-9);
        assert_true(
            fabs(r.flops_per_s / r.tokens_per_s / llama_flops_per_token(&c, 5) -
                 1) < 1e-9);
        assert_true(fabs(r.mfu * r.product_flops_per_s / r.flops_per_s - 1) <
                    1e-9);
        assert_true(r.cpu_mfu > 0 && r.product_flops_per_s > 0);
        assert_true((r.peak_flops_per_s > 0) == (threads == 2));
        assert_true(r.max_rss_bytes > 0);
        assert_true(fabs(r.loss - log(11)) < 0.3);
        assert_non_null(r.isa);
    }
}

static void a_dry_run_only_counts(void **state)
{
    struct bench_train_options opt = {
        .batch = 1, .threads = 1, .dry_run = true};
    struct bench_train_result r;

    (void)state;
    assert_int_equal(llama_config_named("llama-1b", &opt.config), 0);
    assert_int_equal(bench_train(&opt, &r), 0);
    assert_int_equal(r.parameters, 1100048384);
    assert_int_equal(r.state_bytes, 1100048384LL * 16);
    assert_true(r.workspace_bytes > 1LL << 30);
    assert_int_equal(r.steps, 0);
    assert_true(r.max_rss_bytes < 1LL << 30);
}

/* 6 per matrix parameter, the tied embedding being the head, + 6 L T C. */
static void flops_are_counted_by_the_stated_rule(void **state)
{
    struct llama_config c = tiny;
    double matrices = 2 * (16 * 16 * 2 + 8 * 16 * 2 + 3 * 16 * 24) + 11 * 16;

    (void)state;
    assert_true(llama_flops_per_token(&c, 8) ==
                6 * matrices + 6.0 * 2 * 8 * 16);
    c.tied = false; /* the embedding itself multiplies nothing */
    assert_true(llama_flops_per_token(&c, 8) ==
                6 * matrices + 6.0 * 2 * 8 * 16);
}

static void bad_options_are_refused(void **state)
{
    const struct bench_train_options good = {
        .config = tiny, .batch = 1, .threads = 1, .steps = 1};
    struct bench_train_options bad[6] = {good, good, good, good, good, good};
    struct bench_train_result r;

    (void)state;
    bad[0].batch = 0;
    bad[1].seq = 9;
    bad[2].threads = 0;
    bad[3].config.dim = 0;
    bad[4].steps = -1;
    bad[5].micro_batch = 2;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(bench_train(&bad[i], &r), LOCO_EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_filled_and_agree_with_each_other),
        cmocka_unit_test(a_dry_run_only_counts),
        cmocka_unit_test(flops_are_counted_by_the_stated_rule),
        cmocka_unit_test(bad_options_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
