/* trainer.c - see trainer.h. */
#include "daemon/trainer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/hash.h"
#include "train/replica_pair.h"

#define TRAINER_QUEUE_MAX 16
#define TRAINER_NICE      5 /* the loop thread must get its turn first */

struct trainer {
    struct trainer_options opt;
    struct replica replica; /* the thread's, once it runs */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the next five */
    pthread_cond_t wake;
    struct trainer_command queue[TRAINER_QUEUE_MAX];
    unsigned n_queue;
    bool paused, closing;
    /* The TRAIN under way; the thread's. */
    bool training;
    uint32_t steps_left;
    float loss;
    double tokens_per_s;
    float *residual; /* (n) with error feedback */
    bool stopped;
};

void snapshot_free(struct snapshot *s)
{
    if (s != NULL && --s->refs == 0) {
        free(s->state);
        free(s->moments);
        free(s);
    }
}

/* NULL when memory is out: then nothing is served or saved this round. */
static struct snapshot *snapshot_make(const struct replica *r)
{
    struct snapshot *s = calloc(1, sizeof *s);
    size_t bytes = r->n * sizeof(float);

    if (s == NULL) {
        return NULL;
    }
    s->refs = 1;
    s->round = r->round;
    s->inner_step = r->inner_step;
    s->tokens = r->tokens_seen;
    s->n = r->n;
    s->state = malloc(2 * bytes);
    s->moments = malloc(2 * bytes);
    if (s->state == NULL || s->moments == NULL) {
        snapshot_free(s);
        return NULL;
    }
    memcpy(s->state, r->phi, bytes);
    memcpy(s->state + r->n, r->m, bytes);
    memcpy(s->moments, r->optimizer.u, bytes);
    memcpy(s->moments + r->n, r->optimizer.v, bytes);
    return s;
}

/* New parameters are in place: hashes into the event, a snapshot for others.
 */
static void publish(struct trainer *t, struct local_event *ev)
{
    const struct replica *r = &t->replica;
    struct snapshot *s = snapshot_make(r);

    hash_tree(r->phi, r->n * sizeof(float), &ev->params_hash);
    hash_tree(r->m, r->n * sizeof(float), &ev->momentum_hash);
    ev->round = r->round;
    ev->inner_step = r->inner_step;
    if (s != NULL) {
        t->opt.take_snapshot(t->opt.self, s);
    }
}

static double now_s(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void add_residual(struct trainer *t)
{
    float *c = t->replica.contribution;

    for (uint64_t i = 0; t->residual != NULL && i < t->replica.n; i++) {
        c[i] = c[i] + t->residual[i];
    }
}

/* The contribution before is spent, or given up (error NULL). */
static void set_residual(struct trainer *t, const float *error)
{
    size_t bytes = t->replica.n * sizeof(float);

    if (t->residual == NULL) {
        return;
    }
    if (error == NULL) {
        memset(t->residual, 0, bytes);
    } else {
        memcpy(t->residual, error, bytes);
    }
}

static void trained(struct trainer *t, int rc)
{
    struct local_event ev = {.type = LOCAL_TRAINED, .rc = rc};

    t->training = false;
    if (rc == 0) {
        ev.rc = replica_pack(&t->replica);
        add_residual(t);
    }
    ev.inner_step = t->replica.inner_step;
    ev.tokens = t->replica.tokens_pending;
    ev.loss = t->loss;
    t->opt.post(t->opt.self, &ev);
}

static void step(struct trainer *t)
{
    struct local_event ev = {.type = LOCAL_PROGRESS};
    double began = now_s(), took;
    uint64_t before = t->replica.tokens_seen;
    int rc = replica_step(&t->replica, &t->loss);

    if (rc != 0) {
        trained(t, rc);
        return;
    }
    took = now_s() - began;
    if (took > 0) {
        double rate = (double)(t->replica.tokens_seen - before) / took;

        t->tokens_per_s =
            t->tokens_per_s > 0 ? 0.9 * t->tokens_per_s + 0.1 * rate : rate;
    }
    t->steps_left--;
    ev.inner_step = t->replica.inner_step;
    ev.tokens = t->replica.tokens_seen;
    ev.loss = t->loss;
    ev.tokens_per_s = (float)t->tokens_per_s;
    t->opt.post(t->opt.self, &ev);
    if (t->steps_left == 0) {
        trained(t, 0);
    }
}

static void run_command(struct trainer *t, const struct trainer_command *c)
{
    struct replica *r = &t->replica;
    struct local_event ev = {.type = LOCAL_LOADED, .round = c->round};
    bool kept =
        c->type == TRAINER_TRAIN || c->type == TRAINER_EVAL || c->rebase;

    switch (c->type) {
    case TRAINER_TRAIN:
        t->training = true;
        t->steps_left = c->steps;
        return;
    case TRAINER_INIT:
        replica_init(r);
        publish(t, &ev);
        break;
    case TRAINER_RESTORE:
        replica_restore(r, c->round, c->state, c->state + r->n, c->moments,
                        c->moments == NULL ? NULL : c->moments + r->n,
                        c->inner_step, c->tokens);
        publish(t, &ev);
        break;
    case TRAINER_LOAD:
        ev.tokens = c->rebase ? 0 : r->tokens_pending;
        replica_load(r, c->round, c->state, c->state + r->n, c->rebase);
        publish(t, &ev);
        break;
    case TRAINER_APPLY:
        ev.type = LOCAL_APPLIED;
        ev.tokens = c->rebase ? 0 : r->tokens_pending;
        ev.rc = replica_apply(r, c->round, c->wire, c->rebase);
        if (ev.rc == 0) {
            publish(t, &ev);
        }
        break;
    case TRAINER_PAIR:
        ev.type = LOCAL_APPLIED;
        ev.rc = replica_apply_pair(r, c->round, c->wire, c->first);
        if (ev.rc == 0) {
            publish(t, &ev);
        }
        break;
    case TRAINER_MIX:
        replica_mix(r, c->state, c->share);
        publish(t, &ev);
        break;
    case TRAINER_EVAL:
        ev.type = LOCAL_EVALUATED;
        ev.rc = replica_eval(r, &ev.bits_per_byte);
        break;
    }
    if (!kept && ev.rc == 0) {
        set_residual(t, c->error);
    }
    t->opt.post(t->opt.self, &ev);
}

/* The next command, or none while there are steps to make. */
static bool next_command(struct trainer *t, struct trainer_command *c)
{
    bool got = false;

    (void)pthread_mutex_lock(&t->mutex);
    while (!t->closing && t->n_queue == 0 && (!t->training || t->paused)) {
        (void)pthread_cond_wait(&t->wake, &t->mutex);
    }
    if (!t->closing && t->n_queue > 0) {
        *c = t->queue[0];
        t->n_queue--;
        memmove(t->queue, t->queue + 1, t->n_queue * sizeof t->queue[0]);
        got = true;
    }
    (void)pthread_mutex_unlock(&t->mutex);
    return got;
}

static bool is_closing(struct trainer *t)
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

    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), TRAINER_NICE);
    while (!is_closing(t)) {
        if (next_command(t, &c)) {
            run_command(t, &c);
        } else if (t->training && !is_closing(t)) {
            step(t);
        }
    }
    return NULL;
}

int trainer_open(struct trainer **trainer,
                 const struct trainer_options *opt,
                 char *errmsg)
{
    struct trainer *t = calloc(1, sizeof *t);
    int rv;

    if (t == NULL) {
        return LOCO_ENOMEM;
    }
    t->opt = *opt;
    rv = replica_open(&t->replica, &opt->replica, errmsg);
    if (rv != 0) {
        goto err_after_replica;
    }
    if (opt->error_feedback) {
        t->residual = calloc(t->replica.n, sizeof *t->residual);
        if (t->residual == NULL) {
            rv = LOCO_ENOMEM;
            goto err_after_replica;
        }
    }
    log_info("train", "%s kernels, %s products, %d threads%s",
             t->replica.backend.isa, t->replica.backend.bf16 ? "bf16" : "fp32",
             t->replica.backend.threads,
             opt->replica.affinity.n > 0 ? ", pinned" : "");
    (void)pthread_mutex_init(&t->mutex, NULL);
    (void)pthread_cond_init(&t->wake, NULL);
    if (pthread_create(&t->thread, NULL, trainer_run, t) != 0) {
        rv = LOCO_ENOMEM;
        goto err_after_mutex;
    }
    *trainer = t;
    return 0;

err_after_mutex:
    (void)pthread_cond_destroy(&t->wake);
    (void)pthread_mutex_destroy(&t->mutex);
err_after_replica:
    replica_close(&t->replica);
    free(t->residual);
    free(t);
    return rv;
}

bool trainer_post(struct trainer *t, const struct trainer_command *command)
{
    bool ok;

    (void)pthread_mutex_lock(&t->mutex);
    ok = t->n_queue < TRAINER_QUEUE_MAX;
    if (ok) {
        t->queue[t->n_queue++] = *command;
        (void)pthread_cond_signal(&t->wake);
    }
    (void)pthread_mutex_unlock(&t->mutex);
    return ok;
}

void trainer_pause(struct trainer *t, bool paused)
{
    (void)pthread_mutex_lock(&t->mutex);
    t->paused = paused;
    (void)pthread_cond_signal(&t->wake);
    (void)pthread_mutex_unlock(&t->mutex);
}

const float *trainer_contribution(const struct trainer *t)
{
    return t->replica.contribution;
}

void trainer_stop(struct trainer *t)
{
    if (t == NULL || t->stopped) {
        return;
    }
    (void)pthread_mutex_lock(&t->mutex);
    t->closing = true;
    (void)pthread_cond_signal(&t->wake);
    (void)pthread_mutex_unlock(&t->mutex);
    (void)pthread_join(t->thread, NULL);
    t->stopped = true;
}

void trainer_close(struct trainer *t)
{
    if (t == NULL) {
        return;
    }
    trainer_stop(t);
    (void)pthread_cond_destroy(&t->wake);
    (void)pthread_mutex_destroy(&t->mutex);
    replica_close(&t->replica);
    free(t->residual);
    free(t);
}
