/* llama_stage.c - see llama_stage.h. */
#include "train/model/llama_stage.h"

#include <math.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/model/llama_pass.h"

static int check_ids(const struct llama *m, const uint32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= m->c.vocab) {
            return LOCO_ERANGE;
        }
    }
    return 0;
}

static int check_targets(const struct llama *m, const uint32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= m->c.vocab && ids[i] != LLAMA_IGNORE) {
            return LOCO_ERANGE;
        }
    }
    return 0;
}

static int check_batch(const struct llama *m, const struct stage_batch *batch)
{
    int rv = 0;

    if (batch->b < 1 || batch->t < 1 || batch->t > m->c.seq ||
        batch->b > m->rows_max / batch->t) {
        return LOCO_EINVAL;
    }
    if (m->part.embeds) {
        rv = check_ids(m, batch->tokens, batch->b * batch->t);
    }
    if (rv == 0 && m->part.scores) {
        rv = check_targets(m, batch->targets, batch->b * batch->t);
    }
    return rv;
}

/* A sum is finite only when every part is; one pass, no branch inside. */
static bool all_finite(const float *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i] * 0.0;
    }
    return sum == 0.0;
}

static size_t stream_bytes(const struct llama *m, int64_t b, int64_t t)
{
    return (size_t)(b * t * m->dim) * sizeof(float);
}

static void run_forward(struct llama *m,
                        uint32_t slot,
                        const float *theta,
                        const struct stage_batch *batch)
{
    struct llama_slot *s = &m->slots[slot];

    s->b = batch->b;
    s->t = batch->t;
    s->n = batch->b * batch->t;
    pass_select(m, slot);
    if (!m->part.embeds) {
        memcpy(m->embed, batch->x, stream_bytes(m, s->b, s->t));
    }
    pass_layers(m, theta, batch->tokens, s->b, s->t);
}

/* In a slot, or the place behind the last one. */
static int forward(struct llama *m,
                   uint32_t slot,
                   const float *theta,
                   const struct stage_batch *batch,
                   const float **y)
{
    int rv;

    if (m->be->device != NULL) {
        return LOCO_EDEVICE;
    }
    if (m->part.scores) {
        return LOCO_EINVAL;
    }
    rv = check_batch(m, batch);
    if (rv != 0) {
        return rv;
    }
    run_forward(m, slot, theta, batch);
    *y = m->layers[m->part.layers - 1].out;
    return all_finite(*y, m->n * m->dim) ? 0 : LOCO_ENUMERIC;
}

int stage_forward(struct llama *m,
                  uint32_t slot,
                  const float *theta,
                  const struct stage_batch *batch,
                  const float **y)
{
    if (m->be->device == NULL && slot >= m->n_slots) {
        return LOCO_EINVAL;
    }
    return forward(m, slot, theta, batch, y);
}

int stage_pass(struct llama *m,
               const float *theta,
               const struct stage_batch *batch,
               const float **y)
{
    if (m->be->device == NULL && !m->pass) {
        return LOCO_EINVAL;
    }
    return forward(m, m->n_slots, theta, batch, y);
}

int stage_score(struct llama *m,
                const float *theta,
                const struct stage_batch *batch,
                float *grad,
                double *loss_sum,
                const float **dx)
{
    int rv;

    if (m->be->device != NULL) {
        return LOCO_EDEVICE;
    }
    if (!m->part.scores) {
        return LOCO_EINVAL;
    }
    rv = check_batch(m, batch);
    if (rv != 0) {
        return rv;
    }
    m->fresh = false;
    run_forward(m, 0, theta, batch);
    if (!all_finite(m->final, m->n * m->dim)) {
        return LOCO_ENUMERIC;
    }
    pass_score(m, theta, batch->targets, grad);
    *loss_sum = pass_loss_sum(m);
    if (!isfinite(*loss_sum)) {
        return LOCO_ENUMERIC;
    }
    if (grad != NULL) {
        pass_backward(m, theta, batch->tokens, grad);
        *dx = m->part.embeds ? NULL : m->dx;
        if (!all_finite(m->dx, m->n * m->dim)) {
            return LOCO_ENUMERIC;
        }
    }
    return 0;
}

int stage_backward(struct llama *m,
                   uint32_t slot,
                   const float *theta,
                   const uint32_t *tokens,
                   const float *dy,
                   float *grad,
                   const float **dx)
{
    if (m->be->device != NULL) {
        return LOCO_EDEVICE;
    }
    if (m->part.scores || slot >= m->n_slots || m->slots[slot].n == 0) {
        return LOCO_EINVAL;
    }
    m->fresh = false;
    pass_select(m, slot);
    memcpy(m->dx, dy, stream_bytes(m, m->b, m->t));
    pass_backward(m, theta, tokens, grad);
    m->slots[slot].n = 0;
    *dx = m->part.embeds ? NULL : m->dx;
    return all_finite(m->dx, m->n * m->dim) ? 0 : LOCO_ENUMERIC;
}
