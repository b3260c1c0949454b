/* trainer_residual.c - what rounding took from the last contribution, for the
 * next one (trainer.h, error feedback). On the trainer's thread. */
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/trainer_internal.h"
#include "proto/base/err.h"

/* The residual has the place of every parameter, one fragment behind the
 * other. Where the first part of the vector of `round` has its own, and how
 * long it is. */
static float *
residual_of(const struct trainer *t, uint64_t round, uint64_t *len)
{
    const struct layout *l = &t->replica.layout;
    struct layout_part parts[METHOD_STREAMS_MAX];
    size_t n = layout_parts(l, round, parts);

    if (t->residual == NULL || n == 0) {
        return NULL;
    }
    *len = parts[0].len;
    return t->residual + layout_fragment_at(l, parts[0].turn.fragment);
}

void trainer_residual_add(struct trainer *t)
{
    float *c = t->replica.contribution;
    uint64_t len = 0;
    const float *from = residual_of(t, t->replica.round + 1, &len);

    for (uint64_t i = 0; from != NULL && i < len; i++) {
        c[i] = c[i] + from[i];
    }
}

void trainer_residual_set(struct trainer *t, uint64_t round, const float *error)
{
    uint64_t len = 0;
    float *to = residual_of(t, round, &len);

    if (to == NULL) {
        return;
    }
    if (error == NULL) {
        memset(to, 0, len * sizeof *to);
    } else {
        memcpy(to, error, len * sizeof *to);
    }
}

void trainer_residual_drop(struct trainer *t)
{
    if (t->residual != NULL) {
        memset(t->residual, 0, t->replica.n * sizeof *t->residual);
    }
}

int trainer_residual_take(struct trainer *t)
{
    const struct replica *r = &t->replica;

    t->residual = calloc(r->n, sizeof *t->residual);
    return t->residual == NULL ? LOCO_ENOMEM : 0;
}
