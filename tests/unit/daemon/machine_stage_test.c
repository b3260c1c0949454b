/* machine_stage_test.c - two machines, each with a stage, by the actions that a
 * node gives them; the test carries the segments. */
#include <math.h>
#include <time.h>

#include "daemon/jobs/run_needs.h"
#include "tests/unit/daemon/rig_jobs.h"
#include "train/replica/plan.h"
#include "train/replica/stage.h"
#include "train/sync/preset.h"

#define SEQ   RIG_SEQ
#define DIM   RIG_DIM
#define MICRO 2
#define TAG   ((uint64_t)7 << 32)
#define WIRE  "bf16" /* of what passes from stage to stage */

/* A run of two stages, of one layer each. The step is smooth in the gradient
 * (eps), so that rounding on the way to another stage moves it little. */
static struct rig *make_staged(void)
{
    struct rig *g = make_rig("localsgd");
    struct manifest *f = &g->manifest;

    f->model.layers = f->stages = 2;
    f->model.tied = false;
    f->inner.batch = MICRO;
    f->inner.clip = f->inner.weight_decay = 0;
    f->inner.eps = 1;
    f->inner.lr = f->inner.lr_min = 1e-3;
    f->eval.tokens = MICRO * SEQ;
    f->seed = 3;
    add_text(g, "a.ltk", false);
    add_text(g, "v.ltk", true);
    return g;
}

static void stage(struct rig *g, uint32_t index)
{
    struct job job = {.type = JOB_STAGE, .stage.stage = index};
    const struct local_event *e = ask(g, &job, LOCAL_STAGED);

    assert_int_equal(e->rc, 0);
    assert_int_equal(e->staged.stage, index);
}

static struct rig *open_stage(uint32_t index)
{
    struct rig *g = make_staged();

    start_rig(g);
    assert_int_equal(g->terms.stages, 2);
    assert_int_equal(g->terms.micro_batches, MICRO);
    stage(g, index);
    load_seed(g);
    return g;
}

/* ---- the same by hand ---------------------------------------------------- */

static struct shard text;

static int setup(void **state)
{
    static uint8_t file[TEXT_BYTES];
    char errmsg[ERRMSG_SIZE];

    (void)state;
    make_text(file);
    return shard_open_memory(&text, file, sizeof file, errmsg);
}

/* A replica as the machines of this rig have it, of the whole model. */
static struct replica_options options(const struct rig *g)
{
    const struct manifest *f = &g->manifest;
    struct replica_options o = {
        .model = {.dim = DIM,
                  .layers = 2,
                  .heads = 2,
                  .kv_heads = 2,
                  .ffn = RIG_FFN,
                  .vocab = 256,
                  .seq = SEQ,
                  .rope_theta = (float)f->model.rope_theta,
                  .norm_eps = (float)f->model.norm_eps},
        .optimizer = {.beta1 = f->inner.beta1,
                      .beta2 = f->inner.beta2,
                      .eps = f->inner.eps},
        .schedule = {SCHEDULE_CONSTANT, f->inner.lr, f->inner.lr, 0, 0, 0},
        .method = {.period = 1, .fragments = 1, .rule = {.lr = 1}},
        .codec = codec_find("fp32"),
        .slots = 1,
        .batch = MICRO,
        .micro_batch = 1,
        .seq = SEQ,
        .seed = f->seed,
        .peer = id_u64(&g->id.id),
        .train = &text,
        .n_train = 1,
        .val = &text,
        .eval_tokens = f->eval.tokens,
        .threads = 1,
        .reference = true};

    llama_part_whole(&o.model, &o.part);
    return o;
}

static void open_replica(struct replica *r, const struct replica_options *o)
{
    char errmsg[ERRMSG_SIZE];

    assert_int_equal(replica_open(r, o, errmsg), 0);
    replica_init(r);
}

/* Both stages, without machines. */
static void open_parts(struct replica r[2], const struct rig *g)
{
    struct replica_options o = options(g);

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(llama_part_of_stage(&o.model, 2, i, &o.part, NULL), 0);
        open_replica(&r[i], &o);
    }
}

/* To the other stage: x as it arrives there. */
static void pass_on(const float *x, float out[SEQ * DIM])
{
    const struct codec *c = codec_find(WIRE);
    uint8_t bytes[SEQ * DIM * 4];

    assert_true(c->bytes(SEQ * DIM) <= sizeof bytes);
    assert_int_equal(c->encode(bytes, x, SEQ * DIM, 1.0F), 0);
    assert_int_equal(c->decode(out, bytes, SEQ * DIM), 0);
}

/* A step of both stages, and what they contribute then. */
static void step_parts(struct replica r[2])
{
    uint32_t tokens[SEQ], targets[SEQ];
    float x[SEQ * DIM], loss;
    const float *y, *dx;

    for (uint32_t k = 0; k < MICRO; k++) {
        assert_int_equal(replica_stage_tokens(&r[0], 0, k, tokens, targets), 0);
        assert_int_equal(replica_stage_forward(&r[0], 0, tokens, NULL, &y), 0);
        pass_on(y, x);
        assert_int_equal(replica_stage_score(&r[1], NULL, targets, x, &dx), 0);
        pass_on(dx, x);
        assert_int_equal(replica_stage_backward(&r[0], 0, tokens, x, &dx), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            replica_stage_step(&r[i], (uint32_t)r[i].since, MICRO, &loss), 0);
        assert_int_equal(replica_pack(&r[i]), 0);
    }
}

/* The same of the model in one piece. */
static void step_whole(struct replica *r)
{
    uint32_t tokens[SEQ], targets[SEQ];
    const float *dx;
    float loss;

    for (uint32_t k = 0; k < MICRO; k++) {
        assert_int_equal(replica_stage_tokens(r, 0, k, tokens, targets), 0);
        assert_int_equal(replica_stage_score(r, tokens, targets, NULL, &dx), 0);
    }
    assert_int_equal(replica_stage_step(r, (uint32_t)r->since, MICRO, &loss),
                     0);
    assert_int_equal(replica_pack(r), 0);
}

/* Held-out bits of the stages. */
static double eval_parts(struct replica r[2])
{
    uint32_t tokens[SEQ], targets[SEQ];
    float x[SEQ * DIM];
    double nats = 0, sum = 0;
    uint64_t bytes = 0, n = 0;
    const float *y;

    for (uint32_t k = 0; k < MICRO; k++) {
        assert_int_equal(replica_stage_windows(&r[0], k, tokens, targets), 0);
        assert_int_equal(replica_stage_eval_forward(&r[0], tokens, NULL, &y),
                         0);
        pass_on(y, x);
        assert_int_equal(
            replica_stage_eval_score(&r[1], targets, x, &nats, &bytes), 0);
        sum += nats;
        n += bytes;
    }
    return sum / (double)n / log(2);
}

/* ---- by machines --------------------------------------------------------- */

static struct job
pipe_job(enum pipe_op op, uint32_t micro, uint32_t count, uint32_t slot)
{
    return (struct job){.type = JOB_PIPE,
                        .pipe = {.op = op,
                                 .attempt = TAG,
                                 .index = micro,
                                 .slot = slot,
                                 .round = 1,
                                 .count = count}};
}

static const struct local_event *
pipe_op(struct rig *g, enum pipe_op op, uint32_t micro, uint32_t count)
{
    struct job job = pipe_job(op, micro, count, micro);
    const struct local_event *e;

    if (op == PIPE_CLEAR) {
        give(g, &job);
        return NULL;
    }
    e = ask(g, &job, LOCAL_PIPED);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->piped.op, op);
    assert_true(e->piped.attempt == TAG && e->piped.index == micro);
    return e;
}

/* That step of the round. */
static int step_op(struct rig *g, uint32_t step, uint32_t count)
{
    struct job job = pipe_job(PIPE_STEP, 0, count, 0);

    job.pipe.step = step;
    return ask(g, &job, LOCAL_PIPED)->rc;
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

/* What the machine contributes to round 1, exactly: fp32 is on the wire. */
static void read_contribution(struct rig *g, float *x)
{
    struct job train = {.type = JOB_TRAIN, .train.round = 1};
    struct job hash = {
        .type = JOB_HASH,
        .hash = {.buffer = BUFFER_RING, .request = 1, .encode = true}};
    struct segment s = {.attempt = 1, .len = (uint32_t)g->terms.n_params};
    const struct local_event *e;

    e = ask(g, &train, LOCAL_TRAINED);
    assert_int_equal(e->rc, 0);
    assert_int_equal(e->trained.tokens, MICRO * SEQ);
    assert_int_equal(ask(g, &hash, LOCAL_HASHED)->rc, 0);
    assert_int_equal(g->calls.fill(g->calls.self, &s, (uint8_t *)x), 0);
}

static double norm(const float *x, const float *y, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (y == NULL ? 0 : (double)y[i]);

        sum += d * d;
    }
    return sqrt(sum);
}

/* Bit for bit that of two replicas which pass on what the wire makes of it, and
 * within the noise of bf16 that of one in one piece. */
static void two_machines_make_the_step_of_one(void **state)
{
    struct rig *g[2] = {open_stage(0), open_stage(1)};
    struct replica_options o = options(g[0]);
    struct replica parts[2], whole;
    uint64_t n = 0;
    float *x;

    (void)state;
    open_parts(parts, g[0]);
    step_parts(parts);
    open_replica(&whole, &o);
    step_whole(&whole);
    x = malloc(whole.n * sizeof *x);
    assert_non_null(x);
    through(g[0], g[1], 0);
    through(g[0], g[1], 1);
    for (int i = 0; i < 2; i++) {
        const struct local_event *e = pipe_op(g[i], PIPE_STEP, 0, MICRO);

        assert_int_equal(e->piped.tokens, MICRO * SEQ);
        assert_int_equal(e->piped.inner_step, 1);
        assert_true(g[i]->terms.n_params == parts[i].n);
        read_contribution(g[i], x + n);
        assert_memory_equal(x + n, parts[i].contribution,
                            parts[i].n * sizeof *x);
        n += parts[i].n;
        replica_close(&parts[i]);
    }
    assert_true(n == whole.n);
    assert_true(norm(whole.contribution, NULL, n) > 0);
    assert_true(norm(x, whole.contribution, n) <
                0.01 * norm(whole.contribution, NULL, n));
    replica_close(&whole);
    free(x);
    close_rig(g[0]);
    close_rig(g[1]);
}

/* Whoever made the first one, and this machine did not: rates warm up. */
static void a_step_has_the_rate_of_its_place_in_the_round(void **state)
{
    float *x[2];
    uint64_t n = 0;

    (void)state;
    for (uint32_t missed = 0; missed < 2; missed++) {
        struct rig *g[2] = {make_staged(), make_staged()};

        for (uint32_t i = 0; i < 2; i++) {
            g[i]->manifest.inner.warmup = 4;
            g[i]->manifest.sync.period = 2;
            start_rig(g[i]);
            stage(g[i], i);
            load_seed(g[i]);
        }
        if (missed == 0) { /* a step of nothing moves nothing */
            assert_int_equal(step_op(g[0], 0, 0), 0);
        }
        through(g[0], g[1], 0);
        through(g[0], g[1], 1);
        assert_int_equal(step_op(g[0], 1, MICRO), 0);
        n = g[0]->terms.n_params;
        x[missed] = malloc(n * sizeof *x[missed]);
        assert_non_null(x[missed]);
        read_contribution(g[0], x[missed]);
        close_rig(g[0]);
        close_rig(g[1]);
    }
    assert_true(norm(x[0], NULL, n) > 0);
    assert_memory_equal(x[0], x[1], n * sizeof *x[0]);
    free(x[0]);
    free(x[1]);
}

static void what_was_cleared_is_in_no_step(void **state)
{
    struct rig *g[2] = {open_stage(0), open_stage(1)};
    struct job step = pipe_job(PIPE_STEP, 0, MICRO, 0);

    (void)state;
    through(g[0], g[1], 0);
    through(g[0], g[1], 1);
    (void)pipe_op(g[0], PIPE_CLEAR, 0, 0);
    /* Not two: none. */
    assert_int_equal(ask(g[0], &step, LOCAL_PIPED)->rc, LOCO_EINVAL);
    assert_int_equal(pipe_op(g[0], PIPE_STEP, 0, 0)->piped.tokens, 0);
    close_rig(g[0]);
    close_rig(g[1]);
}

/* Held-out windows of that commit on that machine. */
static const struct local_event *
eval_op(struct rig *g, enum pipe_op op, uint32_t micro, uint64_t round)
{
    struct job job =
        pipe_job(op, micro, 0, g->terms.pipe_slots + micro % EVAL_SLOTS);

    job.pipe.round = round;
    return ask(g, &job, LOCAL_PIPED);
}

static void held_out_windows_pass_beside_the_steps(void **state)
{
    struct rig *g[2] = {open_stage(0), open_stage(1)};
    const struct local_event *e;
    struct replica_options o = options(g[0]);
    struct replica parts[2], whole;
    double by_hand, bits;

    (void)state;
    open_parts(parts, g[0]);
    by_hand = eval_parts(parts);
    o.slots = 0;
    open_replica(&whole, &o);
    assert_int_equal(replica_eval(&whole, 0, &bits), 0);
    (void)pipe_op(g[0], PIPE_FORWARD, 0, 0);
    for (uint32_t k = 0; k < MICRO; k++) {
        struct segment s = {
            .attempt = TAG,
            .stream = STREAM_EVAL,
            .buffer = BUFFER_FORTH,
            .index = k,
            .slot = (uint8_t)(g[0]->terms.pipe_slots + k % EVAL_SLOTS),
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
    assert_true(fabs(e->piped.bits_per_byte - by_hand) < 1e-6 * by_hand);
    assert_true(fabs(e->piped.bits_per_byte - bits) < 1e-3 * bits);
    assert_int_equal(eval_op(g[1], PIPE_EVAL_SCORE, 0, 1)->rc, LOCO_ESTALE);
    assert_int_equal(eval_op(g[1], PIPE_EVAL_SCORE, MICRO + 1, 0)->rc,
                     LOCO_EINVAL); /* out of order */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe_op(g[i], PIPE_STEP, 0, 0)->piped.tokens, 0);
    }
    replica_close(&parts[0]);
    replica_close(&parts[1]);
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
         .slot = (uint8_t)(g->terms.pipe_slots + EVAL_SLOTS)},
        {.attempt = TAG, .buffer = BUFFER_BACK, .len = (SEQ + 1) * DIM},
        {.attempt = TAG,
         .buffer = BUFFER_FORTH,
         .len = DIM,
         .offset = (uint64_t)DIM << 40},
    };
    struct segment good = {.attempt = TAG,
                           .buffer = BUFFER_FORTH,
                           .len = DIM,
                           .slot =
                               (uint8_t)(g->terms.pipe_slots + EVAL_SLOTS - 1)};
    uint8_t bytes[SEQ * (DIM + 2) * 4] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t len = g->calls.wire_len(g->calls.self, &bad[i]);

        assert_int_equal(g->calls.take(g->calls.self, &bad[i], bytes, len),
                         LOCO_ERANGE);
        assert_int_equal(g->calls.fill(g->calls.self, &bad[i], bytes),
                         LOCO_ERANGE);
    }
    assert_int_equal(g->calls.take(g->calls.self, &good, bytes,
                                   g->calls.wire_len(g->calls.self, &good)),
                     0);
    close_rig(g);
}

/* Nothing was made, so nothing moves. LOCO_ENOENT: no trainer is there. */
static int idle_step(struct rig *g)
{
    struct job job = pipe_job(PIPE_STEP, 0, 0, 0);

    return ask(g, &job, LOCAL_PIPED)->rc;
}

static void a_machine_moves_to_another_stage(void **state)
{
    struct rig *g = open_stage(0);
    struct replica_options o = options(g);
    uint64_t n = g->terms.n_params;

    (void)state;
    (void)pipe_op(g, PIPE_FORWARD, 0, 0);
    assert_int_equal(idle_step(g), 0);
    stage(g, 1);
    assert_true(g->terms.n_params != n);
    assert_true(g->terms.n_params + n == (uint64_t)o.part.numel);
    assert_int_equal(idle_step(g), LOCO_ENOENT);
    load_seed(g);
    assert_true(g->terms.state_bytes == g->terms.n_params * sizeof(float));
    assert_int_equal(idle_step(g), 0);
    stage(g, 1); /* where it is: nothing happens */
    assert_int_equal(idle_step(g), 0);
    close_rig(g);
}

static void what_it_trained_in_a_stage_before_counts_on(void **state)
{
    struct rig *g[2] = {open_stage(0), open_stage(1)};

    (void)state;
    through(g[0], g[1], 0);
    through(g[0], g[1], 1);
    (void)pipe_op(g[0], PIPE_STEP, 0, MICRO);
    assert_true(g[0]->tokens == MICRO * SEQ);
    stage(g[0], 1);
    load_seed(g[0]);
    assert_int_equal(idle_step(g[0]), 0);
    assert_true(g[0]->tokens == MICRO * SEQ);
    close_rig(g[0]);
    close_rig(g[1]);
}

/* A machine with a GPU of so much memory, which nobody opens; the stages that
 * it offers to hold. */
static uint64_t fits(const struct device_options *device, uint64_t bytes)
{
    struct rig *g = make_staged();
    uint64_t stages;

    g->device = device;
    g->gpu_bytes = bytes;
    g->configured_rc = bytes == 0 ? LOCO_ENOMEM : 0;
    start_rig(g);
    stages = g->terms.stage_fits;
    close_rig(g);
    return stages;
}

/* The stages differ in what they need of a GPU: the last one makes logits. */
static void a_stage_that_the_gpu_does_not_hold_is_not_taken(void **state)
{
    const struct device_options device = {.gpu = {.bf16 = true}};
    struct rig *g = make_staged();
    struct replica_options o = options(g);
    struct replica_plan plan;
    uint64_t need[2], least, most;

    (void)state;
    o.device = &device;
    o.slots = run_pipe_slots(2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(llama_part_of_stage(&o.model, 2, i, &o.part, NULL), 0);
        replica_plan(&o, 0, &plan);
        need[i] = plan.state_bytes + plan.work_bytes;
    }
    assert_true(need[0] != need[1]);
    least = need[0] < need[1] ? 0 : 1;
    most = 1 - least;
    free(g);
    assert_int_equal(fits(NULL, 1), 3);
    assert_int_equal(fits(&device, need[most]), 3);
    assert_int_equal(fits(&device, need[most] - 1), 1U << least);
    assert_int_equal(fits(&device, need[least]), 1U << least);
    assert_int_equal(fits(&device, 0), 0); /* the run is refused */
}

/* What the machine logs meanwhile. */
static void
log_of_a_refusal(const struct device_options *device, char *said, size_t cap)
{
    FILE *f = tmpfile();
    int errors = dup(STDERR_FILENO);

    assert_true(f != NULL && errors >= 0);
    assert_true(dup2(fileno(f), STDERR_FILENO) >= 0);
    (void)fits(device, 0);
    assert_true(dup2(errors, STDERR_FILENO) >= 0);
    (void)close(errors);
    rewind(f);
    said[fread(said, 1, cap - 1, f)] = '\0';
    (void)fclose(f);
}

/* More than what there is, as a reader sees it, and who says how much that is.
 */
static void a_refusal_names_both_sizes_and_the_limit(void **state)
{
    struct device_options device = {.gpu = {.bf16 = true}};
    char said[2000];

    (void)state;
    log_of_a_refusal(&device, said, sizeof said);
    assert_non_null(strstr(said, "needs 1 MB of the GPU's, 1 MB with "
                                 "activations recomputed and moments in the "
                                 "host's memory, and 0 MB may be used (what "
                                 "was free at the start)"));
    device.gpu.memory_bytes = 1;
    log_of_a_refusal(&device, said, sizeof said);
    assert_non_null(strstr(said, "(the setting gpu_memory_bytes)"));
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
    g->settings.cpu_percent = 1;
    machine_configure(g->m);
    began = uv_hrtime();
    used = worked_ns();
    for (int i = 0; i < 8; i++) {
        (void)pipe_op(g, PIPE_FORWARD, 0, 0);
    }
    used = worked_ns() - used;
    assert_true(uv_hrtime() - began > 4 * used);
    g->settings.cpu_percent = 100;
    machine_configure(g->m);
    (void)pipe_op(g, PIPE_CLEAR, 0, 0);
    close_rig(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(two_machines_make_the_step_of_one),
        CASE(a_step_has_the_rate_of_its_place_in_the_round),
        CASE(what_was_cleared_is_in_no_step),
        CASE(held_out_windows_pass_beside_the_steps),
        CASE(segments_that_do_not_fit_are_refused),
        CASE(a_machine_moves_to_another_stage),
        CASE(what_it_trained_in_a_stage_before_counts_on),
        CASE(a_stage_that_the_gpu_does_not_hold_is_not_taken),
        CASE(a_refusal_names_both_sizes_and_the_limit),
        CASE(a_share_of_the_processor_holds_for_stages),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, setup, NULL);
}
