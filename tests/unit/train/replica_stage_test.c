/* replica_stage_test.c - stages that train together are the replica that they
 * were cut from: inner steps, outer rounds, pairs. */
#include "train/replica/stage.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/rng.h"
#include "train/replica/eval.h"
#include "train/replica/pair.h"

#define TEXT    3000
#define SEQ     16
#define DIM     16
#define STAGES  4
#define MICRO   3 /* micro-batches of a step */
#define PERIOD  3
#define WORKERS 2

static uint8_t text[TEXT];
static struct shard shard;
static char errmsg[ERRMSG_SIZE];

static int setup(void **state)
{
    uint64_t rng = 3;

    (void)state;
    for (size_t i = 0; i < TEXT; i++) {
        text[i] = (uint8_t)('a' + rng_below(&rng, 9) * (i % 3));
    }
    shard_from_text(&shard, text, TEXT);
    return 0;
}

static struct replica_options options(uint64_t peer)
{
    return (struct replica_options){
        .model = {.dim = DIM,
                  .layers = STAGES,
                  .heads = 2,
                  .kv_heads = 1,
                  .ffn = 32,
                  .vocab = 256,
                  .seq = SEQ,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5F},
        .optimizer = {.beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = 0.1},
        .schedule = {SCHEDULE_CONSTANT, 3e-3, 3e-3, 2, 0, 0},
        .method = {.period = PERIOD,
                   .fragments = 1,
                   .rule = {.lr = 0.7F, .mu = 0.9F}},
        .codec = codec_find("fp32"),
        .batch = MICRO,
        .micro_batch = 1,
        .seq = SEQ,
        .seed = 11,
        .peer = peer,
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = 512,
        .threads = 1,
    };
}

/* One worker in one piece, and the same in stages. */
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
    assert_int_equal(replica_open(&w->whole, opt, errmsg), 0);
    replica_init(&w->whole);
    for (uint32_t s = 0; s < stages; s++) {
        struct replica_options o = *opt;

        o.slots = 2;
        assert_int_equal(
            llama_part_of_stage(&o.model, stages, s, &o.part, NULL), 0);
        assert_int_equal(replica_open(&w->part[s], &o, errmsg), 0);
        replica_init(&w->part[s]);
    }
}

static void close_worker(struct worker *w)
{
    for (uint32_t s = 0; s < w->stages; s++) {
        replica_close(&w->part[s]);
    }
    replica_close(&w->whole);
}

/* Called while a micro-batch is away from hosts (stages); NULL: nothing. */
static void (*meanwhile)(struct replica **host, uint32_t stages);

/* A micro-batch along hosts (stages), there and back. */
static void pass(struct replica **host,
                 uint32_t stages,
                 const uint32_t *tokens,
                 const uint32_t *targets)
{
    float x[SEQ * DIM];
    const float *y = NULL;
    uint32_t s;

    for (s = 0; s + 1 < stages; s++) {
        assert_int_equal(replica_stage_forward(host[s], 1,
                                               s == 0 ? tokens : NULL,
                                               s == 0 ? NULL : x, &y),
                         0);
        memcpy(x, y, sizeof x);
    }
    if (meanwhile != NULL) {
        meanwhile(host, stages);
    }
    assert_int_equal(replica_stage_score(host[s], s == 0 ? tokens : NULL,
                                         targets, s == 0 ? NULL : x, &y),
                     0);
    while (s-- > 0) {
        memcpy(x, y, sizeof x);
        assert_int_equal(
            replica_stage_backward(host[s], 1, s == 0 ? tokens : NULL, x, &y),
            0);
    }
    assert_null(y);
}

/* Both make an inner step on the data of the whole one. */
static void step(struct worker *w)
{
    struct replica *host[STAGES];
    uint32_t tokens[SEQ], targets[SEQ];
    float loss, staged = 0;

    for (uint32_t s = 0; s < w->stages; s++) {
        host[s] = &w->part[s];
    }
    for (uint32_t k = 0; k < MICRO; k++) {
        assert_int_equal(loader_rows(&w->whole.loader, w->whole.inner_step, k,
                                     1, tokens, targets),
                         0);
        pass(host, w->stages, tokens, targets);
    }
    assert_int_equal(replica_step(&w->whole, &loss), 0);
    for (uint32_t s = 0; s < w->stages; s++) {
        assert_int_equal(replica_stage_step(host[s], (uint32_t)host[s]->since,
                                            MICRO, &staged),
                         0);
        assert_true(s + 1 == w->stages || isnan(staged));
    }
    assert_true(staged == loss);
}

static void
expect_slice(const struct replica *part, const float *theta, const float *whole)
{
    assert_memory_equal(theta, whole + part->opt.part.offset,
                        part->n * sizeof(float));
}

/* The parts have the bits of the whole: live, anchor, outer momentum. */
static void expect_same(const struct worker *w)
{
    uint64_t n = 0;

    for (uint32_t s = 0; s < w->stages; s++) {
        const struct replica *p = &w->part[s];

        expect_slice(p, p->theta, w->whole.theta);
        expect_slice(p, p->phi, w->whole.phi);
        if (p->m != NULL) {
            expect_slice(p, p->m, w->whole.m);
        }
        assert_true(p->tokens_seen == w->whole.tokens_seen);
        assert_true(replica_clock(p) == replica_clock(&w->whole));
        n += p->n;
    }
    assert_true(n == w->whole.n);
}

static void average(struct replica **r, uint64_t round)
{
    const struct codec *c = r[0]->opt.codec;
    uint8_t *wire = malloc(c->bytes(r[0]->n));
    const struct replica_commit commit = {
        .round = round, .wire = wire, .share = 1.0 / WORKERS};

    assert_non_null(wire);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(replica_pack(r[i]), 0);
    }
    assert_int_equal(c->encode(wire, r[0]->contribution, r[0]->n, 0.5F), 0);
    assert_int_equal(c->add(wire, wire, r[1]->contribution, r[0]->n, 0.5F), 0);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(replica_commit(r[i], &commit), 0);
    }
    free(wire);
}

static void split(enum optimizer_rule rule)
{
    for (uint32_t stages = 1; stages <= STAGES; stages++) {
        struct worker w[WORKERS];

        for (uint64_t i = 0; i < WORKERS; i++) {
            struct replica_options o = options(i + 1);

            o.optimizer.rule = rule;
            open_worker(&w[i], &o, stages);
            expect_same(&w[i]);
        }
        for (uint64_t round = 1; round <= 3; round++) {
            struct replica *r[WORKERS] = {&w[0].whole, &w[1].whole};

            for (int k = 0; k < PERIOD; k++) {
                step(&w[0]);
                step(&w[1]);
            }
            expect_same(&w[0]);
            average(r, round);
            for (uint32_t s = 0; s < stages; s++) {
                r[0] = &w[0].part[s];
                r[1] = &w[1].part[s];
                average(r, round);
            }
            expect_same(&w[0]);
            expect_same(&w[1]);
        }
        close_worker(&w[0]);
        close_worker(&w[1]);
    }
}

/* A stage has whole matrices of its layers, so Muon is no exception. */
static void stages_have_the_bits_of_the_unsplit_replica(void **state)
{
    (void)state;
    split(OPTIMIZER_ADAMW);
    split(OPTIMIZER_MUON);
}

/* NoLoCo: stage by stage with the same partner is the whole with it. */
static void a_stage_steps_in_pairs_like_the_whole(void **state)
{
    struct worker w[WORKERS];

    (void)state;
    for (uint64_t i = 0; i < WORKERS; i++) {
        struct replica_options o = options(i + 1);

        o.method.group = METHOD_PAIR;
        o.method.rule = (struct rule){
            .form = RULE_HEAVY_BALL, .lr = 0.7F, .mu = 0.5F, .gamma = 0.7F};
        open_worker(&w[i], &o, 2);
    }
    for (uint64_t turn = 1; turn <= 2; turn++) {
        for (int k = 0; k < PERIOD; k++) {
            step(&w[0]);
            step(&w[1]);
        }
        for (uint32_t s = 0; s <= 2; s++) {
            struct replica *r[WORKERS];
            uint8_t *wire[WORKERS];

            for (int i = 0; i < WORKERS; i++) {
                r[i] = s == 2 ? &w[i].whole : &w[i].part[s];
                assert_int_equal(replica_pack(r[i]), 0);
                wire[i] = malloc(2 * r[i]->n * sizeof(float));
                assert_non_null(wire[i]);
                memcpy(wire[i], r[i]->phi, r[i]->n * sizeof(float));
                memcpy(wire[i] + r[i]->n * sizeof(float), r[i]->contribution,
                       r[i]->n * sizeof(float));
            }
            assert_int_equal(replica_apply_pair(r[0], turn, wire[1], true), 0);
            assert_int_equal(replica_apply_pair(r[1], turn, wire[0], false), 0);
            free(wire[0]);
            free(wire[1]);
        }
        expect_same(&w[0]);
        expect_same(&w[1]);
    }
    close_worker(&w[0]);
    close_worker(&w[1]);
}

/* Two workers whose micro-batches change over after the first stage: each
 * host's step is that of a whole model that saw what passed through it. */
static void a_host_sums_what_passed_through_it(void **state)
{
    struct worker w[WORKERS];
    uint32_t tokens[SEQ], targets[SEQ];
    float loss;

    (void)state;
    for (uint64_t i = 0; i < WORKERS; i++) {
        struct replica_options o = options(i + 1);

        open_worker(&w[i], &o, 2);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct replica *host[2] = {&w[i].part[0], &w[1 - i].part[1]};

        for (uint32_t k = 0; k < MICRO; k++) {
            assert_int_equal(
                loader_rows(&w[i].whole.loader, 0, k, 1, tokens, targets), 0);
            pass(host, 2, tokens, targets);
        }
        assert_int_equal(replica_step(&w[i].whole, &loss), 0);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        for (uint32_t s = 0; s < 2; s++) {
            struct replica *p = &w[i].part[s];

            assert_int_equal(
                replica_stage_step(p, (uint32_t)p->since, MICRO, &loss), 0);
            expect_slice(p, p->theta, w[s == 0 ? i : 1 - i].whole.theta);
        }
    }
    close_worker(&w[0]);
    close_worker(&w[1]);
}

/* Another count than what is in the sum is no step, nor is rubbish. */
static void a_sum_that_is_not_what_was_agreed_is_thrown_away(void **state)
{
    struct replica_options o = options(1);
    uint32_t tokens[SEQ], targets[SEQ];
    struct replica *host[2];
    float bad[SEQ * DIM], loss;
    const float *dx;
    struct worker w;

    (void)state;
    open_worker(&w, &o, 2);
    host[0] = &w.part[0];
    host[1] = &w.part[1];
    assert_int_equal(loader_rows(&w.whole.loader, 0, 0, 1, tokens, targets), 0);
    pass(host, 2, tokens, targets);
    for (int s = 0; s < 2; s++) {
        assert_int_equal(
            replica_stage_step(host[s], (uint32_t)host[s]->since, 2, &loss),
            LOCO_EINVAL);
        assert_int_equal(host[s]->inner_step, 0);
    }
    expect_same(&w);
    step(&w); /* with nothing of that in it */
    expect_same(&w);

    pass(host, 2, tokens, targets);
    for (int i = 0; i < SEQ * DIM; i++) {
        bad[i] = i == 5 ? NAN : 1;
    }
    assert_int_equal(replica_stage_score(host[1], NULL, targets, bad, &dx),
                     LOCO_ENUMERIC);
    assert_int_equal(
        replica_stage_step(host[1], (uint32_t)host[1]->since, 1, &loss),
        LOCO_EINVAL);
    replica_stage_clear(host[0]);
    expect_same(&w);
    close_worker(&w);
}

/* As where the host was away in the first one, or a GPU took it with it: the
 * rate is that of the second, which here is still warming up. */
static void a_host_that_missed_a_step_makes_the_next_at_its_rate(void **state)
{
    struct replica_options o = options(1);
    struct worker w[2];
    float loss;

    (void)state;
    for (int i = 0; i < 2; i++) {
        uint32_t tokens[SEQ], targets[SEQ];
        struct replica *host[2];

        open_worker(&w[i], &o, 2);
        host[0] = &w[i].part[0];
        host[1] = &w[i].part[1];
        if (i == 0) { /* a step of nothing: it moves nothing */
            assert_int_equal(replica_stage_step(host[0], 0, 0, &loss), 0);
        }
        assert_int_equal(
            loader_rows(&w[i].whole.loader, 1, 0, 1, tokens, targets), 0);
        pass(host, 2, tokens, targets);
        assert_int_equal(replica_stage_step(host[0], 1, 1, &loss), 0);
        assert_int_equal(replica_clock(host[0]), 2);
    }
    assert_memory_equal(w[0].part[0].theta, w[1].part[0].theta,
                        w[0].part[0].n * sizeof(float));
    close_worker(&w[0]);
    close_worker(&w[1]);
}

/* A host that no route came by counts the step: its clock is the run's. */
static void a_step_of_nothing_moves_nothing_and_counts(void **state)
{
    struct replica_options o = options(1);
    struct worker w;
    float loss;

    (void)state;
    open_worker(&w, &o, 2);
    assert_int_equal(
        replica_stage_step(&w.part[1], (uint32_t)w.part[1].since, 0, &loss), 0);
    assert_true(isnan(loss));
    assert_int_equal(replica_clock(&w.part[1]), 1);
    assert_int_equal(w.part[1].tokens_seen, 0);
    expect_slice(&w.part[1], w.part[1].theta, w.whole.theta);
    close_worker(&w);
}

static bool is_same(const struct replica *r,
                    uint64_t step,
                    uint32_t draw,
                    const uint32_t *tokens)
{
    uint32_t a[SEQ], b[SEQ];

    assert_int_equal(replica_stage_tokens(r, step, draw, a, b), 0);
    return memcmp(a, tokens, sizeof a) == 0;
}

/* Two hosts of the first stage walk the text in orders of their own; a draw of
 * a step is always the same, and that of no other step. */
static void a_host_enters_what_step_and_draw_name(void **state)
{
    struct replica_options o = options(1), other = options(2);
    uint32_t first[SEQ], targets[SEQ];
    struct worker w, v;

    (void)state;
    open_worker(&w, &o, 2);
    open_worker(&v, &other, 2);
    assert_int_equal(replica_stage_tokens(&w.part[0], 0, 0, first, targets), 0);
    assert_true(is_same(&w.part[1], 0, 0, first));
    assert_false(is_same(&v.part[0], 0, 0, first));
    for (uint32_t step = 0; step < 4; step++) {
        for (uint32_t draw = step == 0; draw < 2 * MICRO; draw++) {
            assert_false(is_same(&w.part[0], step, draw, first));
        }
    }
    assert_int_equal(replica_stage_tokens(&w.whole, 0, 0, first, targets),
                     LOCO_EINVAL);
    close_worker(&w);
    close_worker(&v);
}

static void what_only_a_whole_model_can_do_is_refused(void **state)
{
    struct replica_options o = options(1);
    const float *y;
    struct worker w;
    double bits;
    float loss;

    (void)state;
    open_worker(&w, &o, 2);
    assert_int_equal(replica_step(&w.part[0], &loss), LOCO_EINVAL);
    assert_int_equal(replica_eval(&w.part[1], 0, &bits), LOCO_EINVAL);
    assert_int_equal(replica_stage_forward(&w.whole, 0, NULL, NULL, &y),
                     LOCO_EINVAL);
    assert_int_equal(replica_stage_tokens(&w.whole, 0, 0, NULL, NULL),
                     LOCO_EINVAL);
    close_worker(&w);
}

/* Micro-batches of windows along hosts (stages), in bits per byte. */
static double bits_of(struct replica **host, uint32_t stages)
{
    static float x[3 * SEQ * DIM];
    uint32_t rows = host[0]->opt.micro_batch, s;
    uint32_t tokens[3 * SEQ], targets[3 * SEQ];
    double nats = 0, sum;
    uint64_t bytes = 0, n;
    const float *y;

    for (uint32_t i = 0; i * rows < 512 / SEQ; i++) {
        assert_int_equal(replica_stage_windows(host[0], i, tokens, targets), 0);
        for (s = 0; s + 1 < stages; s++) {
            assert_int_equal(replica_stage_eval_forward(host[s],
                                                        s == 0 ? tokens : NULL,
                                                        s == 0 ? NULL : x, &y),
                             0);
            memcpy(x, y, (size_t)rows * SEQ * DIM * sizeof *x);
        }
        assert_int_equal(
            replica_stage_eval_score(host[s], targets, x, &sum, &n), 0);
        nats += sum;
        bytes += n;
    }
    return nats / (double)bytes / log(2);
}

static double seen_bits;

static void evaluate(struct replica **host, uint32_t stages)
{
    seen_bits = bits_of(host, stages);
}

/* Of the commit, while its steps are under way: more layers than the place for
 * it keeps, and a micro-batch in a slot. */
static void held_out_text_passes_through_the_commit_and_moves_nothing(void **st)
{
    struct replica_options o = options(1);
    struct worker w;
    double bits, before;

    (void)st;
    o.model.layers = 7;
    open_worker(&w, &o, 2);
    assert_int_equal(replica_eval(&w.whole, 0, &before), 0);
    step(&w);
    meanwhile = evaluate;
    step(&w);
    meanwhile = NULL;
    expect_same(&w);
    assert_int_equal(replica_eval(&w.whole, 0, &bits), 0);
    assert_true(bits == before); /* of the anchor, not of the steps */
    assert_true(fabs(seen_bits - bits) < 1e-6 * bits);
    close_worker(&w);
}

/* 32 windows in micro-batches of three: the last one has a row of nothing. */
static void rows_behind_the_last_window_count_nothing(void **state)
{
    struct replica_options o = options(1);
    uint32_t tokens[3 * SEQ], targets[3 * SEQ];
    struct replica *host[STAGES];
    struct worker w;
    double bits;

    (void)state;
    o.batch = o.micro_batch = 3;
    open_worker(&w, &o, STAGES);
    for (uint32_t s = 0; s < STAGES; s++) {
        host[s] = &w.part[s];
    }
    assert_int_equal(replica_eval(&w.whole, 0, &bits), 0);
    assert_true(fabs(bits_of(host, STAGES) - bits) < 1e-6 * bits);
    assert_int_equal(replica_stage_windows(host[0], 10, tokens, targets), 0);
    assert_int_equal(eval_target_bytes(NULL, targets, 3 * SEQ), 2 * (SEQ - 1));
    assert_int_equal(replica_stage_windows(host[0], 11, tokens, targets), 0);
    assert_int_equal(eval_target_bytes(NULL, targets, 3 * SEQ), 0);
    assert_int_equal(replica_stage_windows(&w.whole, 0, tokens, targets),
                     LOCO_EINVAL);
    host[0]->opt.val = NULL;
    assert_int_equal(replica_stage_windows(host[0], 0, tokens, targets),
                     LOCO_ENOENT);
    close_worker(&w);
}

static void a_stage_is_smaller_than_the_whole(void **state)
{
    struct replica_options whole = options(1), part = options(1);

    (void)state;
    part.slots = 1;
    assert_int_equal(
        llama_part_of_stage(&part.model, STAGES, 1, &part.part, NULL), 0);
    assert_true(replica_bytes(&part) < replica_bytes(&whole) / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_the_bits_of_the_unsplit_replica),
        cmocka_unit_test(a_stage_steps_in_pairs_like_the_whole),
        cmocka_unit_test(a_host_sums_what_passed_through_it),
        cmocka_unit_test(a_sum_that_is_not_what_was_agreed_is_thrown_away),
        cmocka_unit_test(a_host_that_missed_a_step_makes_the_next_at_its_rate),
        cmocka_unit_test(a_step_of_nothing_moves_nothing_and_counts),
        cmocka_unit_test(a_host_enters_what_step_and_draw_name),
        cmocka_unit_test(what_only_a_whole_model_can_do_is_refused),
        cmocka_unit_test(
            held_out_text_passes_through_the_commit_and_moves_nothing),
        cmocka_unit_test(rows_behind_the_last_window_count_nothing),
        cmocka_unit_test(a_stage_is_smaller_than_the_whole),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
