/* trainer_text.c - see trainer_text.h. */
#include "daemon/machine/trainer_text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

int trainer_text_open(struct trainer_text *t,
                      const struct shard *shards,
                      size_t n)
{
    t->n = n;
    t->shards = calloc(n + 1, sizeof *t->shards);
    t->arrived = calloc(n + 1, sizeof *t->arrived);
    if (t->shards == NULL || t->arrived == NULL) {
        return LOCO_ENOMEM;
    }
    if (n > 0) {
        memcpy(t->shards, shards, n * sizeof *t->shards);
    }
    return 0;
}

void trainer_text_close(struct trainer_text *t)
{
    free(t->shards);
    free((void *)t->arrived);
    memset(t, 0, sizeof *t);
}

void trainer_text_add(struct trainer_text *t,
                      size_t slot,
                      const struct shard *shard)
{
    assert(slot < t->n && shard->info.tokens == t->shards[slot].info.tokens);
    t->arrived[slot] = shard;
}

void trainer_text_take(struct trainer_text *t)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->arrived[i] != NULL) {
            t->shards[i] = *t->arrived[i];
            t->arrived[i] = NULL;
        }
    }
}
