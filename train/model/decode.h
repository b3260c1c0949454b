/* decode.h - the model one piece of text at a time, with a KV cache.
 *
 * Training runs whole windows; to go on with a text, the keys and values of
 * what was read are kept, and each new token costs one row of every matrix.
 * The same arithmetic as llama.h in another order of sums: logits agree to
 * rounding, not to the bit.
 *
 * Memory: 2 L KV D floats a position, and one row of activations for each
 * token of a call.
 *
 * How it fails: LOCO_EINVAL for a bad config, LOCO_ERANGE for a token outside
 * the vocabulary or more than `seq` positions, LOCO_ENUMERIC for a logit that
 * is not finite, LOCO_ENOMEM. One thread at a time, the one that owns the
 * backend.
 */
#ifndef LOCO_TRAIN_MODEL_DECODE_H
#define LOCO_TRAIN_MODEL_DECODE_H

#include <stdint.h>

#include "kernels/backend.h"
#include "train/model/llama_config.h"

#define DECODE_ROWS 64 /* tokens that go through the layers together */

struct decoder;

/* The backend and theta (numel) are borrowed until decoder_close. */
int decoder_open(struct decoder **out,
                 const struct llama_config *c,
                 const struct backend *backend,
                 const float *theta);
void decoder_close(struct decoder *d); /* NULL is allowed */

/* Read n >= 1 more tokens; logits (V) = scores of the one behind them. */
int decoder_read(struct decoder *d,
                 const uint32_t *tokens,
                 int64_t n,
                 float *logits);

/* Forget everything that was read. */
void decoder_reset(struct decoder *d);

#endif
