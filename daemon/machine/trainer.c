/* trainer.c - see trainer.h. */
#include "daemon/machine/trainer_internal.h"
#include "daemon/machine/trainer_loop.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/jobs/answer.h"
#include "p2p/round/lease.h"
#include "p2p/uv/worker.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"

double trainer_now_s(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* "120+40 300+5", what the contribution of the next round has read. */
static void log_read(const struct trainer *t)
{
    char text[LEASE_RANGES_MAX * 48] = ""; /* two of 20 digits each */
    uint64_t left = t->n_leased;
    size_t at = 0;

    for (uint32_t i = 0; i < t->lease.n_ranges && left > 0; i++) {
        const struct lease_range *r = &t->lease.ranges[i];
        uint64_t n = r->n < left ? r->n : left;

        at += (size_t)snprintf(text + at, sizeof text - at, " %llu+%llu",
                               (unsigned long long)r->first,
                               (unsigned long long)n);
        left -= n;
    }
    if (at > 0) {
        log_debug("train", "round %llu: read positions%s of the text",
                  (unsigned long long)t->replica.round + 1, text);
    }
}

/* Announce what was packed, or what the source brings, block by block. */
static int announce(struct trainer *t,
                    const struct engine_source *source,
                    struct hash32 *blocks)
{
    const struct offer_cut cut = {
        .codec = t->replica.opt.codec,
        .block = t->opt.offer_block,
        .elements = replica_elements(&t->replica),
    };
    struct offer o;
    int rv;

    if (t->opt.offer_block == 0) {
        return 0;
    }
    rv = source != NULL ? offer_make_from(&o, &cut, source)
                        : offer_make(&o, &cut, t->replica.contribution);
    if (rv == 0) {
        *blocks = *offer_root(&o);
        t->opt.take_offer(t->opt.self, &o);
    }
    return rv;
}

/* An announced contribution goes out as it was encoded (machine/audit.c). What
 * rounding took from it is made from the contribution itself. */
static bool sends_offer(const struct trainer *t)
{
    return t->opt.offer_block > 0 && t->residual == NULL;
}

/* The contribution of the next round. */
static int make_contribution(struct trainer *t, struct hash32 *blocks)
{
    struct replica *r = &t->replica;
    struct engine_source source;
    int rc;

    if (sends_offer(t) && replica_in_pieces(r)) {
        source = replica_pack_pieces(r);
        return announce(t, &source, blocks);
    }
    rc = replica_pack(r);
    if (trainer_lost_gpu(t, rc) && trainer_recover(t, rc)) {
        rc = replica_pack(r);
    }
    trainer_residual_add(t);
    return rc == 0 ? announce(t, NULL, blocks) : rc;
}

void trainer_trained(struct trainer *t, int rc)
{
    struct local_event ev = {.type = LOCAL_TRAINED, .rc = rc};

    if (rc == 0 && t->loop != NULL && !trainer_loop_hold(t)) {
        return; /* the loop left, and the task begins again with the next one */
    }
    t->training = false;
    publisher_wait(t->publisher); /* APPLIED comes before TRAINED */
    if (rc == 0) {
        ev.rc = make_contribution(t, &ev.trained.blocks);
        trainer_moments_end(&t->opt, &t->replica, &ev.trained.ends);
        log_read(t);
        t->beside = ev.rc == 0;
    }
    ev.trained.inner_step = t->replica.inner_step;
    ev.trained.tokens = t->replica.tokens_pending;
    ev.trained.loss = t->loss;
    ev.trained.broken = chain_pack(&t->chain);
    t->opt.post(t->opt.self, &ev);
}

static void set_speed(struct trainer *t, uint64_t tokens, double seconds)
{
    if (seconds > 0) {
        double rate = (double)tokens / seconds;

        t->tokens_per_s =
            t->tokens_per_s > 0 ? 0.9 * t->tokens_per_s + 0.1 * rate : rate;
    }
}

static void post_progress(struct trainer *t)
{
    struct local_event ev = {
        .type = LOCAL_PROGRESS,
        .progress = {.inner_step = t->replica.inner_step,
                     .tokens = t->replica.tokens_seen,
                     .loss = t->loss,
                     .tokens_per_s = (float)t->tokens_per_s},
    };

    t->opt.post(t->opt.self, &ev);
}

/* How long it rests after work that took so long; until then no step. */
static double rest(struct trainer *t, double now, double took)
{
    double s;

    (void)pthread_mutex_lock(&t->mutex);
    s = took * (100.0 / t->percent - 1.0);
    t->rest_until_s = now + s;
    (void)pthread_mutex_unlock(&t->mutex);
    return s;
}

static bool has_made_all(const struct trainer *t)
{
    return replica_left(&t->replica) == 0 || t->n_leased >= t->most;
}

uint64_t trainer_steps_left(const struct trainer *t)
{
    uint64_t left = replica_left(&t->replica);

    if (!t->training) {
        return t->beside ? replica_beside(&t->replica) : 0;
    }
    if (has_made_all(t)) {
        return 0;
    }
    return left < t->most - t->n_leased ? left : t->most - t->n_leased;
}

void trainer_stepped(struct trainer *t, uint64_t tokens, double took)
{
    t->n_leased++;
    took += rest(t, trainer_now_s(), took);
    set_speed(t, tokens, took);
    post_progress(t);
}

static void step(struct trainer *t)
{
    double began = trainer_now_s();
    uint64_t before = t->replica.tokens_seen, at = 0;
    bool leased = lease_at(&t->lease, t->n_leased, &at);
    int rc;

    if (t->training && has_made_all(t)) {
        trainer_trained(
            t, 0); /* they were made while the round before was under way */
        return;
    }
    replica_read(&t->replica, leased, at);
    rc = replica_step(&t->replica, &t->loss);
    trainer_log_said(t);
    if (trainer_lost_gpu(t, rc) && trainer_recover(t, rc)) {
        return; /* the step is made again */
    }
    if (rc != 0) {
        t->beside = false;
        if (t->training) {
            trainer_trained(t, rc);
        }
        return;
    }
    trainer_stepped(t, t->replica.tokens_seen - before,
                    trainer_now_s() - began);
    if (t->training && has_made_all(t)) {
        trainer_trained(t, 0);
    }
}

/* A step of somebody else's lease. */
static void repeat_step(struct trainer *t)
{
    double began = trainer_now_s();
    struct local_event done;

    if (trainer_repeat_step(&t->repeat, &done)) {
        t->opt.post(t->opt.self, &done);
    }
    (void)rest(t, trainer_now_s(), trainer_now_s() - began);
}

/* A pipeline's speed is that of its steps, waiting included. */
static void pipe_stepped(struct trainer *t, uint64_t tokens, float loss)
{
    double now = trainer_now_s();

    if (t->stepped_s > 0) {
        set_speed(t, tokens, now - t->stepped_s);
    }
    t->stepped_s = now;
    t->loss = isnan(loss) ? t->loss : loss;
    post_progress(t);
}

/* Held-out text passes beside the steps, and has no figure then: what they need
 * is there. */
static bool only_lacks_room(enum pipe_op op, int rc)
{
    return rc == LOCO_ENOMEM &&
           (op == PIPE_EVAL_FORWARD || op == PIPE_EVAL_SCORE);
}

static void run_pipe(struct trainer *t, const struct job *job)
{
    const struct job_pipe *c = &job->pipe;
    struct local_event ev = job_answer(job, 0);
    uint64_t before = t->replica.tokens_seen;
    double began = trainer_now_s();
    float loss = NAN;

    if (t->opt.slots == NULL) {
        ev.rc = LOCO_EINVAL;
    } else {
        ev.rc = c->op == PIPE_CLEAR ? 0 : trainer_find_device(t);
    }
    if (ev.rc == 0) {
        ev.rc = trainer_stage_run(&t->stage, &t->replica, c, &loss);
    }
    if (trainer_lost_gpu(t, ev.rc) && !only_lacks_room(c->op, ev.rc)) {
        /* the attempt failed; the next one need not */
        (void)trainer_recover(t, ev.rc);
        replica_stage_clear(&t->replica);
    }
    if (c->op == PIPE_CLEAR) {
        return;
    }
    (void)rest(t, trainer_now_s(), trainer_now_s() - began);
    ev.piped.tokens = t->replica.tokens_seen - before;
    ev.piped.inner_step = t->replica.inner_step;
    if (c->op == PIPE_STEP && ev.rc == 0) {
        pipe_stepped(t, ev.piped.tokens, loss);
    }
    trainer_log_said(t);
    if (c->op == PIPE_EVAL_SCORE) {
        ev.piped.bits_per_byte = trainer_stage_bits(&t->stage);
    }
    t->opt.post(t->opt.self, &ev);
}

static int bring_nothing(void *self, uint64_t at, uint64_t n, float *out)
{
    (void)self;
    (void)at;
    memset(out, 0, n * sizeof *out);
    return 0;
}

/* Nothing is contributed: the machine makes the lease of another member again.
 */
static void pack_nothing(struct trainer *t)
{
    const struct engine_source nothing = {bring_nothing, NULL};
    struct local_event ev = {.type = LOCAL_TRAINED};
    struct replica *r = &t->replica;

    publisher_wait(t->publisher); /* APPLIED comes before TRAINED */
    if (!sends_offer(t)) {
        memset(r->contribution, 0,
               replica_elements(r) * sizeof *r->contribution);
    }
    ev.rc = announce(t, &nothing, &ev.trained.blocks);
    ev.trained.inner_step = r->inner_step;
    ev.trained.loss = t->loss;
    t->idle = true;
    t->opt.post(t->opt.self, &ev);
}

static void begin_task(struct trainer *t, const struct trainer_command *c)
{
    const struct job_train *job = &c->job.train;
    struct replica *r = &t->replica;

    if (!r->have_backend) { /* what packs or steps says it where this fails */
        chain_break(&t->chain);
        publisher_wait(t->publisher);
        (void)trainer_find_device(t);
    }
    t->idle = false;
    if (job->idle) {
        pack_nothing(t);
        return;
    }
    if (t->opt.slots != NULL) { /* the steps are made */
        trainer_trained(t, 0);
        return;
    }
    (void)pthread_mutex_lock(&t->mutex);
    trainer_text_take(&t->text);
    (void)pthread_mutex_unlock(&t->mutex);
    t->training = true;
    t->lease = c->lease;
    t->n_leased = 0;
    t->most = c->lease.n_ranges > 0 && job->steps > 0 ? job->steps : UINT64_MAX;
    r->task = job->steps > 0 ? job->steps : r->opt.method.period;
    replica_turn(r, job->rank, job->members);
}

static void begin_repeat(struct trainer *t, const struct trainer_command *c)
{
    struct local_event ev = job_answer(&c->job, LOCO_EBUSY);

    if (t->repeat.active ||
        !trainer_repeat_begin(&t->repeat, &t->opt.replica, c, &ev.rc)) {
        t->opt.post(t->opt.self, &ev);
    }
}

void trainer_run_command(struct trainer *t, const struct trainer_command *c)
{
    struct local_event ev = job_answer(&c->job, 0);
    uint64_t steps;
    float *moments;

    if (c->job.type != JOB_TRAIN && c->job.type != JOB_OVER) {
        publisher_wait(t->publisher);
    }
    switch (c->job.type) {
    case JOB_PIPE:
        run_pipe(t, &c->job);
        return;
    case JOB_TRAIN:
        begin_task(t, c);
        return;
    case JOB_LOAD:
    case JOB_APPLY:
    case JOB_PAIR:
        trainer_run_state(t, c);
        return;
    case JOB_REPEAT:
        begin_repeat(t, c);
        return;
    case JOB_CHECKPOINT:
        moments = trainer_moments(t, &steps);
        t->opt.take_late(t->opt.self, moments, steps);
        return;
    case JOB_OVER:
        return; /* trainer_loop.c's */
    default:
        ev.rc = t->loop != NULL ? trainer_loop_eval(t, c->job.eval.draw,
                                                    &ev.evaluated.bits_per_byte)
                                : replica_eval(&t->replica, c->job.eval.draw,
                                               &ev.evaluated.bits_per_byte);
        break;
    }
    t->opt.post(t->opt.self, &ev);
}

bool trainer_waits_for_loop(const struct trainer *t)
{
    return t->loop != NULL && !trainer_loop_is_here(t->loop);
}

static bool has_steps(const struct trainer *t)
{
    return t->training || t->repeat.active ||
           (t->beside && !trainer_waits_for_loop(t) &&
            replica_beside(&t->replica) > 0);
}

/* The average of what was packed is taken in after the steps made beside. */
static bool must_wait(const struct trainer *t, const struct trainer_command *c)
{
    return c->job.type == JOB_APPLY && c->job.apply.share > 0 && !t->paused &&
           !t->training && !t->repeat.active && has_steps(t);
}

/* The work of a stage has the trainer's share of the time, like steps. */
static bool must_rest(const struct trainer *t)
{
    const struct job *next = &t->queue[0].job;

    return t->n_queue > 0 && next->type == JOB_PIPE &&
           next->pipe.op != PIPE_CLEAR && trainer_now_s() < t->rest_until_s;
}

static bool has_nothing_to_do(const struct trainer *t)
{
    bool command =
        t->n_queue > 0 && !must_wait(t, &t->queue[0]) && !must_rest(t);
    bool may_step =
        has_steps(t) && !t->paused && trainer_now_s() >= t->rest_until_s;

    return !t->closing && !command && !may_step;
}

static void wait_until(struct trainer *t, double when_s)
{
    struct timespec ts = {.tv_sec = (time_t)when_s};

    ts.tv_nsec = (long)((when_s - (double)ts.tv_sec) * 1e9);
    (void)pthread_cond_timedwait(&t->wake, &t->mutex, &ts);
}

struct trainer_leave trainer_leave(struct trainer *t)
{
    struct trainer_leave leave;

    (void)pthread_mutex_lock(&t->mutex);
    leave = (struct trainer_leave){
        .paused = t->paused,
        .one_by_one = t->percent < 100,
        .rest_s = t->rest_until_s - trainer_now_s(),
    };
    (void)pthread_mutex_unlock(&t->mutex);
    return leave;
}

/* Under the lock. */
static bool take_command(struct trainer *t, struct trainer_command *c)
{
    bool got = !t->closing && t->n_queue > 0 && !must_wait(t, &t->queue[0]);

    if (got) {
        *c = t->queue[0];
        t->n_queue--;
        memmove(t->queue, t->queue + 1, t->n_queue * sizeof t->queue[0]);
    }
    return got;
}

bool trainer_take_command(struct trainer *t, struct trainer_command *c)
{
    bool got;

    (void)pthread_mutex_lock(&t->mutex);
    got = take_command(t, c);
    (void)pthread_mutex_unlock(&t->mutex);
    return got;
}

/* The next command, or none while there are steps to make. */
static bool next_command(struct trainer *t, struct trainer_command *c)
{
    bool got;

    (void)pthread_mutex_lock(&t->mutex);
    while (has_nothing_to_do(t)) {
        if ((has_steps(t) && !t->paused) || must_rest(t)) {
            wait_until(t, t->rest_until_s);
        } else {
            (void)pthread_cond_wait(&t->wake, &t->mutex);
        }
    }
    got = take_command(t, c);
    (void)pthread_mutex_unlock(&t->mutex);
    return got;
}

bool trainer_is_closing(struct trainer *t)
{
    bool closing;

    (void)pthread_mutex_lock(&t->mutex);
    closing = t->closing;
    (void)pthread_mutex_unlock(&t->mutex);
    return closing;
}

static void *trainer_run(void *arg)
{
    struct trainer *t = arg;
    struct trainer_command c;

    worker_be_nice(TRAINER_NICE);
    while (t->loop == NULL && !trainer_is_closing(t)) {
        if (next_command(t, &c)) {
            trainer_run_command(t, &c);
        } else if (t->repeat.active && !trainer_is_closing(t)) {
            repeat_step(t);
        } else if (has_steps(t) && !trainer_is_closing(t)) {
            step(t);
        }
    }
    if (t->loop != NULL) {
        trainer_loop_run(t);
    }
    return NULL;
}

/* Under the lock: something has changed for the thread. */
static void wake(struct trainer *t)
{
    (void)pthread_cond_signal(&t->wake);
    if (t->loop != NULL) {
        trainer_loop_wake(t->loop);
    }
}

static int open_parts(struct trainer *t, char *errmsg)
{
    const struct trainer_options *opt = &t->opt;
    const struct publisher_options publish = {
        .replica = &t->replica,
        .self = opt->self,
        .post = opt->post,
        .take_snapshot = opt->take_snapshot,
        .spare_snapshot = opt->spare_snapshot,
        .take_moments = opt->take_moments,
        .moments_block = opt->moments_block,
    };
    int rv =
        trainer_text_open(&t->text, opt->replica.train, opt->replica.n_train);

    t->opt.replica.train = t->text.shards;
    if (rv == 0 && opt->loop != NULL) {
        rv = trainer_loop_open(&t->loop, opt, &t->opt.replica, errmsg);
        t->opt.replica.device = NULL; /* what that process uses is its own */
    }
    rv = rv == 0 ? replica_open(&t->replica, &t->opt.replica, errmsg) : rv;
    t->replica.tokens_seen = opt->tokens_seen;
    if (rv == 0 && opt->error_feedback) {
        rv = trainer_residual_take(t);
    }
    if (rv == 0 && opt->slots != NULL) {
        rv = trainer_stage_open(&t->stage, opt->slots);
    }
    return rv == 0 ? publisher_open(&t->publisher, &publish) : rv;
}

static void close_parts(struct trainer *t)
{
    publisher_close(t->publisher);
    trainer_repeat_close(&t->repeat);
    trainer_stage_close(&t->stage);
    replica_close(&t->replica);
    trainer_loop_close(t->loop);
    trainer_text_close(&t->text);
    free(t->residual);
    free(t);
}

static void log_kernels(struct trainer *t)
{
    const struct replica *r = &t->replica;

    log_info("train", "%s kernels, %s products, %d threads%s", r->backend.isa,
             r->backend.bf16 ? "bf16" : "fp32", r->backend.threads,
             t->opt.replica.affinity.n > 0 ? ", pinned" : "");
    if (t->opt.replica.device != NULL) {
        log_info("train", "%u of %u sequences at a time; the outer step on %s",
                 r->micro_batch, t->opt.replica.batch,
                 r->outer.on ? "the GPU" : "the processor");
    }
    trainer_log_gpus(t);
}

int trainer_open(struct trainer **trainer,
                 const struct trainer_options *opt,
                 char *errmsg)
{
    struct trainer *t = calloc(1, sizeof *t);
    pthread_condattr_t attr;
    int rv;

    if (t == NULL) {
        return LOCO_ENOMEM;
    }
    t->opt = *opt;
    rv = open_parts(t, errmsg);
    if (rv != 0) {
        close_parts(t);
        return rv;
    }
    log_kernels(t);
    t->percent = 100;
    (void)pthread_mutex_init(&t->mutex, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&t->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (pthread_create(&t->thread, NULL, trainer_run, t) != 0) {
        (void)pthread_cond_destroy(&t->wake);
        (void)pthread_mutex_destroy(&t->mutex);
        close_parts(t);
        return LOCO_ENOMEM;
    }
    *trainer = t;
    return 0;
}

/* Of the steps; a STEP was decided by all, and held-out text is none of it. */
static bool is_void(const struct job *job)
{
    return job->type == JOB_PIPE && job->pipe.op != PIPE_STEP &&
           job->pipe.op != PIPE_EVAL_FORWARD && job->pipe.op != PIPE_EVAL_SCORE;
}

/* Under the lock: what waits before a CLEAR is void. */
static void drop_void(struct trainer *t)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < t->n_queue; i++) {
        if (!is_void(&t->queue[i].job)) {
            t->queue[kept++] = t->queue[i];
        }
    }
    t->n_queue = kept;
}

bool trainer_post(struct trainer *t, const struct trainer_command *command)
{
    bool ok;

    (void)pthread_mutex_lock(&t->mutex);
    if (command->job.type == JOB_PIPE && command->job.pipe.op == PIPE_CLEAR) {
        drop_void(t);
    }
    ok = t->n_queue < TRAINER_QUEUE_MAX;
    if (ok) {
        t->queue[t->n_queue++] = *command;
        wake(t);
    }
    (void)pthread_mutex_unlock(&t->mutex);
    return ok;
}

void trainer_pause(struct trainer *t, bool paused)
{
    (void)pthread_mutex_lock(&t->mutex);
    t->paused = paused;
    wake(t);
    (void)pthread_mutex_unlock(&t->mutex);
}

void trainer_configure(struct trainer *t, const struct config *settings)
{
    (void)pthread_mutex_lock(&t->mutex);
    t->percent = (unsigned)settings->cpu_percent;
    t->rest_until_s = 0; /* a long rest by the old share is over */
    wake(t);
    (void)pthread_mutex_unlock(&t->mutex);
}

const float *trainer_contribution(const struct trainer *t)
{
    return t->replica.contribution;
}

void trainer_add_text(struct trainer *t, size_t slot, const struct shard *shard)
{
    (void)pthread_mutex_lock(&t->mutex);
    trainer_text_add(&t->text, slot, shard);
    (void)pthread_mutex_unlock(&t->mutex);
}

void trainer_stop(struct trainer *t)
{
    if (t == NULL || t->stopped) {
        return;
    }
    (void)pthread_mutex_lock(&t->mutex);
    t->closing = true;
    wake(t);
    (void)pthread_mutex_unlock(&t->mutex);
    (void)pthread_join(t->thread, NULL);
    publisher_wait(t->publisher);
    t->stopped = true;
}

float *trainer_moments(const struct trainer *t, uint64_t *steps)
{
    const struct replica *r = t == NULL ? NULL : &t->replica;
    float *x = NULL;

    if (r != NULL && r->have_backend && r->have_optimizer) {
        x = malloc(2 * (size_t)r->n * sizeof *x);
    }
    if (x != NULL && replica_moments(r, x) != 0) {
        free(x);
        x = NULL;
    }
    *steps = x == NULL ? 0 : r->optimizer.t;
    return x;
}

uint64_t trainer_tokens_seen(const struct trainer *t)
{
    assert(t->stopped);
    return t->replica.tokens_seen;
}

bool trainer_left_gpu(const struct trainer *t)
{
    return t->opt.replica.device != NULL && t->replica.opt.device == NULL;
}

void trainer_close(struct trainer *t)
{
    if (t == NULL) {
        return;
    }
    trainer_stop(t);
    (void)pthread_cond_destroy(&t->wake);
    (void)pthread_mutex_destroy(&t->mutex);
    close_parts(t);
}
