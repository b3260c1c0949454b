/* stage.h - the inner steps of a replica that holds one stage.
 *
 * Micro-batches pass through (llama_stage.h); the optimizer's step comes when
 * the pipeline has agreed on it:
 *
 *     for each micro-batch, in the order that the pipeline says
 *         first    replica_stage_tokens, _forward, .. _backward
 *         middle   _forward, .. _backward
 *         last     _score
 *     replica_stage_step, or replica_stage_clear: all of it was in vain
 *
 * The gradient is the mean over the tokens of the micro-batches that passed
 * here; its norm is clipped by itself (NoLoCo's code clips per stage too), so a
 * clipped pipeline differs from the unsplit model. Without clipping the stages
 * have the bits of a replica in one piece that sees the same micro-batches in
 * the same order.
 *
 * Held-out text passes through the parameters of the last commit, forward only,
 * beside all that: replica_stage_windows, _eval_forward, _eval_score.
 *
 * Packing, commits, states: replica.h, of the stage's slice. They come between
 * two steps, or after replica_stage_clear(): the outer step works in the memory
 * of the sum. A micro-batch is micro_batch sequences of seq tokens. x, y, dx,
 * dy, loss and errors as in llama_stage.h; after an error of score or backward
 * the sum is rubbish until it is cleared, which replica_stage_step() sees to.
 *
 * With a GPU theta, the sum, moments and slots lie there, x, y, dx, dy here. A
 * GPU that is lost took the slots and the sum with it: replica_recover(), then
 * replica_stage_clear(). LOCO_EBUSY of forward, score or backward: there was no
 * room for a launcher, and there is now, of the outer step or of activations
 * that are made again from now on; what was in the slots and in the sum is
 * rubbish. The node has all begin the step again.
 */
#ifndef LOCO_TRAIN_REPLICA_STAGE_H
#define LOCO_TRAIN_REPLICA_STAGE_H

#include "train/model/llama_stage.h"
#include "train/replica/replica.h"

/* Micro-batches in a sum, at most. */
#define REPLICA_MICRO_MAX 1024

/* tokens, targets (micro_batch, seq) of a micro-batch that enters here: the
 * run's inner step (from 0) and the draw name them, in the order of this peer.
 * Draws below batch / micro_batch are the step's own; each so many more are
 * others, that no other step has (p2p/pipeline/pipeline.h). */
int replica_stage_tokens(const struct replica *r,
                         uint64_t step,
                         uint32_t draw,
                         uint32_t *tokens,
                         uint32_t *targets);

/* tokens: NULL but on the first stage; x: NULL there. */
int replica_stage_forward(struct replica *r,
                          uint32_t slot,
                          const uint32_t *tokens,
                          const float *x,
                          const float **y);
int replica_stage_score(struct replica *r,
                        const uint32_t *tokens,
                        const uint32_t *targets,
                        const float *x,
                        const float **dx);
int replica_stage_backward(struct replica *r,
                           uint32_t slot,
                           const uint32_t *tokens,
                           const float *dy,
                           const float **dx);

/* The sum of gradients = 0. */
void replica_stage_clear(struct replica *r);

/* The optimizer's step with the sum of `count` micro-batches; 0: the step
 * counts, nothing moves. It is the run's `step` since the anchor, from 0, and
 * has the learning rate of that: this host may have missed some, or lost them
 * with a GPU, and contributes those that it made. *loss: mean in nats per token
 * where the stage scores, else NAN. LOCO_EINVAL: another number is in the sum;
 * LOCO_ENUMERIC: the gradient is not finite. On failure the replica is as it
 * was; the sum is cleared in any case. */
int replica_stage_step(struct replica *r,
                       uint32_t step,
                       uint32_t count,
                       float *loss);

/* tokens, targets (micro_batch, seq): micro-batch `micro` of the windows that
 * replica_eval() of a whole model reads; rows behind the last one have no
 * targets. LOCO_ENOENT: there is no held-out text. */
int replica_stage_windows(const struct replica *r,
                          uint32_t micro,
                          uint32_t *tokens,
                          uint32_t *targets);

/* As replica_stage_forward() and replica_stage_score(), but with the anchor:
 * nothing is kept or summed. *nats: the sum of losses; *bytes: of so many. */
int replica_stage_eval_forward(struct replica *r,
                               const uint32_t *tokens,
                               const float *x,
                               const float **y);
int replica_stage_eval_score(struct replica *r,
                             const uint32_t *targets,
                             const float *x,
                             double *nats,
                             uint64_t *bytes);

#endif
