/* A model cut into stages on the plug-in: the bits of the unsplit model there,
 * stages on a processor as a neighbour, held-out text between micro-batches.
 * Replicas over rounds: stage_replica_test.c. On a real GPU the order of sums
 * may follow where a part's tensors begin in memory: there it is a tolerance,
 * not bits.
 * use: test_cuda_stage [PLUGIN] */
#include "tests/unit/cuda/bench.h"

#include "train/model/llama_stage.h"

#define STAGES  3
#define MICRO   2 /* micro-batches on their way at once */
#define B       2
#define T       12
#define ROWS    (B * T)
#define DIM     32
#define NUMBERS 40000 /* parameters, at most */

/* Grouped heads of 8, odd vocabulary. */
static const struct llama_config config = {.dim = DIM,
                                           .layers = 3,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .ffn = 40,
                                           .vocab = 53,
                                           .seq = 20,
                                           .rope_theta = 10000,
                                           .norm_eps = 1e-5f};

/* The order in which gradients are summed, here and in one piece. */
static const int order[MICRO] = {1, 0};

static uint32_t tokens[MICRO][ROWS], targets[MICRO][ROWS];
static float theta[NUMBERS];

static void make_input(void)
{
    uint64_t seed = 11;

    assert_true(llama_numel(&config) <= NUMBERS);
    llama_init_params(&config, theta, 5);
    for (int k = 0; k < MICRO; k++) {
        for (int i = 0; i < ROWS; i++) {
            tokens[k][i] = (uint32_t)rng_below(&seed, config.vocab);
            targets[k][i] = (uint32_t)rng_below(&seed, config.vocab);
        }
    }
    targets[1][3] = LLAMA_IGNORE;
}

/* ---- in one piece, and in stages ----------------------------------------- */

struct result {
    double loss;
    float grad[NUMBERS];
};

/* A vector of the backend. */
static float *
vector_of(const struct backend *be, const float *from, int64_t numel)
{
    float *x = be->take(be, (size_t)numel * sizeof *x);

    assert_non_null(x);
    if (from == NULL) {
        be->clear(be, x, (size_t)numel * sizeof *x);
    } else {
        be->put(be, x, from, (size_t)numel * sizeof *x);
    }
    return x;
}

static void in_one_piece(const struct backend *be, struct result *out)
{
    int64_t n = llama_numel(&config);
    float *there = vector_of(be, theta, n), *grad = vector_of(be, NULL, n);
    struct llama *m;

    out->loss = 0;
    assert_int_equal(llama_open(&m, &config, be, B, LLAMA_RECOMPUTE_NOTHING),
                     0);
    for (int i = 0; i < MICRO; i++) {
        int k = order[i];
        struct llama_batch batch = {tokens[k], targets[k], B, T};
        double loss;

        assert_int_equal(llama_loss(m, there, &batch, grad, &loss), 0);
        out->loss += loss;
    }
    be->get(be, out->grad, grad, (size_t)n * sizeof *grad);
    assert_int_equal(be->finish(be), 0);
    llama_close(m);
    be->give(be, grad);
    be->give(be, there);
}

struct stage {
    const struct backend *be;
    struct llama_part part;
    struct llama *m;
    float *theta, *grad; /* the backend's */
};

struct pipeline {
    uint32_t n;
    struct stage stage[STAGES];
    float x[MICRO][STAGES][ROWS * DIM]; /* input of each stage */
};

/* Stage s on at[s]. */
static void open_pipeline(struct pipeline *p,
                          uint32_t stages,
                          const struct backend *const *at,
                          enum llama_recompute recompute)
{
    p->n = stages;
    for (uint32_t s = 0; s < stages; s++) {
        struct stage *g = &p->stage[s];
        struct llama_room room = {.micro_batch = B,
                                  .slots = MICRO,
                                  .pass = s + 1 < stages,
                                  .recompute = recompute};

        assert_int_equal(
            llama_part_of_stage(&config, stages, s, &room.part, NULL), 0);
        g->be = at[s];
        g->part = room.part;
        g->theta = vector_of(g->be, theta + g->part.offset, g->part.numel);
        g->grad = vector_of(g->be, NULL, g->part.numel);
        assert_int_equal(llama_open_room(&g->m, &config, g->be, &room), 0);
    }
}

static void close_pipeline(struct pipeline *p)
{
    for (uint32_t s = 0; s < p->n; s++) {
        struct stage *g = &p->stage[s];

        llama_close(g->m);
        g->be->give(g->be, g->grad);
        g->be->give(g->be, g->theta);
    }
}

static struct stage_batch batch_of(struct pipeline *p, int k, uint32_t s)
{
    return (struct stage_batch){.b = B,
                                .t = T,
                                .tokens = tokens[k],
                                .targets = targets[k],
                                .x = p->x[k][s]};
}

/* Micro-batch k up to the last stage; then it waits in its slots. Held-out
 * text, if `passes`, goes the same way and leaves nothing. */
static void forward(struct pipeline *p, int k, bool passes)
{
    for (uint32_t s = 0; s + 1 < p->n; s++) {
        struct stage *g = &p->stage[s];
        struct stage_batch batch = batch_of(p, k, s);
        float *x = p->x[k][s + 1];
        const float *y;

        assert_int_equal(stage_forward(g->m, (uint32_t)k, g->theta, &batch, &y),
                         0);
        memcpy(x, y, sizeof p->x[k][s + 1]);
        if (passes) {
            assert_int_equal(stage_pass(g->m, g->theta, &batch, &y), 0);
            assert_memory_equal(y, x, sizeof p->x[k][s + 1]);
        }
    }
}

static double backward(struct pipeline *p, int k)
{
    uint32_t s = p->n - 1;
    struct stage *g = &p->stage[s];
    struct stage_batch batch = batch_of(p, k, s);
    static float dy[ROWS * DIM];
    const float *dx;
    double loss;

    assert_int_equal(stage_score(g->m, g->theta, &batch, g->grad, &loss, &dx),
                     0);
    while (s-- > 0) {
        g = &p->stage[s];
        memcpy(dy, dx, sizeof dy);
        assert_int_equal(stage_backward(g->m, (uint32_t)k, g->theta, tokens[k],
                                        dy, g->grad, &dx),
                         0);
    }
    assert_null(dx);
    return loss;
}

static void in_stages(uint32_t stages,
                      const struct backend *const *at,
                      enum llama_recompute recompute,
                      struct result *out)
{
    static struct pipeline p;

    open_pipeline(&p, stages, at, recompute);
    out->loss = 0;
    for (int k = 0; k < MICRO; k++) {
        forward(&p, k, recompute == LLAMA_RECOMPUTE_NOTHING);
    }
    for (int i = 0; i < MICRO; i++) {
        out->loss += backward(&p, order[i]);
    }
    for (uint32_t s = 0; s < stages; s++) {
        struct stage *g = &p.stage[s];

        g->be->get(g->be, out->grad + g->part.offset, g->grad,
                   (size_t)g->part.numel * sizeof(float));
        assert_int_equal(g->be->finish(g->be), 0);
    }
    close_pipeline(&p);
}

/* ---- what must come out ------------------------------------------------- */

/* As of the whole model (model_test.c): cosine at least 0.999 and norm within
 * 2 % (bf16); 1e-4 of the norm (fp32). */
static void check_near(const struct result *got, const struct result *want)
{
    bool bf16 = gpu.act_bytes == 2;

    if (!(fabs(got->loss - want->loss) <= (bf16 ? 5e-3 : 1e-5) * want->loss)) {
        fail_msg("loss %.9g for %.9g", got->loss, want->loss);
    }
    for (int i = 0; i < llama_tensor_count(&config); i++) {
        struct llama_view v;
        const float *a, *b;
        double dot = 0, na, nb;

        llama_tensor(&config, i, &v);
        a = got->grad + v.offset;
        b = want->grad + v.offset;
        na = norm_of(a, NULL, v.numel);
        nb = norm_of(b, NULL, v.numel);
        for (int64_t j = 0; j < v.numel; j++) {
            dot += (double)a[j] * (double)b[j];
        }
        if (bf16 ? !(dot >= 0.999 * na * nb && fabs(na - nb) <= 0.02 * nb)
                 : !(norm_of(a, b, v.numel) <= 1e-4 * nb)) {
            fail_msg("%s: cosine %.6f, norm %.6g for %.6g", v.name,
                     dot / na / nb, na, nb);
        }
    }
}

static void check_same(const struct result *got, const struct result *want)
{
    if (emu == NULL) {
        check_near(got, want);
        return;
    }
    assert_true(got->loss == want->loss);
    assert_memory_equal(got->grad, want->grad,
                        llama_numel(&config) * sizeof(float));
}

static void cuts(void)
{
    static struct result whole, got, on_processor;
    const struct backend *const here[STAGES] = {&ref, &ref, &ref};
    const struct backend *const there[STAGES] = {&gpu, &gpu, &gpu};

    make_input();
    in_one_piece(&gpu, &whole);
    for (uint32_t stages = 2; stages <= STAGES; stages++) {
        in_stages(stages, here, LLAMA_RECOMPUTE_NOTHING, &on_processor);
        begin_run((int)stages - 2); /* another order, and launches late */
        in_stages(stages, there, LLAMA_RECOMPUTE_NOTHING, &got);
        check_same(&got, &whole);
        check_near(&got, &on_processor);
    }
}

/* The first, middle or last stage alone is on the GPU. */
static void neighbours(void)
{
    static struct result want, got;

    make_input();
    in_one_piece(&ref, &want);
    for (uint32_t s = 0; s < STAGES; s++) {
        const struct backend *at[STAGES] = {&ref, &ref, &ref};

        at[s] = &gpu;
        in_stages(STAGES, at, LLAMA_RECOMPUTE_NOTHING, &got);
        check_near(&got, &want);
    }
}

static void recomputed(void)
{
    static struct result want, got;
    const struct backend *const there[STAGES] = {&gpu, &gpu, &gpu};

    make_input();
    in_stages(STAGES, there, LLAMA_RECOMPUTE_NOTHING, &want);
    in_stages(STAGES, there, LLAMA_RECOMPUTE_BRANCHES, &got);
    check_same(&got, &want);
    in_stages(STAGES, there, LLAMA_RECOMPUTE_LAYERS, &got);
    check_same(&got, &want);
}

/* With bf16, rows of fp32 are those of the nearest bf16, ties to even. */
static void rounded(void)
{
    static struct pipeline p;
    static float want[ROWS * DIM];
    const struct backend *const there[STAGES] = {&gpu, &gpu, &gpu};
    const struct stage *middle = &p.stage[1];
    struct stage_batch batch;
    const float *y;

    make_input();
    open_pipeline(&p, STAGES, there, LLAMA_RECOMPUTE_NOTHING);
    batch = batch_of(&p, 0, 1);
    for (int i = 0; i < ROWS * DIM; i++) { /* 1 and a few ties among them */
        uint32_t bits = 0x3f800000U + (uint32_t)i * 0x2000U;

        memcpy(&p.x[0][1][i], &bits, sizeof bits);
    }
    assert_int_equal(stage_forward(middle->m, 0, middle->theta, &batch, &y), 0);
    memcpy(want, y, sizeof want);
    for (int i = 0; i < ROWS * DIM && gpu.act_bytes == 2; i++) {
        p.x[0][1][i] = round_bf16(p.x[0][1][i]);
    }
    assert_int_equal(stage_forward(middle->m, 0, middle->theta, &batch, &y), 0);
    assert_memory_equal(y, want, sizeof want);
    close_pipeline(&p);
}

/* Rows that are not finite are thrown away before they reach a gradient. What a
 * part's own arithmetic makes so is seen at its end. */
static void not_finite(void)
{
    /* The first would become 0 if it were rounded to bf16. */
    static const uint32_t bad[] = {0xffffffff, 0x7fc00000, 0x7f800000,
                                   0xff800000};
    static struct pipeline p;
    static float grad[NUMBERS];
    const struct backend *const there[STAGES] = {&gpu, &gpu, &gpu};
    const struct stage *middle = &p.stage[1], *last = &p.stage[2];
    struct stage_batch batch;
    const float *y;
    double loss;

    make_input();
    open_pipeline(&p, STAGES, there, LLAMA_RECOMPUTE_NOTHING);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        forward(&p, 0, false);
        memcpy(&p.x[0][1][17], &bad[i], sizeof bad[i]);
        memcpy(&p.x[0][2][ROWS * DIM - 1], &bad[i], sizeof bad[i]);
        batch = batch_of(&p, 0, 2);
        assert_int_equal(
            stage_score(last->m, last->theta, &batch, last->grad, &loss, &y),
            LOCO_ENUMERIC);
        assert_int_equal(stage_backward(middle->m, 0, middle->theta, NULL,
                                        p.x[0][1], middle->grad, &y),
                         LOCO_ENUMERIC);
        batch = batch_of(&p, 0, 1);
        assert_int_equal(stage_forward(middle->m, 0, middle->theta, &batch, &y),
                         LOCO_ENUMERIC);
        assert_int_equal(stage_backward(middle->m, 0, middle->theta, NULL,
                                        p.x[0][0], middle->grad, &y),
                         LOCO_EINVAL); /* nothing waits in that slot */
    }
    for (uint32_t s = 1; s < STAGES; s++) {
        gpu.get(&gpu, grad, p.stage[s].grad,
                (size_t)p.stage[s].part.numel * sizeof *grad);
        for (int64_t i = 0; i < p.stage[s].part.numel; i++) {
            assert_true(grad[i] == 0);
        }
    }
    close_pipeline(&p);
}

/* A weight that is not finite spoils the output, the loss, the gradient: the
 * first, the last and a stage between them say so. */
static void spoilt(void)
{
    static struct pipeline p;
    static float grad[NUMBERS];
    const struct backend *const there[STAGES] = {&gpu, &gpu, &gpu};
    const float nan = NAN;
    struct stage_batch batch;
    const float *y;
    double loss;

    make_input();
    open_pipeline(&p, STAGES, there, LLAMA_RECOMPUTE_NOTHING);
    forward(&p, 0, false);
    for (uint32_t s = 0; s < STAGES; s++) { /* one of its last layer */
        struct stage *g = &p.stage[s];
        int64_t at = llama_offset(&config, LLAMA_DOWN,
                                  g->part.first + g->part.layers - 1) -
                     g->part.offset;

        gpu.put(&gpu, g->theta + at, &nan, sizeof nan);
    }
    /* theirs was made before: the gradient meets the weight alone */
    assert_int_equal(stage_backward(p.stage[1].m, 0, p.stage[1].theta, NULL,
                                    p.x[0][1], p.stage[1].grad, &y),
                     LOCO_ENUMERIC);
    assert_int_equal(stage_backward(p.stage[0].m, 0, p.stage[0].theta,
                                    tokens[0], p.x[0][1], p.stage[0].grad, &y),
                     LOCO_ENUMERIC);
    batch = batch_of(&p, 0, 0);
    assert_int_equal(
        stage_forward(p.stage[0].m, 0, p.stage[0].theta, &batch, &y),
        LOCO_ENUMERIC);
    batch = batch_of(&p, 0, 2);
    assert_int_equal(stage_score(p.stage[2].m, p.stage[2].theta, &batch,
                                 p.stage[2].grad, &loss, &y),
                     LOCO_ENUMERIC);
    /* nor with a loss of nothing, which is 0 whatever was made */
    for (int i = 0; i < ROWS; i++) {
        targets[0][i] = LLAMA_IGNORE;
    }
    assert_int_equal(stage_score(p.stage[2].m, p.stage[2].theta, &batch,
                                 p.stage[2].grad, &loss, &y),
                     LOCO_ENUMERIC);
    gpu.get(&gpu, grad, p.stage[2].grad,
            (size_t)p.stage[2].part.numel * sizeof *grad);
    for (int64_t i = 0; i < p.stage[2].part.numel; i++) {
        assert_true(grad[i] == 0);
    }
    close_pipeline(&p);
}

/* clang-format off */
CASE(two_and_three_stages_have_the_unsplit_bits, cuts)
CASE(a_stage_on_the_gpu_goes_on_from_one_on_a_processor, neighbours)
CASE(recomputing_gives_the_same_bits_in_a_pipeline, recomputed)
CASE(rows_come_in_as_the_nearest_bf16, rounded)
CASE(rows_that_are_not_finite_reach_no_gradient, not_finite)
CASE(what_a_stage_makes_not_finite_is_seen_at_its_end, spoilt)
/* clang-format on */

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_and_three_stages_have_the_unsplit_bits),
        cmocka_unit_test(a_stage_on_the_gpu_goes_on_from_one_on_a_processor),
        cmocka_unit_test(recomputing_gives_the_same_bits_in_a_pipeline),
        cmocka_unit_test(rows_come_in_as_the_nearest_bf16),
        cmocka_unit_test(rows_that_are_not_finite_reach_no_gradient),
        cmocka_unit_test(what_a_stage_makes_not_finite_is_seen_at_its_end),
    };

    plugin_path = argc > 1 ? argv[1] : plugin_path;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
