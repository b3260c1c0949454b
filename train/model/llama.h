/* llama.h - forward and backward of the model: theta and tokens in, loss and
 * gradient out.
 *
 * Written against kernels/backend.h alone; the same code runs on references
 * and on fast kernels. About 6 flops per matrix parameter and token and
 * 6 L T C more for causal attention, see llama_flops_per_token(). The
 * activations of one micro-batch are kept for the backward pass, or made again
 * in it (enum llama_recompute); llama_workspace_bytes() says how much that is
 * before anything is allocated.
 *
 * Losses and gradients are SUMS over tokens, not means: micro-batches of any
 * size add up, and the optimizer divides once (grad_scale in optimizer.h).
 *
 * A loss that is not finite is LOCO_ENUMERIC; the gradient is then rubbish and
 * must be thrown away. Token ids are checked: LOCO_ERANGE, nothing touched.
 *
 * One thread at a time, the one that owns the backend.
 */
#ifndef LOCO_TRAIN_MODEL_LLAMA_H
#define LOCO_TRAIN_MODEL_LLAMA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "train/model/llama_config.h"
#include "train/model/llama_part.h"

/* As a target: this position is not scored. */
#define LLAMA_IGNORE XENT_IGNORE

/* Sequences in a micro-batch: keeps every size within 64 bits. */
#define LLAMA_MICRO_BATCH_MAX 4096

/* What the backward pass makes again instead of keeping it: the same bits,
 * less memory, more time. Per row and layer, in floats (KV = H, F ffn):
 * nothing 8 C + 3 F; branches 6 C + 2 F (the normed inputs and the output of
 * SwiGLU, which are cheap); layers C (everything but the residual stream: a
 * forward pass more, a quarter of the time). */
enum llama_recompute {
    LLAMA_RECOMPUTE_NOTHING,
    LLAMA_RECOMPUTE_BRANCHES,
    LLAMA_RECOMPUTE_LAYERS,
};

/* "nothing", ...: what a sentence may call it, and what it costs. */
const char *llama_recompute_text(enum llama_recompute recompute);

/* Micro-batches of one part on their way at once (llama_stage.h). */
#define LLAMA_SLOTS_MAX 64

/* What a workspace is for. */
struct llama_room {
    struct llama_part part;
    uint32_t micro_batch; /* sequences, 1..LLAMA_MICRO_BATCH_MAX */
    uint32_t slots;       /* 1..LLAMA_SLOTS_MAX */
    bool pass;            /* a place for stage_pass(), with room for two layers
                             however many there are */
    enum llama_recompute recompute;
};

struct llama;

/* Prepare for micro-batches of at most micro_batch * seq tokens. The backend
 * is borrowed until llama_close. LOCO_EINVAL for a bad config or a micro_batch
 * outside 1..LLAMA_MICRO_BATCH_MAX, LOCO_ENOMEM. */
int llama_open(struct llama **out,
               const struct llama_config *c,
               const struct backend *backend,
               uint32_t micro_batch,
               enum llama_recompute recompute);

/* The same for a part of the model and several micro-batches at once; only the
 * functions of llama_stage.h take one whose part is not the whole. The part
 * comes from llama_part.h. */
int llama_open_room(struct llama **out,
                    const struct llama_config *c,
                    const struct backend *backend,
                    const struct llama_room *room);

/* NULL is allowed. */
void llama_close(struct llama *m);

/* Bytes that llama_open would allocate. */
size_t llama_workspace_bytes(const struct llama_config *c,
                             const struct backend *backend,
                             uint32_t micro_batch,
                             enum llama_recompute recompute);

size_t llama_room_bytes(const struct llama_config *c,
                        const struct backend *backend,
                        const struct llama_room *room);

/* Of a device beside that, in this process: what goes to other stages. */
size_t llama_edge_bytes(const struct llama_config *c,
                        const struct backend *backend,
                        const struct llama_room *room);

struct llama_batch {
    const uint32_t *tokens;  /* (B, T), each below V */
    const uint32_t *targets; /* (B, T), each below V or LLAMA_IGNORE */
    int64_t b;               /* any: cut into micro-batches */
    int64_t t;               /* 1 to seq */
};

/* *loss_sum = sum of -log p(target) in nats over the scored positions.
 * With `grad` (numel): grad += d(loss sum)/d theta. */
int llama_loss(struct llama *m,
               const float *theta,
               const struct llama_batch *batch,
               float *grad,
               double *loss_sum);

/* The same with grad = instead of +=: what grad held is never read, which
 * spares clearing it. */
int llama_gradient(struct llama *m,
                   const float *theta,
                   const struct llama_batch *batch,
                   float *grad,
                   double *loss_sum);

/* sums (B) = of each sequence, what llama_loss() sums over all. Between the
 * first and the last scored position of a sequence logits are computed, for no
 * other. */
int llama_row_losses(struct llama *m,
                     const float *theta,
                     const struct llama_batch *batch,
                     double *sums);

/* logits (V) = scores of the token after tokens[0 .. t), t <= seq. */
int llama_logits(struct llama *m,
                 const float *theta,
                 const uint32_t *tokens,
                 int64_t t,
                 float *logits);

/* The angles of rotary positions: cos and sin (seq, D/2). */
void llama_rope_tables(const struct llama_config *c, float *cs, float *sn);

/* Forward and backward, the convention of trainer figures: 6 per matrix
 * parameter (the embedding counts only as a tied head) + 6 L T C. */
double llama_flops_per_token(const struct llama_config *c, int64_t t);

#endif
