/* eval.c - see eval.h. */
#include "train/replica/eval.h"

#include <math.h>

#include "proto/base/err.h"
#include "train/data/loader.h"

#define LN_2 0.69314718055994531

uint64_t eval_target_bytes(const uint32_t *token_bytes,
                           const uint32_t *targets,
                           size_t n)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < n; i++) {
        if (targets[i] != LOADER_NO_TARGET) {
            bytes += token_bytes == NULL ? 1 : token_bytes[targets[i]];
        }
    }
    return bytes;
}

int eval_bits(const struct eval *e, const float *theta, double *bits_per_byte)
{
    uint64_t windows = eval_windows(e->val->info.tokens, e->seq, e->most);
    uint64_t bytes = 0;
    double nats = 0;

    for (uint64_t done = 0; done < windows; done += EVAL_ROWS) {
        uint64_t left = windows - done;
        uint32_t rows = left < EVAL_ROWS ? (uint32_t)left : EVAL_ROWS;
        const struct llama_batch batch = {e->tokens, e->targets, rows, e->seq};
        uint64_t scored;
        double sum = 0;
        int rv = eval_rows(e->val, e->seq, done, rows, e->tokens, e->targets,
                           &scored);

        /* It has seen that every target is in the vocabulary. */
        rv = rv != 0 ? rv : llama_loss(e->llama, theta, &batch, NULL, &sum);
        if (rv != 0) {
            return rv;
        }
        nats += sum;
        bytes += eval_target_bytes(e->token_bytes, e->targets,
                                   (size_t)rows * e->seq);
    }
    if (bytes == 0 || !isfinite(nats)) {
        return LOCO_ENUMERIC;
    }
    *bits_per_byte = nats / (double)bytes / LN_2;
    return 0;
}
