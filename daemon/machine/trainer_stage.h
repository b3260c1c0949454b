/* trainer_stage.h - the trainer's part of a pipeline: one command at a time.
 *
 * On the trainer thread: what a slot holds (stage_slots.h) is copied, computed
 * on by the replica (train/replica/stage.h) and written back. A command whose
 * slot has gone to a later attempt is answered LOCO_ESTALE: nobody waits for
 * it, and its sum is thrown away by the CLEAR that follows.
 */
#ifndef LOCO_DAEMON_MACHINE_TRAINER_STAGE_H
#define LOCO_DAEMON_MACHINE_TRAINER_STAGE_H

#include "daemon/machine/stage_slots.h"
#include "p2p/local.h"
#include "train/replica/stage.h"

struct trainer_stage {
    struct stage_slots *slots;
    float *x;                   /* (rows, dim) */
    uint32_t *tokens, *targets; /* (rows) */
    /* The evaluation of that tag: micro-batches scored, what came of them. */
    uint64_t eval_tag, bytes;
    uint32_t eval_scored;
    double nats;
};

/* The slots are borrowed until trainer_stage_close(). LOCO_ENOMEM. */
int trainer_stage_open(struct trainer_stage *t, struct stage_slots *slots);
void trainer_stage_close(struct trainer_stage *t);

/* *loss: as replica_stage_step(), of a STEP. LOCO_ESTALE of an EVAL: another
 * commit is in place. */
int trainer_stage_run(struct trainer_stage *t,
                      struct replica *r,
                      const struct job_pipe *c,
                      float *loss);

/* Of all windows that were scored for the last tag; 0: there is none. */
double trainer_stage_bits(const struct trainer_stage *t);

#endif
