/* publisher.c - see publisher.h. */
#include "daemon/machine/publisher.h"

#include <pthread.h>
#include <stdlib.h>

#include "daemon/node/node.h"
#include "p2p/uv/worker.h"
#include "proto/base/err.h"

struct publisher {
    struct publisher_options opt;
    struct snapshot *spare; /* the trainer's thread: for the next one */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    bool busy, closing;
    struct snapshot *snapshot; /* busy: these two are the thread's */
    struct local_event answer;
};

/* LOADED has one, and APPLIED. */
static struct report_state *report_of(struct local_event *e)
{
    return e->type == LOCAL_LOADED ? &e->loaded : &e->applied;
}

/* The inner moments are announced like a contribution to the next round. */
static void announce_moments(const struct publisher *p,
                             const struct snapshot *s,
                             struct report_state *state)
{
    const struct offer_cut cut = {
        .codec = codec_get(CODEC_BF16),
        .block = p->opt.moments_block,
        .elements = 2 * s->n,
    };
    struct offer o;

    if (cut.block > 0 && s->moments != NULL && !state->broken &&
        offer_make(&o, &cut, s->moments) == 0) {
        o.round = s->round + 1;
        state->moments = *offer_root(&o);
        state->moment_steps = s->moment_steps;
        p->opt.take_moments(p->opt.self, &o, s->moment_steps, false);
    }
}

/* Hashes into the answer, the snapshot to others, then the answer. */
static void finish(const struct publisher *p,
                   struct local_event *answer,
                   struct snapshot *s)
{
    const struct replica *r = p->opt.replica;
    struct report_state *state = report_of(answer);
    struct hash32 hash;

    snapshot_hash(r, s, &state->params_hash, &state->momentum_hash);
    hash = node_state_hash(&state->params_hash, &state->momentum_hash);
    snapshot_sample(r, s, &hash, &state->sample);
    if (s != NULL) {
        s->name = hash32_u64(&hash);
        announce_moments(p, s, state);
        p->opt.take_snapshot(p->opt.self, s);
    }
    p->opt.post(p->opt.self, answer);
}

static void *publisher_run(void *arg)
{
    struct publisher *p = arg;

    worker_be_nice(TRAINER_NICE);
    (void)pthread_mutex_lock(&p->mutex);
    while (!p->closing || p->busy) {
        if (!p->busy) {
            (void)pthread_cond_wait(&p->changed, &p->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&p->mutex);
        if (p->opt.replica->opt.shared) {
            snapshot_fill(p->opt.replica, p->snapshot);
        }
        finish(p, &p->answer, p->snapshot);
        (void)pthread_mutex_lock(&p->mutex);
        p->busy = false;
        (void)pthread_cond_broadcast(&p->changed);
    }
    (void)pthread_mutex_unlock(&p->mutex);
    return NULL;
}

int publisher_open(struct publisher **publisher,
                   const struct publisher_options *opt)
{
    struct publisher *p = calloc(1, sizeof *p);

    if (p == NULL) {
        return LOCO_ENOMEM;
    }
    p->opt = *opt;
    (void)pthread_mutex_init(&p->mutex, NULL);
    (void)pthread_cond_init(&p->changed, NULL);
    if (pthread_create(&p->thread, NULL, publisher_run, p) != 0) {
        (void)pthread_cond_destroy(&p->changed);
        (void)pthread_mutex_destroy(&p->mutex);
        free(p);
        return LOCO_ENOMEM;
    }
    *publisher = p;
    return 0;
}

/* PLACED, and the rest to the thread. */
static void hand_over(struct publisher *p,
                      const struct local_event *answer,
                      struct snapshot *s)
{
    const struct report_state *state = &answer->applied;
    const struct local_event placed = {
        .type = LOCAL_PLACED,
        .placed = {state->round, state->inner_step, state->tokens},
    };

    p->opt.post(p->opt.self, &placed);
    (void)pthread_mutex_lock(&p->mutex);
    p->answer = *answer;
    p->snapshot = s;
    p->busy = true;
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->mutex);
}

/* The memory of a snapshot that nobody needs any more. */
static struct snapshot *spare(struct publisher *p)
{
    if (p->spare == NULL && p->opt.spare_snapshot != NULL) {
        p->spare = p->opt.spare_snapshot(p->opt.self);
    }
    return p->spare;
}

struct state_room *publisher_room(struct publisher *p)
{
    return snapshot_take_room(spare(p));
}

/* Where audits of work ask for them, each time; a copy within this process is
 * cheap. Moments that are all in the state are not copied twice. */
static bool takes_moments(const struct publisher *p, bool saves)
{
    const struct replica *r = p->opt.replica;

    return p->opt.moments_block > 0 ||
           ((saves || r->backend.device == NULL) && replica_owns_moments(r));
}

void publisher_publish(struct publisher *p,
                       const struct local_event *answer,
                       bool beside,
                       bool saves)
{
    struct replica *r = p->opt.replica;
    struct local_event e = *answer;
    struct report_state *state = report_of(&e);
    struct snapshot *s;

    publisher_wait(p);
    s = snapshot_begin(r, spare(p), takes_moments(p, saves));
    p->spare = NULL;
    state->round = r->round;
    state->inner_step = r->inner_step;
    beside = beside && s != NULL && e.type == LOCAL_APPLIED;
    if (s != NULL && !(beside && r->opt.shared)) {
        snapshot_fill(r, s);
    }
    if (beside) {
        hand_over(p, &e, s);
    } else {
        finish(p, &e, s);
    }
}

void publisher_wait(struct publisher *p)
{
    (void)pthread_mutex_lock(&p->mutex);
    while (p->busy) {
        (void)pthread_cond_wait(&p->changed, &p->mutex);
    }
    (void)pthread_mutex_unlock(&p->mutex);
}

void publisher_close(struct publisher *p)
{
    if (p == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&p->mutex);
    p->closing = true;
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->mutex);
    (void)pthread_join(p->thread, NULL);
    snapshot_free(p->spare);
    (void)pthread_cond_destroy(&p->changed);
    (void)pthread_mutex_destroy(&p->mutex);
    free(p);
}
