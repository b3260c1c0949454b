/* llama_part.h - which part of the model one stage of a pipeline holds.
 *
 * A run with `stages: S` cuts the layers into S runs; the first stage also has
 * the embedding, the last one the final norm and the head (NoLoCo 3.1,
 * arXiv:2506.10911; SWARM, arXiv:2301.11913). The parameters of a part are one
 * slice of theta, so that a stage hashes, averages, stores and fetches a vector
 * like every other peer does. A tied head would need the embedding at both
 * ends and an exchange of its gradient in each step: it is refused.
 *
 * Where the cuts are follows from the config and S alone: all hosts agree
 * without a message. The slowest stage sets the pace, so the largest cost, in
 * multiply-adds a token with the head counted, is made as small as it can be.
 *
 * Pure; no allocation.
 */
#ifndef LOCO_TRAIN_MODEL_LLAMA_PART_H
#define LOCO_TRAIN_MODEL_LLAMA_PART_H

#include "train/model/llama_config.h"

#define LLAMA_STAGES_MAX 64

struct llama_part {
    uint32_t first, layers; /* layers [first, first + layers) of the model */
    bool embeds;            /* has the embedding: reads tokens */
    bool scores;            /* has last norm and head: makes losses */
    int64_t offset, numel;  /* of its parameters in theta */
};

/* Everything in one part. */
void llama_part_whole(const struct llama_config *c, struct llama_part *p);

/* Stage s of S. LOCO_EINVAL with what is wrong in *reason (static text; may be
 * NULL): S is 0 or more than LLAMA_STAGES_MAX, more stages than layers, a tied
 * head with more than one stage, s >= S. */
int llama_part_of_stage(const struct llama_config *c,
                        uint32_t stages,
                        uint32_t s,
                        struct llama_part *p,
                        const char **reason);

/* Whether tensor i of the model is one of the part's; *v as llama_tensor()
 * tells it, but for the offset, which counts from the part's first element. */
bool llama_part_tensor(const struct llama_config *c,
                       const struct llama_part *p,
                       int i,
                       struct llama_view *v);

/* theta (p->numel) = the part's slice of what llama_init_params() makes. */
void llama_part_init(const struct llama_config *c,
                     const struct llama_part *p,
                     float *theta,
                     uint64_t seed);

/* Multiply-adds a token of the part's forward pass, its matrices and causal
 * attention over t tokens on average. */
double llama_part_cost(const struct llama_config *c,
                       const struct llama_part *p,
                       int64_t t);

#endif
