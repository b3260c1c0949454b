/* Replicas of stages on the plug-in: over rounds they have the bits of the
 * replica that they were cut from, on the same GPU; held-out text passes in
 * between; memory is planned, and what does not fit is refused; a GPU that
 * fails in a stage costs an attempt at the step, and the steps since the
 * commit. Needs the emulator: it injects the faults. */
#include "tests/unit/cuda/bench.h"

#include "proto/base/errmsg.h"
#include "train/replica/device.h"
#include "train/replica/outer.h"
#include "train/replica/pair.h"
#include "train/replica/plan.h"
#include "train/replica/stage.h"

#define STAGES   3
#define SEQ      16
#define DIM      16
#define MICRO    2 /* micro-batches of a step */
#define ROWS_MAX 2 /* sequences of a micro-batch */
#define PERIOD   2
#define PRODUCTS (64 << 20) /* of the GPU's memory, before a plan is made */

static char errmsg[ERRMSG_SIZE];
static struct device_options device;

/* What the cases differ in; renew() gives the usual one. */
static struct {
    uint32_t layers, rows;
    enum optimizer_rule rule;
    /* Micro-batches on their way at once: all go forth before one comes back.
     */
    uint32_t ahead;
    enum llama_recompute recompute; /* parts have the memory for that only */
} shape;

/* `engine`: the outer step is not made on the GPU. */
static struct replica_options options(bool bf16, bool engine)
{
    struct replica_options opt = small_replica();

    device = (struct device_options){.plugin = plugin_path,
                                     .gpu = {.bf16 = bf16, .timeout_ms = 50}};
    opt.device = &device;
    opt.model.layers = shape.layers;
    opt.model.tied = false;
    opt.optimizer.clip_norm = 0; /* stages clip by themselves */
    opt.optimizer.rule = shape.rule;
    opt.method = (struct method){.period = PERIOD,
                                 .period_u = engine ? PERIOD : 0,
                                 .rule = {.lr = 0.7F, .mu = 0.9F},
                                 .fragments = 1};
    opt.codec = codec_find("fp32");
    opt.batch = MICRO * shape.rows;
    opt.micro_batch = shape.rows;
    opt.eval_tokens = 2 * SEQ;
    return opt;
}

static int setup(void **state)
{
    (void)state;
    open_text();
    open_gpu(true);
    backend_close(&gpu);
    return emu == NULL ? -1 : 0;
}

/* A GPU as new. */
static int renew(void **state)
{
    (void)state;
    emu_as_new();
    set_text();
    shape.layers = STAGES;
    shape.rows = shape.ahead = 1;
    shape.rule = OPTIMIZER_ADAMW;
    shape.recompute = LLAMA_RECOMPUTE_NOTHING;
    return 0;
}

static struct replica_options
part_of(const struct replica_options *whole, uint32_t stages, uint32_t s)
{
    struct replica_options opt = *whole;

    opt.slots = 2;
    assert_int_equal(
        llama_part_of_stage(&opt.model, stages, s, &opt.part, NULL), 0);
    return opt;
}

static void open_replica(struct replica *r, const struct replica_options *opt)
{
    if (replica_open(r, opt, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    assert_int_equal(replica_init(r), 0);
}

/* A plan with as much made again as the level says, and a GPU with the memory
 * for that, and for no outer step. */
static void plan_less(const struct replica_options *opt,
                      enum llama_recompute level,
                      struct replica_plan *plan)
{
    struct replica_plan all;

    replica_plan(opt, 0, &all);
    replica_plan(opt, all.kept_bytes, plan);
    for (int i = 0; i < (int)level; i++) {
        replica_plan(opt, plan->state_bytes + plan->work_bytes - 1, plan);
        assert_int_equal(plan->recompute, i + 1);
    }
    emu->memory = emu->used + PRODUCTS + plan->state_bytes + plan->work_bytes +
                  PLUGIN_SPARE_BYTES;
}

/* ---- one worker in one piece, and the same in stages --------------------- */

struct worker {
    struct replica whole;
    struct replica part[STAGES];
    uint32_t stages;
};

static void open_worker(struct worker *w,
                        const struct replica_options *opt,
                        uint32_t stages)
{
    w->stages = stages;
    open_replica(&w->whole, opt);
    for (uint32_t s = 0; s < stages; s++) {
        const struct replica_options part = part_of(opt, stages, s);
        struct replica_plan plan;

        if (shape.recompute > LLAMA_RECOMPUTE_NOTHING) {
            plan_less(&part, shape.recompute, &plan);
        }
        open_replica(&w->part[s], &part);
        assert_int_equal(w->part[s].recompute, shape.recompute);
        emu->memory = (uint64_t)8 << 30;
    }
}

static void close_worker(struct worker *w)
{
    for (uint32_t s = 0; s < w->stages; s++) {
        replica_close(&w->part[s]);
    }
    replica_close(&w->whole);
}

static size_t rows_size(void)
{
    return (size_t)shape.rows * SEQ * DIM * sizeof(float);
}

/* In bits per byte, of the parts: text that passes through their anchors. */
static double bits_of(struct worker *w)
{
    static float x[ROWS_MAX * SEQ * DIM];
    uint32_t tokens[ROWS_MAX * SEQ], targets[ROWS_MAX * SEQ], s;
    double nats = 0, sum;
    uint64_t bytes = 0, n;
    const float *y;

    for (uint32_t i = 0; i < 2 / shape.rows; i++) {
        assert_int_equal(replica_stage_windows(&w->part[0], i, tokens, targets),
                         0);
        for (s = 0; s + 1 < w->stages; s++) {
            assert_int_equal(replica_stage_eval_forward(&w->part[s],
                                                        s == 0 ? tokens : NULL,
                                                        s == 0 ? NULL : x, &y),
                             0);
            memcpy(x, y, rows_size());
        }
        assert_int_equal(
            replica_stage_eval_score(&w->part[s], targets, x, &sum, &n), 0);
        nats += sum;
        bytes += n;
    }
    return nats / (double)bytes / log(2);
}

/* Of the anchor, in one piece; its products have other rows. */
static void check_bits(struct worker *w, double got)
{
    double want;

    assert_int_equal(replica_eval(&w->whole, 0, &want), 0);
    if (!(fabs(got - want) <= (device.gpu.bf16 ? 1e-3 : 1e-6) * fabs(want))) {
        fail_msg("%.9g bits per byte for %.9g", got, want);
    }
}

/* A micro-batch on its way, and the rows that its last stage reads. */
struct micro {
    uint32_t tokens[ROWS_MAX * SEQ], targets[ROWS_MAX * SEQ], slot;
    float x[ROWS_MAX * SEQ * DIM];
};

static int forth(struct worker *w, struct micro *k)
{
    const float *y;
    int rv = 0;

    for (uint32_t s = 0; s + 1 < w->stages && rv == 0; s++) {
        rv = replica_stage_forward(&w->part[s], k->slot,
                                   s == 0 ? k->tokens : NULL,
                                   s == 0 ? NULL : k->x, &y);
        if (rv == 0) {
            memcpy(k->x, y, rows_size());
        }
    }
    return rv;
}

static int back(struct worker *w, struct micro *k)
{
    uint32_t s = w->stages - 1;
    const float *y = NULL;
    int rv = replica_stage_score(&w->part[s], NULL, k->targets, k->x, &y);

    while (rv == 0 && s-- > 0) {
        memcpy(k->x, y, rows_size());
        rv = replica_stage_backward(&w->part[s], k->slot,
                                    s == 0 ? k->tokens : NULL, k->x, &y);
    }
    return rv;
}

/* There and back, with held-out text in between; the first error. */
static int pass(struct worker *w,
                const uint32_t *tokens,
                const uint32_t *targets,
                bool evaluates)
{
    static struct micro k = {.slot = 1};
    int rv;

    memcpy(k.tokens, tokens, shape.rows * SEQ * sizeof *tokens);
    memcpy(k.targets, targets, shape.rows * SEQ * sizeof *targets);
    rv = forth(w, &k);
    if (rv == 0 && evaluates) {
        (void)bits_of(w);
    }
    return rv != 0 ? rv : back(w, &k);
}

/* Both make an inner step on the data of the whole one. */
static void step(struct worker *w, bool evaluates)
{
    static struct micro micro[MICRO];
    float loss, staged = 0;

    for (uint32_t k = 0; k < MICRO; k++) {
        micro[k].slot = (k + 1) % 2;
        assert_int_equal(loader_rows(&w->whole.loader, w->whole.inner_step,
                                     k * shape.rows, shape.rows,
                                     micro[k].tokens, micro[k].targets),
                         0);
    }
    for (uint32_t k = 0; k < MICRO; k += shape.ahead) {
        for (uint32_t i = k; i < k + shape.ahead; i++) {
            assert_int_equal(forth(w, &micro[i]), 0);
        }
        if (evaluates && k + shape.ahead == MICRO) {
            (void)bits_of(w);
        }
        for (uint32_t i = k; i < k + shape.ahead; i++) {
            assert_int_equal(back(w, &micro[i]), 0);
        }
    }
    assert_int_equal(replica_step(&w->whole, &loss), 0);
    for (uint32_t s = 0; s < w->stages; s++) {
        assert_int_equal(replica_stage_step(&w->part[s],
                                            (uint32_t)w->part[s].since, MICRO,
                                            &staged),
                         0);
        assert_true(s + 1 == w->stages || isnan(staged));
    }
    assert_true(staged == loss);
}

/* Alone in a round: the mean is what it gave. */
static void commit(struct replica *r, uint64_t round)
{
    uint8_t *wire = malloc(r->opt.codec->bytes(r->n_wire));
    const struct replica_commit c = {.round = round, .wire = wire, .share = 1};

    assert_non_null(wire);
    assert_int_equal(replica_pack(r), 0);
    assert_int_equal(r->opt.codec->encode(wire, r->contribution,
                                          (size_t)replica_elements(r), 1),
                     0);
    assert_int_equal(replica_commit(r, &c), 0);
    free(wire);
}

/* Live and anchor, outer momentum, moments. */
static void expect_same(struct worker *w)
{
    struct replica *all = &w->whole;
    float *moments = malloc(2 * all->n * sizeof *moments);
    float *theta = malloc(all->n * sizeof *theta);
    float *own = malloc(2 * all->n * sizeof *own);

    assert_true(moments != NULL && theta != NULL && own != NULL);
    replica_moments(all, moments);
    all->backend.get(&all->backend, theta, all->theta, all->n * sizeof(float));
    for (uint32_t s = 0; s < w->stages; s++) {
        struct replica *p = &w->part[s];
        size_t bytes = p->n * sizeof(float);
        int64_t at = p->opt.part.offset;

        p->backend.get(&p->backend, own, p->theta, bytes);
        assert_memory_equal(own, theta + at, bytes);
        assert_memory_equal(p->phi, all->phi + at, bytes);
        assert_memory_equal(p->m, all->m + at, bytes);
        replica_moments(p, own);
        assert_memory_equal(own, moments + at, bytes);
        assert_memory_equal(own + p->n, moments + all->n + at, bytes);
    }
    free(own);
    free(theta);
    free(moments);
}

static void rounds(bool bf16, bool engine, uint32_t stages)
{
    const struct replica_options opt = options(bf16, engine);
    uint64_t used = emu->used;
    struct worker w;
    double before, after;

    open_worker(&w, &opt, stages);
    for (uint32_t s = 0; s < stages; s++) {
        assert_true(w.part[s].outer.on ==
                    (!engine && shape.recompute == LLAMA_RECOMPUTE_NOTHING));
    }
    before = bits_of(&w);
    check_bits(&w, before);
    for (uint64_t round = 1; round <= 2; round++) {
        for (int i = 0; i < PERIOD; i++) {
            step(&w, round == 1);
        }
        assert_true(bits_of(&w) == before); /* of the anchor, not of steps */
        commit(&w.whole, round);
        for (uint32_t s = 0; s < stages; s++) {
            commit(&w.part[s], round);
        }
        expect_same(&w);
        after = bits_of(&w);
        check_bits(&w, after);
        assert_true(after != before);
        before = after;
    }
    close_worker(&w);
    assert_int_equal(emu->used, used);
}

static void stages_have_the_bits_of_the_unsplit_replica(void **state)
{
    (void)state;
    rounds(false, false, 2);
    rounds(true, false, 3);
    rounds(true, true, 2);
}

static void stages_that_differ_in_layers_have_those_bits(void **state)
{
    (void)state;
    shape.layers = 5; /* 3 and 2 */
    rounds(true, false, 2);
}

/* Several sequences in a slot, and several slots in use at once. */
static void stages_with_other_slots_have_those_bits(void **state)
{
    (void)state;
    shape.rows = ROWS_MAX;
    rounds(true, false, 2);
    shape.ahead = MICRO;
    shape.rows = 1;
    rounds(false, true, 3);
}

static void stages_with_any_optimizer_have_those_bits(void **state)
{
    (void)state;
    shape.layers = 2;
    for (int rule = 0; rule < OPTIMIZER_RULE_COUNT; rule++) {
        if (rule != OPTIMIZER_ADAMW) { /* that of all other cases */
            shape.rule = (enum optimizer_rule)rule;
            rounds(rule == OPTIMIZER_MUON, false, 2);
        }
    }
}

/* Parts that have no memory for more: the whole one keeps all. */
static void stages_that_recompute_have_those_bits(void **state)
{
    (void)state;
    shape.ahead = MICRO;
    shape.recompute = LLAMA_RECOMPUTE_BRANCHES;
    rounds(true, false, 2);
    shape.recompute = LLAMA_RECOMPUTE_LAYERS;
    shape.rule = OPTIMIZER_MUON;
    shape.rows = ROWS_MAX;
    rounds(false, true, 2);
}

static void load_larger(struct replica *r)
{
    float *state = state_of(r);

    for (uint64_t i = 0; i < r->n; i++) {
        state[i] *= 20;
    }
    assert_int_equal(replica_load(r, 0, state, false), 0);
    free(state);
}

/* Another state of the same round: the GPU's copy of the anchor is old. */
static void held_out_text_sees_a_state_that_is_loaded(void **state)
{
    (void)state;
    for (int engine = 0; engine < 2; engine++) {
        const struct replica_options opt = options(true, engine != 0);
        struct worker w;
        double before, after;

        open_worker(&w, &opt, 2);
        before = bits_of(&w);
        load_larger(&w.whole);
        load_larger(&w.part[0]);
        load_larger(&w.part[1]);
        after = bits_of(&w);
        check_bits(&w, after);
        assert_true(fabs(after - before) > 0.01 * before);
        close_worker(&w);
    }
}

/* And one that another was mixed into. */
static void held_out_text_sees_a_state_that_is_mixed(void **state)
{
    struct replica_options opt = options(true, true);
    struct worker w;
    double before, after;

    (void)state;
    opt.method.group = METHOD_PAIR;
    opt.method.period_u = 0;
    open_worker(&w, &opt, 2);
    before = bits_of(&w);
    for (uint32_t s = 0; s <= w.stages; s++) {
        struct replica *r = s == w.stages ? &w.whole : &w.part[s];
        float *other = state_of(r);

        for (uint64_t i = 0; i < r->n; i++) {
            other[i] *= 30;
        }
        assert_int_equal(replica_mix(r, other, 0.5), 0);
        free(other);
    }
    after = bits_of(&w);
    check_bits(&w, after);
    assert_true(fabs(after - before) > 0.01 * before);
    close_worker(&w);
}

/* ---- memory ------------------------------------------------------------- */

/* The plan is what is taken, at its most. Without the outer step's memory that
 * of the anchor for held-out text is in it; a byte less than that, and the
 * stage is refused: its micro-batch is that of all hosts. */
static void what_is_planned_is_what_is_taken(void **state)
{
    const uint64_t products = PRODUCTS;
    struct replica_options whole = options(true, false), opt;
    struct replica_plan plan, less;
    uint64_t before = emu->used, all, mallocs;
    struct replica r;

    (void)state;
    whole.batch = whole.micro_batch = 4;
    memset(text, 'a', sizeof text); /* one token: the most parts of sums */
    opt = part_of(&whole, 2, 0);
    opt.moments_stay = true;
    replica_plan(&opt, UINT64_MAX, &plan);
    all = plan.state_bytes + plan.work_bytes + plan.outer_bytes;
    assert_true(plan.micro_batch == 4 && plan.outer_bytes > 0);
    replica_plan(&opt, all - 1, &less);
    assert_true(less.micro_batch == 4 && less.outer_bytes == 0);
    assert_true(less.state_bytes == plan.state_bytes + 4 * opt.part.numel);
    replica_plan(&opt, less.state_bytes + less.work_bytes, &less);
    assert_int_equal(less.micro_batch, 4);
    plan_less(&opt, LLAMA_RECOMPUTE_LAYERS, &less);
    replica_plan(&opt, less.state_bytes + less.work_bytes - 1, &less);
    assert_int_equal(less.micro_batch, 0);
    emu->memory = (uint64_t)8 << 30;

    open_replica(&r, &opt);
    assert_true(emu->used - before <= products + all);
    assert_true(emu->used - before >= products + all / 10 * 9);
    replica_close(&r);

    emu->memory = before + products + less.state_bytes + less.work_bytes +
                  PLUGIN_SPARE_BYTES - 1;
    mallocs = emu->mallocs;
    assert_int_equal(replica_open(&r, &opt, errmsg), LOCO_ENOMEM);
    assert_int_equal(emu->mallocs, mallocs + 1); /* that of the products */
    assert_non_null(strstr(errmsg, "2 micro-batches of 4 sequences of this"));
    assert_non_null(strstr(errmsg, " MB with activations recomputed; "));
    assert_non_null(strstr(errmsg, "--device cpu"));
    replica_close(&r);
    opt.moments_stay = false; /* then it has the room */
    open_replica(&r, &opt);
    assert_true(r.planned.host == 8 * (uint64_t)opt.part.numel);
    replica_close(&r);
    emu->memory = (uint64_t)8 << 30;
}

/* Rows that come from and go to other stages wait in this process, with bf16
 * also as the GPU has them. */
static void the_rows_of_a_stage_are_in_its_bytes(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const struct replica_options whole = options(bf16 != 0, false);
        struct replica_options opt = part_of(&whole, 2, 1);
        size_t bytes;

        opt.micro_batch = 1;
        bytes = replica_bytes(&opt);
        opt.micro_batch = 3;
        assert_int_equal(replica_bytes(&opt) - bytes,
                         2 * SEQ * DIM * (bf16 ? 6 : 4));
    }
}

/* Every allocation of an opening fails once; nothing is lost. */
static void memory_that_runs_out_while_opening_is_given_back(void **state)
{
    const struct replica_options whole = options(true, false);
    const struct replica_options opt = part_of(&whole, 2, 1);
    uint64_t used = emu->used;
    struct replica r;
    int rv = LOCO_ENOMEM, n = 0;

    (void)state;
    while (rv != 0) {
        emu->fail_malloc = ++n;
        rv = replica_open(&r, &opt, errmsg);
        assert_true(rv == 0 || rv == LOCO_ENOMEM);
        replica_close(&r);
        assert_int_equal(emu->used, used);
    }
    assert_true(n > 5);
}

/* ---- a GPU that fails ---------------------------------------------------- */

/* Only parts; all micro-batches of that step, and the step: the first error. */
static int staged_step(struct worker *w, uint32_t at)
{
    uint32_t tokens[SEQ], targets[SEQ];
    float loss;
    int rv = 0;

    for (uint32_t k = 0; k < MICRO && rv == 0; k++) {
        assert_int_equal(
            replica_stage_tokens(&w->part[0], 0, k, tokens, targets), 0);
        rv = pass(w, tokens, targets, false);
    }
    for (uint32_t s = 0; s < w->stages && rv == 0; s++) {
        rv = replica_stage_step(&w->part[s], at, MICRO, &loss);
    }
    return rv;
}

/* Stage `there` is on the GPU, the others on this processor. */
static void open_parts(struct worker *w, bool engine, uint32_t there)
{
    const struct replica_options whole = options(true, engine);

    memset(w, 0, sizeof *w);
    w->stages = STAGES;
    for (uint32_t s = 0; s < STAGES; s++) {
        struct replica_options opt = part_of(&whole, STAGES, s);

        opt.device = s == there ? opt.device : NULL;
        open_replica(&w->part[s], &opt);
    }
}

static void close_parts(struct worker *w)
{
    for (uint32_t s = 0; s < w->stages; s++) {
        replica_close(&w->part[s]);
    }
}

/* A step and held-out text take no more than the plan says. */
static void a_step_and_held_out_text_are_in_the_plan(void **state)
{
    (void)state;
    for (uint32_t there = 0; there < STAGES; there++) {
        uint64_t before = emu->used;
        struct replica_plan plan;
        struct worker w;

        memset(text, 'a', sizeof text); /* one token: the most parts of sums */
        open_parts(&w, true, there);
        assert_int_equal(staged_step(&w, 0), 0);
        (void)bits_of(&w);
        replica_plan(&w.part[there].opt, UINT64_MAX, &plan);
        assert_true(emu->used - before <=
                    PRODUCTS + plan.state_bytes + plan.work_bytes);
        assert_true(w.part[there].outer.eval != NULL);
        close_parts(&w);
        assert_int_equal(emu->used, before);
    }
}

/* What a trainer does then: the processor in its place, and all begin the step
 * again. */
static void goes_on(struct worker *w, uint32_t there, bool again, uint32_t at)
{
    assert_int_equal(replica_recover(&w->part[there], again, errmsg), 0);
    for (uint32_t s = 0; s < w->stages; s++) {
        replica_stage_clear(&w->part[s]);
    }
    assert_int_equal(staged_step(w, at), 0);
}

/* Each launch of a step of each stage breaks its GPU once. */
static void a_broken_gpu_ends_the_step_and_not_the_process(void **state)
{
    (void)state;
    for (uint32_t there = 0; there < STAGES; there++) {
        int rv = LOCO_ECUDA, broken = 0;

        for (int n = 1; rv == LOCO_ECUDA && n < 500; n += 5) {
            struct replica *r;
            struct worker w;
            float loss;

            (void)renew(NULL);
            open_parts(&w, false, there);
            r = &w.part[there];
            emu->fail_launch = n;
            rv = staged_step(&w, 0);
            if (rv != 0) {
                broken++;
                assert_int_equal(rv, LOCO_ECUDA);
                assert_non_null(strstr(device_message(r->backend.device),
                                       "illegal memory access"));
                assert_true(replica_stage_step(r, (uint32_t)r->since, MICRO,
                                               &loss) != 0);
                goes_on(&w, there, false, 0);
                assert_int_equal(r->tokens_pending, MICRO * SEQ);
            }
            emu->fail_launch = 0; /* of the steps that passed */
            emu->sticky = 0;
            close_parts(&w);
        }
        assert_int_equal(rv, 0); /* a step has fewer launches than that */
        assert_true(broken > 3);
    }
}

/* What the first step made went with it, and is in no contribution; the second
 * one is still the second. */
static void a_gpu_that_breaks_in_the_second_step_goes_on_with_that(void **state)
{
    (void)state;
    for (uint32_t there = 0; there < STAGES; there++) {
        struct worker w;

        (void)renew(NULL);
        open_parts(&w, false, there);
        assert_int_equal(staged_step(&w, 0), 0);
        emu->fail_launch = 1;
        assert_int_equal(staged_step(&w, 1), LOCO_ECUDA);
        goes_on(&w, there, false, 1);
        for (uint32_t s = 0; s < STAGES; s++) {
            assert_int_equal(replica_clock(&w.part[s]), 2);
            assert_int_equal(w.part[s].tokens_pending,
                             (s == there ? 1 : 2) * MICRO * SEQ);
        }
        close_parts(&w);
    }
}

static void a_gpu_that_does_not_answer_is_left_after_the_deadline(void **state)
{
    (void)state;
    for (uint32_t there = 0; there < STAGES; there++) {
        struct worker w;

        (void)renew(NULL);
        open_parts(&w, true, there);
        assert_int_equal(staged_step(&w, 0), 0);
        emu->hang_after = 3;
        assert_int_equal(staged_step(&w, 1), LOCO_ETIMEOUT);
        emu->hanging = 0; /* it answers again */
        goes_on(&w, there, true, 1);
        close_parts(&w);
    }
}

/* A launcher finds no memory: that of the outer step goes, or that of
 * activations, which are made again from now on; the step is made once more.
 * Where there is nothing left to go, the stage says so and is whole. */
static void a_launcher_without_memory_costs_an_attempt(void **state)
{
    (void)state;
    for (int engine = 0; engine < 3; engine++) {
        for (uint32_t there = 0; there < STAGES; there++) {
            struct replica *r;
            struct worker w;
            float loss;
            int rv;

            (void)renew(NULL);
            open_parts(&w, engine != 0, there);
            r = &w.part[there];
            while (engine == 2 && replica_recompute_more(r)) {
            }
            emu->fail_malloc = 1; /* the first scratch of a launcher */
            rv = staged_step(&w, 0);
            assert_int_equal(emu->fail_malloc, 0);
            if (engine != 0) {
                assert_int_equal(rv, engine == 1 ? LOCO_EBUSY : LOCO_ENOMEM);
                assert_int_equal(r->recompute, engine == 1
                                                   ? LLAMA_RECOMPUTE_BRANCHES
                                                   : LLAMA_RECOMPUTE_LAYERS);
            } else { /* a first stage has it in its forward pass */
                assert_int_equal(rv, there == 0 ? 0 : LOCO_EBUSY);
                assert_false(r->outer.on);
            }
            if (there > 0) { /* its sum is rubbish, of which no count is true */
                assert_int_equal(replica_stage_step(r, 0, 0, &loss),
                                 LOCO_EINVAL);
            }
            for (uint32_t s = 0; s < STAGES && rv != 0; s++) {
                replica_stage_clear(&w.part[s]);
            }
            assert_int_equal(staged_step(&w, 0), 0);
            (void)bits_of(&w); /* with a copy of phi of its own */
            assert_true(r->outer.eval != NULL);
            close_parts(&w);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(stages_have_the_bits_of_the_unsplit_replica,
                               renew),
        cmocka_unit_test_setup(stages_that_differ_in_layers_have_those_bits,
                               renew),
        cmocka_unit_test_setup(stages_with_other_slots_have_those_bits, renew),
        cmocka_unit_test_setup(stages_with_any_optimizer_have_those_bits,
                               renew),
        cmocka_unit_test_setup(stages_that_recompute_have_those_bits, renew),
        cmocka_unit_test_setup(held_out_text_sees_a_state_that_is_loaded,
                               renew),
        cmocka_unit_test_setup(held_out_text_sees_a_state_that_is_mixed, renew),
        cmocka_unit_test_setup(the_rows_of_a_stage_are_in_its_bytes, renew),
        cmocka_unit_test_setup(what_is_planned_is_what_is_taken, renew),
        cmocka_unit_test_setup(a_step_and_held_out_text_are_in_the_plan, renew),
        cmocka_unit_test_setup(memory_that_runs_out_while_opening_is_given_back,
                               renew),
        cmocka_unit_test_setup(a_broken_gpu_ends_the_step_and_not_the_process,
                               renew),
        cmocka_unit_test_setup(
            a_gpu_that_breaks_in_the_second_step_goes_on_with_that, renew),
        cmocka_unit_test_setup(
            a_gpu_that_does_not_answer_is_left_after_the_deadline, renew),
        cmocka_unit_test_setup(a_launcher_without_memory_costs_an_attempt,
                               renew),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
