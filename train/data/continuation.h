/* continuation.h - the tokens of a text and of what may follow it, for scoring
 * the second given the first.
 *
 * As EleutherAI's lm-evaluation-harness cuts them (from 0.4.10 on, of causal
 * models), so that scores can be compared: white space at the end of the
 * context goes to the continuation; both are tokenized as one text, and the
 * tokens of the context alone take the place of as many of its first. Around
 * each of the two texts stand the tokens that the tokenizer.json puts there
 * (tokenizer_around()), but where the text begins with the prefix token's.
 * Instead of an empty context there is the prefix token, where the continuation
 * does not begin with it. What the model cannot read is left out from the left.
 *
 * How it fails: LOCO_EFORMAT with a sentence where no token is left to be given
 * or to be scored, or where the continuation alone is too long; LOCO_ENOMEM.
 */
#ifndef LOCO_TRAIN_DATA_CONTINUATION_H
#define LOCO_TRAIN_DATA_CONTINUATION_H

#include <stddef.h>
#include <stdint.h>

#include "train/data/question.h"
#include "train/data/tokenizer.h"

#define CONTINUATION_NO_PREFIX  UINT32_MAX
#define CONTINUATION_NOT_SCORED UINT32_MAX /* as a target */

struct continuation_options {
    const struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder; /* of it */
    uint32_t prefix; /* stands for an empty context; or NO_PREFIX */
    uint32_t seq;    /* tokens that the model reads */
};

struct continuation {
    uint32_t *ids;   /* (n): the last n_scored follow the others */
    size_t n;        /* 2 to seq + 1 */
    size_t n_scored; /* 1 to n - 1 */
};

/* Of `delimiter` and `text` behind `context`. */
int continuation_encode(struct continuation *c,
                        const struct continuation_options *opt,
                        const struct question_text *context,
                        const char *delimiter,
                        const struct question_text *text,
                        char *errmsg);
void continuation_free(struct continuation *c); /* idempotent */

/* A row of t tokens for the model, t >= n - 1: what it reads, and what it is
 * to find there; everything else is token 0, and not scored. */
void continuation_row(const struct continuation *c,
                      int64_t t,
                      uint32_t *tokens,
                      uint32_t *targets);

#endif
