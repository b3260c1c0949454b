/* stage.c - see replica/stage.h. */
#include "train/replica/stage.h"

#include <math.h>

#include "proto/base/err.h"
#include "train/replica/device.h"
#include "train/replica/eval.h"

/* Inner steps times turns are fewer than 2^that. */
#define REDRAW_BITS 40

static bool usable(const struct replica *r)
{
    return r->have_backend && r->llama != NULL && r->opt.slots > 0;
}

static struct stage_batch batch_of(const struct replica *r,
                                   const uint32_t *tokens,
                                   const uint32_t *targets,
                                   const float *x)
{
    return (struct stage_batch){.b = r->opt.micro_batch,
                                .t = r->opt.seq,
                                .tokens = tokens,
                                .targets = targets,
                                .x = x};
}

/* A GPU had no room for what a launcher takes, and has it now: the memory of
 * the outer step, which is only for speed, was given back. */
static bool has_more_room(struct replica *r, int rv)
{
    return rv == LOCO_ENOMEM && replica_lower_micro_batch(r);
}

/* Or it was the memory of activations, which are made again from now on; what
 * was in the slots went with it. */
static int begin_again(struct replica *r, int rv)
{
    return rv == LOCO_ENOMEM && replica_recompute_more(r) ? LOCO_EBUSY : rv;
}

int replica_stage_tokens(const struct replica *r,
                         uint64_t step,
                         uint32_t draw,
                         uint32_t *tokens,
                         uint32_t *targets)
{
    uint32_t turns;
    uint64_t redraw;

    if (r->opt.slots == 0) {
        return LOCO_EINVAL;
    }
    turns = r->opt.batch / r->opt.micro_batch;
    redraw = draw / turns;
    return loader_batch(&r->loader,
                        (redraw << REDRAW_BITS) + step * turns + draw % turns,
                        tokens, targets);
}

int replica_stage_forward(struct replica *r,
                          uint32_t slot,
                          const uint32_t *tokens,
                          const float *x,
                          const float **y)
{
    const struct stage_batch batch = batch_of(r, tokens, NULL, x);
    int rv;

    if (!usable(r)) {
        return LOCO_EINVAL;
    }
    do {
        rv = stage_forward(r->llama, slot, r->theta, &batch, y);
    } while (has_more_room(r, rv));
    return begin_again(r, rv);
}

/* Between two steps the gradient's memory is the engine's (replica.h). */
static void begin_sum(struct replica *r)
{
    if (r->summed == 0) {
        r->backend.clear(&r->backend, r->grad, r->n * sizeof(float));
    }
}

/* One more is in the sum, or the sum is rubbish: no count will fit. Where a GPU
 * has more room now, the next attempt at a step gets it. */
static int note(struct replica *r, int rv)
{
    if (rv == 0 && r->summed < REPLICA_MICRO_MAX) {
        r->summed++;
    } else if (rv != 0 && rv != LOCO_EINVAL && rv != LOCO_ERANGE) {
        r->summed = UINT32_MAX;
    }
    return has_more_room(r, rv) ? LOCO_EBUSY : begin_again(r, rv);
}

int replica_stage_score(struct replica *r,
                        const uint32_t *tokens,
                        const uint32_t *targets,
                        const float *x,
                        const float **dx)
{
    const struct stage_batch batch = batch_of(r, tokens, targets, x);
    double loss = 0;
    int rv;

    if (!usable(r)) {
        return LOCO_EINVAL;
    }
    begin_sum(r);
    rv = note(r, stage_score(r->llama, r->theta, &batch, r->grad, &loss, dx));
    r->loss_sum += rv == 0 ? loss : 0;
    return rv;
}

int replica_stage_backward(struct replica *r,
                           uint32_t slot,
                           const uint32_t *tokens,
                           const float *dy,
                           const float **dx)
{
    if (!usable(r)) {
        return LOCO_EINVAL;
    }
    begin_sum(r);
    return note(
        r, stage_backward(r->llama, slot, r->theta, tokens, dy, r->grad, dx));
}

void replica_stage_clear(struct replica *r)
{
    r->summed = 0;
    r->loss_sum = 0;
}

int replica_stage_step(struct replica *r,
                       uint32_t step,
                       uint32_t count,
                       float *loss)
{
    uint64_t positions = (uint64_t)count * r->opt.micro_batch * r->opt.seq;
    uint64_t since = r->since;
    int rv = usable(r) && count == r->summed ? 0 : LOCO_EINVAL;

    *loss = r->opt.part.scores && count > 0
                ? (float)(r->loss_sum / (double)positions)
                : NAN;
    if (rv == 0) {
        begin_sum(r); /* of nothing */
        r->since = step;
        rv = replica_take_gradient(r, positions);
        r->since = rv == 0 ? r->since : since;
    }
    replica_stage_clear(r);
    return rv;
}

/* ---- held-out text ------------------------------------------------------ */

int replica_stage_windows(const struct replica *r,
                          uint32_t micro,
                          uint32_t *tokens,
                          uint32_t *targets)
{
    uint32_t rows = r->opt.micro_batch, seq = r->opt.seq;
    uint64_t first = (uint64_t)micro * rows, windows, scored;

    if (r->opt.slots == 0) {
        return LOCO_EINVAL;
    }
    if (r->opt.val == NULL) {
        return LOCO_ENOENT;
    }
    windows = eval_windows(r->opt.val->info.tokens, seq, r->opt.eval_tokens);
    for (uint64_t i = windows > first ? windows - first : 0; i < rows; i++) {
        for (uint32_t t = 0; t < seq; t++) {
            tokens[i * seq + t] = 0;
            targets[i * seq + t] = LOADER_NO_TARGET;
        }
    }
    if (windows <= first) {
        return 0;
    }
    return eval_rows(r->opt.val, seq, first,
                     windows - first < rows ? (uint32_t)(windows - first)
                                            : rows,
                     tokens, targets, &scored);
}

int replica_stage_eval_forward(struct replica *r,
                               const uint32_t *tokens,
                               const float *x,
                               const float **y)
{
    const struct stage_batch batch = batch_of(r, tokens, NULL, x);
    const float *phi;
    int rv;

    if (!usable(r)) {
        return LOCO_EINVAL;
    }
    do {
        rv = replica_phi_for_stage(r, &phi);
        rv = rv != 0 ? rv : stage_pass(r->llama, phi, &batch, y);
    } while (has_more_room(r, rv));
    return rv;
}

int replica_stage_eval_score(struct replica *r,
                             const uint32_t *targets,
                             const float *x,
                             double *nats,
                             uint64_t *bytes)
{
    const struct stage_batch batch = batch_of(r, NULL, targets, x);
    const float *phi;
    int rv;

    if (!usable(r)) {
        return LOCO_EINVAL;
    }
    do {
        rv = replica_phi_for_stage(r, &phi);
        rv =
            rv != 0 ? rv : stage_score(r->llama, phi, &batch, NULL, nats, NULL);
    } while (has_more_room(r, rv));
    if (rv == 0) { /* it has seen that every target is in the vocabulary */
        *bytes = eval_target_bytes(r->opt.token_bytes, targets,
                                   (size_t)r->opt.micro_batch * r->opt.seq);
    }
    return rv;
}
