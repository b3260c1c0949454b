/* dtype_test.c - training with bf16 products beside fp32, and the same bits
 * from the same seed. A small model learns a text that a rule generates. */
#include "train/model/llama.h"
#include "train/model/optimizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/rng.h"

#define B      4
#define T      40
#define STEPS  300
#define WINDOW 20 /* steps of the curve that are averaged */

static const struct llama_config model = {32, 2, 4,    2,    48,
                                          24, T, true, 1e4f, 1e-5f};

struct run {
    struct backend be;
    struct llama *m;
    struct optimizer adam;
    double lr;
    float *theta, *grad;
    int64_t n;
    uint32_t tokens[B * T + 1];
    float loss[STEPS];
};

/* A token follows from the one before it, one time in four it is random: a
 * rule that is learnt steadily, without a sudden step that rounding shifts. */
static void text(struct run *r, int step)
{
    uint64_t rng = 1000 + (uint64_t)step;

    r->tokens[0] = (uint32_t)rng_below(&rng, model.vocab);
    for (int i = 1; i <= B * T; i++) {
        bool noise = rng_below(&rng, 4) == 0;
        uint32_t next = r->tokens[i - 1] * 5 + 1;

        r->tokens[i] = (noise ? (uint32_t)rng_next(&rng) : next) % model.vocab;
    }
}

static bool open_rule(struct run *r,
                      enum optimizer_rule rule,
                      enum backend_dtype dtype,
                      int threads,
                      int recompute)
{
    struct optimizer_options opt = optimizer_defaults();

    memset(r, 0, sizeof *r);
    opt.rule = rule;
    assert_int_equal(backend_cpu(&r->be, threads), 0);
    if (backend_set_dtype(&r->be, dtype) != 0) {
        backend_close(&r->be);
        return false;
    }
    r->n = llama_numel(&model);
    r->theta = malloc((size_t)r->n * sizeof(float));
    r->grad = malloc((size_t)r->n * sizeof(float));
    assert_true(r->theta != NULL && r->grad != NULL);
    assert_int_equal(
        llama_open(&r->m, &model, &r->be, 2, (enum llama_recompute)recompute),
        0);
    assert_int_equal(optimizer_open_llama(&r->adam, &opt, &model), 0);
    llama_init_params(&model, r->theta, 9);
    r->lr = 2e-3;
    return true;
}

static void close_run(struct run *r)
{
    optimizer_close(&r->adam);
    llama_close(r->m);
    backend_close(&r->be);
    free(r->theta);
    free(r->grad);
}

static void train(struct run *r, int steps)
{
    for (int i = 0; i < steps; i++) {
        struct llama_batch batch = {r->tokens, r->tokens + 1, B, T};
        struct optimizer_rate rate = {.lr = r->lr, .grad_scale = 1.0 / (B * T)};
        double sum;

        text(r, i);
        assert_int_equal(llama_gradient(r->m, r->theta, &batch, r->grad, &sum),
                         0);
        assert_int_equal(
            optimizer_step(&r->adam, &r->be, r->theta, r->grad, &rate, NULL),
            0);
        r->loss[i] = (float)(sum / (B * T));
    }
}

static double window(const struct run *r, int from)
{
    double sum = 0;

    for (int i = from; i < from + WINDOW; i++) {
        sum += (double)r->loss[i];
    }
    return sum / WINDOW;
}

static void bf16_learns_like_fp32(enum optimizer_rule rule)
{
    static struct run a, b;
    double worst = 0;

    assert_true(open_rule(&a, rule, BACKEND_FP32, 1, 0));
    if (!open_rule(&b, rule, BACKEND_BF16, 1, 0)) {
        close_run(&a);
        print_message("skipped: this processor has no bf16 dot products\n");
        skip();
    }
    train(&a, STEPS);
    train(&b, STEPS);
    for (int i = 0; i + WINDOW <= STEPS; i += WINDOW) {
        worst = fmax(worst, fabs(window(&b, i) / window(&a, i) - 1));
    }
    print_message("loss %.3f to %.3f; bf16 at most %.2f %% away\n",
                  window(&a, 0), window(&a, STEPS - WINDOW), worst * 100);
    assert_true(window(&a, STEPS - WINDOW) < 0.8 * window(&a, 0));
    assert_true(worst > 0);
    assert_true(worst < 0.01);
    close_run(&a);
    close_run(&b);
}

static void bf16_learns_like_fp32_for_300_steps(void **state)
{
    (void)state;
    bf16_learns_like_fp32(OPTIMIZER_ADAMW);
}

static void bf16_learns_like_fp32_for_300_steps_of_muon(void **state)
{
    (void)state;
    bf16_learns_like_fp32(OPTIMIZER_MUON);
}

/* Each with a rate of its own kind. */
static void every_optimizer_learns(void **state)
{
    static const double lr[OPTIMIZER_RULE_COUNT] = {2e-3, 2e-3, 0.5, 0.5, 2e-3};
    static struct run r;

    (void)state;
    for (int rule = 0; rule < OPTIMIZER_RULE_COUNT; rule++) {
        assert_true(
            open_rule(&r, (enum optimizer_rule)rule, BACKEND_FP32, 1, 0));
        r.lr = lr[rule];
        train(&r, STEPS);
        print_message("%d: loss %.3f to %.3f\n", rule, window(&r, 0),
                      window(&r, STEPS - WINDOW));
        assert_true(window(&r, STEPS - WINDOW) < 0.9 * window(&r, 0));
        close_run(&r);
    }
}

/* Twice with each thread count; that the counts agree with one another as well
 * is more than the backend promises for future sets. */
static void same_bits(enum optimizer_rule rule)
{
    static struct run a, b;

    for (int i = 0; i < 12; i++) {
        enum backend_dtype dtype = i % 2 == 0 ? BACKEND_FP32 : BACKEND_BF16;
        int threads = 1 + i / 2 % 3;

        if (!open_rule(&a, rule, dtype, threads, 0)) {
            continue;
        }
        assert_true(open_rule(&b, rule, dtype, i < 6 ? threads : 3, i / 4));
        train(&a, 12);
        train(&b, 12);
        assert_memory_equal(a.theta, b.theta, (size_t)a.n * sizeof(float));
        assert_memory_equal(a.loss, b.loss, sizeof a.loss);
        close_run(&a);
        close_run(&b);
    }
}

static void the_same_seed_gives_the_same_bits(void **state)
{
    (void)state;
    same_bits(OPTIMIZER_ADAMW);
    same_bits(OPTIMIZER_MUON);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_learns_like_fp32_for_300_steps),
        cmocka_unit_test(bf16_learns_like_fp32_for_300_steps_of_muon),
        cmocka_unit_test(every_optimizer_learns),
        cmocka_unit_test(the_same_seed_gives_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
