/* small_run.h - the text and the model of tests that train for a few steps. */
#ifndef LOCO_TESTS_UNIT_TRAIN_SMALL_RUN_H
#define LOCO_TESTS_UNIT_TRAIN_SMALL_RUN_H

#include <string.h>

#include "proto/base/rng.h"
#include "train/data/shard.h"
#include "train/model/llama_config.h"

#define SMALL_TEXT 6000

/* Text with structure: a few words in pseudo-random order. The shard borrows
 * it. */
static inline void small_text(uint8_t text[SMALL_TEXT], struct shard *shard)
{
    static const char *words[] = {"alpha ", "beta ", "gamma ", "delta\n"};
    uint64_t rng = 5;
    size_t n = 0;

    while (n + 8 < SMALL_TEXT) {
        const char *w = words[rng_below(&rng, 4)];

        memcpy(text + n, w, strlen(w));
        n += strlen(w);
    }
    shard_from_text(shard, text, n);
}

/* A few thousand parameters. */
static inline struct llama_config small_model(uint32_t layers, uint32_t seq)
{
    return (struct llama_config){.dim = 16,
                                 .layers = layers,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .ffn = 32,
                                 .vocab = 256,
                                 .seq = seq,
                                 .tied = true,
                                 .rope_theta = 10000,
                                 .norm_eps = 1e-5F};
}

#endif
