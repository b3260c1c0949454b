/* machine_stage_test.c - two machines, each with a stage, by the actions that a
 * node gives them; the test carries the segments. */
#include "tests/unit/daemon/rig.h"

#include <math.h>

#define SEQ   16
#define DIM   16
#define MICRO 2
#define TAG   ((uint64_t)7 << 32)

static uint8_t text[2000];
static struct shard shard;

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)('a' + i * i % 23);
    }
    shard_from_text(&shard, text, sizeof text);
    return 0;
}

static struct replica_options options(void)
{
    return (struct replica_options){
        .model = {.dim = DIM,
                  .layers = 2,
                  .heads = 2,
                  .kv_heads = 2,
                  .ffn = 16,
                  .vocab = 256,
                  .seq = SEQ,
                  .rope_theta = 10000,
                  .norm_eps = 1e-5F},
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
        .schedule = {SCHEDULE_CONSTANT, 1e-3, 1e-3, 0, 0, 0},
        .method = {.period = 1, .fragments = 1, .rule = {.lr = 1}},
        .codec = codec_find("fp32"),
        .slots = MICRO,
        .batch = MICRO,
        .micro_batch = 1,
        .seq = SEQ,
        .seed = 3,
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = MICRO * SEQ,
        .threads = 1,
        .reference = true};
}

/* The events of the last commands: all of them, oldest first. */
static const struct local_event *told(struct rig *g, enum local_type type)
{
    const struct local_event *e;

    g->n_told = 0;
    until(g, NULL, 1);
    while (g->told[g->n_told - 1].type != type) {
        until(g, NULL, g->n_told + 1);
    }
    e = &g->told[g->n_told - 1];
    assert_int_equal(e->rc, 0);
    return e;
}

static void stage(struct rig *g, uint64_t index)
{
    struct action a = {.type = ACTION_STAGE, .index = index};

    g->calls.local(g->calls.self, &a, NULL);
    assert_int_equal(told(g, LOCAL_STAGED)->index, index);
}

static void load(struct rig *g)
{
    struct action a = {.type = ACTION_LOAD, .from_seed = true};

    g->calls.local(g->calls.self, &a, NULL);
    (void)told(g, LOCAL_LOADED);
}

static struct rig *open_stage(uint64_t index)
{
    struct rig *g = open_rig("fp32", 1);
    struct machine *m = g->m;

    trainer_close(m->trainer);
    m->trainer = NULL;
    m->replica = options();
    m->activations = codec_find("fp32");
    m->terms.stages = 2;
    m->terms.n_shards = 2;
    m->manifest = calloc(1, sizeof *m->manifest);
    m->files = calloc(2, sizeof *m->files);
    m->train = calloc(1, sizeof *m->train);
    assert_true(m->manifest != NULL && m->files != NULL && m->train != NULL);
    manifest_default(m->manifest);
    m->manifest->data.n_shards = 2;
    m->manifest->data.shards[1].val = true;
    m->manifest->data.shards[0].tokens = shard.info.tokens;
    m->manifest->data.shards[1].tokens = shard.info.tokens;
    for (int i = 0; i < 2; i++) {
        m->files[i].held = true;
        m->files[i].fd = -1;
        m->files[i].shard = shard;
    }
    m->saved_number = UINT64_MAX; /* no node, so nothing is written */
    stage(g, index);
    load(g);
    return g;
}

static const struct local_event *
pipe_op(struct rig *g, enum pipe_op op, uint32_t micro, uint32_t count)
{
    struct action a = {.type = ACTION_PIPE,
                       .op = op,
                       .attempt = TAG,
                       .index = micro,
                       .slot = micro,
                       .round = 1,
                       .count = count};
    const struct local_event *e;

    g->calls.local(g->calls.self, &a, NULL);
    if (op == PIPE_CLEAR) {
        return NULL;
    }
    e = told(g, LOCAL_PIPED);
    assert_int_equal(e->op, op);
    assert_true(e->attempt == TAG && e->index == micro);
    return e;
}

/* In pieces, as segments go. */
static void
carry(struct rig *from, struct rig *to, enum buffer_kind buffer, uint32_t micro)
{
    struct segment s = {.attempt = TAG,
                        .stream = STREAM_PIPE,
                        .buffer = buffer,
                        .index = micro,
                        .slot = (uint8_t)micro,
                        .len = 6 * DIM};

    for (; s.offset < SEQ * DIM; s.offset += s.len) {
        uint8_t bytes[SEQ * (DIM + 1) * 4];
        size_t len;

        if (s.len > SEQ * DIM - s.offset) {
            s.len = (uint32_t)(SEQ * DIM - s.offset);
        }
        len = from->calls.wire_len(from->calls.self, &s);
        assert_true(len <= sizeof bytes);
        assert_true(len == to->calls.wire_len(to->calls.self, &s));
        assert_int_equal(from->calls.fill(from->calls.self, &s, bytes), 0);
        assert_null(to->calls.place(to->calls.self, &s));
        assert_int_equal(to->calls.take(to->calls.self, &s, bytes, len), 0);
    }
}

static void through(struct rig *first, struct rig *last, uint32_t micro)
{
    (void)pipe_op(first, PIPE_FORWARD, micro, micro);
    carry(first, last, BUFFER_FORTH, micro);
    (void)pipe_op(last, PIPE_SCORE, micro, 0);
    carry(last, first, BUFFER_BACK, micro);
    (void)pipe_op(first, PIPE_BACKWARD, micro, micro);
}

/* The contribution of a model in one piece to the same step. */
static void open_whole(struct replica *r)
{
    struct replica_options o = options();
    uint32_t tokens[SEQ], targets[SEQ];
    char errmsg[ERRMSG_SIZE];
    const float *dx;
    float loss;

    llama_part_whole(&o.model, &o.part);
    assert_int_equal(replica_open(r, &o, errmsg), 0);
    replica_init(r);
    for (uint32_t k = 0; k < MICRO; k++) {
        assert_int_equal(replica_stage_tokens(r, 0, k, tokens, targets), 0);
        assert_int_equal(replica_stage_score(r, tokens, targets, NULL, &dx), 0);
    }
    assert_int_equal(replica_stage_step(r, MICRO, &loss), 0);
    assert_int_equal(replica_pack(r), 0);
}

static void two_machines_make_the_step_of_one(void **state)
{
    struct rig *g[2] = {open_stage(0), open_stage(1)};
    struct action train = {.type = ACTION_TRAIN, .round = 1};
    struct replica whole;
    uint64_t n = 0;

    (void)state;
    open_whole(&whole);
    through(g[0], g[1], 0);
    through(g[0], g[1], 1);
    for (int i = 0; i < 2; i++) {
        const struct local_event *e = pipe_op(g[i], PIPE_STEP, 0, MICRO);

        assert_int_equal(e->tokens, MICRO * SEQ);
        assert_int_equal(e->inner_step, 1);
        g[i]->calls.local(g[i]->calls.self, &train, NULL);
        assert_int_equal(told(g[i], LOCAL_TRAINED)->tokens, MICRO * SEQ);
        assert_memory_equal(trainer_contribution(g[i]->m->trainer),
                            whole.contribution + n, g[i]->m->n * sizeof(float));
        n += g[i]->m->n;
    }
    assert_true(n == whole.n);
    replica_close(&whole);
    close_rig(g[0]);
    close_rig(g[1]);
}

static void what_was_cleared_is_in_no_step(void **state)
{
    struct rig *g[2] = {open_stage(0), open_stage(1)};
    struct action step = {.type = ACTION_PIPE,
                          .op = PIPE_STEP,
                          .attempt = TAG,
                          .round = 1,
                          .count = MICRO};

    (void)state;
    through(g[0], g[1], 0);
    through(g[0], g[1], 1);
    (void)pipe_op(g[0], PIPE_CLEAR, 0, 0);
    g[0]->n_told = 0;
    g[0]->calls.local(g[0]->calls.self, &step, NULL);
    until(g[0], NULL, 1);
    assert_int_equal(g[0]->told[0].type, LOCAL_PIPED);
    assert_int_equal(g[0]->told[0].rc, LOCO_EINVAL); /* not two: none */
    assert_int_equal(pipe_op(g[0], PIPE_STEP, 0, 0)->tokens, 0);
    close_rig(g[0]);
    close_rig(g[1]);
}

/* Held-out windows of that commit on that machine. */
static const struct local_event *
eval_op(struct rig *g, enum pipe_op op, uint32_t micro, uint64_t round)
{
    struct action a = {.type = ACTION_PIPE,
                       .op = op,
                       .attempt = TAG,
                       .index = micro,
                       .slot = (uint32_t)(MICRO + micro % EVAL_SLOTS),
                       .round = round};

    g->calls.local(g->calls.self, &a, NULL);
    g->n_told = 0;
    until(g, NULL, 1);
    assert_int_equal(g->told[0].type, LOCAL_PIPED);
    return &g->told[0];
}

static void held_out_windows_pass_beside_the_steps(void **state)
{
    struct rig *g[2] = {open_stage(0), open_stage(1)};
    const struct local_event *e;
    struct replica_options o = options();
    struct replica whole;
    char errmsg[ERRMSG_SIZE];
    double bits;

    (void)state;
    o.slots = 0;
    llama_part_whole(&o.model, &o.part);
    assert_int_equal(replica_open(&whole, &o, errmsg), 0);
    replica_init(&whole);
    assert_int_equal(replica_eval(&whole, &bits), 0);
    (void)pipe_op(g[0], PIPE_FORWARD, 0, 0);
    for (uint32_t k = 0; k < MICRO; k++) {
        struct segment s = {.attempt = TAG,
                            .stream = STREAM_EVAL,
                            .buffer = BUFFER_FORTH,
                            .index = k,
                            .slot = (uint8_t)(MICRO + k % EVAL_SLOTS),
                            .len = SEQ * DIM};
        uint8_t bytes[SEQ * (DIM + 1) * 4];
        size_t len = g[0]->calls.wire_len(g[0]->calls.self, &s);

        assert_int_equal(eval_op(g[0], PIPE_EVAL_FORWARD, k, 0)->rc, 0);
        if (k == 0) { /* the steps begin anew: none of that is theirs */
            (void)pipe_op(g[0], PIPE_CLEAR, 0, 0);
        }
        assert_int_equal(g[0]->calls.fill(g[0]->calls.self, &s, bytes), 0);
        assert_int_equal(g[1]->calls.take(g[1]->calls.self, &s, bytes, len), 0);
        e = eval_op(g[1], PIPE_EVAL_SCORE, k, 0);
        assert_int_equal(e->rc, 0);
    }
    assert_true(fabs(e->bits_per_byte - bits) < 1e-6 * bits);
    assert_int_equal(eval_op(g[1], PIPE_EVAL_SCORE, 0, 1)->rc, LOCO_ESTALE);
    assert_int_equal(eval_op(g[1], PIPE_EVAL_SCORE, MICRO + 1, 0)->rc,
                     LOCO_EINVAL); /* out of order */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe_op(g[i], PIPE_STEP, 0, 0)->tokens, 0);
    }
    replica_close(&whole);
    close_rig(g[0]);
    close_rig(g[1]);
}

static void segments_that_do_not_fit_are_refused(void **state)
{
    struct rig *g = open_stage(1);
    const struct segment bad[] = {
        {.attempt = TAG, .buffer = BUFFER_FORTH, .len = DIM + 1},
        {.attempt = TAG, .buffer = BUFFER_FORTH, .len = DIM, .offset = 3},
        {.attempt = TAG,
         .buffer = BUFFER_BACK,
         .len = DIM,
         .slot = MICRO + EVAL_SLOTS},
        {.attempt = TAG, .buffer = BUFFER_BACK, .len = (SEQ + 1) * DIM},
        {.attempt = TAG,
         .buffer = BUFFER_FORTH,
         .len = DIM,
         .offset = (uint64_t)DIM << 40},
    };
    uint8_t bytes[SEQ * (DIM + 2) * 4] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t len = g->calls.wire_len(g->calls.self, &bad[i]);

        assert_int_equal(g->calls.take(g->calls.self, &bad[i], bytes, len),
                         LOCO_ERANGE);
        assert_int_equal(g->calls.fill(g->calls.self, &bad[i], bytes),
                         LOCO_ERANGE);
    }
    close_rig(g);
}

static void a_machine_moves_to_another_stage(void **state)
{
    struct rig *g = open_stage(0);
    uint64_t n = g->m->n;

    (void)state;
    (void)pipe_op(g, PIPE_FORWARD, 0, 0);
    stage(g, 1);
    assert_true(g->m->terms.n_params == g->m->n && g->m->n != n);
    assert_null(g->m->trainer);
    load(g);
    assert_true(g->m->terms.state_bytes == g->m->n * sizeof(float));
    stage(g, 1); /* where it is: nothing happens */
    assert_non_null(g->m->trainer);
    close_rig(g);
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* Processor time of all threads but this one, which waits. */
static uint64_t worked_ns(void)
{
    uint64_t own = clock_ns(CLOCK_THREAD_CPUTIME_ID);

    return clock_ns(CLOCK_PROCESS_CPUTIME_ID) - own;
}

/* At 1 % each pass waits for a hundred times as long as the one before it took
 * of the processor, so on no machine, however busy, has it had a quarter. */
static void a_share_of_the_processor_holds_for_stages(void **state)
{
    struct rig *g = open_stage(0);
    uint64_t began, used;

    (void)state;
    (void)pipe_op(g, PIPE_FORWARD, 0, 0);
    trainer_set_share(g->m->trainer, 1);
    began = uv_hrtime();
    used = worked_ns();
    for (int i = 0; i < 8; i++) {
        g->n_told = 0;
        (void)pipe_op(g, PIPE_FORWARD, 0, 0);
    }
    used = worked_ns() - used;
    assert_true(uv_hrtime() - began > 4 * used);
    trainer_set_share(g->m->trainer, 100);
    (void)pipe_op(g, PIPE_CLEAR, 0, 0);
    close_rig(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_machines_make_the_step_of_one),
        cmocka_unit_test(what_was_cleared_is_in_no_step),
        cmocka_unit_test(held_out_windows_pass_beside_the_steps),
        cmocka_unit_test(segments_that_do_not_fit_are_refused),
        cmocka_unit_test(a_machine_moves_to_another_stage),
        cmocka_unit_test(a_share_of_the_processor_holds_for_stages),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
