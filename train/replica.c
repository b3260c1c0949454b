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

    if (opt->device != NULL) {
        return 5 * n * sizeof(float); /* the rest lies on the GPU */
    }
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
    r->phi = floats(r->n);
    r->m = floats(r->n);
    r->contribution = floats(r->n);
    r->average = floats(r->n);
    r->tokens = calloc(positions, sizeof *r->tokens);
    r->targets = calloc(positions, sizeof *r->targets);
    return r->phi == NULL || r->m == NULL || r->contribution == NULL ||
                   r->average == NULL || r->tokens == NULL || r->targets == NULL
               ? LOCO_ENOMEM
               : 0;
}

static int open_processor(struct replica *r, char *errmsg)
{
    const struct replica_options *opt = &r->opt;
    int rv = 0;

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
    return rv == 0 ? 0
                   : errmsg_fail(errmsg, rv, "out of memory for the self-test");
}

static int open_backend(struct replica *r, char *errmsg)
{
    char why[PLUGIN_ERRMSG];
    int rv;

    if (r->opt.device == NULL) {
        return open_processor(r, errmsg);
    }
    rv = backend_device(&r->backend, r->opt.device, why);
    r->have_backend = rv == 0;
    return rv == 0 ? 0 : errmsg_fail(errmsg, rv, "%.200s", why);
}

/* Half of the micro-batch after the other until one fits; only a GPU gets
 * smaller ones. */
static int open_llama(struct replica *r, uint32_t micro_batch)
{
    int rv = LOCO_ENOMEM;

    while (rv == LOCO_ENOMEM && micro_batch > 0) {
        rv = llama_open(&r->llama, &r->opt.model, &r->backend, micro_batch,
                        r->opt.recompute);
        if (rv == 0) {
            r->micro_batch = micro_batch;
        }
        micro_batch = r->opt.device == NULL ? 0 : micro_batch / 2;
    }
    return rv;
}

/* What lies in the backend's memory; the workspace last, it can shrink. */
static int open_work(struct replica *r, char *errmsg)
{
    const struct backend *be = &r->backend;
    size_t bytes = r->n * sizeof(float);
    int rv;

    r->theta = be->take(be, bytes);
    r->grad = be->take(be, bytes);
    if (r->theta == NULL || r->grad == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM,
                           "out of memory for %llu parameters",
                           (unsigned long long)r->n);
    }
    be->clear(be, r->theta, bytes);
    be->clear(be, r->grad, bytes);
    r->spare = be->device == NULL ? r->grad : floats(r->n);
    rv = r->spare == NULL
             ? LOCO_ENOMEM
             : optimizer_open_llama(&r->optimizer, &r->opt.optimizer,
                                    &r->opt.model);
    r->have_optimizer = rv == 0;
    if (rv == 0 && be->device != NULL) {
        rv = optimizer_place(&r->optimizer, be);
    }
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "out of memory for the optimizer");
    }
    rv = open_llama(r, r->opt.micro_batch);
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "out of memory for the model's work");
    }
    return 0;
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
    rv = open_backend(r, errmsg);
    rv = rv != 0 ? rv : open_work(r, errmsg);
    if (rv != 0) {
        return rv;
    }
    r->have_loader = true;
    return loader_open(&r->loader, &lo, errmsg);
}

/* The backend and all that lies in its memory. */
static void close_work(struct replica *r)
{
    if (r->have_optimizer) {
        optimizer_close(&r->optimizer);
    }
    llama_close(r->llama);
    if (r->have_backend) {
        if (r->spare != r->grad) {
            free(r->spare);
        }
        r->backend.give(&r->backend, r->grad);
        r->backend.give(&r->backend, r->theta);
        backend_close(&r->backend);
    }
    r->llama = NULL;
    r->theta = r->grad = r->spare = NULL;
    r->have_optimizer = r->have_backend = false;
}

void replica_close(struct replica *r)
{
    if (r->have_loader) {
        loader_close(&r->loader);
    }
    close_work(r);
    free(r->targets);
    free(r->tokens);
    free(r->average);
    free(r->contribution);
    free(r->m);
    free(r->phi);
    memset(r, 0, sizeof *r);
}

/* A failure is kept by the backend and told by the next step. */
static void put_theta(struct replica *r, const float *theta)
{
    if (!r->have_backend) {
        return; /* lost, and nothing could be opened in its place */
    }
    r->backend.put(&r->backend, r->theta, theta, r->n * sizeof(float));
}

static void begin_contribution(struct replica *r)
{
    r->since = 0;
    r->tokens_pending = 0;
}

/* Where the method begins each round without (favg-reset). */
static void reset_moments(struct replica *r)
{
    if (r->opt.reset_moments && r->have_optimizer) {
        optimizer_reset(&r->optimizer);
    }
}

void replica_init(struct replica *r)
{
    llama_init_params(&r->opt.model, r->phi, r->opt.seed);
    put_theta(r, r->phi);
    memset(r->m, 0, r->n * sizeof(float));
    r->round = 0;
    begin_contribution(r);
}

int replica_recover(struct replica *r, bool device, char *errmsg)
{
    int rv;

    close_work(r);
    if (!device) {
        r->opt.device = NULL;
    }
    rv = open_backend(r, errmsg);
    rv = rv != 0 ? rv : open_work(r, errmsg);
    if (rv == 0) {
        put_theta(r, r->phi);
        begin_contribution(r);
    }
    return rv;
}

void replica_moments(const struct replica *r, float *out)
{
    const struct backend *be = &r->backend;
    size_t bytes = r->n * sizeof(float);

    if (!r->have_optimizer) {
        memset(out, 0, 2 * bytes);
        return;
    }
    be->get(be, out, r->optimizer.u, bytes);
    be->get(be, out + r->n, r->optimizer.v, bytes);
}

/* theta = phi_new + (theta - phi_old); on a GPU by way of scratch (n). */
static void rebase_on(struct replica *r, const float *phi, float *scratch)
{
    float *theta = r->theta;

    if (!r->have_backend) {
        return;
    }
    if (r->backend.device != NULL) {
        r->backend.get(&r->backend, scratch, r->theta, r->n * sizeof(float));
        theta = scratch;
    }
    for (uint64_t i = 0; i < r->n; i++) {
        theta[i] = phi[i] + (theta[i] - r->phi[i]);
    }
    if (r->backend.device != NULL) {
        put_theta(r, theta);
    }
}

void replica_load(struct replica *r,
                  uint64_t round,
                  const float *phi,
                  const float *m,
                  bool rebase)
{
    if (rebase) {
        rebase_on(r, phi, r->average);
    } else {
        put_theta(r, phi);
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
    if (!r->opt.reset_moments && u != NULL && v != NULL && r->have_optimizer) {
        const struct backend *be = &r->backend;

        be->put(be, r->optimizer.u, u, r->n * sizeof(float));
        be->put(be, r->optimizer.v, v, r->n * sizeof(float));
        r->optimizer.t = inner_step;
    }
    r->inner_step = inner_step;
    r->tokens_seen = tokens_seen;
}

/* False: there is no smaller one. */
static bool lower_micro_batch(struct replica *r)
{
    if (r->opt.device == NULL || r->micro_batch < 2) {
        return false;
    }
    llama_close(r->llama);
    r->llama = NULL;
    return open_llama(r, r->micro_batch / 2) == 0;
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

    if (!r->have_backend || r->llama == NULL) {
        return LOCO_EDEVICE;
    }
    rv = loader_batch(&r->loader, r->inner_step, r->tokens, r->targets);
    if (rv != 0) {
        return rv;
    }
    do {
        rv = llama_gradient(r->llama, r->theta, &batch, r->grad, &sum);
    } while (rv == LOCO_ENOMEM && lower_micro_batch(r));
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
    const struct backend *be = &r->backend;
    const float *theta = r->theta;
    int rv;

    if (!r->have_backend) {
        return LOCO_EDEVICE;
    }
    if (be->device != NULL) {
        be->get(be, r->contribution, r->theta, r->n * sizeof(float));
        rv = be->finish(be);
        if (rv != 0) {
            return rv;
        }
        theta = r->contribution;
    }
    return rule_displacement(r->contribution, r->phi, theta, r->n);
}

int replica_apply(struct replica *r,
                  uint64_t round,
                  const uint8_t *wire,
                  bool rebase)
{
    /* Spare memory is free between two steps. The new anchor and
     * momentum are made beside the old ones, which stay until everything is
     * known to be finite. */
    struct outer_state in = {.phi = r->phi, .m = r->m};
    struct outer_state out = {.phi = r->average, .m = r->spare};
    int rv;

    rv = r->opt.codec->decode(r->average, wire, r->n);
    if (rv != 0) {
        return rv;
    }
    rv = rule_apply(&r->opt.rule, &out, &in, r->average, r->n);
    if (rv != 0) {
        return rv;
    }
    memcpy(r->m, r->spare, r->n * sizeof(float));
    if (rebase) {
        rebase_on(r, r->average, r->spare);
    } else {
        put_theta(r, r->average);
        begin_contribution(r);
        reset_moments(r);
    }
    memcpy(r->phi, r->average, r->n * sizeof(float));
    r->round = round;
    return 0;
}

/* phi where the model can read it: a GPU keeps it in the gradient's place. */
static const float *phi_for_model(struct replica *r)
{
    if (r->backend.device == NULL) {
        return r->phi;
    }
    r->backend.put(&r->backend, r->grad, r->phi, r->n * sizeof(float));
    return r->grad;
}

int replica_eval(struct replica *r, double *bits_per_byte)
{
    uint64_t windows, done = 0, scored_all = 0, scored;
    double nats = 0, sum;
    const float *phi;
    int rv;

    if (r->opt.val == NULL) {
        return LOCO_ENOENT;
    }
    if (!r->have_backend || r->llama == NULL) {
        return LOCO_EDEVICE;
    }
    phi = phi_for_model(r);
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
        rv = rv != 0 ? rv : llama_loss(r->llama, phi, &batch, NULL, &sum);
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
