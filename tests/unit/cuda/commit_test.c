/* What a commit costs on a GPU (emulated), and what waits for it: inner moments
 * stay there until a checkpoint has them, and steps go on while a state is
 * hashed. */
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include "tests/emu/emu_control.h"
#include "tests/unit/daemon/rig_jobs.h"
#include "train/replica/checkpoint.h"

static struct device_options device = {
    .plugin = LOCO_EMULATED_PLUGIN,
    .gpu = {.bf16 = true},
};
static struct emu_control *emu;

/* The machine's clock runs ahead by so much (its link option). */
static uint64_t ahead_ms;

uint64_t __real_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    return __real_uv_now(loop) + ahead_ms;
}

/* ---- a trainer ----------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct local_event last[LOCAL_TYPE_COUNT];
    unsigned n[LOCAL_TYPE_COUNT], n_late;
    struct snapshot *snapshot;
    float *late;
    uint64_t late_steps;
    bool holds; /* a state is hashed, and handed over after the next step */
    bool placed_before, stepped;
} in = {.mutex = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER};

/* Under the lock: until so much was told. False: it never was. */
static bool wait_told(const unsigned *n, unsigned want)
{
    struct timespec until;
    int rv = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_S;
    while (*n < want && rv == 0) {
        rv = pthread_cond_timedwait(&in.changed, &in.mutex, &until);
    }
    return *n >= want;
}

static void post(void *self, const struct local_event *e)
{
    (void)self;
    (void)pthread_mutex_lock(&in.mutex);
    in.last[e->type] = *e;
    in.n[e->type]++;
    (void)pthread_cond_broadcast(&in.changed);
    (void)pthread_mutex_unlock(&in.mutex);
}

static void take_snapshot(void *self, struct snapshot *s)
{
    (void)self;
    (void)pthread_mutex_lock(&in.mutex);
    if (in.holds) {
        in.placed_before = in.n[LOCAL_PLACED] > 0;
        in.stepped = in.placed_before &&
                     wait_told(&in.n[LOCAL_PROGRESS], in.n[LOCAL_PROGRESS] + 1);
    }
    snapshot_free(in.snapshot);
    in.snapshot = s;
    (void)pthread_mutex_unlock(&in.mutex);
}

static void take_late(void *self, float *moments, uint64_t steps)
{
    (void)self;
    (void)pthread_mutex_lock(&in.mutex);
    free(in.late);
    in.late = moments;
    in.late_steps = steps;
    in.n_late++;
    (void)pthread_cond_broadcast(&in.changed);
    (void)pthread_mutex_unlock(&in.mutex);
}

static void wait_one(const unsigned *n, unsigned want)
{
    bool told;

    (void)pthread_mutex_lock(&in.mutex);
    told = wait_told(n, want);
    (void)pthread_mutex_unlock(&in.mutex);
    assert_true(told);
}

static struct local_event
do_one(struct trainer *t, const struct trainer_command *c, enum local_type type)
{
    unsigned before = in.n[type];

    assert_true(trainer_post(t, c));
    wait_one(&in.n[type], before + 1);
    assert_int_equal(in.last[type].rc, 0);
    return in.last[type];
}

static uint8_t tokens[4000];
static struct shard shard;

static const struct method of_all = {
    .period = 2, .fragments = 1, .rule = {.lr = 1.0F}};
static const struct method of_pairs = {
    .period = 2,
    .fragments = 1,
    .group = METHOD_PAIR,
    .rule = {RULE_HEAVY_BALL, 0.7F, 0.5F, 0.7F}};

/* Loaded from its seed, with two inner steps a round. */
static struct trainer *open_trainer(const struct method *method)
{
    struct trainer_options opt = {
        .replica = {.model = {.dim = 16,
                              .layers = 1,
                              .heads = 2,
                              .kv_heads = 2,
                              .ffn = 16,
                              .vocab = 256,
                              .seq = 16,
                              .tied = true,
                              .rope_theta = 10000,
                              .norm_eps = 1e-5f},
                    .optimizer = optimizer_defaults(),
                    .schedule = {SCHEDULE_CONSTANT, 1e-3, 1e-3, 0, 0, 0},
                    .method = *method,
                    .codec = codec_find("fp32"),
                    .batch = 1,
                    .micro_batch = 1,
                    .seq = 16,
                    .seed = 3,
                    .peer = 9,
                    .train = &shard,
                    .n_train = 1,
                    .threads = 1,
                    .device = &device},
        .post = post,
        .take_snapshot = take_snapshot,
        .take_late = take_late,
        .cpu_fallback = true,
    };
    const struct trainer_command load = {
        .job = {.type = JOB_LOAD, .load.from_seed = true}};
    struct trainer *t = NULL;
    char errmsg[ERRMSG_SIZE];

    for (size_t i = 0; i < sizeof tokens; i++) {
        tokens[i] = (uint8_t)('a' + i % 23);
    }
    shard_from_text(&shard, tokens, sizeof tokens);
    memset(in.n, 0, sizeof in.n);
    in.n_late = 0;
    in.holds = in.placed_before = in.stepped = false;
    assert_int_equal(trainer_open(&t, &opt, errmsg), 0);
    (void)do_one(t, &load, LOCAL_LOADED);
    return t;
}

static void close_trainer(struct trainer *t)
{
    trainer_close(t);
    snapshot_free(in.snapshot);
    free(in.late);
    in.snapshot = NULL;
    in.late = NULL;
}

static void train_on(struct trainer *t)
{
    const struct trainer_command c = {
        .job = {.type = JOB_TRAIN, .train = {.steps = 2, .members = 1}}};

    (void)do_one(t, &c, LOCAL_TRAINED);
}

/* A commit of nothing but what this peer contributed, for free(). */
static struct trainer_command
commit_of(struct trainer *t, uint64_t round, bool saves)
{
    uint64_t n = in.snapshot->n;
    uint8_t *wire = malloc(n * sizeof(float));

    assert_non_null(wire);
    memcpy(wire, trainer_contribution(t), n * sizeof(float));
    return (struct trainer_command){
        .job = {.type = JOB_APPLY, .apply = {.round = round, .share = 1.0}},
        .wire = wire,
        .saves = saves,
    };
}

/* The bytes that leave the GPU for it. */
static uint64_t commit(struct trainer *t, uint64_t round, bool saves)
{
    struct trainer_command c = commit_of(t, round, saves);
    uint64_t before = emu->down;

    (void)do_one(t, &c, LOCAL_APPLIED);
    free((void *)(uintptr_t)c.wire);
    return emu->down - before;
}

static const struct trainer_command ask_moments = {.job.type = JOB_CHECKPOINT};

static void ask_late(struct trainer *t)
{
    unsigned before = in.n_late;

    assert_true(trainer_post(t, &ask_moments));
    wait_one(&in.n_late, before + 1);
    assert_non_null(in.late);
}

static void a_commit_fetches_moments_only_for_a_checkpoint(void **state)
{
    struct trainer *t = open_trainer(&of_all);
    uint64_t n = in.snapshot->n, with, without;
    float *now;

    (void)state;
    assert_null(in.snapshot->moments); /* of the seed's */
    assert_true(in.snapshot->lacks);
    train_on(t);
    without = commit(t, 1, false);
    assert_null(in.snapshot->moments);
    assert_true(in.snapshot->lacks);
    assert_true(without < 8 * n); /* less than they are */
    train_on(t);
    with = commit(t, 2, true);
    assert_false(in.snapshot->lacks);
    assert_int_equal(in.snapshot->moment_steps, 4);
    assert_int_equal(with, without + 8 * n);
    /* They are those of that state: nothing has changed them since. */
    ask_late(t);
    assert_int_equal(in.late_steps, 4);
    assert_memory_equal(in.late, in.snapshot->moments, 8 * n);
    now = malloc(8 * n);
    assert_non_null(now);
    memcpy(now, in.late, 8 * n);
    train_on(t);
    assert_int_equal(commit(t, 3, false), without);
    assert_null(in.snapshot->moments);
    ask_late(t); /* and these are later ones */
    assert_int_equal(in.late_steps, 6);
    assert_memory_not_equal(in.late, now, 8 * n);
    free(now);
    close_trainer(t);
}

/* The state is held back behind its hash until a step was made: were the steps
 * to wait for the hash none would be. */
static void steps_go_on_while_a_state_is_hashed(void **state)
{
    const struct trainer_command next = {
        .job = {.type = JOB_TRAIN, .train = {.steps = 2, .members = 1}}};
    struct trainer *t = open_trainer(&of_all);
    struct trainer_command c;

    (void)state;
    train_on(t);
    c = commit_of(t, 1, true);
    in.holds = true;
    assert_true(trainer_post(t, &c));
    assert_true(trainer_post(t, &next));
    wait_one(&in.n[LOCAL_APPLIED], 1);
    wait_one(&in.n[LOCAL_TRAINED], 2);
    assert_true(in.placed_before);
    assert_true(in.stepped);
    assert_int_equal(in.last[LOCAL_APPLIED].applied.round, 1);
    assert_int_equal(in.snapshot->moment_steps, 2); /* not those of that step */
    in.holds = false;
    free((void *)(uintptr_t)c.wire);
    close_trainer(t);
}

/* A GPU that is lost in the outer step of a pair: it is made again on what
 * takes its place, with the contribution that was made before. */
static void a_pair_steps_though_its_gpu_fails(void **state)
{
    const struct trainer_command alone = {
        .job = {.type = JOB_PAIR, .pair = {.turn = 1, .alone = true}}};
    float *want = NULL;

    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct trainer *t = open_trainer(&of_pairs);
        size_t bytes;

        train_on(t);
        emu->fail_launch = fails;
        (void)do_one(t, &alone, LOCAL_APPLIED);
        assert_int_equal(emu->fail_launch, 0); /* it did */
        emu->sticky = 0;
        bytes = 2 * in.snapshot->n * sizeof(float); /* phi, m */
        if (fails == 0) {
            want = malloc(bytes);
            assert_non_null(want);
            memcpy(want, in.snapshot->state, bytes);
        }
        assert_memory_equal(in.snapshot->state, want, bytes);
        close_trainer(t);
    }
    free(want);
}

/* ---- a machine ----------------------------------------------------------- */

static struct rig *open_rig(void)
{
    struct rig *g = make_rig("diloco");

    ahead_ms = 0;
    g->manifest.eval.tokens = 2 * RIG_SEQ;
    add_text(g, "a.ltk", false);
    add_text(g, "v.ltk", true);
    g->device = &device;
    g->gpu_bytes = emu->memory;
    start_rig(g);
    return g;
}

static void save(struct rig *g)
{
    const struct job job = {.type = JOB_CHECKPOINT};

    give(g, &job);
}

/* Loads the seed while the checkpoint of another state is being written, and
 * has been for long: nobody expects one of this state. The bytes that leave the
 * GPU. */
static uint64_t load_unforeseen(struct rig *g)
{
    uint64_t before;

    load_seed(g);
    save(g);
    ahead_ms += 10000;
    before = emu->down;
    load_seed(g);
    return emu->down - before;
}

/* After how many steps the newest checkpoint's moments are, which are there;
 * UINT64_MAX: there is no checkpoint yet. */
static uint64_t saved_steps(const struct rig *g)
{
    struct checkpoint c;
    char errmsg[ERRMSG_SIZE];
    const float *v;
    uint64_t steps, moved = 0;

    if (checkpoint_open_newest(&c, rig_path(g, STATE_DIR_CHECKPOINTS),
                               errmsg) != 0) {
        checkpoint_close(&c);
        return UINT64_MAX;
    }
    assert_non_null(checkpoint_vector(&c, "adam_u"));
    v = checkpoint_vector(&c, "adam_v");
    assert_non_null(v);
    steps = c.state.moment_steps;
    for (uint64_t i = 0; i < c.state.n; i++) {
        moved += v[i] != 0;
    }
    assert_int_equal(moved > 0, steps > 0);
    checkpoint_close(&c);
    return steps;
}

/* The daemon ends with a state that nobody expected to be written. */
static void the_last_checkpoint_has_moments(void **state)
{
    (void)state;
    for (unsigned steps = 0; steps < 2; steps++) {
        struct rig *g = open_rig();
        uint64_t n = g->terms.state_bytes / 8, before = emu->down, with;

        load_seed(g);
        with = emu->down - before;
        assert_true(with >= 8 * n);
        assert_int_equal(load_unforeseen(g), with - 8 * n);
        if (steps > 0) {
            train(g, 1);
        }
        stop_rig(g);
        assert_int_equal(saved_steps(g), steps);
        free(g);
    }
}

/* No round comes after it: it is written with moments as they are then. */
static void a_state_that_is_written_unforeseen_gets_moments(void **state)
{
    struct rig *g = open_rig();
    uint64_t hang_ns = uv_hrtime() + HANG_S * 1000000000ULL;

    (void)state;
    (void)load_unforeseen(g);
    train(g, 1);
    save(g); /* it is put off */
    do {
        ahead_ms += 60000;
        machine_tick(g->m);
        (void)uv_run(&g->loop, UV_RUN_NOWAIT);
        assert_true(uv_hrtime() < hang_ns);
    } while (saved_steps(g) != 1);
    close_rig(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_fetches_moments_only_for_a_checkpoint),
        cmocka_unit_test(steps_go_on_while_a_state_is_hashed),
        cmocka_unit_test(a_pair_steps_though_its_gpu_fails),
        CASE(the_last_checkpoint_has_moments),
        CASE(a_state_that_is_written_unforeseen_gets_moments),
    };
    void *library = dlopen(device.plugin, RTLD_NOW | RTLD_LOCAL);

    emu = library == NULL ? NULL : dlsym(library, "emu_control");
    if (emu == NULL || sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
