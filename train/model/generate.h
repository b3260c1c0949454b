/* generate.h - sample tokens from a model.
 *
 * Keys and values are cached (decode.h): a token costs one row of the model.
 * When the window of `seq` positions is full its older half is forgotten and
 * the rest read again, on average one more row a token.
 *
 * Order of the filters: temperature, then the top_k most likely, then the
 * smallest set of those whose probability reaches top_p. Equal logits rank by
 * token id. The same seed on the same machine gives the same text.
 */
#ifndef LOCO_TRAIN_MODEL_GENERATE_H
#define LOCO_TRAIN_MODEL_GENERATE_H

#include <stdint.h>

#include "kernels/backend.h"
#include "train/model/llama_config.h"

struct generate_options {
    const uint32_t *prompt; /* at least one token, each below V */
    int64_t prompt_n;
    int64_t max_tokens;
    uint64_t seed;
    double temperature; /* 0: always the most likely token */
    uint32_t top_k;     /* 0: all */
    double top_p;       /* 1: all */
    uint32_t stop;      /* ends the text, not handed over; UINT32_MAX: none */
};

/* A token and how likely it is. */
struct generate_rank {
    float logit;
    uint32_t token;
    double weight; /* probability, not normalised */
};

/* One new token; any return but 0 stops the generation. */
typedef int (*generate_token_cb)(void *data, uint32_t token);

/* LOCO_EINVAL for options out of range, LOCO_ERANGE for a prompt token that is
 * unknown, LOCO_ENUMERIC, LOCO_ENOMEM, or what on_token returned. */
int generate(const struct llama_config *c,
             const struct backend *backend,
             const float *theta,
             const struct generate_options *opt,
             generate_token_cb on_token,
             void *data);

/* Choose one of the v logits; *rng advances by one draw. order (v) is room to
 * sort in. Exposed for tests. */
uint32_t generate_choose(const float *logits,
                         uint32_t v,
                         const struct generate_options *opt,
                         uint64_t *rng,
                         struct generate_rank *order);

#endif
