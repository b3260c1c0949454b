/* training.h - the inner steps of a run of rounds, and who makes them:
 *
 *   machine   this machine alone: one TRAIN a round (training.c)
 *   stages    all stages of the model together (stages.c, pipe.c)
 *
 * The terms of a run name its driver (terms.stages); what the two do
 * differently is a row of struct inner. struct node_training is what the
 * trainer of this machine does now, and what it said of itself last.
 */
#ifndef LOCO_DAEMON_NODE_TRAINING_H
#define LOCO_DAEMON_NODE_TRAINING_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"

struct node;

struct node_training {
    bool active, paused, packed;
    uint64_t inner_step, first_step, own_tokens;
    float loss, tokens_per_s;
    bool told_over; /* the machine knows that no task will follow */
    bool hangs;     /* the trainer does not respond: in no view until it does */
    uint64_t since_ms;       /* the task under way */
    uint32_t steps;          /* of it */
    uint64_t step_ms;        /* the longest step, as a mean of its task */
    uint64_t tokens_dropped; /* trained, and in no commit */
};

/* What the two drivers do differently. */
struct inner {
    /* The machine holds the whole model, and the run is one group: the machine
     * measures the model alone, and what it packed is good for a later round,
     * too. */
    bool whole;

    /* The terms are here. */
    void (*configured)(struct node *n);
    /* Once a turn, before the state is looked after; after it. */
    void (*choose)(struct node *n);
    void (*tick)(struct node *n);
    /* The steps of the next round: the state that they begin with is here. */
    void (*train)(struct node *n);
    /* What this peer waits for; static text, NULL: nothing. */
    const char *(*wait)(const struct node *n);
};

extern const struct inner inner_machine, inner_stages;

/* Ask for so many inner steps and the contribution of `round` after them: the
 * TRAIN, for what else it names; NULL: no room, it is tried again. */
struct job_train *
node_training_begin(struct node *n, uint64_t round, uint32_t steps);

/* PROGRESS, TRAINED, PAUSE and RESUME. */
void node_on_progress(struct node *n, const struct local_event *e);
void node_on_trained(struct node *n, const struct local_event *e);
void node_on_pause(struct node *n, bool paused);

/* The contribution is packed; it is offered to nobody any more. */
void node_training_packed(struct node *n);
void node_forget_contribution(struct node *n);

/* Contributions from here on begin with this step; so does the machine. */
void node_training_first(struct node *n, uint64_t step);
void node_training_restart(struct node *n, uint64_t step);
/* It made steps up to this one. */
void node_training_at(struct node *n, uint64_t step);

/* The task under way is given up, and not answered: another one is to follow.
 */
void node_training_end(struct node *n);

void node_training_drop(struct node *n, uint64_t tokens);
void node_training_hang(struct node *n, bool hangs);
/* The process slept, and the trainer with it. */
void node_training_gap(struct node *n);
/* The run has ended, or has not (any more): the trainer may go. */
void node_training_finish(struct node *n, bool finished);
/* Nothing is under way or packed: of the group that is left. */
void node_training_forget(struct node *n);

#endif
