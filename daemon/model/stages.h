/* stages.h - a whole model out of checkpoints of its stages.
 *
 * In a run with `stages: S` every host keeps the checkpoints of its stage, a
 * slice of the parameters (train/model/llama_part.h). Given the state
 * directories of hosts of all stages, the newest round is taken of which there
 * is a whole checkpoint of each: the model's round r exists when all stages
 * committed r. What `loco stages` fetched (stage_fetch.h) counts like another
 * directory. Hosts keep their newest rounds, and no stage is more than one
 * ahead of another, so directories of hosts that live have one in common.
 *
 * The checkpoints stay mapped; nothing is copied. Blocking. How it fails:
 * LOCO_ENOENT with the stage that is missing, or that no round is common;
 * LOCO_ENOMEM.
 */
#ifndef LOCO_DAEMON_MODEL_STAGES_H
#define LOCO_DAEMON_MODEL_STAGES_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "train/model/llama_part.h"
#include "train/replica/checkpoint.h"

struct model_stages {
    uint32_t n; /* 0: not open */
    struct model_stage {
        struct llama_part part;
        struct checkpoint checkpoint; /* its phi: (part.numel) */
    } * stage;                        /* (n) */
};

/* dirs: n_dirs state directories of one run. model_stages_close afterwards,
 * whatever the result. */
int model_stages_open(struct model_stages *s,
                      const struct llama_config *config,
                      uint32_t stages,
                      const char *const *dirs,
                      size_t n_dirs,
                      char errmsg[ERRMSG_SIZE]);

/* Where the element at `offset` of theta is; those of its tensor follow. */
const float *model_stages_at(const struct model_stages *s, int64_t offset);

void model_stages_close(struct model_stages *s); /* idempotent */

#endif
