/* device.c - see replica/device.h. */
#include "train/replica/device.h"

#include <stdio.h>
#include <string.h>

#include "kernels/pool.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "train/replica/gpus.h"
#include "train/replica/host.h"
#include "train/replica/outer.h"
#include "train/replica/plan.h"

bool replica_mirrors_grad(const struct method *m)
{
    return m->gradients || method_has_momentum(m) || m->trainers > 0;
}

size_t replica_mirrors(const struct method *m)
{
    return 1 + (size_t)replica_mirrors_grad(m) + (size_t)replica_shares_u(m) +
           (size_t)replica_shares_v(m) +
           m->gradients; /* what replica_fetch_step() reads into */
}

/* ---- opening ----------------------------------------------------------- */

static int open_processor(struct replica *r, char *errmsg)
{
    const struct replica_options *opt = &r->opt;
    const char *isa = opt->isa == NULL ? "auto" : opt->isa;
    int rv = 0;

    if (opt->reference) {
        backend_cpu_ref(&r->backend);
    } else {
        rv = backend_cpu_isa(&r->backend, opt->threads, isa);
    }
    if (rv == LOCO_EDEVICE) {
        return errmsg_fail(errmsg, rv,
                           "this processor or build has no kernels for %.32s; "
                           "train with isa auto",
                           isa);
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
        return errmsg_fail(
            errmsg, rv,
            "this processor has no bf16 products with isa %.32s; "
            "train with dtype fp32 or auto",
            isa);
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
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "%.200s", why);
    }
    /* Nothing of the GPU's: for who copies and hashes what lies here. One
     * thread does it where no more can be had. */
    if (r->opt.threads > 1 &&
        pool_open(&r->backend.pool, r->opt.threads, NULL) != 0) {
        r->backend.pool = NULL;
    }
    return 0;
}

static void say_no_room(const struct replica *r,
                        const struct replica_plan *plan,
                        uint64_t have,
                        char *errmsg)
{
    const struct replica_options *opt = &r->opt;
    uint64_t least = plan->state_bytes + plan->work_bytes;
    const char *how = replica_plan_least_text(plan);
    const char *whose = opt->device->gpu.memory_bytes > 0
                            ? "gpu-memory-bytes"
                            : "what is free, less what the driver loads "
                              "kernels into";

    if (opt->slots > 0) {
        (void)errmsg_fail(
            errmsg, LOCO_ENOMEM,
            "%u micro-batches of %u sequences of this stage need %llu MB of "
            "the GPU's memory, or %llu MB %s; %llu MB of the GPU's may be used "
            "(%s): use --device cpu, or a GPU with more",
            opt->slots, opt->micro_batch, ERRMSG_MB_UP(plan->kept_bytes),
            ERRMSG_MB_UP(least), how, ERRMSG_MB(have), whose);
        return;
    }
    (void)errmsg_fail(errmsg, LOCO_ENOMEM,
                      "one sequence of %u tokens needs %llu MB of the GPU's "
                      "memory, or %llu MB %s; %llu MB of the GPU's may be used "
                      "(%s): use --device cpu, or a GPU with more",
                      opt->seq, ERRMSG_MB_UP(plan->kept_bytes),
                      ERRMSG_MB_UP(least), how, ERRMSG_MB(have), whose);
}

/* The micro-batch to begin with, before anything is taken; 0: none fits. What
 * is made again, and whether the outer step has room beside it. */
static uint32_t plan_micro_batch(struct replica *r, char *errmsg)
{
    const struct replica_options *opt = &r->opt;
    struct replica_plan plan;
    uint64_t have;

    r->recompute = opt->recompute;
    r->planned.host = 0;
    if (opt->device == NULL) {
        return opt->micro_batch;
    }
    have = device_info(r->backend.device)->free_bytes;
    replica_plan(opt, have, &plan);
    r->recompute = plan.recompute;
    r->outer_fits = plan.outer_bytes > 0;
    r->planned.have = have;
    r->planned.kept = plan.kept_bytes;
    r->planned.need = plan.state_bytes + plan.work_bytes;
    r->planned.host = plan.host_bytes;
    if (plan.micro_batch == 0) {
        say_no_room(r, &plan, have, errmsg);
    }
    return plan.micro_batch;
}

struct llama_room replica_room(const struct replica_options *opt,
                               uint32_t micro_batch,
                               enum llama_recompute recompute)
{
    struct llama_room room = {.part = opt->part,
                              .micro_batch = micro_batch,
                              .slots = opt->slots,
                              .pass = opt->slots > 0 && !opt->part.scores,
                              .recompute = recompute};

    if (opt->slots == 0) {
        if (opt->model.dim > 0) { /* else a list of tensors */
            llama_part_whole(&opt->model, &room.part);
        }
        room.slots = 1;
    }
    return room;
}

/* A smaller workspace than the one that micro_batch and recompute say: half of
 * the micro-batch, which only a GPU with a whole model gets, then more that is
 * made again. A processor has what was asked for. */
static bool lower(struct replica *r)
{
    if (r->opt.device == NULL) {
        return false;
    }
    if (r->opt.slots == 0 && r->micro_batch > 1) {
        r->micro_batch /= 2;
        return true;
    }
    if (r->recompute < LLAMA_RECOMPUTE_LAYERS) {
        r->recompute++;
        return true;
    }
    return false;
}

/* One workspace after the other until one fits. */
static int open_llama(struct replica *r)
{
    struct llama_room room;
    int rv;

    do {
        room = replica_room(&r->opt, r->micro_batch, r->recompute);
        rv = llama_open_room(&r->llama, &r->opt.model, &r->backend, &room);
    } while (rv == LOCO_ENOMEM && lower(r));
    return rv;
}

/* As lower() said. */
static bool open_less(struct replica *r)
{
    llama_close(r->llama);
    r->llama = NULL;
    return open_llama(r) == 0;
}

/* What the engine sees. */
static void bind_engine(struct replica *r)
{
    struct engine *e = &r->engine;

    if (!r->mirrored) {
        e->theta = r->theta;
        r->grad = e->grad;
        e->u = r->optimizer.u;
        e->v = r->optimizer.v;
    }
    if (r->opt.method.gradients) { /* equal at every step, so in the state */
        r->phi = e->theta;
        r->state_u = e->u;
        r->state_v = e->v;
    }
}

/* Theta and, beside a GPU, the gradient. */
static bool take_parameters(struct replica *r)
{
    const struct backend *be = &r->backend;
    size_t bytes = r->n * sizeof(float);
    size_t grad_bytes = bytes;

    if (be->device != NULL && r->n_wire > r->n &&
        replica_outer_serves(&r->opt.method)) { /* a padded mean */
        grad_bytes = r->n_wire * sizeof(float);
    }
    r->theta = be->take(be, bytes);
    if (r->theta == NULL) {
        return false;
    }
    be->clear(be, r->theta, bytes);
    if (!r->mirrored) {
        return true;
    }
    r->grad = be->take(be, grad_bytes);
    if (r->grad == NULL) {
        return false;
    }
    be->clear(be, r->grad, grad_bytes);
    return true;
}

static int open_optimizer(struct replica *r)
{
    const struct backend *be = &r->backend;
    int rv = optimizer_open_part(&r->optimizer, &r->opt.optimizer,
                                 &r->opt.model, &r->opt.part);

    r->have_optimizer = rv == 0;
    return rv != 0 || be->device == NULL
               ? rv
               : optimizer_place(&r->optimizer, be, r->planned.host > 0);
}

/* The host gave no memory for moments: this time without that. */
static int open_optimizer_again(struct replica *r, char *errmsg)
{
    const bool stay = r->opt.moments_stay;
    char why[PLUGIN_ERRMSG];
    int rv;

    (void)snprintf(why, sizeof why, "%s", device_message(r->backend.device));
    optimizer_close(&r->optimizer);
    r->have_optimizer = false;
    r->opt.moments_stay = true;
    r->micro_batch = plan_micro_batch(r, errmsg);
    r->opt.moments_stay = stay;
    if (r->micro_batch == 0) {
        return errmsg_fail(errmsg, LOCO_ENOMEM,
                           "the GPU has no room for the optimizer's moments, "
                           "and neither has this machine's memory (%.100s)",
                           why);
    }
    rv = open_optimizer(r);
    return rv == 0 ? 0
                   : errmsg_fail(errmsg, rv, "out of memory for the optimizer");
}

static bool lacks_moments(const struct replica *r)
{
    return r->have_optimizer && r->planned.host > 0 &&
           (r->optimizer.u == NULL || r->optimizer.v == NULL);
}

/* The workspace last, it can shrink. */
static int open_memory(struct replica *r, char *errmsg)
{
    int rv;

    r->micro_batch = plan_micro_batch(r, errmsg);
    if (r->micro_batch == 0) {
        return LOCO_ENOMEM;
    }
    if (!take_parameters(r)) {
        return errmsg_fail(errmsg, LOCO_ENOMEM,
                           "out of memory for %llu parameters",
                           (unsigned long long)r->n);
    }
    rv = open_optimizer(r);
    if (rv == LOCO_ENOMEM && lacks_moments(r)) {
        rv = open_optimizer_again(r, errmsg);
    } else if (rv == LOCO_ENOMEM) {
        (void)errmsg_fail(errmsg, rv, "out of memory for the optimizer");
    } else if (rv != 0) {
        (void)errmsg_fail(errmsg, rv, "the optimizer's memory: %.200s",
                          device_message(r->backend.device));
    }
    if (rv != 0) {
        return rv;
    }
    rv = open_llama(r);
    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "out of memory for the model's work");
    }
    return 0;
}

int replica_open_work(struct replica *r, char *errmsg)
{
    int rv = open_backend(r, errmsg);

    if (rv == 0 && r->opt.shared) { /* another process makes the steps */
        r->theta = r->opt.shared_theta;
    } else if (rv == 0) {
        rv = open_memory(r, errmsg);
    }
    if (rv == 0) {
        bind_engine(r);
        replica_outer_open(r);
        replica_register(r);
        rv = replica_gpus_open(r);
        rv = rv == 0 ? 0 : errmsg_fail(errmsg, rv, "out of memory for threads");
    }
    return rv;
}

void replica_close_work(struct replica *r)
{
    if (r->have_optimizer) {
        optimizer_close(&r->optimizer);
    }
    replica_gpus_close(r);
    llama_close(r->llama);
    if (r->have_backend) {
        replica_outer_close(r);
        replica_unregister(r);
        if (r->mirrored) {
            r->backend.give(&r->backend, r->grad);
        }
        if (r->theta != r->opt.shared_theta) {
            r->backend.give(&r->backend, r->theta);
        }
        backend_close(&r->backend);
    }
    r->llama = NULL;
    r->theta = r->grad = NULL;
    r->have_optimizer = r->have_backend = false;
}

bool replica_lower_micro_batch(struct replica *r)
{
    if (r->outer.on ||
        r->outer.half != NULL) { /* that memory first: it is only for speed */
        replica_outer_close(r);
        return true;
    }
    if (r->opt.slots > 0 || !lower(r)) {
        return false;
    }
    return open_less(r);
}

bool replica_recompute_more(struct replica *r)
{
    return r->llama != NULL && lower(r) && open_less(r);
}

/* ---- to this process --------------------------------------------------- */

static void fetch(struct replica *r, float *to, const float *from)
{
    if (to != NULL) {
        r->backend.get(&r->backend, to, from, r->n * sizeof(float));
    }
}

int replica_fetch(struct replica *r)
{
    int rv;

    if (!r->mirrored || !r->stale || !r->have_backend) {
        return 0;
    }
    fetch(r, r->engine.theta, r->theta);
    fetch(r, r->engine.u, r->optimizer.u);
    fetch(r, r->engine.v, r->optimizer.v);
    rv = r->backend.finish(&r->backend);
    r->stale = rv != 0;
    return rv;
}

int replica_fetch_grad(struct replica *r)
{
    if (!r->mirrored) {
        return 0;
    }
    fetch(r, r->engine.grad, r->grad);
    return r->backend.finish(&r->backend);
}

int replica_fetch_step(struct replica *r)
{
    size_t bytes = r->n * sizeof(float);
    int rv;

    if (!r->mirrored) {
        return 0;
    }
    /* The mean is spent, and so are its copies. */
    fetch(r, r->average, r->theta);
    fetch(r, r->engine.grad, r->optimizer.u);
    fetch(r, r->spare, r->optimizer.v);
    rv = r->backend.finish(&r->backend);
    if (rv == 0) {
        memcpy(r->engine.theta, r->average, bytes);
        memcpy(r->engine.u, r->engine.grad, bytes);
        memcpy(r->engine.v, r->spare, bytes);
    }
    return rv;
}

/* ---- to the backend ---------------------------------------------------- */

/* A vector of the backend, and the engine's, which may be the same one. */
static void put(struct replica *r, float *own, float *mirror, const float *from)
{
    size_t bytes = r->n * sizeof(float);

    if (from == NULL) {
        return;
    }
    if (mirror != NULL && mirror != from) {
        memcpy(mirror, from, bytes);
    }
    if (own != mirror && r->have_backend) {
        r->backend.put(&r->backend, own, from, bytes);
    }
}

void replica_put_theta(struct replica *r)
{
    put(r, r->theta, r->engine.theta, r->engine.theta);
}

void replica_put_grad(struct replica *r)
{
    put(r, r->grad, r->engine.grad, r->engine.grad);
}

void replica_put_moments(struct replica *r, const float *u, const float *v)
{
    put(r, r->optimizer.u, r->engine.u, u);
    put(r, r->optimizer.v, r->engine.v, v);
}

void replica_clear_moments(struct replica *r)
{
    size_t bytes = r->n * sizeof(float);

    if (r->have_optimizer) {
        optimizer_reset(&r->optimizer);
    }
    if (r->mirrored && r->engine.u != NULL) {
        memset(r->engine.u, 0, bytes);
    }
    if (r->mirrored && r->engine.v != NULL) {
        memset(r->engine.v, 0, bytes);
    }
}

int replica_moments(const struct replica *r, float *out)
{
    const struct backend *be = &r->backend;
    size_t bytes = r->n * sizeof(float);

    if (!r->have_optimizer) {
        memset(out, 0, 2 * bytes);
        return 0;
    }
    be->get(be, out, r->optimizer.u, bytes);
    be->get(be, out + r->n, r->optimizer.v, bytes);
    return be->finish(be);
}

/* Of the outer step's memory; where tasks begin elsewhere that is their base.
 */
static bool has_anchor(const struct replica *r)
{
    return r->outer.on && r->engine.base == NULL;
}

const float *replica_phi_for_model(struct replica *r)
{
    if (r->backend.device == NULL) {
        return r->phi;
    }
    if (has_anchor(r) && r->outer.current) {
        return r->outer.phi;
    }
    r->backend.put(&r->backend, r->grad, r->phi, r->n * sizeof(float));
    return r->grad;
}

int replica_phi_for_stage(struct replica *r, const float **phi)
{
    struct replica_outer *o = &r->outer;
    const struct backend *be = &r->backend;

    *phi = r->phi;
    if (be->device == NULL) {
        return 0;
    }
    if (has_anchor(r)) {
        *phi = o->phi;
        return replica_outer_begin(r);
    }
    if (o->eval == NULL) {
        o->eval = be->take(be, r->n * sizeof(float));
        o->eval_current = false;
    }
    if (o->eval != NULL && !(o->eval_current && o->eval_round == r->round)) {
        be->put(be, o->eval, r->phi, r->n * sizeof(float));
        o->eval_current = true;
        o->eval_round = r->round;
    }
    *phi = o->eval;
    return *phi == NULL ? LOCO_ENOMEM : 0;
}
