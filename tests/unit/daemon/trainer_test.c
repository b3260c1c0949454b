/* trainer_test.c - commands in, one answer each; run under ThreadSanitizer. */
#include "daemon/machine/trainer.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/node/node.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/hash.h"
#include "proto/sample.h"

#define EVENTS_MAX 256

struct inbox {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    unsigned n;
    struct local_event events[EVENTS_MAX];
    struct snapshot *snapshot;
};

static uint8_t text[4000];
static struct shard shard;
static struct inbox inbox = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                             .wake = PTHREAD_COND_INITIALIZER};

static void post(void *self, const struct local_event *event)
{
    struct inbox *in = self;

    (void)pthread_mutex_lock(&in->mutex);
    if (in->n < EVENTS_MAX) {
        in->events[in->n++] = *event;
    }
    (void)pthread_cond_signal(&in->wake);
    (void)pthread_mutex_unlock(&in->mutex);
}

static void take_snapshot(void *self, struct snapshot *s)
{
    struct inbox *in = self;

    (void)pthread_mutex_lock(&in->mutex);
    snapshot_free(in->snapshot);
    in->snapshot = s;
    (void)pthread_mutex_unlock(&in->mutex);
}

/* The next event of this type; others before it are dropped. */
static struct local_event wait_for(enum local_type type)
{
    struct local_event found = {0};
    bool got = false;

    (void)pthread_mutex_lock(&inbox.mutex);
    while (!got) {
        while (inbox.n == 0) {
            (void)pthread_cond_wait(&inbox.wake, &inbox.mutex);
        }
        got = inbox.events[0].type == type;
        found = inbox.events[0];
        memmove(inbox.events, inbox.events + 1,
                --inbox.n * sizeof inbox.events[0]);
    }
    (void)pthread_mutex_unlock(&inbox.mutex);
    return found;
}

/* One inner step takes so little that a period is a matter of counting. */
static struct method diloco(uint32_t period)
{
    return (struct method){
        .period = period, .fragments = 1, .rule = {.lr = 1.0F}};
}

static struct replica_options replica_with(const struct method *method)
{
    return (struct replica_options){
        .model = {.dim = 16,
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
        .codec = codec_find("fp16"),
        .batch = 2,
        .micro_batch = 2,
        .seq = 16,
        .seed = 3,
        .peer = 9,
        .train = &shard,
        .n_train = 1,
        .val = &shard,
        .eval_tokens = 64,
        .threads = 1,
        .reference = true,
    };
}

static bool text_comes_later; /* the shard has no data yet */

static struct trainer *open_with(const struct method *method,
                                 bool error_feedback)
{
    struct trainer_options opt = {
        .error_feedback = error_feedback,
        .replica = replica_with(method),
        .self = &inbox,
        .post = post,
        .take_snapshot = take_snapshot,
    };
    struct trainer *t = NULL;
    char errmsg[ERRMSG_SIZE];

    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (uint8_t)('a' + i % 23);
    }
    shard_from_text(&shard, text, sizeof text);
    if (text_comes_later) {
        shard.data = NULL;
    }
    inbox.n = 0;
    assert_int_equal(trainer_open(&t, &opt, errmsg), 0);
    return t;
}

static struct trainer *open_trainer(void)
{
    const struct method m = diloco(4);

    return open_with(&m, false);
}

static void close_trainer(struct trainer *t)
{
    trainer_close(t);
    snapshot_free(inbox.snapshot);
    inbox.snapshot = NULL;
}

static void command(struct trainer *t, enum job_type type)
{
    struct trainer_command c = {.job.type = type};

    if (type == JOB_LOAD) {
        c.job.load.from_seed = true;
    }
    assert_true(trainer_post(t, &c));
}

static void every_command_has_one_answer(void **state)
{
    struct trainer *t = open_trainer();
    struct local_event e;
    struct hash32 hash, state_hash, sample;
    struct sample_part part;

    (void)state;
    command(t, JOB_LOAD);
    e = wait_for(LOCAL_LOADED);
    assert_int_equal(e.rc, 0);
    state_hash =
        node_state_hash(&e.loaded.params_hash, &e.loaded.momentum_hash);
    (void)pthread_mutex_lock(&inbox.mutex);
    assert_non_null(inbox.snapshot);
    hash_tree(inbox.snapshot->state, inbox.snapshot->n * sizeof(float), &hash);
    part = (struct sample_part){inbox.snapshot->state,
                                inbox.snapshot->n_state * sizeof(float)};
    sample_state(&state_hash, &part, 1, &sample);
    (void)pthread_mutex_unlock(&inbox.mutex);
    assert_true(hash32_eq(&hash, &e.loaded.params_hash));
    assert_true(hash32_eq(&sample, &e.loaded.sample));
    command(t, JOB_TRAIN);
    e = wait_for(LOCAL_TRAINED);
    assert_int_equal(e.rc, 0);
    assert_int_equal(e.trained.inner_step, 4);
    assert_int_equal(e.trained.tokens, 4 * 2 * 16);
    command(t, JOB_EVAL);
    e = wait_for(LOCAL_EVALUATED);
    assert_int_equal(e.rc, 0);
    assert_true(e.evaluated.bits_per_byte > 0);
    close_trainer(t);
}

/* What four steps contribute that read these positions of the order of all,
 * and then the own one. */
static float *contribution_of(const uint64_t *at, unsigned n_shared)
{
    const struct method m = diloco(4);
    struct replica_options o = replica_with(&m);
    struct replica r;
    char errmsg[ERRMSG_SIZE];
    float loss, *copy;

    assert_int_equal(replica_open(&r, &o, errmsg), 0);
    replica_init(&r);
    for (unsigned i = 0; i < 4; i++) {
        replica_read(&r, i < n_shared, i < n_shared ? at[i] : 0);
        assert_int_equal(replica_step(&r, &loss), 0);
    }
    assert_int_equal(replica_pack(&r), 0);
    copy = malloc(r.n * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, r.contribution, r.n * sizeof *copy);
    replica_close(&r);
    return copy;
}

static void
a_shard_that_comes_later_is_read_from_the_next_train_on(void **state)
{
    struct trainer_command c = {.job = {.type = JOB_TRAIN, .train.steps = 1},
                                .lease = {.n_ranges = 1, .ranges = {{0, 1}}}};
    struct local_event e;
    struct trainer *t;

    (void)state;
    text_comes_later = true;
    t = open_trainer();
    text_comes_later = false;
    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    assert_true(trainer_post(t, &c));
    e = wait_for(LOCAL_TRAINED); /* never read as zeros */
    assert_int_equal(e.rc, LOCO_ENOENT);
    shard_from_text(&shard, text, sizeof text);
    trainer_add_text(t, 0, &shard);
    assert_true(trainer_post(t, &c));
    e = wait_for(LOCAL_TRAINED);
    assert_int_equal(e.rc, 0);
    assert_int_equal(e.trained.tokens, 2 * 16);
    close_trainer(t);
}

static void a_lease_is_read_from_its_front_and_then_the_own_order(void **state)
{
    const uint64_t at[] = {500, 501, 40};
    struct trainer_command c = {
        .job.type = JOB_TRAIN,
        .lease = {.n_ranges = 2, .ranges = {{500, 2}, {40, 1}}}};
    struct trainer *t = open_trainer();
    float *want = contribution_of(at, 3);
    size_t n;

    (void)state;
    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    n = (size_t)inbox.snapshot->n;
    assert_true(trainer_post(t, &c));
    (void)wait_for(LOCAL_TRAINED);
    assert_memory_equal(trainer_contribution(t), want, n * sizeof *want);
    close_trainer(t);
    free(want);
}

/* The steps before it count for nothing: they would be in no commit, and the
 * contribution is called by the front of the lease. */
static void a_state_that_comes_meanwhile_begins_the_lease_again(void **state)
{
    const uint64_t at[] = {500, 501, 502, 503};
    struct trainer_command c = {.job.type = JOB_TRAIN,
                                .lease = {.n_ranges = 1, .ranges = {{500, 4}}}};
    struct trainer *t = open_trainer();
    float *first = contribution_of(at, 4);
    size_t n;

    (void)state;
    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    n = (size_t)inbox.snapshot->n;
    assert_true(trainer_post(t, &c));
    (void)wait_for(LOCAL_PROGRESS);
    command(t, JOB_LOAD); /* the same state once more */
    (void)wait_for(LOCAL_TRAINED);
    assert_memory_equal(trainer_contribution(t), first, n * sizeof *first);
    close_trainer(t);
    free(first);
}

static void a_commit_is_applied_between_two_steps_of_a_training(void **state)
{
    struct trainer *t = open_trainer();
    const struct codec *codec = codec_find("fp16");
    struct trainer_command c = {.job = {.type = JOB_APPLY, .apply.round = 1}};
    struct local_event e;
    uint64_t n;
    uint8_t *wire;

    (void)state;
    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    n = inbox.snapshot->n;
    command(t, JOB_TRAIN);
    (void)wait_for(LOCAL_TRAINED);
    wire = malloc(codec->bytes(n));
    assert_non_null(wire);
    assert_int_equal(codec->encode(wire, trainer_contribution(t), n, 1.0f), 0);
    c.wire = wire;
    c.job.apply.share = 1.0;
    assert_true(trainer_post(t, &c));
    (void)wait_for(LOCAL_APPLIED);
    command(t, JOB_TRAIN);
    c.job.apply.round = 2; /* of others */
    c.job.apply.share = 0.0;
    assert_true(trainer_post(t, &c));
    e = wait_for(LOCAL_APPLIED);
    assert_int_equal(e.rc, 0);
    assert_int_equal(e.applied.round, 2);
    e = wait_for(LOCAL_TRAINED);
    assert_int_equal(e.rc, 0);
    assert_int_equal(e.trained.inner_step, 8);
    close_trainer(t);
    free(wire);
}

static void a_loaded_state_says_what_work_it_replaced(void **state)
{
    struct trainer *t = open_trainer();
    struct trainer_command c = {
        .job = {.type = JOB_LOAD, .load = {.round = 1, .rebase = true}}};
    uint64_t n;
    float *zeros;

    (void)state;
    command(t, JOB_LOAD);
    assert_int_equal(wait_for(LOCAL_LOADED).loaded.tokens, 0);
    n = inbox.snapshot->n;
    zeros = calloc(2 * n, sizeof *zeros);
    assert_non_null(zeros);
    c.state = zeros;
    command(t, JOB_TRAIN);
    (void)wait_for(LOCAL_TRAINED);
    assert_true(trainer_post(t, &c));
    assert_int_equal(wait_for(LOCAL_LOADED).loaded.tokens, 0);
    c.job.load.rebase = false;
    assert_true(trainer_post(t, &c));
    assert_int_equal(wait_for(LOCAL_LOADED).loaded.tokens, 4 * 2 * 16);
    assert_true(trainer_post(t, &c));
    assert_int_equal(wait_for(LOCAL_LOADED).loaded.tokens, 0);
    close_trainer(t);
    free(zeros);
}

/* Train, apply the own contribution with this rounding error (NULL: it came
 * from others), then load if `reload`, train again: the second contribution. */
static float *
second_contribution(bool feedback, const float *error, bool rebase, bool reload)
{
    const struct method m = diloco(4);
    struct trainer *t = open_with(&m, feedback);
    const struct codec *codec = codec_find("fp16");
    struct trainer_command c = {
        .job = {.type = JOB_APPLY,
                .apply = {.round = 1, .share = rebase ? 0.0 : 1.0}},
        .error = error};
    size_t n, bytes;
    uint8_t *wire;
    float *copy;

    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    n = (size_t)inbox.snapshot->n;
    bytes = n * sizeof(float);
    wire = malloc(codec->bytes(n));
    copy = malloc(bytes);
    assert_true(wire != NULL && copy != NULL);
    command(t, JOB_TRAIN);
    (void)wait_for(LOCAL_TRAINED);
    assert_int_equal(codec->encode(wire, trainer_contribution(t), n, 1), 0);
    c.wire = wire;
    assert_true(trainer_post(t, &c));
    assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
    if (reload) {
        c = (struct trainer_command){
            .job = {.type = JOB_LOAD, .load.round = 1}};
        c.state = inbox.snapshot->state;
        assert_true(trainer_post(t, &c));
        (void)wait_for(LOCAL_LOADED);
    }
    command(t, JOB_TRAIN);
    (void)wait_for(LOCAL_TRAINED);
    trainer_stop(t);
    memcpy(copy, trainer_contribution(t), bytes); /* readable until closed */
    free(wire);
    close_trainer(t);
    return copy;
}

/* Whether b is a, plus `error` where that is given. */
static bool differs_by(float *a, float *b, const float *error, size_t n)
{
    bool is = true;

    for (size_t i = 0; i < n; i++) {
        is = is && b[i] == (error == NULL ? a[i] : a[i] + error[i]);
    }
    free(a);
    free(b);
    return is;
}

static void what_rounding_took_goes_into_the_next_contribution(void **state)
{
    static float error[100000];
    size_t n = 16 * 256; /* of the embedding: enough to look at */

    (void)state;
    for (size_t i = 0; i < sizeof error / sizeof error[0]; i++) {
        error[i] = (float)(i % 17) * 1e-4F;
    }
    assert_true(differs_by(second_contribution(false, error, false, false),
                           second_contribution(true, error, false, false),
                           error, n));
    /* Not when the bytes came from others, nor after another state. */
    assert_true(differs_by(second_contribution(false, NULL, false, false),
                           second_contribution(true, NULL, false, false), NULL,
                           n));
    assert_true(differs_by(second_contribution(false, error, false, true),
                           second_contribution(true, error, false, true), NULL,
                           n));
    /* A commit that this peer was not in leaves the residual alone. */
    assert_true(differs_by(second_contribution(false, error, true, false),
                           second_contribution(true, error, true, false), NULL,
                           n));
}

/* The third contribution, when the second one was in no commit and is undone;
 * the commit's bytes came from others. */
static float *contribution_behind_an_undone_one(bool feedback,
                                                const float *error)
{
    const struct method m = diloco(4);
    struct trainer *t = open_with(&m, feedback);
    struct trainer_command c = {.job = {.type = JOB_APPLY, .apply.share = 1.0},
                                .error = error};
    uint8_t *wire;
    float *last;
    size_t n;

    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    n = (size_t)inbox.snapshot->n;
    wire = calloc(1, codec_find("fp16")->bytes(n));
    last = malloc(n * sizeof *last);
    assert_true(wire != NULL && last != NULL);
    c.wire = wire;
    for (uint64_t round = 1; round <= 3; round++) {
        command(t, JOB_TRAIN);
        (void)wait_for(LOCAL_TRAINED);
        c.job.apply.round = round;
        c.job.apply.undo = round == 2 ? round : 0;
        c.error = round == 1 ? error : NULL;
        if (round < 3) {
            assert_true(trainer_post(t, &c));
            assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
        }
    }
    trainer_stop(t);
    memcpy(last, trainer_contribution(t), n * sizeof *last);
    free(wire);
    close_trainer(t);
    return last;
}

static void what_was_not_sent_takes_no_residual(void **state)
{
    static float error[100000];

    (void)state;
    for (size_t i = 0; i < sizeof error / sizeof error[0]; i++) {
        error[i] = (float)(i % 17) * 1e-4F;
    }
    assert_true(differs_by(contribution_behind_an_undone_one(false, error),
                           contribution_behind_an_undone_one(true, error),
                           error, 16 * 256));
}

/* Two fragments, one of which leaves every 4 steps and is taken in 2 later. */
static void steps_go_on_beside_a_round(void **state)
{
    const struct method m = {.period = 8,
                             .fragments = 2,
                             .overlap = 2,
                             .take = METHOD_MIX,
                             .mix = 0.5F,
                             .rule = {.lr = 1.0F}};
    struct trainer_command c = {.job = {.type = JOB_APPLY, .apply.share = 1.0}};
    struct trainer *t = open_with(&m, false);
    struct local_event e;
    uint8_t *wire; /* a mean of zeros */

    (void)state;
    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    wire = calloc(1, codec_find("fp16")->bytes(inbox.snapshot->n));
    assert_non_null(wire);
    for (uint64_t round = 1; round <= 4; round++) {
        command(t, JOB_TRAIN);
        e = wait_for(LOCAL_TRAINED);
        assert_int_equal(e.rc, 0);
        assert_true(e.trained.inner_step == 4 * round - 2);
        /* Those of the steps since the one before was packed. */
        assert_true(e.trained.tokens == (round == 1 ? 2 : 4) * 2 * 16);
        c.job.apply.round = round;
        c.wire = wire;
        assert_true(trainer_post(t, &c));
        e = wait_for(LOCAL_APPLIED);
        assert_int_equal(e.rc, 0);
        assert_true(e.applied.inner_step == 4 * round); /* not before */
        assert_true(e.applied.tokens == (round == 1 ? 2 : 4) * 2 * 16);
    }
    close_trainer(t);
    free(wire);
}

/* A paused machine does not keep the others' commit waiting, and makes the
 * steps that are missing later. */
static void a_pause_beside_a_round_does_not_hold_up_its_commit(void **state)
{
    const struct method m = {.period = 200, /* fewer than the inbox holds */
                             .fragments = 1,
                             .overlap = 199,
                             .rule = {.lr = 1.0F}};
    struct trainer_command c = {
        .job = {.type = JOB_APPLY, .apply = {.round = 1, .share = 1.0}}};
    struct trainer *t = open_with(&m, false);
    uint8_t *wire;

    (void)state;
    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    wire = calloc(1, codec_find("fp16")->bytes(inbox.snapshot->n));
    assert_non_null(wire);
    c.wire = wire;
    command(t, JOB_TRAIN);
    assert_true(wait_for(LOCAL_TRAINED).trained.inner_step == 1);
    (void)wait_for(LOCAL_PROGRESS); /* beside */
    trainer_pause(t, true);
    assert_true(trainer_post(t, &c));
    assert_int_equal(wait_for(LOCAL_APPLIED).rc, 0);
    close_trainer(t);
    free(wire);
}

static void train_share(struct trainer *t, unsigned percent)
{
    static struct config settings;

    settings.cpu_percent = percent;
    trainer_configure(t, &settings);
}

/* A step takes milliseconds; at 1 % it rests a hundred times as long. */
static void a_share_slows_the_steps_and_holds_up_nothing_else(void **state)
{
    const struct method m = diloco(1000000);
    struct trainer *t = open_with(&m, false);
    struct trainer_command c = {.job.type = JOB_TRAIN};
    struct local_event fast, slow;

    (void)state;
    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    assert_true(trainer_post(t, &c));
    fast = wait_for(LOCAL_PROGRESS);
    train_share(t, 1);
    (void)wait_for(LOCAL_PROGRESS); /* may have begun before */
    do {
        slow = wait_for(LOCAL_PROGRESS);
    } while (slow.progress.tokens_per_s > fast.progress.tokens_per_s / 4);
    assert_true(slow.progress.tokens_per_s > 0);
    /* In the middle of a rest a command is taken, and the end is no wait. */
    command(t, JOB_EVAL);
    (void)wait_for(LOCAL_EVALUATED);
    train_share(t, 100);
    (void)wait_for(LOCAL_PROGRESS);
    train_share(t, 1);
    close_trainer(t);
}

static void it_ends_in_the_middle_of_a_training(void **state)
{
    const struct method m = diloco(1000000);
    struct trainer *t = open_with(&m, false);
    struct trainer_command c = {.job.type = JOB_TRAIN};

    (void)state;
    command(t, JOB_LOAD);
    (void)wait_for(LOCAL_LOADED);
    assert_true(trainer_post(t, &c));
    (void)wait_for(LOCAL_PROGRESS);
    trainer_pause(t, true);
    close_trainer(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_has_one_answer),
        cmocka_unit_test(
            a_shard_that_comes_later_is_read_from_the_next_train_on),
        cmocka_unit_test(a_lease_is_read_from_its_front_and_then_the_own_order),
        cmocka_unit_test(a_state_that_comes_meanwhile_begins_the_lease_again),
        cmocka_unit_test(a_commit_is_applied_between_two_steps_of_a_training),
        cmocka_unit_test(a_loaded_state_says_what_work_it_replaced),
        cmocka_unit_test(what_rounding_took_goes_into_the_next_contribution),
        cmocka_unit_test(what_was_not_sent_takes_no_residual),
        cmocka_unit_test(steps_go_on_beside_a_round),
        cmocka_unit_test(a_pause_beside_a_round_does_not_hold_up_its_commit),
        cmocka_unit_test(a_share_slows_the_steps_and_holds_up_nothing_else),
        cmocka_unit_test(it_ends_in_the_middle_of_a_training),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
