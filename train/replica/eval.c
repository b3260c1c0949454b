/* eval.c - see eval.h. */
#include "train/replica/eval.h"

#include <math.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
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

/* A sum over the windows that were read. */
struct scored {
    uint64_t bytes;
    double nats;
};

/* So many windows from `first` on. */
static int
score(const struct eval *e, uint64_t first, uint32_t rows, struct scored *sum)
{
    const struct llama_batch batch = {e->tokens, e->targets, rows, e->seq};
    uint64_t scored;
    double nats = 0;
    int rv =
        eval_rows(e->val, e->seq, first, rows, e->tokens, e->targets, &scored);

    /* Reading has seen that every target is in the vocabulary. */
    rv = rv != 0 ? rv : e->loss(e->self, &batch, &nats);
    if (rv == 0) {
        sum->nats += nats;
        sum->bytes += eval_target_bytes(e->token_bytes, e->targets,
                                        (size_t)rows * e->seq);
    }
    return rv;
}

static int score_first(const struct eval *e, struct scored *sum)
{
    uint64_t windows = eval_windows(e->val->info.tokens, e->seq, e->most);
    int rv = 0;

    for (uint64_t done = 0; done < windows && rv == 0; done += e->rows) {
        uint64_t left = windows - done;

        rv = score(e, done, left < e->rows ? (uint32_t)left : e->rows, sum);
    }
    return rv;
}

static int score_drawn(const struct eval *e, struct scored *sum)
{
    uint64_t windows = eval_windows(e->val->info.tokens, e->seq, 0);
    uint32_t most = e->rows < EVAL_DRAWN_ROWS ? e->rows : EVAL_DRAWN_ROWS;
    uint32_t rows = windows < most ? (uint32_t)windows : most;
    uint64_t turns = EVAL_DRAWN / ((uint64_t)rows * e->seq), rng = e->draw;
    int rv = 0;

    turns = turns > 0 ? turns : 1;
    for (uint64_t k = 0; k < turns && rv == 0; k++) {
        rv = score(e, rng_below(&rng, windows - rows + 1), rows, sum);
    }
    return rv;
}

int eval_llama_loss(void *self, const struct llama_batch *batch, double *nats)
{
    const struct eval_llama *l = self;

    return llama_loss(l->llama, l->theta, batch, NULL, nats);
}

int eval_bits(const struct eval *e, double *bits_per_byte)
{
    struct scored sum = {0};
    int rv = e->draw != 0 ? score_drawn(e, &sum) : score_first(e, &sum);

    if (rv != 0) {
        return rv;
    }
    if (sum.bytes == 0 || !isfinite(sum.nats)) {
        return LOCO_ENUMERIC;
    }
    *bits_per_byte = sum.nats / (double)sum.bytes / LN_2;
    return 0;
}
