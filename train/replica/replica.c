/* replica.c - memory, inner steps, evaluation; see replica.h. What goes to and
 * comes from other peers: replica/sync.c. */
#include "train/replica/device.h"
#include "train/replica/gpus.h"
#include "train/replica/host.h"
#include "train/replica/state.h"
#include "train/replica/trainers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "train/replica/eval.h"

/* Of the engine, beside what the state has. */
static unsigned needs_beside(const struct method *m)
{
    return engine_needs(m) & ~(unsigned)(ENGINE_PHI | ENGINE_M | ENGINE_SUM);
}

/* Where another process makes the steps there is no gradient: elements of the
 * memory in which the rule makes a momentum of fragments. */
static uint64_t
momentum_room(const struct replica_options *opt, uint64_t n, uint64_t n_wire)
{
    const struct method *m = &opt->method;

    if (m->gradients || m->trainers > 0) {
        return n;
    }
    if (replica_makes_beside(opt, n, n_wire) || m->group == METHOD_QUORUM ||
        !method_has_momentum(m)) {
        return 0;
    }
    return n_wire < n ? n_wire : n;
}

/* Of all vectors in this process, one state among them. */
static uint64_t
vector_elements(const struct replica_options *opt, uint64_t n, uint64_t n_wire)
{
    const struct method *m = &opt->method;
    uint64_t work = 4 * n; /* theta, gradient, u, v */
    uint64_t state = m->gradients ? 0 : replica_state_elements(m, n);

    if (opt->device != NULL) { /* the rest lies on the GPU */
        work = replica_mirrors(m) * n;
    } else if (opt->shared) {
        work = n + momentum_room(opt, n, n_wire);
    }
    return work + engine_count(needs_beside(m)) * n + state +
           (replica_makes_beside(opt, n, n_wire) ? 1 : 2) * n_wire;
}

size_t replica_bytes(const struct replica_options *opt)
{
    struct backend be;
    struct layout layout;
    const struct llama_room room =
        replica_room(opt, opt->micro_batch, opt->recompute);
    uint64_t n = (uint64_t)room.part.numel, wire = n;
    size_t vectors;

    if (layout_open_part(&layout, &opt->method, &opt->model, &room.part,
                         opt->codec->block, NULL) == 0) {
        wire = layout_most(&layout);
    }
    layout_close(&layout);
    vectors = (size_t)vector_elements(opt, n, wire) * sizeof(float);
    if (opt->shared) {
        return vectors;
    }
    if (opt->device != NULL) {
        backend_device_plan(&be, opt->device->gpu.bf16);
        return vectors + llama_edge_bytes(&opt->model, &be, &room);
    }
    backend_cpu_ref(&be);
    return vectors + llama_room_bytes(&opt->model, &be, &room) +
           optimizer_scratch_bytes(&opt->optimizer, &opt->model, &room.part,
                                   opt->threads);
}

size_t replica_fallback_bytes(const struct replica_options *opt)
{
    const struct llama_room room =
        replica_room(opt, opt->micro_batch, opt->recompute);
    size_t vectors = 4 * (size_t)room.part.numel; /* theta, gradient, u, v */
    struct backend be;

    backend_cpu_ref(&be);
    return vectors * sizeof(float) + llama_room_bytes(&opt->model, &be, &room) +
           optimizer_scratch_bytes(&opt->optimizer, &opt->model, &room.part,
                                   opt->threads);
}

/* The engine's own copies of what lies on a GPU. */
static void take_mirrors(struct replica *r)
{
    const struct method *m = &r->opt.method;
    struct engine *e = &r->engine;

    r->mirrored = true;
    e->theta = replica_take_vector(r, r->n);
    if (replica_mirrors_grad(m)) {
        e->grad = e->next_m = replica_take_vector(r, r->n);
    }
    e->u = replica_shares_u(m) ? replica_take_vector(r, r->n) : NULL;
    e->v = replica_shares_v(m) ? replica_take_vector(r, r->n) : NULL;
    r->spare = m->gradients ? replica_take_vector(r, r->n) : NULL;
}

/* Whether the anchor may change places with the memory of the mean: no round
 * has other parts, which would still be read from there. */
static bool exchanges(const struct replica *r)
{
    return r->makes_beside || (r->room == NULL && r->opt.method.trainers == 0 &&
                               r->n_wire == r->n);
}

/* Of the engine and the state; what a room has is not taken again. */
static void take_state(struct replica *r, bool in_room)
{
    const struct method *m = &r->opt.method;
    unsigned needs = in_room ? needs_beside(m) : engine_needs(m);
    float **slots[ENGINE_VECTORS];

    engine_slots(&r->engine, slots);
    for (unsigned i = 0; i < ENGINE_VECTORS; i++) {
        uint64_t all =
            1U << i == ENGINE_PHI && m->trainers > 0 ? m->trainers : 1;

        if ((needs & (1U << i)) != 0) {
            *slots[i] = replica_take_vector(r, all * r->n);
        }
    }
    if (!in_room) {
        r->phi = r->engine.phi;
        r->m = r->engine.m;
        r->state_u = m->period_u > 0 ? replica_take_vector(r, r->n) : NULL;
        r->state_v = m->period_v > 0 ? replica_take_vector(r, r->n) : NULL;
    }
}

static int take_vectors(struct replica *r)
{
    struct engine *e = &r->engine;
    uint64_t grad =
        r->opt.shared ? momentum_room(&r->opt, r->n, r->n_wire) : r->n;
    int rv;

    r->makes_beside = replica_makes_beside(&r->opt, r->n, r->n_wire);
    if (r->opt.device != NULL) {
        take_mirrors(r);
    } else if (grad > 0) {
        e->grad = replica_take_vector(r, grad);
        e->next_m = r->makes_beside ? NULL : e->grad;
    }
    take_state(r, replica_take_room(r, &rv));
    e->exchanges = exchanges(r);
    r->contribution = replica_take_vector(r, r->n_wire);
    if (!r->makes_beside) {
        r->average = e->next_phi = replica_take_vector(r, r->n_wire);
    }
    for (unsigned i = 0; i < r->n_vectors; i++) {
        rv = r->vectors[i].x == NULL ? LOCO_ENOMEM : rv;
    }
    return rv;
}

static int take_memory(struct replica *r)
{
    size_t positions = (size_t)replica_rows_most(&r->opt) * r->opt.seq;

    if (r->opt.shared) { /* the text goes to the process */
        return take_vectors(r);
    }
    if (positions < (size_t)EVAL_ROWS * r->opt.seq) {
        positions = (size_t)EVAL_ROWS * r->opt.seq;
    }
    r->tokens = calloc(positions, sizeof *r->tokens);
    r->targets = calloc(positions, sizeof *r->targets);
    return r->tokens == NULL || r->targets == NULL ? LOCO_ENOMEM
                                                   : take_vectors(r);
}

static int open_loader(struct replica *r, char *errmsg)
{
    const struct replica_options *opt = &r->opt;
    bool own = opt->slots == 0;
    bool has_text = !opt->shared || opt->n_train > 0;
    struct loader_options lo = {
        .shards = opt->train,
        .n_shards = opt->n_train,
        .seq = opt->seq,
        .batch = opt->method.trainers > 0 ? 1
                 : own                    ? opt->batch
                                          : opt->micro_batch,
        .seed = opt->seed,
        .peer = opt->peer,
    };

    r->have_loader = has_text;
    return has_text ? loader_open(&r->loader, &lo, errmsg) : 0;
}

int replica_open(struct replica *r,
                 const struct replica_options *opt,
                 char *errmsg)
{
    int rv;

    memset(r, 0, sizeof *r);
    r->opt = *opt;
    if (opt->slots > 0 && opt->method.trainers > 0) {
        return errmsg_invalid(
            errmsg, "trainers (adloco) train whole models: set stages "
                    "to 1");
    }
    r->opt.part = replica_room(opt, opt->micro_batch, opt->recompute).part;
    r->n = (uint64_t)r->opt.part.numel;
    rv = layout_open_part(&r->layout, &opt->method, &opt->model, &r->opt.part,
                          opt->codec->block, errmsg);
    r->have_layout = true;
    if (rv != 0) {
        return rv;
    }
    r->n_wire = layout_most(&r->layout);
    engine_init(&r->engine, &opt->method, &r->layout.fragments, r->n,
                opt->members);
    rv = take_memory(r);
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "out of memory for %llu parameters",
                           (unsigned long long)r->n);
    }
    rv = replica_open_work(r, errmsg);
    return rv != 0 ? rv : open_loader(r, errmsg);
}

void replica_close(struct replica *r)
{
    if (r->have_loader) {
        loader_close(&r->loader);
    }
    replica_close_work(r);
    if (r->have_layout) {
        layout_close(&r->layout);
    }
    free(r->targets);
    free(r->tokens);
    replica_free_vectors(r);
    replica_free_rooms(r);
    memset(r, 0, sizeof *r);
}

void replica_read(struct replica *r, bool shared, uint64_t position)
{
    r->reads_shared = shared;
    r->position = position;
}

int replica_text(struct replica *r, uint32_t *tokens, uint32_t *targets)
{
    struct loader shared = r->loader;

    if (!r->have_loader) {
        return LOCO_ENOENT;
    }
    if (r->reads_shared) {
        shared.opt.peer = 0;
    }
    return loader_batch(&shared, r->reads_shared ? r->position : r->inner_step,
                        tokens, targets);
}

/* Batches of one size are found by the count of steps, or by their position in
 * the order of all, which is peer 0's; where they grow rows are taken one by
 * one, and tokens_seen says how many were. */
static int read_rows(struct replica *r, uint32_t first, uint32_t rows)
{
    uint64_t at = r->tokens_seen / r->opt.seq + first;
    int rv = 0;

    if (r->opt.method.trainers == 0) {
        return replica_text(r, r->tokens, r->targets);
    }
    for (uint32_t i = 0; i < rows && rv == 0; i++) {
        size_t cell = (size_t)i * r->opt.seq;

        rv = loader_batch(&r->loader, at + i, r->tokens + cell,
                          r->targets + cell);
    }
    return rv;
}

/* The gradient of the next rows at theta into grad, a sum; its loss. */
int replica_gradient(struct replica *r,
                     uint32_t first,
                     uint32_t rows,
                     double *sum)
{
    struct llama_batch batch = {
        .tokens = r->tokens,
        .targets = r->targets,
        .b = rows,
        .t = r->opt.seq,
    };
    int rv = read_rows(r, first, rows);

    if (rv != 0) {
        return rv;
    }
    do {
        rv = r->gpus != NULL
                 ? replica_gpus_gradient(r, &batch, sum)
                 : llama_gradient(r->llama, r->theta, &batch, r->grad, sum);
    } while (rv == LOCO_ENOMEM && replica_lower_micro_batch(r));
    return rv == 0 && !isfinite(*sum) ? LOCO_ENUMERIC : rv;
}

/* Where gradients are averaged: a token's mean, for the engine to pack. */
static int fetch_mean(struct replica *r, float scale)
{
    float *grad = r->engine.grad;
    int rv = replica_fetch_grad(r);

    for (uint64_t i = 0; rv == 0 && i < r->n; i++) {
        grad[i] = grad[i] * scale;
    }
    return rv;
}

void replica_count_step(struct replica *r, uint64_t positions)
{
    r->inner_step++;
    r->since++;
    r->tokens_seen += positions;
    r->tokens_pending += positions;
}

int replica_take_gradient(struct replica *r, uint64_t positions)
{
    struct optimizer_rate rate = {
        .lr = schedule_lr(&r->opt.schedule, replica_clock(r)),
        .grad_scale = positions > 0 ? 1.0 / (double)positions : 0,
    };
    int rv = 0;

    if (r->opt.method.gradients) {
        rv = fetch_mean(r, (float)rate.grad_scale);
    } else if (positions > 0) {
        r->stale = true;
        rv = optimizer_step(&r->optimizer, &r->backend, r->theta, r->grad,
                            &rate, NULL);
    }
    if (rv == 0) {
        replica_count_step(r, positions);
    }
    return rv;
}

int replica_step(struct replica *r, float *loss)
{
    uint32_t rows = r->opt.batch;
    uint64_t positions;
    double sum = 0;
    int rv;

    if (r->opt.slots > 0) {
        return LOCO_EINVAL;
    }
    if (!r->have_backend || r->llama == NULL) {
        return LOCO_EDEVICE;
    }
    rv = r->opt.method.trainers > 0 ? replica_trainers_gradient(r, &rows, &sum)
                                    : replica_gradient(r, 0, rows, &sum);
    positions = (uint64_t)rows * r->opt.seq;
    rv = rv != 0 ? rv : replica_take_gradient(r, positions);
    if (rv == 0) {
        *loss = (float)(sum / (double)positions);
    }
    return rv;
}

int replica_eval_by(struct replica *r,
                    const struct replica_measure *by,
                    uint64_t draw,
                    double *bits_per_byte)
{
    const struct eval e = {
        .loss = by->loss,
        .self = by->self,
        .val = r->opt.val,
        .seq = r->opt.seq,
        .most = r->opt.eval_tokens,
        .draw = draw,
        .token_bytes = r->opt.token_bytes,
        .rows = by->rows,
        .tokens = by->tokens,
        .targets = by->targets,
    };

    return r->opt.val == NULL ? LOCO_ENOENT : eval_bits(&e, bits_per_byte);
}

int replica_eval(struct replica *r, uint64_t draw, double *bits_per_byte)
{
    struct eval_llama model = {.llama = r->llama};
    const struct replica_measure here = {eval_llama_loss, &model, EVAL_ROWS,
                                         r->tokens, r->targets};

    if (r->opt.slots > 0) {
        return LOCO_EINVAL;
    }
    if (r->opt.val == NULL || r->opt.shared) {
        return LOCO_ENOENT;
    }
    if (!r->have_backend || r->llama == NULL) {
        return LOCO_EDEVICE;
    }
    model.theta = replica_phi_for_model(r);
    return replica_eval_by(r, &here, draw, bits_per_byte);
}
