/* llama_stage.c - see llama_stage.h. */
#include "train/model/llama_stage.h"

#include <math.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/half.h"
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

/* One pass, no branch and no order of sums inside: compilers make vectors. */
static bool all_finite(const float *x, int64_t n)
{
    uint32_t bad = 0;

    for (int64_t i = 0; i < n; i++) {
        bad |= (float_bits(x[i]) & 0x7f800000U) == 0x7f800000U;
    }
    return bad == 0;
}

/* ---- the edge: rows of this process, activations of the backend --------- */

static int64_t stream_numel(const struct llama *m)
{
    return m->n * m->dim;
}

static size_t stream_bytes(const struct llama *m)
{
    return (size_t)(stream_numel(m) * m->be->act_bytes);
}

/* Finite numbers, to the nearest bf16, ties to even; exact for what came as
 * bf16 from another host. */
static void round_rows(uint16_t *to, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(x[i]);

        to[i] = (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
    }
}

static void widen_rows(float *to, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = float_from_bits((uint32_t)x[i] << 16);
    }
}

static void put_rows(const struct llama *m, float *to, const float *x)
{
    if (m->be->device == NULL) {
        memcpy(to, x, stream_bytes(m));
    } else if (m->be->act_bytes == 2) {
        round_rows(m->edge_act, x, stream_numel(m));
        m->be->put(m->be, to, m->edge_act, stream_bytes(m));
    } else {
        m->be->put(m->be, to, x, stream_bytes(m));
    }
}

/* *rows: x, which waits for a device. */
static int get_rows(const struct llama *m, const float *x, const float **rows)
{
    int rv;

    *rows = x;
    if (m->be->device == NULL) {
        return 0;
    }
    *rows = m->edge;
    if (m->be->act_bytes == 2) {
        m->be->get(m->be, m->edge_act, x, stream_bytes(m));
    } else {
        m->be->get(m->be, m->edge, x, stream_bytes(m));
    }
    rv = m->be->finish(m->be);
    if (rv == 0 && m->be->act_bytes == 2) {
        widen_rows(m->edge, m->edge_act, stream_numel(m));
    }
    return rv;
}

/* The same, finite. */
static int take_rows(const struct llama *m, const float *x, const float **rows)
{
    int rv = get_rows(m, x, rows);

    return rv != 0                              ? rv
           : all_finite(*rows, stream_numel(m)) ? 0
                                                : LOCO_ENUMERIC;
}

/* Whether rows that stay on a device are finite, by m->rrms, a number for each:
 * to copy them all would take as long as a layer. */
static int check_rrms(const struct llama *m)
{
    int rv;

    m->be->get(m->be, m->losses, m->rrms, (size_t)m->n * sizeof *m->losses);
    rv = m->be->finish(m->be);
    for (int64_t i = 0; i < m->n && rv == 0; i++) {
        rv = m->losses[i] > 0 ? 0 : LOCO_ENUMERIC;
    }
    return rv;
}

/* What the last norm made, before it goes anywhere. */
static int check_final(const struct llama *m)
{
    if (m->be->device != NULL) {
        return check_rrms(m);
    }
    return all_finite(m->final, stream_numel(m)) ? 0 : LOCO_ENUMERIC;
}

/* The gradient of the part's input. The embedding's has had it already, and
 * nobody else wants it. */
static int take_dx(const struct llama *m, const float *theta, const float **dx)
{
    int rv;

    if (!m->part.embeds) {
        return take_rows(m, m->dx, dx);
    }
    *dx = NULL;
    if (m->be->device == NULL) {
        rv = all_finite(m->dx, stream_numel(m)) ? 0 : LOCO_ENUMERIC;
    } else {
        pass_dx_rrms(m, theta);
        rv = check_rrms(m);
    }
    return rv;
}

/* ---- a micro-batch ------------------------------------------------------ */

/* In a slot, or the place behind the last one. What is not finite reaches no
 * device, whose results are looked at less closely. */
static int run_forward(struct llama *m,
                       uint32_t slot,
                       const float *theta,
                       const struct stage_batch *batch)
{
    struct llama_slot *s = &m->slots[slot];

    s->b = batch->b;
    s->t = batch->t;
    s->n = batch->b * batch->t;
    pass_select(m, slot);
    if (!m->part.embeds && m->be->device != NULL &&
        !all_finite(batch->x, stream_numel(m))) {
        s->n = 0;
        return LOCO_ENUMERIC;
    }
    pass_use_theta(m, theta);
    if (!m->part.embeds) {
        put_rows(m, m->embed, batch->x);
    }
    pass_layers(m, theta, batch->tokens, s->b, s->t);
    return 0;
}

static int forward(struct llama *m,
                   uint32_t slot,
                   const float *theta,
                   const struct stage_batch *batch,
                   const float **y)
{
    int rv;

    if (m->part.scores) {
        return LOCO_EINVAL;
    }
    rv = check_batch(m, batch);
    rv = rv != 0 ? rv : run_forward(m, slot, theta, batch);
    if (rv != 0) {
        return rv;
    }
    rv = take_rows(m, m->layers[m->part.layers - 1].out, y);
    if (rv != 0) {
        m->slots[slot].n = 0;
    }
    return rv;
}

int stage_forward(struct llama *m,
                  uint32_t slot,
                  const float *theta,
                  const struct stage_batch *batch,
                  const float **y)
{
    return slot >= m->n_slots ? LOCO_EINVAL : forward(m, slot, theta, batch, y);
}

int stage_pass(struct llama *m,
               const float *theta,
               const struct stage_batch *batch,
               const float **y)
{
    return !m->pass ? LOCO_EINVAL : forward(m, m->n_slots, theta, batch, y);
}

int stage_score(struct llama *m,
                const float *theta,
                const struct stage_batch *batch,
                float *grad,
                double *loss_sum,
                const float **dx)
{
    int rv;

    if (!m->part.scores) {
        return LOCO_EINVAL;
    }
    rv = check_batch(m, batch);
    m->fresh = false;
    rv = rv != 0 ? rv : run_forward(m, 0, theta, batch);
    rv = rv != 0 ? rv : check_final(m);
    if (rv != 0) {
        return rv;
    }
    pass_score(m, theta, batch->targets, grad);
    *loss_sum = pass_loss_sum(m);
    rv = m->be->finish(m->be);
    if (rv != 0) {
        return rv;
    }
    if (!isfinite(*loss_sum)) {
        return LOCO_ENUMERIC;
    }
    if (grad != NULL) {
        pass_backward(m, theta, batch->tokens, grad);
        rv = take_dx(m, theta, dx);
    }
    return rv;
}

int stage_backward(struct llama *m,
                   uint32_t slot,
                   const float *theta,
                   const uint32_t *tokens,
                   const float *dy,
                   float *grad,
                   const float **dx)
{
    if (m->part.scores || slot >= m->n_slots || m->slots[slot].n == 0) {
        return LOCO_EINVAL;
    }
    m->fresh = false;
    pass_select(m, slot);
    m->slots[slot].n = 0;
    if (m->be->device != NULL && !all_finite(dy, stream_numel(m))) {
        return LOCO_ENUMERIC;
    }
    pass_use_theta(m, theta);
    put_rows(m, m->dx, dy);
    pass_backward(m, theta, tokens, grad);
    return take_dx(m, theta, dx);
}
