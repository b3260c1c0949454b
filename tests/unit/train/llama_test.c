/* The model against an independent one in double: loss, gradient of every
 * tensor, causality, micro-batches, generation limits. */
#include "train/model/llama.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/device.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/train/llama_oracle.h"

#define B       3
#define T       7
#define N_MAX   20000
#define FD_STEP 1e-5

/* Relative error allowed between the fp32 gradient and the double finite
 * difference, of the tensor's gradient norm. */
#define GRAD_TOLERANCE 1e-5

static const struct llama_config configs[] = {
    /* dim, layers, heads, kv_heads, ffn, vocab, seq, tied, theta, eps */
    {16, 2, 4, 2, 21, 19, 9, false, 100, 1e-5f},  /* grouped, own head */
    {16, 2, 4, 1, 24, 17, 9, true, 10000, 1e-5f}, /* one kv head, tied */
    {24, 3, 3, 3, 40, 32, 12, true, 10000, 1e-3f},
    {2, 1, 1, 1, 1, 2, 7, false, 10000, 1e-5f}, /* the smallest there is */
};

#define CONFIG_COUNT (sizeof configs / sizeof configs[0])

struct fixture {
    const struct llama_config *c;
    struct backend be;
    struct llama *m;
    int64_t n;
    float theta[N_MAX];
    float grad[N_MAX];
    double exact[N_MAX]; /* theta in double */
    uint32_t tokens[B * T];
    uint32_t targets[B * T];
    struct llama_batch batch;
};

/* Larger than at init, so that every path carries gradient. */
static void randomise(struct fixture *f, uint64_t seed)
{
    int count = llama_tensor_count(f->c);

    for (int i = 0; i < count; i++) {
        struct llama_view v;

        llama_tensor(f->c, i, &v);
        for (int64_t j = 0; j < v.numel; j++) {
            float r = rng_float(&seed) * 2 - 1;

            f->theta[v.offset + j] = v.ndim == 1 ? 1 + 0.3f * r : 0.6f * r;
        }
    }
    for (int64_t i = 0; i < f->n; i++) {
        f->exact[i] = (double)f->theta[i];
    }
    for (int i = 0; i < B * T; i++) {
        f->tokens[i] = (uint32_t)rng_below(&seed, f->c->vocab);
        f->targets[i] = (uint32_t)rng_below(&seed, f->c->vocab);
    }
    f->targets[3] = LLAMA_IGNORE;
}

/* Every set of kernels, and the best one with two threads. */
static const struct {
    const char *isa; /* NULL: the best */
    int threads;
} backends[] = {{"reference", 1}, {"baseline", 1}, {"neon", 1},
                {"avx2", 1},      {"avx512", 1},   {NULL, 2}};

#define BACKEND_COUNT (sizeof backends / sizeof backends[0])

static struct fixture *fixture_on(const struct llama_config *c,
                                  const struct backend *be)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->c = c;
    f->n = llama_numel(c);
    assert_true(f->n <= N_MAX);
    f->be = *be;
    assert_int_equal(llama_open(&f->m, c, &f->be, B, LLAMA_RECOMPUTE_NOTHING),
                     0);
    f->batch = (struct llama_batch){f->tokens, f->targets, B, T};
    randomise(f, 11);
    return f;
}

/* threads 0: the reference backend */
static struct fixture *open_fixture(const struct llama_config *c, int threads)
{
    struct backend be;

    if (threads == 0) {
        backend_cpu_ref(&be);
    } else {
        assert_int_equal(backend_cpu(&be, threads), 0);
    }
    return fixture_on(c, &be);
}

/* NULL where this processor does not have that set. */
static struct fixture *open_on_set(const struct llama_config *c, size_t i)
{
    struct backend be;
    int rv = backends[i].isa == NULL
                 ? backend_cpu(&be, backends[i].threads)
                 : backend_cpu_isa(&be, backends[i].threads, backends[i].isa);

    if (rv != LOCO_EDEVICE) {
        assert_int_equal(rv, 0);
        return fixture_on(c, &be);
    }
    return NULL;
}

static void close_fixture(struct fixture *f)
{
    llama_close(f->m);
    backend_close(&f->be);
    free(f);
}

static void loss_equals_the_double_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < CONFIG_COUNT * BACKEND_COUNT; i++) {
        struct fixture *f =
            open_on_set(&configs[i % CONFIG_COUNT], i / CONFIG_COUNT);
        double want;
        double loss;

        if (f == NULL) {
            continue;
        }
        want = oracle_loss(f->c, f->exact, &f->batch);

        assert_int_equal(llama_loss(f->m, f->theta, &f->batch, NULL, &loss), 0);
        assert_true(fabs(loss - want) <= 2e-6 * want);
        close_fixture(f);
    }
}

static double at_shift(struct fixture *f,
                       const struct llama_view *v,
                       const double *direction,
                       double by)
{
    double loss;

    for (int64_t j = 0; j < v->numel; j++) {
        f->exact[v->offset + j] += by * direction[j];
    }
    loss = oracle_loss(f->c, f->exact, &f->batch);
    for (int64_t j = 0; j < v->numel; j++) {
        f->exact[v->offset + j] = (double)f->theta[v->offset + j];
    }
    return loss;
}

/* d loss / d direction by a central difference of the oracle against the
 * gradient; returns the error relative to the tensor's gradient norm. */
static double slope_error(struct fixture *f,
                          const struct llama_view *v,
                          const double *direction)
{
    double up = at_shift(f, v, direction, FD_STEP);
    double down = at_shift(f, v, direction, -FD_STEP);
    double slope = 0;
    double norm = 0;

    for (int64_t j = 0; j < v->numel; j++) {
        double g = (double)f->grad[v->offset + j];

        slope += g * direction[j];
        norm += g * g;
    }
    assert_true(norm > 0);
    return fabs((up - down) / (2 * FD_STEP) - slope) / sqrt(norm);
}

static double check_tensor(struct fixture *f, int i, uint64_t *rng)
{
    static double direction[N_MAX];
    struct llama_view v;
    double worst = 0;

    llama_tensor(f->c, i, &v);
    for (int trial = 0; trial < TURNS(6, 2); trial++) {
        double error;

        memset(direction, 0, sizeof direction);
        if (trial < TURNS(3, 1)) { /* every element moves */
            for (int64_t j = 0; j < v.numel; j++) {
                direction[j] = (rng_next(rng) & 1) != 0 ? 1 : -1;
                direction[j] /= sqrt((double)v.numel);
            }
        } else { /* one does */
            direction[rng_below(rng, (uint64_t)v.numel)] = 1;
        }
        error = slope_error(f, &v, direction);
        if (!(error <= GRAD_TOLERANCE)) {
            fail_msg("%s: gradient off by %g of its norm", v.name, error);
        }
        worst = fmax(worst, error);
    }
    return worst;
}

static void
every_tensors_gradient_equals_finite_differences_in_double(void **state)
{
    double worst = 0;

    (void)state;
    for (size_t i = 0; i < CONFIG_COUNT * 3; i++) {
        struct fixture *f =
            open_fixture(&configs[i % CONFIG_COUNT], (int)(i / CONFIG_COUNT));
        uint64_t rng = 5;
        double loss;

        assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &loss),
                         0);
        for (int k = 0; k < llama_tensor_count(f->c); k++) {
            worst = fmax(worst, check_tensor(f, k, &rng));
        }
        close_fixture(f);
    }
    print_message("worst relative error of a gradient: %.2g\n", worst);
}

/* To a standard deviation of 0.17: weights as training makes them. */
static void halve_matrices(struct fixture *f)
{
    for (int64_t i = 0; i < f->n; i++) {
        if (fabsf(f->theta[i]) < 0.65f) { /* not a norm's */
            f->theta[i] *= 0.5f;
        }
        f->exact[i] = (double)f->theta[i];
    }
}

/* Slopes of the oracle's loss along DIRECTIONS random directions of all
 * parameters together: enough to tell the length of a gradient's error. */
#define DIRECTIONS TURNS(200, 20)

static void random_direction(const struct fixture *f, int i, double *direction)
{
    uint64_t rng = 77 + (uint64_t)i;

    for (int64_t j = 0; j < f->n; j++) {
        direction[j] = (rng_next(&rng) & 1) != 0 ? 1 : -1;
        direction[j] /= sqrt((double)f->n);
    }
}

static void oracle_slopes(struct fixture *f, double *slope)
{
    static double direction[N_MAX];
    struct llama_view all = {.numel = f->n};

    for (int i = 0; i < DIRECTIONS; i++) {
        random_direction(f, i, direction);
        slope[i] = (at_shift(f, &all, direction, FD_STEP) -
                    at_shift(f, &all, direction, -FD_STEP)) /
                   (2 * FD_STEP);
    }
}

/* ||gradient - oracle's|| / ||oracle's|| over all parameters */
static double gradient_error(struct fixture *f, const double *slope)
{
    static double direction[N_MAX];
    double diff = 0, norm = 0, loss;

    memset(f->grad, 0, sizeof f->grad);
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &loss), 0);
    for (int i = 0; i < DIRECTIONS; i++) {
        double d = -slope[i];

        random_direction(f, i, direction);
        for (int64_t j = 0; j < f->n; j++) {
            d += (double)f->grad[j] * direction[j];
        }
        diff += d * d;
        norm += slope[i] * slope[i];
    }
    return sqrt(diff / norm);
}

/* 1e-5 in fp32 with every set of kernels, 2e-2 with bf16 products. */
static void whole_gradients_equal_the_double_models(void **state)
{
    static double slope[DIRECTIONS];

    (void)state;
    for (size_t i = 0; i < CONFIG_COUNT * BACKEND_COUNT; i++) {
        struct fixture *f =
            open_on_set(&configs[i / BACKEND_COUNT], i % BACKEND_COUNT);
        double error;

        if (f == NULL) {
            continue;
        }
        halve_matrices(f);
        if (i % BACKEND_COUNT == 0) {
            oracle_slopes(f, slope);
        }
        error = gradient_error(f, slope);
        print_message("%s fp32 gradient: relative error %.2g\n", f->be.isa,
                      error);
        assert_true(error <= 1e-5);
        if (backend_set_dtype(&f->be, BACKEND_BF16) == 0) {
            error = gradient_error(f, slope);
            print_message("%s bf16 gradient: relative error %.2g\n", f->be.isa,
                          error);
            assert_true(error > 1e-5 && error <= 2e-2);
        }
        close_fixture(f);
    }
}

static void recomputing_gives_the_same_bits_in_less_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < CONFIG_COUNT; i++) {
        struct fixture *f = open_fixture(&configs[i], 2);
        static float grad[N_MAX];
        size_t before = SIZE_MAX;
        double loss;

        assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &loss),
                         0);
        for (int level = 0; level <= LLAMA_RECOMPUTE_LAYERS; level++) {
            enum llama_recompute recompute = (enum llama_recompute)level;
            size_t bytes = llama_workspace_bytes(f->c, &f->be, B, recompute);
            struct llama *m;
            double again;

            assert_int_equal(llama_open(&m, f->c, &f->be, B, recompute), 0);
            memset(grad, 0, sizeof grad);
            assert_int_equal(llama_loss(m, f->theta, &f->batch, grad, &again),
                             0);
            assert_true(again == loss);
            assert_memory_equal(grad, f->grad, sizeof grad);
            assert_true(f->c->layers > 1 ? bytes < before : bytes <= before);
            before = bytes;
            llama_close(m);
        }
        close_fixture(f);
    }
}

/* Also over micro-batches, and whatever was there before. */
static void a_fresh_gradient_overwrites_what_was_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < CONFIG_COUNT * 2; i++) {
        struct fixture *f = open_fixture(&configs[i / 2], 1);
        static float grad[N_MAX];
        struct llama *m;
        double loss, again;

        assert_int_equal(llama_open(&m, f->c, &f->be, i % 2 == 0 ? B : 1,
                                    LLAMA_RECOMPUTE_NOTHING),
                         0);
        assert_int_equal(llama_loss(m, f->theta, &f->batch, f->grad, &loss), 0);
        for (int64_t j = 0; j < N_MAX; j++) {
            grad[j] = NAN;
        }
        assert_int_equal(llama_gradient(m, f->theta, &f->batch, grad, &again),
                         0);
        assert_true(loss == again);
        for (int64_t j = 0; j < f->n; j++) {
            assert_true(grad[j] == f->grad[j]);
        }
        assert_true(isnan(grad[f->n]));
        llama_close(m);
        close_fixture(f);
    }
}

static void gradients_accumulate(void **state)
{
    struct fixture *f = open_fixture(&configs[0], 1);
    double loss;

    (void)state;
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &loss), 0);
    for (int64_t i = 0; i < f->n; i++) {
        f->exact[i] = (double)f->grad[i];
    }
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &loss), 0);
    for (int64_t i = 0; i < f->n; i++) {
        double diff = fabs((double)f->grad[i] - 2 * f->exact[i]);

        assert_true(diff <= 1e-4 * (1 + fabs(f->exact[i])));
    }
    close_fixture(f);
}

/* One batch of 3 sequences, and the same one by one through a model that
 * holds a single sequence. */
static void a_batch_equals_its_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct fixture *f = open_fixture(&configs[i], 1);
        static float grad[N_MAX];
        struct llama *one;
        double whole;
        double parts;

        memset(grad, 0, sizeof grad);
        assert_int_equal(
            llama_open(&one, f->c, &f->be, 1, LLAMA_RECOMPUTE_NOTHING), 0);
        assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &whole),
                         0);
        assert_int_equal(llama_loss(one, f->theta, &f->batch, grad, &parts), 0);
        assert_true(fabs(whole - parts) <= 1e-6 * whole);
        for (int64_t j = 0; j < f->n; j++) {
            double diff = fabs((double)grad[j] - (double)f->grad[j]);

            assert_true(diff <= 2e-5 * (1 + fabs((double)grad[j])));
        }
        llama_close(one);
        close_fixture(f);
    }
}

/* Only position 3 is scored: its loss moves with tokens 0..3, not with 4..6.
 */
static void a_position_sees_its_past_and_not_its_future(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        struct fixture *f = open_fixture(&configs[0], threads);
        double base;

        for (int i = 0; i < B * T; i++) {
            f->targets[i] = i == 3 ? 5 : LLAMA_IGNORE;
        }
        f->batch.b = 1;
        llama_loss(f->m, f->theta, &f->batch, NULL, &base);
        for (int i = 0; i < T; i++) {
            uint32_t old = f->tokens[i];
            double loss;

            f->tokens[i] = (old + 1) % f->c->vocab;
            llama_loss(f->m, f->theta, &f->batch, NULL, &loss);
            f->tokens[i] = old;
            assert_true(i <= 3 ? loss != base : loss == base);
        }
        close_fixture(f);
    }
}

static void unscored_positions_carry_no_loss_and_no_gradient(void **state)
{
    struct fixture *f = open_fixture(&configs[0], 1);
    double loss;

    (void)state;
    for (int i = 0; i < B * T; i++) {
        f->targets[i] = LLAMA_IGNORE;
    }
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &loss), 0);
    assert_true(loss == 0);
    for (int64_t i = 0; i < f->n; i++) {
        assert_true(f->grad[i] == 0);
    }
    close_fixture(f);
}

/* Of each sequence alone, with other positions scored in each, the last with
 * none; in micro-batches of two. */
static void row_losses_are_the_losses_of_rows(void **state)
{
    for (size_t i = 0; i < CONFIG_COUNT; i++) {
        struct fixture *f = open_fixture(&configs[i], i == 0 ? 0 : 1);
        double sums[B] = {-1, -1, -1};
        struct llama *two;

        (void)state;
        for (int j = 0; j < T; j++) {
            if (j < 2 || j == 4) {
                f->targets[j] = LLAMA_IGNORE; /* a gap at 4 */
            }
            if (j > 3) {
                f->targets[T + j] = LLAMA_IGNORE;
            }
            f->targets[2 * T + j] = LLAMA_IGNORE;
        }
        assert_int_equal(
            llama_open(&two, f->c, &f->be, 2, LLAMA_RECOMPUTE_LAYERS), 0);
        assert_int_equal(llama_row_losses(two, f->theta, &f->batch, sums), 0);
        for (int b = 0; b < B; b++) {
            struct llama_batch one = {f->tokens + b * T, f->targets + b * T, 1,
                                      T};
            double want;

            assert_int_equal(llama_loss(f->m, f->theta, &one, NULL, &want), 0);
            assert_true(fabs(sums[b] - want) <= 1e-5 * (1 + want));
            assert_true(b == B - 1 ? sums[b] == 0 : sums[b] > 0);
        }
        f->tokens[B * T - 1] = f->c->vocab;
        assert_int_equal(llama_row_losses(two, f->theta, &f->batch, sums),
                         LOCO_ERANGE);
        llama_close(two);
        close_fixture(f);
    }
}

/* logits of the last position: their softmax gives the loss of one target */
static void logits_agree_with_the_loss(void **state)
{
    struct fixture *f = open_fixture(&configs[1], 1);
    float logits[ORACLE_V];
    double sum = 0;
    double loss;

    (void)state;
    for (int i = 0; i < T; i++) {
        f->targets[i] = i == T - 1 ? 2 : LLAMA_IGNORE;
    }
    f->batch.b = 1;
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, NULL, &loss), 0);
    assert_int_equal(llama_logits(f->m, f->theta, f->tokens, T, logits), 0);
    for (uint32_t v = 0; v < f->c->vocab; v++) {
        sum += exp((double)logits[v]);
    }
    assert_true(fabs(log(sum) - (double)logits[2] - loss) <= 1e-5);
    close_fixture(f);
}

static void bad_batches_are_refused(void **state)
{
    struct fixture *f = open_fixture(&configs[0], 1);
    double loss;

    (void)state;
    f->tokens[B * T - 1] = f->c->vocab;
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &loss),
                     LOCO_ERANGE);
    for (int64_t i = 0; i < f->n; i++) {
        assert_true(f->grad[i] == 0);
    }
    f->tokens[B * T - 1] = 0;
    f->targets[0] = f->c->vocab;
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, NULL, &loss),
                     LOCO_ERANGE);
    f->targets[0] = 0;
    f->batch.t = f->c->seq + 1;
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, NULL, &loss),
                     LOCO_EINVAL);
    f->batch.t = T;
    f->batch.b = 0;
    assert_int_equal(llama_loss(f->m, f->theta, &f->batch, NULL, &loss),
                     LOCO_EINVAL);
    close_fixture(f);
}

static void a_nan_parameter_is_reported(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        struct fixture *f = open_fixture(&configs[0], threads);
        float logits[ORACLE_V];
        double loss;

        f->theta[llama_offset(f->c, LLAMA_DOWN, 1) + 3] = NAN;
        assert_int_equal(llama_loss(f->m, f->theta, &f->batch, f->grad, &loss),
                         LOCO_ENUMERIC);
        assert_int_equal(llama_logits(f->m, f->theta, f->tokens, T, logits),
                         LOCO_ENUMERIC);
        close_fixture(f);
    }
}

static void opening_checks_its_arguments(void **state)
{
    struct llama_config bad = configs[0];
    struct backend be;
    struct llama *m;

    (void)state;
    backend_cpu_ref(&be);
    bad.kv_heads = 3;
    assert_int_equal(llama_open(&m, &bad, &be, 1, LLAMA_RECOMPUTE_NOTHING),
                     LOCO_EINVAL);
    assert_int_equal(
        llama_open(&m, &configs[0], &be, 0, LLAMA_RECOMPUTE_NOTHING),
        LOCO_EINVAL);
    assert_int_equal(llama_open(&m, &configs[0], &be, LLAMA_MICRO_BATCH_MAX + 1,
                                LLAMA_RECOMPUTE_NOTHING),
                     LOCO_EINVAL);
    assert_true(
        llama_workspace_bytes(&configs[0], &be, 2, LLAMA_RECOMPUTE_NOTHING) >
        llama_workspace_bytes(&configs[0], &be, 1, LLAMA_RECOMPUTE_NOTHING));
}

/* Rows of logits and of the head's copy, as many bytes as they take. */
static void a_devices_plan_counts_what_fills_up_the_vocabulary(void **state)
{
    struct llama_config odd = configs[0], full;
    struct backend be;

    (void)state;
    odd.vocab = 50257;
    odd.tied = true;
    full = odd;
    full.vocab = 50304;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        backend_device_plan(&be, bf16);
        assert_int_equal(
            llama_workspace_bytes(&odd, &be, 2, LLAMA_RECOMPUTE_NOTHING),
            llama_workspace_bytes(&full, &be, 2, LLAMA_RECOMPUTE_NOTHING));
    }
    backend_cpu_ref(&be);
    assert_true(llama_workspace_bytes(&odd, &be, 2, LLAMA_RECOMPUTE_NOTHING) <
                llama_workspace_bytes(&full, &be, 2, LLAMA_RECOMPUTE_NOTHING));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_devices_plan_counts_what_fills_up_the_vocabulary),
        cmocka_unit_test(loss_equals_the_double_model),
        cmocka_unit_test(
            every_tensors_gradient_equals_finite_differences_in_double),
        cmocka_unit_test(whole_gradients_equal_the_double_models),
        cmocka_unit_test(recomputing_gives_the_same_bits_in_less_memory),
        cmocka_unit_test(gradients_accumulate),
        cmocka_unit_test(a_fresh_gradient_overwrites_what_was_there),
        cmocka_unit_test(a_batch_equals_its_parts),
        cmocka_unit_test(a_position_sees_its_past_and_not_its_future),
        cmocka_unit_test(unscored_positions_carry_no_loss_and_no_gradient),
        cmocka_unit_test(row_losses_are_the_losses_of_rows),
        cmocka_unit_test(logits_agree_with_the_loss),
        cmocka_unit_test(bad_batches_are_refused),
        cmocka_unit_test(a_nan_parameter_is_reported),
        cmocka_unit_test(opening_checks_its_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
