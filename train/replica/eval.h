/* eval.h - how well a model predicts held-out text: bits per byte.
 *
 * All windows of the text (loader.h), or the first ones, so many rows at a
 * time, or a few that are drawn: the loss of each scored token over the bytes
 * that it stands for. Who computes the loss is the caller's: a Llama of this
 * process, or a training loop of its own. The replica and the laboratory
 * measure with this.
 *
 * Errors: those of reading and of the loss; LOCO_ENUMERIC where the loss is
 * not finite, or nothing was scored.
 */
#ifndef LOCO_TRAIN_REPLICA_EVAL_H
#define LOCO_TRAIN_REPLICA_EVAL_H

#include <stddef.h>
#include <stdint.h>

#include "train/data/shard.h"
#include "train/model/llama.h"

#define EVAL_ROWS 8
/* Tokens that are drawn, where the text has as many, in turns of so many
 * windows. The figure's standard deviation over draws is 0.06 bits per byte
 * (byte tokens, 0.12M parameters, 60 rounds; the largest above the mean of
 * those before was 0.10). */
#define EVAL_DRAWN      2048
#define EVAL_DRAWN_ROWS 2

/* *nats: the sum of the losses of a batch's scored targets. */
typedef int
eval_loss(void *self, const struct llama_batch *batch, double *nats);

struct eval {
    eval_loss *loss;
    void *self; /* its */
    const struct shard *val;
    uint32_t seq;
    uint64_t most; /* tokens; 0: the whole text */
    uint64_t draw; /* not 0: EVAL_DRAWN tokens, drawn by it, instead */
    /* [vocab]: bytes that each id stands for; NULL: ids are bytes. */
    const uint32_t *token_bytes;
    uint32_t rows;              /* of a batch, at most */
    uint32_t *tokens, *targets; /* (rows, seq) room */
};

int eval_bits(const struct eval *e, double *bits_per_byte);

/* The loss of a Llama, an eval_loss: theta in the memory of its backend. */
struct eval_llama {
    struct llama *llama;
    const float *theta;
};
int eval_llama_loss(void *self, const struct llama_batch *batch, double *nats);

/* Bytes that the scored ones of n targets stand for. */
uint64_t eval_target_bytes(const uint32_t *token_bytes,
                           const uint32_t *targets,
                           size_t n);

#endif
