/* plan.h - what a replica will take of a GPU's memory, before it takes
 * any.
 *
 * In this order: what must be there (theta, gradient), the moments, the largest
 * micro-batch that leaves no more out than it must (halves of the one asked
 * for: the rest of a batch is accumulated, so the batch stays what it is), and
 * the memory of the outer step where it still fits. Where not even one sequence
 * fits, the GPU works in another way: the backward pass makes activations again
 * (enum llama_recompute), or the moments lie in the host's memory, or both. The
 * bits stay, a step takes longer; plan.c has the order and what each costs.
 * Launchers' own memory is counted at its most. A plan that does not fit even
 * so is refused with what would.
 *
 * A stage of a pipeline: of its part, with all its slots, and with a copy of
 * phi for held-out text, which passes while gradients are summed; the outer
 * step has one too. Its micro-batch is that of all hosts and is not halved.
 *
 * Pure.
 */
#ifndef LOCO_TRAIN_REPLICA_PLAN_H
#define LOCO_TRAIN_REPLICA_PLAN_H

#include "train/replica/replica.h"

struct replica_plan {
    uint64_t state_bytes; /* theta, gradient, u, v where they are on the GPU; of
                           * a stage phi */
    uint64_t work_bytes;  /* of a micro-batch: the workspace, with theta in
                           * bf16, and what launchers take */
    uint64_t kept_bytes;  /* of all that, with the smallest micro-batch, moments
                           * on the GPU and all activations kept */
    uint64_t host_bytes;  /* u, v in the host's memory; 0: they are in
                           * state_bytes */
    uint64_t stay_bytes;  /* with less than that they are there */
    uint64_t outer_bytes; /* 0: the outer step is made in this process */
    uint32_t micro_batch; /* 0: there is no room for one sequence (a stage:
                           * for its micro-batch), for which work_bytes then
                           * is, with all that can be made again */
    enum llama_recompute recompute;
};

/* How a plan that does not fit would need least: for a refusal. */
const char *replica_plan_least_text(const struct replica_plan *plan);

/* have_bytes: free on the GPU, under the cap. opt->device is not NULL. */
void replica_plan(const struct replica_options *opt,
                  uint64_t have_bytes,
                  struct replica_plan *plan);

/* The same of a GPU that makes a part of the gradients (replica/gpus.h): theta,
 * a gradient, and the workspace for that; no moments, no outer step. */
void replica_plan_part(const struct replica_options *opt,
                       uint64_t have_bytes,
                       struct replica_plan *plan);

#endif
