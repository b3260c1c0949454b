/* trainer_internal.h - the inside of trainer.h, for the files trainer*.c. */
#ifndef LOCO_DAEMON_MACHINE_TRAINER_INTERNAL_H
#define LOCO_DAEMON_MACHINE_TRAINER_INTERNAL_H

#include <pthread.h>

#include "daemon/machine/moments_chain.h"
#include "daemon/machine/publisher.h"
#include "daemon/machine/trainer.h"
#include "daemon/machine/trainer_moments.h"
#include "daemon/machine/trainer_repeat.h"
#include "daemon/machine/trainer_text.h"

#define TRAINER_QUEUE_MAX 16

struct trainer_loop;

struct trainer {
    struct trainer_options opt;
    struct replica replica; /* the thread's, once it runs */
    struct publisher *publisher;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the next eight */
    pthread_cond_t wake;
    struct trainer_command queue[TRAINER_QUEUE_MAX];
    unsigned n_queue;
    bool paused, closing;
    unsigned percent;    /* of the time in which it may work */
    double rest_until_s; /* no inner step before */
    struct trainer_text text;
    /* The TRAIN under way; the thread's. */
    bool training;
    bool idle;          /* what is packed is nothing, and spends no residual */
    bool beside;        /* steps may go on while what was packed is under way */
    struct lease lease; /* of the TRAIN */
    uint64_t n_leased;  /* steps that are open and read it */
    uint64_t most;      /* of these */
    float loss;
    double tokens_per_s;
    float *residual; /* (n) with error feedback */
    struct trainer_repeat repeat;
    bool gpu_lost_before;
    struct moments_chain chain;
    bool stopped;
    struct trainer_stage stage; /* with slots */
    double stepped_s;
    struct trainer_loop *loop; /* another process makes the steps; or NULL */
};

/* ---- trainer.c, on the trainer's thread ---------------------------------- */

double trainer_now_s(void);
bool trainer_is_closing(struct trainer *t);

/* The next command that may be done now. False: there is none. */
bool trainer_take_command(struct trainer *t, struct trainer_command *c);
void trainer_run_command(struct trainer *t, const struct trainer_command *c);

/* Steps of the TRAIN, or beside a round, that are left. */
uint64_t trainer_steps_left(const struct trainer *t);

/* What others set: whether steps may be made at all, whether more than one at a
 * time, and for how long not. */
struct trainer_leave {
    bool paused, one_by_one;
    double rest_s; /* > 0: it rests */
};
struct trainer_leave trainer_leave(struct trainer *t);

/* The TRAIN is done: pack, and say so. */
void trainer_trained(struct trainer *t, int rc);

/* A step of so many tokens was made in so many seconds: count, rest, say so. */
void trainer_stepped(struct trainer *t, uint64_t tokens, double took);

/* ---- trainer_state.c ----------------------------------------------------- */

/* LOAD, APPLY, PAIR: the state in place is to be another one. */
void trainer_run_state(struct trainer *t, const struct trainer_command *c);

/* ---- trainer_residual.c -------------------------------------------------- */

/* Zeros, where error feedback is kept; LOCO_ENOMEM. The others do nothing
 * without it. */
int trainer_residual_take(struct trainer *t);

/* The contribution that is packed gets what the one before lost. */
void trainer_residual_add(struct trainer *t);

/* The contribution to `round` is spent, with this error or an unknown one. */
void trainer_residual_set(struct trainer *t,
                          uint64_t round,
                          const float *error);
void trainer_residual_drop(struct trainer *t);

/* ---- trainer_gpu.c ------------------------------------------------------- */

/* Whether a code says that the GPU is lost, or has no room even for one
 * sequence. */
bool trainer_lost_gpu(const struct trainer *t, int rc);

/* Open the GPU again, once, or the processor in its place. What the steps
 * since the last commit did is gone; training goes on from there. */
bool trainer_recover(struct trainer *t, int rc);

/* What was lost in an earlier task or attempt, and could not be opened again
 * then: once more. LOCO_EDEVICE: nothing is left to work on. */
int trainer_find_device(struct trainer *t);

/* How many GPUs were opened, and what the memory of the first did not suffice
 * for. Those that were left out since the last call, and products that are
 * slow.
 */
void trainer_log_gpus(struct trainer *t);
void trainer_log_said(struct trainer *t);

#endif
