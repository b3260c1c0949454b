/* The model cut into stages: where the cuts are, and that what goes through
 * the stages is the unsplit model's loss and gradient. */
#include "train/model/llama_stage.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

#define B       2
#define T       7
#define MICRO   3 /* micro-batches on their way at once */
#define N_MAX   32000
#define STAGES  4
#define ROW_MAX (B * T * 24)

/* Of the unsplit gradient's norm, each tensor by itself. */
#define TOLERANCE 1e-5

static const struct llama_config configs[] = {
    /* dim, layers, heads, kv_heads, ffn, vocab, seq, tied, theta, eps */
    {16, 4, 4, 2, 21, 19, 9, false, 100, 1e-5f},
    {24, 5, 3, 3, 40, 32, 12, false, 10000, 1e-3f},
};

#define CONFIG_COUNT (sizeof configs / sizeof configs[0])

/* ---- the cuts --------------------------------------------------------- */

static void parts_cover_the_model_in_order(void **state)
{
    (void)state;
    for (uint32_t layers = 1; layers <= 9; layers++) {
        for (uint32_t stages = 1; stages <= layers; stages++) {
            struct llama_config c = configs[0];
            int64_t end = 0;
            uint32_t layer = 0;

            c.layers = layers;
            for (uint32_t s = 0; s < stages; s++) {
                struct llama_part p;

                assert_int_equal(llama_part_of_stage(&c, stages, s, &p, NULL),
                                 0);
                assert_true(p.layers >= 1);
                assert_true(p.first == layer && p.offset == end);
                assert_true(p.embeds == (s == 0));
                assert_true(p.scores == (s == stages - 1));
                layer += p.layers;
                end += p.numel;
            }
            assert_true(layer == layers && end == llama_numel(&c));
        }
    }
}

static double
cost_of_layers(const struct llama_config *c, uint32_t layers, bool scores)
{
    struct llama_part p = {.layers = layers, .scores = scores};

    return llama_part_cost(c, &p, c->seq);
}

/* The smallest largest cost of any cut of `layers` into `stages`. */
static double
best_cut(const struct llama_config *c, uint32_t layers, uint32_t stages)
{
    double best = INFINITY;

    if (stages == 1) {
        return cost_of_layers(c, layers, true);
    }
    for (uint32_t n = 1; n + stages - 1 <= layers; n++) {
        double own = cost_of_layers(c, n, false);
        double rest = best_cut(c, layers - n, stages - 1);
        double most = own > rest ? own : rest;

        best = most < best ? most : best;
    }
    return best;
}

static void no_other_cut_has_a_cheaper_slowest_stage(void **state)
{
    (void)state;
    for (uint32_t vocab = 10; vocab <= 10000; vocab *= 10) {
        for (uint32_t layers = 1; layers <= 9; layers++) {
            for (uint32_t stages = 1; stages <= layers; stages++) {
                struct llama_config c = configs[0];
                double most = 0;

                c.layers = layers;
                c.vocab = vocab;
                for (uint32_t s = 0; s < stages; s++) {
                    struct llama_part p;
                    double cost;

                    assert_int_equal(
                        llama_part_of_stage(&c, stages, s, &p, NULL), 0);
                    cost = llama_part_cost(&c, &p, c.seq);
                    most = cost > most ? cost : most;
                }
                assert_true(most == best_cut(&c, layers, stages));
            }
        }
    }
}

static void impossible_cuts_are_refused_with_a_sentence(void **state)
{
    struct llama_config tied = configs[0];
    const char *reason = NULL;
    struct llama_part p;

    (void)state;
    assert_int_equal(llama_part_of_stage(&configs[0], 5, 0, &p, &reason),
                     LOCO_EINVAL);
    assert_non_null(strstr(reason, "more stages than layers"));
    assert_int_equal(llama_part_of_stage(&configs[0], 0, 0, &p, &reason),
                     LOCO_EINVAL);
    assert_non_null(reason);
    assert_int_equal(llama_part_of_stage(&configs[0], 2, 2, &p, &reason),
                     LOCO_EINVAL);
    assert_non_null(reason);
    tied.tied = true;
    assert_int_equal(llama_part_of_stage(&tied, 2, 0, &p, &reason),
                     LOCO_EINVAL);
    assert_non_null(strstr(reason, "model.tied"));
    assert_int_equal(llama_part_of_stage(&tied, 1, 0, &p, &reason), 0);
    assert_null(reason);
}

/* ---- the pipeline ----------------------------------------------------- */

struct fixture {
    const struct llama_config *c;
    struct backend be;
    int64_t n;
    uint32_t stages;
    struct llama_part part[STAGES];
    struct llama *m[STAGES];
    double loss;
    float theta[N_MAX], grad[N_MAX];
    uint32_t tokens[MICRO][B * T], targets[MICRO][B * T];
    float x[MICRO][STAGES][ROW_MAX]; /* input of each stage */
};

static void randomise(struct fixture *f)
{
    uint64_t seed = 11;

    for (int i = 0; i < llama_tensor_count(f->c); i++) {
        struct llama_view v;

        llama_tensor(f->c, i, &v);
        for (int64_t j = 0; j < v.numel; j++) {
            float r = rng_float(&seed) * 2 - 1;

            f->theta[v.offset + j] = v.ndim == 1 ? 1 + 0.3f * r : 0.3f * r;
        }
    }
    for (int k = 0; k < MICRO; k++) {
        for (int i = 0; i < B * T; i++) {
            f->tokens[k][i] = (uint32_t)rng_below(&seed, f->c->vocab);
            f->targets[k][i] = (uint32_t)rng_below(&seed, f->c->vocab);
        }
    }
    f->targets[1][3] = LLAMA_IGNORE;
}

static struct fixture *open_fixture(const struct llama_config *c,
                                    const struct backend *be,
                                    uint32_t stages,
                                    enum llama_recompute recompute)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->c = c;
    f->n = llama_numel(c);
    assert_true(f->n <= N_MAX);
    f->be = *be;
    f->stages = stages;
    for (uint32_t s = 0; s < stages; s++) {
        struct llama_room room = {
            .micro_batch = B, .slots = MICRO, .recompute = recompute};

        assert_int_equal(llama_part_of_stage(c, stages, s, &room.part, NULL),
                         0);
        f->part[s] = room.part;
        assert_int_equal(llama_open_room(&f->m[s], c, &f->be, &room), 0);
    }
    randomise(f);
    return f;
}

static void close_fixture(struct fixture *f)
{
    for (uint32_t s = 0; s < f->stages; s++) {
        llama_close(f->m[s]);
    }
    backend_close(&f->be);
    free(f);
}

static struct stage_batch batch_of(struct fixture *f, int k, uint32_t s)
{
    return (struct stage_batch){.b = B,
                                .t = T,
                                .tokens = f->tokens[k],
                                .targets = f->targets[k],
                                .x = f->x[k][s]};
}

/* A micro-batch up to the last stage; then it waits in its slots. */
static void forward(struct fixture *f, int k)
{
    for (uint32_t s = 0; s + 1 < f->stages; s++) {
        struct stage_batch batch = batch_of(f, k, s);
        const float *y;

        assert_int_equal(stage_forward(f->m[s], (uint32_t)k,
                                       f->theta + f->part[s].offset, &batch,
                                       &y),
                         0);
        memcpy(f->x[k][s + 1], y, (size_t)(B * T * f->c->dim) * sizeof(float));
    }
}

static void backward(struct fixture *f, int k)
{
    uint32_t s = f->stages - 1;
    struct stage_batch batch = batch_of(f, k, s);
    static float dy[ROW_MAX];
    const float *dx;
    double loss;

    assert_int_equal(stage_score(f->m[s], f->theta + f->part[s].offset, &batch,
                                 f->grad + f->part[s].offset, &loss, &dx),
                     0);
    f->loss += loss;
    while (s-- > 0) {
        memcpy(dy, dx, (size_t)(B * T * f->c->dim) * sizeof *dy);
        assert_int_equal(
            stage_backward(f->m[s], (uint32_t)k, f->theta + f->part[s].offset,
                           f->tokens[k], dy, f->grad + f->part[s].offset, &dx),
            0);
    }
    assert_null(dx);
}

static void through_the_pipeline(struct fixture *f)
{
    memset(f->grad, 0, sizeof f->grad);
    f->loss = 0;
    for (int k = 0; k < MICRO; k++) {
        forward(f, k);
    }
    backward(f, 1);
    backward(f, 0);
    backward(f, 2);
}

/* loss and gradient of the same micro-batches in one piece */
static double unsplit(struct fixture *f, float *grad)
{
    struct llama *m;
    double sum = 0;

    assert_int_equal(llama_open(&m, f->c, &f->be, B, LLAMA_RECOMPUTE_NOTHING),
                     0);
    memset(grad, 0, N_MAX * sizeof *grad);
    for (int k = 0; k < MICRO; k++) {
        struct llama_batch batch = {f->tokens[k], f->targets[k], B, T};
        double loss;

        assert_int_equal(llama_loss(m, f->theta, &batch, grad, &loss), 0);
        sum += loss;
    }
    llama_close(m);
    return sum;
}

/* The largest error of a tensor's gradient, relative to its norm. */
static double gradient_error(const struct fixture *f, const float *want)
{
    double worst = 0;

    for (int i = 0; i < llama_tensor_count(f->c); i++) {
        struct llama_view v;
        double diff = 0, norm = 0;

        llama_tensor(f->c, i, &v);
        for (int64_t j = v.offset; j < v.offset + v.numel; j++) {
            double d = (double)f->grad[j] - (double)want[j];

            diff += d * d;
            norm += (double)want[j] * (double)want[j];
        }
        assert_true(norm > 0);
        worst = fmax(worst, sqrt(diff / norm));
    }
    return worst;
}

/* Every set of kernels, and the best one with two threads. */
static const struct {
    const char *isa; /* NULL: the best */
    int threads;
} backends[] = {{"reference", 1}, {"baseline", 1}, {"neon", 1},
                {"avx2", 1},      {"avx512", 1},   {NULL, 2}};

#define BACKEND_COUNT (sizeof backends / sizeof backends[0])

static bool open_backend(struct backend *be, size_t i)
{
    int rv = backends[i].isa == NULL
                 ? backend_cpu(be, backends[i].threads)
                 : backend_cpu_isa(be, backends[i].threads, backends[i].isa);

    assert_true(rv == 0 || rv == LOCO_EDEVICE);
    return rv == 0;
}

static void one_to_four_stages_have_the_unsplit_gradient(void **state)
{
    static float want[N_MAX];
    double worst = 0;

    (void)state;
    for (size_t i = 0; i < CONFIG_COUNT * BACKEND_COUNT * STAGES; i++) {
        const struct llama_config *c = &configs[i % CONFIG_COUNT];
        uint32_t stages = 1 + (uint32_t)(i / CONFIG_COUNT % STAGES);
        struct backend be;
        struct fixture *f;
        double loss;

        if (!open_backend(&be, i / CONFIG_COUNT / STAGES)) {
            continue;
        }
        f = open_fixture(c, &be, stages, LLAMA_RECOMPUTE_NOTHING);
        loss = unsplit(f, want);
        through_the_pipeline(f);
        assert_true(fabs(f->loss - loss) <= 2e-6 * loss);
        worst = fmax(worst, gradient_error(f, want));
        assert_true(worst <= TOLERANCE);
        close_fixture(f);
    }
    print_message("worst relative error of a tensor's gradient: %.2g\n", worst);
}

static void recomputing_gives_the_same_bits_in_a_pipeline(void **state)
{
    static float want[N_MAX];

    (void)state;
    for (int level = 0; level <= LLAMA_RECOMPUTE_LAYERS; level++) {
        struct backend be;
        struct fixture *f;

        assert_int_equal(backend_cpu(&be, 1), 0);
        f = open_fixture(&configs[1], &be, 3, (enum llama_recompute)level);
        through_the_pipeline(f);
        if (level == LLAMA_RECOMPUTE_NOTHING) {
            memcpy(want, f->grad, sizeof want);
        }
        assert_memory_equal(f->grad, want, sizeof want);
        close_fixture(f);
    }
}

/* Only slot 0 is used for all: forward again before each way back. */
static void a_slot_given_away_is_filled_again_with_the_same_bits(void **state)
{
    static float want[N_MAX];
    struct backend be;
    struct fixture *f;

    (void)state;
    assert_int_equal(backend_cpu(&be, 1), 0);
    f = open_fixture(&configs[0], &be, 2, LLAMA_RECOMPUTE_NOTHING);
    through_the_pipeline(f);
    memcpy(want, f->grad, sizeof want);
    memset(f->grad, 0, sizeof f->grad);
    for (int i = 0; i < MICRO; i++) {
        const int order[MICRO] = {1, 0, 2};
        int k = order[i];
        struct stage_batch first = batch_of(f, k, 0);
        struct stage_batch last = batch_of(f, k, 1);
        float *grad = f->grad + f->part[1].offset;
        const float *y, *dx;
        double loss;

        assert_int_equal(stage_forward(f->m[0], 0, f->theta, &first, &y), 0);
        assert_memory_equal(y, f->x[k][1],
                            (size_t)(B * T * f->c->dim) * sizeof *y);
        assert_int_equal(stage_score(f->m[1], f->theta + f->part[1].offset,
                                     &last, grad, &loss, &dx),
                         0);
        assert_int_equal(stage_backward(f->m[0], 0, f->theta, f->tokens[k], dx,
                                        f->grad, &dx),
                         0);
    }
    assert_memory_equal(f->grad, want, sizeof want);
    close_fixture(f);
}

static void a_host_needs_the_memory_of_its_part_and_slots(void **state)
{
    struct backend be;
    struct llama_room one = {.micro_batch = B, .slots = 1};
    struct llama_room two = {.micro_batch = B, .slots = 2};
    size_t whole;

    (void)state;
    assert_int_equal(backend_cpu(&be, 1), 0);
    whole = llama_workspace_bytes(&configs[0], &be, B, LLAMA_RECOMPUTE_NOTHING);
    assert_int_equal(llama_part_of_stage(&configs[0], 4, 1, &one.part, NULL),
                     0);
    two.part = one.part;
    assert_true(llama_room_bytes(&configs[0], &be, &one) < whole);
    assert_true(llama_room_bytes(&configs[0], &be, &two) >
                llama_room_bytes(&configs[0], &be, &one));
    backend_close(&be);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct backend be;
    struct fixture *f;
    struct stage_batch batch;
    const float *y;
    double loss;

    (void)state;
    assert_int_equal(backend_cpu(&be, 1), 0);
    f = open_fixture(&configs[0], &be, 2, LLAMA_RECOMPUTE_NOTHING);
    batch = batch_of(f, 0, 0);
    assert_int_equal(stage_forward(f->m[0], MICRO, f->theta, &batch, &y),
                     LOCO_EINVAL);
    batch.b = B + 2;
    assert_int_equal(stage_forward(f->m[0], 0, f->theta, &batch, &y),
                     LOCO_EINVAL);
    batch.b = INT64_MAX;
    assert_int_equal(stage_forward(f->m[0], 0, f->theta, &batch, &y),
                     LOCO_EINVAL);
    /* Nothing went forward in this slot. */
    assert_int_equal(stage_backward(f->m[0], 0, f->theta, f->tokens[0],
                                    f->x[0][0], f->grad, &y),
                     LOCO_EINVAL);
    batch = batch_of(f, 0, 0);
    assert_int_equal(stage_forward(f->m[1], 0, f->theta, &batch, &y),
                     LOCO_EINVAL);
    assert_int_equal(stage_score(f->m[0], f->theta, &batch, NULL, &loss, &y),
                     LOCO_EINVAL);
    f->tokens[0][5] = f->c->vocab;
    assert_int_equal(stage_forward(f->m[0], 0, f->theta, &batch, &y),
                     LOCO_ERANGE);
    close_fixture(f);
}

static void activations_that_are_not_finite_reach_no_gradient(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct backend be;
        struct fixture *f;
        struct stage_batch batch;
        const float *y;
        double loss;

        assert_int_equal(backend_cpu(&be, 1), 0);
        f = open_fixture(&configs[0], &be, 3, LLAMA_RECOMPUTE_NOTHING);
        forward(f, 0);
        batch = batch_of(f, 0, 1);
        f->x[0][1][17] = bad[i];
        assert_int_equal(
            stage_forward(f->m[1], 0, f->theta + f->part[1].offset, &batch, &y),
            LOCO_ENUMERIC);
        batch = batch_of(f, 0, 2);
        f->x[0][2][B * T * 16 - 1] = bad[i];
        assert_int_equal(stage_score(f->m[2], f->theta + f->part[2].offset,
                                     &batch, f->grad, &loss, &y),
                         LOCO_ENUMERIC);
        for (int64_t j = 0; j < N_MAX; j++) {
            assert_true(f->grad[j] == 0);
        }
        close_fixture(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_the_model_in_order),
        cmocka_unit_test(no_other_cut_has_a_cheaper_slowest_stage),
        cmocka_unit_test(impossible_cuts_are_refused_with_a_sentence),
        cmocka_unit_test(one_to_four_stages_have_the_unsplit_gradient),
        cmocka_unit_test(recomputing_gives_the_same_bits_in_a_pipeline),
        cmocka_unit_test(a_slot_given_away_is_filled_again_with_the_same_bits),
        cmocka_unit_test(a_host_needs_the_memory_of_its_part_and_slots),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(activations_that_are_not_finite_reach_no_gradient),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
