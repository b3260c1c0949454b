/* replica.c - see replica.h. */
#include "train/replica.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/errmsg.h"

#define EVAL_ROWS 8 /* windows in one forward pass of the evaluation */

size_t replica_bytes(const struct replica_options *opt)
{
    struct backend be;
    size_t n = (size_t)llama_numel(&opt->model);

    backend_cpu_ref(&be);
    return 9 * n * sizeof(float) + llama_workspace_bytes(&opt->model, &be,
                                                         opt->micro_batch,
                                                         opt->recompute);
}

static float *floats(uint64_t n)
{
    return calloc(n, sizeof(float));
}

static int take_memory(struct replica *r)
{
    size_t positions = (size_t)r->opt.batch * r->opt.seq;

    if (positions < (size_t)EVAL_ROWS * r->opt.seq) {
        positions = (size_t)EVAL_ROWS * r->opt.seq;
    }
    r->theta = floats(r->n);
    r->phi = floats(r->n);
    r->m = floats(r->n);
    r->grad = floats(r->n);
    r->contribution = floats(r->n);
    r->average = floats(r->n);
    r->tokens = calloc(positions, sizeof *r->tokens);
    r->targets = calloc(positions, sizeof *r->targets);
    return r->theta == NULL || r->phi == NULL || r->m == NULL ||
                   r->grad == NULL || r->contribution == NULL ||
                   r->average == NULL || r->tokens == NULL || r->targets == NULL
               ? LOCO_ENOMEM
               : 0;
}

int replica_open(struct replica *r,
                 const struct replica_options *opt,
                 char *errmsg)
{
    struct loader_options lo = {
        .shards = opt->train,
        .n_shards = opt->n_train,
        .seq = opt->seq,
        .batch = opt->batch,
        .seed = opt->seed,
        .peer = opt->peer,
    };
    int rv;

    memset(r, 0, sizeof *r);
    r->opt = *opt;
    r->n = (uint64_t)llama_numel(&opt->model);
    rv = take_memory(r);
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "out of memory for %llu parameters",
                           (unsigned long long)r->n);
    }
    if (opt->reference) {
        backend_cpu_ref(&r->backend);
    } else {
        rv = backend_cpu(&r->backend, opt->threads);
    }
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "cannot start %d threads", opt->threads);
    }
    r->have_backend = true;
    rv = opt->affinity.n == 0
             ? 0
             : backend_set_affinity(&r->backend, &opt->affinity);
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "cannot pin %d threads", opt->threads);
    }
    rv = backend_set_dtype(&r->backend, opt->dtype);
    if (rv == LOCO_EDEVICE) {
        return errmsg_fail(errmsg, rv,
                           "this processor has no bf16 dot products; train "
                           "with dtype fp32 or auto");
    }
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "out of memory for the self-test");
    }
    rv = llama_open(&r->llama, &opt->model, &r->backend, opt->micro_batch,
                    opt->recompute);
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "out of memory for the model's work");
    }
    rv = optimizer_open_llama(&r->optimizer, &opt->optimizer, &opt->model);
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "out of memory for the optimizer");
    }
    r->have_optimizer = true;
    r->have_loader = true;
    return loader_open(&r->loader, &lo, errmsg);
}

void replica_close(struct replica *r)
{
    if (r->have_loader) {
        loader_close(&r->loader);
    }
    if (r->have_optimizer) {
        optimizer_close(&r->optimizer);
    }
    llama_close(r->llama);
    if (r->have_backend) {
        backend_close(&r->backend);
    }
    free(r->targets);
    free(r->tokens);
    free(r->average);
    free(r->contribution);
    free(r->grad);
    free(r->m);
    free(r->phi);
    free(r->theta);
    memset(r, 0, sizeof *r);
}

static void begin_contribution(struct replica *r)
{
    r->since = 0;
    r->tokens_pending = 0;
}

/* Where the method begins each round without (favg-reset). */
static void reset_moments(struct replica *r)
{
    if (r->opt.reset_moments) {
        optimizer_reset(&r->optimizer);
    }
}

void replica_init(struct replica *r)
{
    llama_init_params(&r->opt.model, r->phi, r->opt.seed);
    memcpy(r->theta, r->phi, r->n * sizeof(float));
    memset(r->m, 0, r->n * sizeof(float));
    r->round = 0;
    begin_contribution(r);
}

/* theta = phi_new + (theta - phi_old), phi = phi_new. */
static void rebase_on(struct replica *r, const float *phi)
{
    for (uint64_t i = 0; i < r->n; i++) {
        r->theta[i] = phi[i] + (r->theta[i] - r->phi[i]);
    }
}

void replica_load(struct replica *r,
                  uint64_t round,
                  const float *phi,
                  const float *m,
                  bool rebase)
{
    if (rebase) {
        rebase_on(r, phi);
    } else {
        memcpy(r->theta, phi, r->n * sizeof(float));
        begin_contribution(r);
        reset_moments(r);
    }
    memcpy(r->phi, phi, r->n * sizeof(float));
    memcpy(r->m, m, r->n * sizeof(float));
    r->round = round;
}

void replica_restore(struct replica *r,
                     uint64_t round,
                     const float *phi,
                     const float *m,
                     const float *u,
                     const float *v,
                     uint64_t inner_step,
                     uint64_t tokens_seen)
{
    replica_load(r, round, phi, m, false);
    if (!r->opt.reset_moments && u != NULL && v != NULL) {
        memcpy(r->optimizer.u, u, r->n * sizeof(float));
        memcpy(r->optimizer.v, v, r->n * sizeof(float));
        r->optimizer.t = inner_step;
    }
    r->inner_step = inner_step;
    r->tokens_seen = tokens_seen;
}

int replica_step(struct replica *r, float *loss)
{
    struct llama_batch batch = {
        .tokens = r->tokens,
        .targets = r->targets,
        .b = r->opt.batch,
        .t = r->opt.seq,
    };
    uint64_t positions = (uint64_t)r->opt.batch * r->opt.seq;
    struct optimizer_rate rate = {
        .lr =
            schedule_lr(&r->opt.schedule, r->round * r->opt.period + r->since),
        .grad_scale = 1.0 / (double)positions,
    };
    double sum = 0;
    int rv;

    rv = loader_batch(&r->loader, r->inner_step, r->tokens, r->targets);
    if (rv != 0) {
        return rv;
    }
    rv = llama_gradient(r->llama, r->theta, &batch, r->grad, &sum);
    if (rv != 0) {
        return rv;
    }
    if (!isfinite(sum)) {
        return LOCO_ENUMERIC;
    }
    rv = optimizer_step(&r->optimizer, &r->backend, r->theta, r->grad, &rate,
                        NULL);
    if (rv != 0) {
        return rv;
    }
    *loss = (float)(sum / (double)positions);
    r->inner_step++;
    r->since++;
    r->tokens_seen += positions;
    r->tokens_pending += positions;
    return 0;
}

int replica_pack(struct replica *r)
{
    return rule_displacement(r->contribution, r->phi, r->theta, r->n);
}

int replica_apply(struct replica *r,
                  uint64_t round,
                  const uint8_t *wire,
                  bool rebase)
{
    /* The gradient's memory is free between two steps. The new anchor and
     * momentum are made beside the old ones, which stay until everything is
     * known to be finite. */
    struct outer_state in = {.phi = r->phi, .m = r->m};
    struct outer_state out = {.phi = r->average, .m = r->grad};
    int rv;

    rv = r->opt.codec->decode(r->average, wire, r->n);
    if (rv != 0) {
        return rv;
    }
    rv = rule_apply(&r->opt.rule, &out, &in, r->average, r->n);
    if (rv != 0) {
        return rv;
    }
    if (rebase) {
        rebase_on(r, r->average);
    } else {
        memcpy(r->theta, r->average, r->n * sizeof(float));
        begin_contribution(r);
        reset_moments(r);
    }
    memcpy(r->phi, r->average, r->n * sizeof(float));
    memcpy(r->m, r->grad, r->n * sizeof(float));
    r->round = round;
    return 0;
}

int replica_eval(struct replica *r, double *bits_per_byte)
{
    uint64_t windows, done = 0, scored_all = 0, scored;
    double nats = 0, sum;
    int rv;

    if (r->opt.val == NULL) {
        return LOCO_ENOENT;
    }
    windows = eval_window_count(r->opt.val, r->opt.seq);
    if (r->opt.eval_tokens > 0 && windows > r->opt.eval_tokens / r->opt.seq) {
        windows = r->opt.eval_tokens / r->opt.seq;
        windows = windows > 0 ? windows : 1;
    }
    while (done < windows) {
        uint32_t rows =
            (uint32_t)(windows - done < EVAL_ROWS ? windows - done : EVAL_ROWS);
        struct llama_batch batch = {
            .tokens = r->tokens,
            .targets = r->targets,
            .b = rows,
            .t = r->opt.seq,
        };

        rv = eval_rows(r->opt.val, r->opt.seq, done, rows, r->tokens,
                       r->targets, &scored);
        rv = rv != 0 ? rv : llama_loss(r->llama, r->phi, &batch, NULL, &sum);
        if (rv != 0) {
            return rv;
        }
        nats += sum;
        scored_all += scored;
        done += rows;
    }
    if (scored_all == 0 || !isfinite(nats)) {
        return LOCO_ENUMERIC;
    }
    *bits_per_byte = nats / (double)scored_all / 0.69314718055994531;
    return 0;
}
