/* llama.c - see llama.h. */
#include "train/model/llama_pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

#define HEAD_ROWS_MIN 64

/* Hands out slices of one allocation; with base NULL it only counts. Slices
 * start on cache lines, on a device on 256 bytes: its products may choose
 * another order of sums for other alignments. `used` counts floats. */
struct arena {
    float *base;
    size_t used;
    size_t align; /* floats */
};

static struct arena arena_of(const struct backend *be, float *base)
{
    return (struct arena){.base = base, .align = be->cpu == NULL ? 64 : 16};
}

static float *take(struct arena *a, int64_t n)
{
    size_t at = a->used;

    a->used += ((size_t)n + a->align - 1) / a->align * a->align;
    return a->base == NULL ? NULL : a->base + at;
}

/* n activations. */
static float *take_act(const struct llama *m, struct arena *a, int64_t n)
{
    return take(a, (n * m->be->act_bytes + 3) / 4);
}

const char *llama_recompute_text(enum llama_recompute recompute)
{
    switch (recompute) {
    case LLAMA_RECOMPUTE_NOTHING:
        return "nothing";
    case LLAMA_RECOMPUTE_BRANCHES:
        return "norms and SwiGLU";
    case LLAMA_RECOMPUTE_LAYERS:
        return "whole layers (a third more work)";
    }
    return "";
}

/* What LLAMA_RECOMPUTE_BRANCHES makes again. */
static void
plan_branches(const struct llama *m, struct layer *l, struct arena *a)
{
    int64_t n = m->rows_max;

    l->x1 = take_act(m, a, n * m->dim);
    l->x2 = take_act(m, a, n * m->dim);
    l->h = take_act(m, a, n * m->ffn);
}

/* What LLAMA_RECOMPUTE_LAYERS makes again as well. */
static void plan_inside(const struct llama *m, struct layer *l, struct arena *a)
{
    int64_t n = m->rows_max;

    l->rrms1 = take(a, n);
    l->rrms2 = take(a, n);
    l->qkv = take_act(m, a, n * m->qkv_dim);
    l->att = take_act(m, a, n * m->dim);
    l->lse = take(a, n * m->c.heads);
    l->mid = take_act(m, a, n * m->dim);
    l->gu = take_act(m, a, n * 2 * m->ffn);
}

/* Buffers of its own for a slot's layer i; what is made again lies in those of
 * the very first, which all share. What only passes needs those of the layer
 * before. */
static void
plan_layer(struct llama *m, uint32_t slot, uint32_t i, struct arena *a)
{
    size_t at = (size_t)slot * m->part.layers + i;
    struct layer unused;
    struct layer *l = m->layers_all == NULL ? &unused : &m->layers_all[at];

    if (slot == m->n_slots && i >= 2) {
        if (m->layers_all != NULL) {
            *l = l[-2];
        }
        return;
    }
    if (at > 0 && m->layers_all != NULL) {
        *l = m->layers_all[0];
    }
    if (at == 0 || m->recompute < LLAMA_RECOMPUTE_BRANCHES) {
        plan_branches(m, l, a);
    }
    if (at == 0 || m->recompute < LLAMA_RECOMPUTE_LAYERS) {
        plan_inside(m, l, a);
    }
    l->out = take_act(m, a, m->rows_max * m->dim);
}

static void plan_slot(struct llama *m, uint32_t slot, struct arena *a)
{
    float *embed;

    for (uint32_t i = 0; i < m->part.layers; i++) {
        plan_layer(m, slot, i, a);
    }
    embed = take_act(m, a, m->rows_max * m->dim);
    if (m->slots != NULL) {
        m->slots[slot] = (struct llama_slot){
            .layers = m->layers_all + (size_t)slot * m->part.layers,
            .embed = embed,
        };
    }
}

/* The head, where there is one, is done with its logits before the layers'
 * gradients begin: one place for both. */
static void plan_backward(struct llama *m, struct arena *a)
{
    int64_t n = m->rows_max;
    size_t from = a->used;
    size_t logits_end;

    m->logits =
        take_act(m, a, m->part.scores ? m->head_rows * m->logits_ld : 0);
    logits_end = a->used;
    a->used = from;
    m->datt = take_act(m, a, n * m->dim);
    m->dqkv = take_act(m, a, n * m->qkv_dim);
    m->dgu = take_act(m, a, n * 2 * m->ffn);
    m->dh = take_act(m, a, n * m->ffn);
    a->used = a->used > logits_end ? a->used : logits_end;
}

static void plan(struct llama *m, struct arena *a)
{
    int64_t n = m->rows_max;
    int64_t half = m->dim / m->c.heads / 2;
    int64_t copied = m->part.numel + pass_copy_zeros(m);

    for (uint32_t i = 0; i < m->n_slots + m->pass; i++) {
        plan_slot(m, i, a);
    }
    m->cos = take(a, m->c.seq * half);
    m->sin = take(a, m->c.seq * half);
    m->final = take_act(m, a, m->part.scores ? n * m->dim : 0);
    m->rrms = take(a, n);
    m->loss = take(a, n);
    m->dx = take_act(m, a, n * m->dim);
    m->dnorm = take_act(m, a, n * m->dim);
    plan_backward(m, a);
    m->scratch = take(a, backend_scratch_floats(m->be, m->c.seq));
    m->copy = take(a, (int64_t)backend_copy_bytes(m->be, copied) / 4 + 1);
}

static void shape(struct llama *m,
                  const struct llama_config *c,
                  const struct backend *be,
                  const struct llama_room *room)
{
    int64_t ld = backend_logits_ld(be, c->vocab);
    int64_t rows = be->head_floats / ld;

    memset(m, 0, sizeof *m);
    m->c = *c;
    m->part = room->part;
    m->n_slots = room->slots;
    m->pass = room->pass;
    m->be = be;
    m->recompute = room->recompute;
    m->rows_max = (int64_t)room->micro_batch * c->seq;
    rows = rows < HEAD_ROWS_MIN ? HEAD_ROWS_MIN : rows;
    m->head_rows = rows < m->rows_max ? rows : m->rows_max;
    m->dim = c->dim;
    m->ffn = c->ffn;
    m->vocab = c->vocab;
    m->logits_ld = ld;
    m->head_out = be->act_bytes == 2 ? ld : m->vocab;
    m->qkv_dim = (int64_t)c->dim / c->heads * (c->heads + 2 * c->kv_heads);
}

/* Angles in double, rounded once. */
void llama_rope_tables(const struct llama_config *c, float *cs, float *sn)
{
    int64_t d = c->dim / c->heads;

    for (int64_t t = 0; t < c->seq; t++) {
        for (int64_t j = 0; j < d / 2; j++) {
            double inv =
                pow((double)c->rope_theta, -2.0 * (double)j / (double)d);

            cs[t * (d / 2) + j] = (float)cos((double)t * inv);
            sn[t * (d / 2) + j] = (float)sin((double)t * inv);
        }
    }
}

static int fill_rope(struct llama *m)
{
    size_t n = (size_t)m->c.seq * (size_t)(m->dim / m->c.heads / 2);
    float *table = malloc(2 * n * sizeof *table);

    if (table == NULL) {
        return LOCO_ENOMEM;
    }
    llama_rope_tables(&m->c, table, table + n);
    m->be->put(m->be, m->cos, table, n * sizeof *table);
    m->be->put(m->be, m->sin, table + n, n * sizeof *table);
    free(table);
    return m->be->finish(m->be);
}

static struct llama_room whole_room(const struct llama_config *c,
                                    uint32_t micro_batch,
                                    enum llama_recompute recompute)
{
    struct llama_room room = {
        .micro_batch = micro_batch, .slots = 1, .recompute = recompute};

    llama_part_whole(c, &room.part);
    return room;
}

size_t llama_room_bytes(const struct llama_config *c,
                        const struct backend *backend,
                        const struct llama_room *room)
{
    struct llama m;
    struct arena a = arena_of(backend, NULL);

    shape(&m, c, backend, room);
    plan(&m, &a);
    return a.used * sizeof(float) + sizeof m +
           (size_t)(room->slots + room->pass) *
               (sizeof *m.slots + room->part.layers * sizeof *m.layers);
}

size_t llama_workspace_bytes(const struct llama_config *c,
                             const struct backend *backend,
                             uint32_t micro_batch,
                             enum llama_recompute recompute)
{
    struct llama_room room = whole_room(c, micro_batch, recompute);

    return llama_room_bytes(c, backend, &room);
}

/* Of a device's stage, which other hosts go on from. */
static size_t edge_numel(const struct llama *m)
{
    return m->part.embeds && m->part.scores
               ? 0
               : (size_t)m->rows_max * (size_t)m->dim;
}

size_t llama_edge_bytes(const struct llama_config *c,
                        const struct backend *backend,
                        const struct llama_room *room)
{
    struct llama m;

    shape(&m, c, backend, room);
    return edge_numel(&m) *
           (sizeof *m.edge +
            (backend->act_bytes == 2 ? sizeof *m.edge_act : 0));
}

static bool take_edge(struct llama *m)
{
    size_t n = m->be->device == NULL ? 0 : edge_numel(m);

    if (n > 0) {
        m->edge = malloc(n * sizeof *m->edge);
    }
    if (n > 0 && m->be->act_bytes == 2) {
        m->edge_act = malloc(n * sizeof *m->edge_act);
    }
    return n == 0 ||
           (m->edge != NULL && (m->be->act_bytes != 2 || m->edge_act != NULL));
}

/* m is shaped: take its memory and lay it out. */
static int allocate(struct llama *m)
{
    struct arena a = arena_of(m->be, NULL);

    plan(m, &a);
    m->slots = calloc(m->n_slots + m->pass, sizeof *m->slots);
    m->layers_all = calloc((size_t)(m->n_slots + m->pass) * m->part.layers,
                           sizeof *m->layers_all);
    m->arena = m->be->take(m->be, a.used * sizeof(float));
    if (m->slots == NULL || m->layers_all == NULL || m->arena == NULL) {
        return LOCO_ENOMEM;
    }
    a = arena_of(m->be, m->arena);
    plan(m, &a);
    m->losses = m->loss;
    if (m->be->device != NULL) {
        m->losses = malloc((size_t)m->rows_max * sizeof *m->losses);
    }
    if (m->losses == NULL || !take_edge(m)) {
        return LOCO_ENOMEM;
    }
    return fill_rope(m);
}

int llama_open_room(struct llama **out,
                    const struct llama_config *c,
                    const struct backend *backend,
                    const struct llama_room *room)
{
    struct llama *m;
    int rv;

    if (llama_config_check(c, NULL) != 0 || room->micro_batch == 0 ||
        room->micro_batch > LLAMA_MICRO_BATCH_MAX || room->slots == 0 ||
        room->slots > LLAMA_SLOTS_MAX) {
        return LOCO_EINVAL;
    }
    m = malloc(sizeof *m);
    if (m == NULL) {
        return LOCO_ENOMEM;
    }
    shape(m, c, backend, room);
    rv = allocate(m);
    if (rv != 0) {
        llama_close(m);
        return rv;
    }
    *out = m;
    return 0;
}

int llama_open(struct llama **out,
               const struct llama_config *c,
               const struct backend *backend,
               uint32_t micro_batch,
               enum llama_recompute recompute)
{
    struct llama_room room;

    if (llama_config_check(c, NULL) != 0) {
        return LOCO_EINVAL;
    }
    room = whole_room(c, micro_batch, recompute);
    return llama_open_room(out, c, backend, &room);
}

void llama_close(struct llama *m)
{
    if (m == NULL) {
        return;
    }
    if (m->losses != m->loss) {
        free(m->losses);
    }
    free(m->edge);
    free(m->edge_act);
    m->be->use_theta(m->be, NULL, 0, NULL);
    m->be->give(m->be, m->arena);
    free(m->layers_all);
    free(m->slots);
    free(m);
}

double llama_flops_per_token(const struct llama_config *c, int64_t t)
{
    double matrices = 0;
    int n = llama_tensor_count(c);

    for (int i = 0; i < n; i++) {
        struct llama_view v;

        llama_tensor(c, i, &v);
        if (v.ndim == 2 && (v.offset != 0 || c->tied)) {
            matrices += (double)v.numel;
        }
    }
    return 6 * matrices + 6.0 * c->layers * c->dim * (double)t;
}

static int check_batch(const struct llama *m, const struct llama_batch *batch)
{
    if (batch->t < 1 || batch->t > m->c.seq || batch->b < 1) {
        return LOCO_EINVAL;
    }
    for (int64_t n = 0; n < batch->b * batch->t; n++) {
        uint32_t target = batch->targets[n];

        if (batch->tokens[n] >= m->c.vocab ||
            (target >= m->c.vocab && target != LLAMA_IGNORE)) {
            return LOCO_ERANGE;
        }
    }
    return 0;
}

static int run_batch(struct llama *m,
                     const float *theta,
                     const struct llama_batch *batch,
                     float *grad,
                     double *loss_sum)
{
    int64_t b_max;
    int rv = check_batch(m, batch);

    *loss_sum = 0;
    if (rv != 0) {
        return rv;
    }
    b_max = m->rows_max / batch->t;
    pass_use_theta(m, theta);
    for (int64_t b = 0; b < batch->b; b += b_max) {
        int64_t left = batch->b - b;
        struct llama_batch part = {
            .tokens = batch->tokens + b * batch->t,
            .targets = batch->targets + b * batch->t,
            .b = left < b_max ? left : b_max,
            .t = batch->t,
        };

        *loss_sum += pass_loss(m, theta, &part, grad);
        m->fresh = false;
    }
    rv = m->be->finish(m->be);
    if (rv != 0) {
        return rv;
    }
    return isfinite(*loss_sum) ? 0 : LOCO_ENUMERIC;
}

int llama_loss(struct llama *m,
               const float *theta,
               const struct llama_batch *batch,
               float *grad,
               double *loss_sum)
{
    m->fresh = false;
    return run_batch(m, theta, batch, grad, loss_sum);
}

int llama_gradient(struct llama *m,
                   const float *theta,
                   const struct llama_batch *batch,
                   float *grad,
                   double *loss_sum)
{
    m->fresh = true;
    return run_batch(m, theta, batch, grad, loss_sum);
}

/* Positions first .. end - 1 of sequence b hold all that is scored of it. */
static void scored_range(const struct llama_batch *batch,
                         int64_t b,
                         int64_t *first,
                         int64_t *end)
{
    const uint32_t *targets = batch->targets + b * batch->t;

    *first = 0;
    *end = batch->t;
    while (*first < *end && targets[*first] == LLAMA_IGNORE) {
        ++*first;
    }
    while (*end > *first && targets[*end - 1] == LLAMA_IGNORE) {
        --*end;
    }
}

/* A micro-batch that fits. */
static int row_losses(struct llama *m,
                      const float *theta,
                      const struct llama_batch *part,
                      double *sums)
{
    int64_t first, end;
    int rv;

    pass_forward(m, theta, part);
    for (int64_t b = 0; b < part->b; b++) {
        scored_range(part, b, &first, &end);
        pass_score_rows(m, theta, part->targets, b * part->t + first,
                        b * part->t + end);
    }
    pass_get_losses(m);
    rv = m->be->finish(m->be);
    for (int64_t b = 0; b < part->b && rv == 0; b++) {
        scored_range(part, b, &first, &end);
        sums[b] = 0;
        for (int64_t i = first; i < end; i++) {
            sums[b] += m->losses[b * part->t + i];
        }
        rv = isfinite(sums[b]) ? 0 : LOCO_ENUMERIC;
    }
    return rv;
}

int llama_row_losses(struct llama *m,
                     const float *theta,
                     const struct llama_batch *batch,
                     double *sums)
{
    int rv = check_batch(m, batch);
    int64_t b_max = rv == 0 ? m->rows_max / batch->t : 1;

    if (rv == 0) {
        pass_use_theta(m, theta);
    }
    for (int64_t b = 0; b < batch->b && rv == 0; b += b_max) {
        int64_t left = batch->b - b;

        rv = row_losses(m, theta,
                        &(struct llama_batch){
                            .tokens = batch->tokens + b * batch->t,
                            .targets = batch->targets + b * batch->t,
                            .b = left < b_max ? left : b_max,
                            .t = batch->t,
                        },
                        sums + b);
    }
    return rv;
}

/* Logits of one row in the caller's memory, as fp32. */
static int
read_logits(struct llama *m, const float *theta, int64_t row, float *logits)
{
    const struct backend *be = m->be;
    int rv;

    if (be->device == NULL) {
        pass_logits(m, theta, row, 1, logits);
        return 0;
    }
    pass_logits(m, theta, row, 1, m->logits);
    be->get(be, logits, m->logits, (size_t)(m->vocab * be->act_bytes));
    rv = be->finish(be);
    /* bf16 is the upper half of an fp32: spread them from the end. */
    for (int64_t v = m->vocab - 1; v >= 0 && be->act_bytes == 2; v--) {
        uint32_t bits = 0;

        memcpy(&bits, (const unsigned char *)logits + 2 * v, 2);
        bits = (bits & 0xffffU) << 16;
        memcpy(&logits[v], &bits, sizeof bits);
    }
    return rv;
}

int llama_logits(struct llama *m,
                 const float *theta,
                 const uint32_t *tokens,
                 int64_t t,
                 float *logits)
{
    struct llama_batch batch = {tokens, tokens, 1, t};
    int rv = check_batch(m, &batch);

    if (rv != 0) {
        return rv;
    }
    pass_use_theta(m, theta);
    pass_forward(m, theta, &batch);
    rv = read_logits(m, theta, t - 1, logits);
    for (int64_t v = 0; rv == 0 && v < m->vocab; v++) {
        if (!isfinite(logits[v])) {
            return LOCO_ENUMERIC;
        }
    }
    return rv;
}
