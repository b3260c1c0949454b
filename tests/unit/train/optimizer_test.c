/* The vectors of the algorithms page, 0.3, and what a step must refuse. */
#include "train/model/optimizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "tests/unit/train/vectors.h"

static const struct optimizer_options plain = {0.9, 0.999,           1e-8, 0.1,
                                               0,   OPTIMIZER_ADAMW, 0};

static void close_to(float have, double want)
{
    assert_true(fabs((double)have - want) <= 1e-6 * fmax(1, fabs(want)));
}

/* theta after each of four steps from (1, -2) on one tape of gradients, and
 * the moments at the end (0: not checked). */
static const struct {
    struct optimizer_options opt;
    double lr;
    double x[4][2];
    double u[2], v[2];
} vectors[] = {
    {{0.9, 0.999, 1e-8, 0.1, 0, OPTIMIZER_ADAMW, 0},
     0.01,
     {{0.9890000009999999, -1.9880000005},
      {0.978689205790187, -1.9884890185636943},
      {0.9819251369449866, -1.9900538733266675},
      {0.9815309417619785, -1.9933719939607693}},
     {-0.00466, 0.03872},
     {2.123050325e-4, 1.7969021e-4}},
    {{0.9, 0.9999, 1e-6, 0, 0, OPTIMIZER_ADOPT, 0},
     0.01,
     {{1.0, -2.0},
      {0.9995, -2.001},
      {1.0002392071150028, -2.0023999687529295},
      {0.9995884195055528, -2.004659915637753}},
     {0.06507876094500432, 0.22599468848234355},
     {0.0100172486499925, 0.040001999300050016}},
    {{0.9, 0, 1e-8, 0, 0, OPTIMIZER_SGDM, 0},
     0.1,
     {{0.999, -1.998},
      {0.9976, -1.9992},
      {1.00034, -2.00128},
      {1.000806, -2.005152}},
     {0},
     {0}},
    /* theta minus 0.1 times the sum of the tape so far */
    {{0.9, 0, 1e-8, 0, 0, OPTIMIZER_SGD, 0},
     0.1,
     {{0.99, -1.98}, {0.985, -2.01}, {1.025, -2.02}, {1.005, -2.04}},
     {0.2, 0.2},
     {0}},
};

static void follow(size_t row, struct backend *be)
{
    static const float tape[4][2] = {
        {.1f, -.2f}, {.05f, .3f}, {-.4f, .1f}, {.2f, .2f}};
    const struct optimizer_span span = {0, 2, true};
    const struct optimizer_rate rate = {vectors[row].lr, 1};
    float x[2] = {1, -2};
    struct optimizer a;

    assert_int_equal(optimizer_open(&a, &vectors[row].opt, &span, 1), 0);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(optimizer_step(&a, be, x, tape[k], &rate, NULL), 0);
        close_to(x[0], vectors[row].x[k][0]);
        close_to(x[1], vectors[row].x[k][1]);
    }
    assert_int_equal(a.t, 4);
    for (int i = 0; i < 2; i++) {
        double u = vectors[row].u[i], v = vectors[row].v[i];

        assert_true(u == 0 || fabs((double)a.u[i] - u) <= 1e-6 * fabs(u));
        assert_true(fabs((double)a.v[i] - v) <= 1e-6 * v);
    }
    optimizer_close(&a);
}

static void steps_follow_the_vectors(void **state)
{
    (void)state;
    for (size_t row = 0; row < sizeof vectors / sizeof vectors[0]; row++) {
        for (int threads = 0; threads < 3; threads++) {
            struct backend be;

            backend_cpu_ref(&be);
            if (threads > 0) {
                assert_int_equal(backend_cpu(&be, threads), 0);
            }
            follow(row, &be);
            backend_close(&be);
        }
    }
}

/* Every rule but the first call of ADOPT: lr wd x before the step. */
static void decay_is_decoupled_in_every_rule(void **state)
{
    const struct optimizer_span span = {0, 1, true};
    const struct optimizer_rate rate = {0.01, 1};
    const float grad[1] = {0};

    (void)state;
    for (int rule = 0; rule < OPTIMIZER_RULE_COUNT; rule++) {
        struct optimizer_options opt = plain;
        float x[1] = {1};
        struct backend be;
        struct optimizer a;

        opt.rule = (enum optimizer_rule)rule;
        backend_cpu_ref(&be);
        assert_int_equal(optimizer_open(&a, &opt, &span, 1), 0);
        assert_int_equal(optimizer_step(&a, &be, x, grad, &rate, NULL), 0);
        close_to(x[0], rule == OPTIMIZER_ADOPT ? 1 : 0.999);
        assert_int_equal(optimizer_step(&a, &be, x, grad, &rate, NULL), 0);
        close_to(x[0], rule == OPTIMIZER_ADOPT ? 0.999 : 0.999 * 0.999);
        optimizer_close(&a);
    }
}

static void rules_are_known_by_name(void **state)
{
    enum optimizer_rule rule;

    (void)state;
    assert_int_equal(optimizer_rule_named("adopt", &rule), 0);
    assert_int_equal(rule, OPTIMIZER_ADOPT);
    assert_int_equal(optimizer_rule_named("sgd", &rule), 0);
    assert_int_equal(rule, OPTIMIZER_SGD);
    assert_int_equal(optimizer_rule_named("adam", &rule), LOCO_ENOENT);
}

static void only_decaying_spans_decay(void **state)
{
    const struct optimizer_span spans[] = {
        {0, 1, true}, {1, 1, true}, {2, 1, false}, {3, 1, true}};
    const struct optimizer_rate rate = {0.01, 1};
    float x[4] = {1, 1, 1, 1};
    const float grad[4] = {0};
    struct backend be;
    struct optimizer a;

    (void)state;
    backend_cpu_ref(&be);
    assert_int_equal(optimizer_open(&a, &plain, spans, 4), 0);
    assert_int_equal(optimizer_step(&a, &be, x, grad, &rate, NULL), 0);
    close_to(x[0], 0.999);
    close_to(x[1], 0.999);
    assert_true(x[2] == 1);
    close_to(x[3], 0.999);
    optimizer_close(&a);
}

static void a_long_gradient_is_clipped_to_the_norm(void **state)
{
    const struct optimizer_options opt = {0, 0, 1e-8, 0, 1, OPTIMIZER_ADAMW, 0};
    const struct optimizer_span span = {0, 2, true};
    const struct optimizer_rate rate = {0, 0.5};
    float x[2] = {0, 0};
    float grad[2] = {60, 80}; /* scaled: 30, 40, norm 50 */
    double norm;
    struct backend be;
    struct optimizer a;

    (void)state;
    backend_cpu_ref(&be);
    assert_int_equal(optimizer_open(&a, &opt, &span, 1), 0);
    assert_int_equal(optimizer_step(&a, &be, x, grad, &rate, &norm), 0);
    assert_true(fabs(norm - 50) < 1e-12);
    close_to(a.u[0], 0.6); /* beta1 0: u is the gradient that was used */
    close_to(a.u[1], 0.8);
    grad[0] = 0.6f; /* scaled norm 0.5: not touched */
    grad[1] = 0.8f;
    assert_int_equal(optimizer_step(&a, &be, x, grad, &rate, &norm), 0);
    close_to(a.u[0], 0.3);
    close_to(a.u[1], 0.4);
    optimizer_close(&a);
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state)
{
    const struct optimizer_span span = {0, 3, true};
    const struct optimizer_rate rate = {0.01, 1};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    struct backend be;
    struct optimizer a;

    (void)state;
    backend_cpu_ref(&be);
    assert_int_equal(optimizer_open(&a, &plain, &span, 1), 0);
    for (int i = 0; i < 3; i++) {
        float x[3] = {1, 2, 3};
        float grad[3] = {1, 1, 1};

        grad[i] = bad[i];
        assert_int_equal(optimizer_step(&a, &be, x, grad, &rate, NULL),
                         LOCO_ENUMERIC);
        assert_true(x[0] == 1 && x[1] == 2 && x[2] == 3);
        assert_true(a.u[0] == 0 && a.v[0] == 0 && a.t == 0);
    }
    optimizer_close(&a);
}

static void a_step_has_the_same_bits_for_any_thread_count(void **state)
{
    const int64_t n = SUMSQ_CHUNK * 3 + 17;
    const struct optimizer_span span = {0, n, true};
    const struct optimizer_rate rate = {0.01, 0.1};
    float *x[3];
    float *grad = malloc((size_t)n * sizeof *grad);

    (void)state;
    assert_non_null(grad);
    for (int i = 0; i < 3; i++) {
        uint64_t rng = 3;
        struct optimizer_options opt = optimizer_defaults();
        struct backend be;
        struct optimizer a;

        x[i] = malloc((size_t)n * sizeof **x);
        assert_non_null(x[i]);
        for (int64_t j = 0; j < n; j++) {
            x[i][j] = rng_float(&rng);
            grad[j] = rng_float(&rng) - 0.5f;
        }
        assert_int_equal(backend_cpu(&be, i + 1), 0);
        assert_int_equal(optimizer_open(&a, &opt, &span, 1), 0);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(optimizer_step(&a, &be, x[i], grad, &rate, NULL),
                             0);
        }
        optimizer_close(&a);
        backend_close(&be);
        assert_memory_equal(x[0], x[i], (size_t)n * sizeof **x);
    }
    for (int i = 0; i < 3; i++) {
        free(x[i]);
    }
    free(grad);
}

/* ---- Muon ---------------------------------------------------------------- */

static const struct llama_config tiny = {.dim = 8,
                                         .layers = 1,
                                         .heads = 2,
                                         .kv_heads = 1,
                                         .ffn = 12,
                                         .vocab = 16,
                                         .seq = 8,
                                         .rope_theta = 10000,
                                         .norm_eps = 1e-5f};

static const struct optimizer_options muon = {0.9, 0.95,           1e-8, 0.1,
                                              0,   OPTIMIZER_MUON, 0};

/* theta (n) after three steps of the tape that vectors.json was made with. */
static void three_steps(const struct backend *be,
                        const struct optimizer_options *opt,
                        float *theta)
{
    const struct optimizer_rate rate = {0.01, 1};
    int64_t n = llama_numel(&tiny);
    float *grad = malloc((size_t)n * sizeof *grad);
    struct optimizer a;

    assert_non_null(grad);
    assert_int_equal(optimizer_open_llama(&a, opt, &tiny), 0);
    for (int64_t i = 0; i < n; i++) {
        theta[i] = (float)(i * 37 % 64 - 32) / 64;
    }
    for (int64_t t = 1; t <= 3; t++) {
        for (int64_t i = 0; i < n; i++) {
            grad[i] = (float)((i * i * 7 + i * t * 13 + t * 5) % 61 - 30) / 32;
        }
        assert_int_equal(optimizer_step(&a, be, theta, grad, &rate, NULL), 0);
    }
    optimizer_close(&a);
    free(grad);
}

static void muon_follows_the_vectors(void **state)
{
    json_t *v = vector_of("Muon lr=.01 x4 wd=.1, one layer: of each tensor "
                          "after 3 steps the first two, the last, the sum of "
                          "|x|");
    float theta[1024];

    (void)state;
    assert_true(llama_numel(&tiny) <= 1024);
    assert_int_equal(json_array_size(v), llama_tensor_count(&tiny));
    for (int threads = 0; threads < 3; threads++) {
        struct backend be;

        backend_cpu_ref(&be);
        if (threads > 0) {
            assert_int_equal(backend_cpu(&be, threads), 0);
        }
        three_steps(&be, &muon, theta);
        for (int i = 0; i < llama_tensor_count(&tiny); i++) {
            json_t *want = vector_at(v, (size_t)i);
            struct llama_view view;
            const float *x;
            double sum = 0;

            llama_tensor(&tiny, i, &view);
            x = theta + view.offset;
            for (int64_t k = 0; k < view.numel; k++) {
                sum += fabs((double)x[k]);
            }
            close_to(x[0], vector_number(vector_at(want, 0)));
            close_to(x[1], vector_number(vector_at(want, 1)));
            close_to(x[view.numel - 1], vector_number(vector_at(want, 2)));
            close_to((float)sum, vector_number(vector_at(want, 3)));
        }
        backend_close(&be);
    }
}

/* What is no matrix of a layer is AdamW's, bit for bit; those matrices keep no
 * second moment, and go muon_lr times as far. */
static void muon_steps_the_matrices_of_the_layers_alone(void **state)
{
    struct optimizer_options adamw = muon, twice = muon;
    float theta[4][1024];
    struct llama_part whole;
    struct backend be;
    struct optimizer a;

    (void)state;
    adamw.rule = OPTIMIZER_ADAMW;
    twice.muon_lr = 2 * OPTIMIZER_MUON_LR;
    assert_int_equal(backend_cpu(&be, 1), 0);
    three_steps(&be, &adamw, theta[0]);
    three_steps(&be, &muon, theta[1]);
    three_steps(&be, &twice, theta[2]);
    for (int i = 0; i < llama_tensor_count(&tiny); i++) {
        struct llama_view v;
        bool all = true;

        llama_tensor(&tiny, i, &v);
        for (int64_t k = v.offset; k < v.offset + v.numel; k++) {
            bool same = theta[0][k] == theta[1][k];

            all = all && same && theta[1][k] == theta[2][k];
        }
        assert_true(all == !(v.layered && v.ndim == 2));
    }
    assert_int_equal(optimizer_open_llama(&a, &muon, &tiny), 0);
    assert_int_equal(a.n_matrices, 7);
    assert_null(a.scratch);
    for (int64_t i = 0; i < a.n; i++) {
        theta[0][i] = theta[3][i] = (float)(i % 5 - 2);
    }
    assert_int_equal(optimizer_step(&a, &be, theta[0], theta[3],
                                    &(struct optimizer_rate){0.01, 1}, NULL),
                     0);
    llama_part_whole(&tiny, &whole);
    assert_int_equal(a.scratch_bytes,
                     optimizer_scratch_bytes(&muon, &tiny, &whole, 1));
    assert_int_equal(optimizer_scratch_bytes(&adamw, &tiny, &whole, 1), 0);
    for (int i = 0; i < a.n_matrices; i++) {
        const struct muon_matrix *m = &a.matrices[i];

        for (int64_t k = 0; k < m->rows * m->columns; k++) {
            assert_true(a.v[m->offset + k] == 0);
        }
    }
    optimizer_close(&a);
    backend_close(&be);
}

/* A processor where a device could be: the first step takes the scratch, and
 * everything goes back. */
static void muon_steps_where_a_processor_has_its_moments(void **state)
{
    struct optimizer_rate rate = {.lr = 1e-2, .grad_scale = 1};
    int64_t n = llama_numel(&tiny);
    float *theta = calloc((size_t)n, sizeof *theta);
    float *grad = malloc((size_t)n * sizeof *grad);
    struct llama_part whole;
    struct backend be;
    struct optimizer a;

    (void)state;
    assert_true(theta != NULL && grad != NULL);
    for (int64_t i = 0; i < n; i++) {
        grad[i] = (float)(i % 7) - 3;
    }
    llama_part_whole(&tiny, &whole);
    backend_cpu_ref(&be);
    assert_int_equal(optimizer_open_llama(&a, &muon, &tiny), 0);
    assert_int_equal(optimizer_place(&a, &be, false), 0);
    assert_null(a.scratch);
    assert_int_equal(optimizer_step(&a, &be, theta, grad, &rate, NULL), 0);
    assert_non_null(a.scratch);
    assert_true(theta[a.matrices[0].offset] != 0);
    assert_true(optimizer_device_bytes(&muon, &tiny, &whole, 4) > 0);
    assert_int_equal(optimizer_device_bytes(&plain, &tiny, &whole, 4), 0);
    optimizer_close(&a);
    free(grad);
    free(theta);
}

static void a_models_spans_cover_its_parameters(void **state)
{
    struct optimizer_options opt = optimizer_defaults();
    struct llama_config c;
    struct optimizer a;
    int64_t at = 0;

    (void)state;
    assert_int_equal(llama_config_named("quickstart-1m", &c), 0);
    assert_int_equal(optimizer_open_llama(&a, &opt, &c), 0);
    assert_int_equal(a.n, llama_numel(&c));
    for (int i = 0; i < a.n_spans; i++) {
        assert_int_equal(a.spans[i].offset, at);
        at += a.spans[i].numel;
    }
    assert_int_equal(at, a.n);
    assert_false(a.spans[a.n_spans - 1].decay); /* the final norm */
    optimizer_close(&a);
}

static void bad_options_and_spans_are_refused(void **state)
{
    const struct optimizer_options bad[] = {
        {1, 0.9, 1e-8, 0, 0, 0, 0},
        {NAN, 0.9, 1e-8, 0, 0, 0, 0},
        {0.9, -1, 1e-8, 0, 0, 0, 0},
        {0.9, 0.9, 0, 0, 0, 0, 0},
        {0.9, 0.9, 1e-8, -1, 0, 0, 0},
        {0.9, 0.9, 1e-8, 0, -1, 0, 0},
        {0.9, 0.9, 1e-8, 0, INFINITY, 0, 0},
        {0.9, 0.9, 1e-8, 0, 0, OPTIMIZER_RULE_COUNT, 0},
        {0.9, 0.9, 1e-8, 0, 0, OPTIMIZER_MUON, -1},
        {0.9, 0.9, 1e-8, 0, 0, OPTIMIZER_MUON, NAN},
    };
    const struct optimizer_span gap[] = {{0, 2, true}, {3, 2, true}};
    const struct optimizer_span empty[] = {{0, 0, true}};
    struct optimizer a;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *reason = NULL;

        assert_int_equal(optimizer_check(&bad[i], &reason), LOCO_EINVAL);
        assert_non_null(reason);
    }
    assert_int_equal(optimizer_open(&a, &plain, gap, 2), LOCO_EINVAL);
    assert_int_equal(optimizer_open(&a, &plain, empty, 1), LOCO_EINVAL);
    optimizer_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_follow_the_vectors),
        cmocka_unit_test(decay_is_decoupled_in_every_rule),
        cmocka_unit_test(rules_are_known_by_name),
        cmocka_unit_test(only_decaying_spans_decay),
        cmocka_unit_test(a_long_gradient_is_clipped_to_the_norm),
        cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
        cmocka_unit_test(a_step_has_the_same_bits_for_any_thread_count),
        cmocka_unit_test(muon_follows_the_vectors),
        cmocka_unit_test(muon_steps_the_matrices_of_the_layers_alone),
        cmocka_unit_test(muon_steps_where_a_processor_has_its_moments),
        cmocka_unit_test(a_models_spans_cover_its_parameters),
        cmocka_unit_test(bad_options_and_spans_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, vectors_free);
}
