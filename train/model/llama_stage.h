/* llama_stage.h - one stage of a pipeline: activations in and out.
 *
 * A micro-batch goes forward through one host of each stage and its gradient
 * back along the same path (NoLoCo 3.1). On the way a host has this to do:
 *
 *     first     tokens -> stage_forward -> y
 *     middle    x -> stage_forward -> y
 *     last      x, targets -> stage_score -> loss, dx      (forward + backward)
 *     middle    dy -> stage_backward -> dx
 *     first     dy -> stage_backward
 *
 * x, y, dx, dy are (N, C) fp32, the residual stream between two layers and its
 * gradient; what they look like on the wire is not known here. theta and grad
 * are the vectors of the part (llama_part.h). Gradients are sums, added to
 * grad, like those of llama.h: the sum over all micro-batches and stages is
 * the gradient of the unsplit model. A model in one stage has only
 * stage_score().
 *
 * A micro-batch lies in its slot from stage_forward() until stage_backward().
 * A host that gave the slot to another one meanwhile keeps x and calls
 * stage_forward() again: the same bits, one forward pass more.
 *
 * theta and grad are the backend's memory; x, y, dx, dy, tokens and targets are
 * this process's. Where the workspace is on a GPU, rows are copied at the edge
 * of the part and nowhere else; slots stay there. With bf16 a row that comes in
 * is rounded to bf16, and one that goes out is exact: the stream is bf16 in an
 * unsplit model there, too, so that the cut changes no bit.
 *
 * Results point into the workspace and hold until its next call. Errors:
 * LOCO_EINVAL (a shape or slot that does not fit, a part that cannot do this),
 * LOCO_ERANGE (token or target outside the vocabulary): nothing was touched;
 * LOCO_ENUMERIC (a result is not finite): throw the micro-batch away.
 * LOCO_ECUDA, LOCO_ETIMEOUT, LOCO_ENOMEM of a GPU: the micro-batch is lost.
 * Input that is not finite reaches no gradient; a loss or gradient that becomes
 * so, and a GPU that fails, may leave rubbish in grad, which is then to be
 * cleared with all that it sums.
 *
 * One thread at a time, the one that owns the backend.
 */
#ifndef LOCO_TRAIN_MODEL_LLAMA_STAGE_H
#define LOCO_TRAIN_MODEL_LLAMA_STAGE_H

#include "train/model/llama.h"

struct stage_batch {
    int64_t b, t;            /* b * t fits the workspace */
    const uint32_t *tokens;  /* (B, T) where the part embeds */
    const uint32_t *targets; /* (B, T) where it scores: V or LLAMA_IGNORE */
    const float *x;          /* (N, C) where it does not embed */
};

/* Not for the last stage. *y (N, C). */
int stage_forward(struct llama *m,
                  uint32_t slot,
                  const float *theta,
                  const struct stage_batch *batch,
                  const float **y);

/* The same, and nothing of it stays: for text that is only looked at, while
 * others wait in their slots. The workspace has a place for it (llama_room
 * `pass`), else LOCO_EINVAL. */
int stage_pass(struct llama *m,
               const float *theta,
               const struct stage_batch *batch,
               const float **y);

/* Only for the last stage; takes slot 0. *loss_sum as of llama_loss(); with
 * grad also grad += and *dx (N, C), NULL where the part embeds. */
int stage_score(struct llama *m,
                const float *theta,
                const struct stage_batch *batch,
                float *grad,
                double *loss_sum,
                const float **dx);

/* Not for the last stage: of the micro-batch in the slot, with the theta of
 * its forward pass. dy (N, C). *dx (N, C), NULL where the part embeds; tokens
 * (B, T) as in the forward pass where it does. */
int stage_backward(struct llama *m,
                   uint32_t slot,
                   const float *theta,
                   const uint32_t *tokens,
                   const float *dy,
                   float *grad,
                   const float **dx);

#endif
