/* trainers.c - see replica/trainers.h. */
#include "train/replica/trainers.h"

#include <string.h>

#include "proto/base/err.h"
#include "train/replica/device.h"
#include "train/replica/outer.h"

uint32_t replica_rows_most(const struct replica_options *opt)
{
    uint32_t most = opt->batch;

    if (opt->method.trainers > 0 && BATCH_CAP * opt->method.batch_most > most) {
        most = BATCH_CAP * opt->method.batch_most;
    }
    return most;
}

static const struct trainers *all_of(const struct replica *r)
{
    return &r->layout.trainers;
}

static void work_for(struct replica *r, uint32_t trainer)
{
    r->trainer = trainer;
    r->engine.phi = r->phi + (uint64_t)trainer * r->n;
}

static void at_anchor(struct replica *r)
{
    memcpy(r->engine.theta, r->engine.phi, r->n * sizeof(float));
    replica_put_theta(r);
}

/* ---- turns -------------------------------------------------------------- */

static void choose_rows(struct replica *r)
{
    r->asked = trainers_request(all_of(r), r->numbers, r->trainer);
    r->rows = batch_rows(r->asked, r->opt.method.batch_most);
}

void replica_trainers_init(struct replica *r)
{
    const struct trainers *t = all_of(r);

    for (uint32_t i = 0; i < t->count; i++) {
        memcpy(r->phi + i * r->n, r->engine.theta, r->n * sizeof(float));
    }
    trainers_begin(t, r->numbers, r->opt.batch);
    work_for(r, 0);
    choose_rows(r);
}

void replica_turn(struct replica *r, uint32_t rank, uint32_t members)
{
    const struct trainers *t = all_of(r);
    uint32_t trainer;

    if (t->count == 0 || r->since > 0 || r->packed) {
        return;
    }
    trainer = trainers_assign(t, r->numbers, r->round + 1, members, rank);
    if (trainer != r->trainer) {
        work_for(r, trainer);
        at_anchor(r);
    }
    choose_rows(r);
}

/* Two halves, of which the norms say how much noise there is; the sum of both
 * in grad. In this process the first of them takes the memory of the mean,
 * which is free between rounds. */
static int gradient_of_halves(struct replica *r,
                              uint32_t half,
                              double *sum,
                              struct batch_sample *sample)
{
    double positions = (double)half * r->opt.seq, other = 0;
    int rv = replica_gradient(r, 0, half, sum);

    rv = rv != 0 ? rv : replica_fetch_grad(r);
    if (rv != 0) {
        return rv;
    }
    memcpy(r->average, r->engine.grad, r->n * sizeof(float));
    rv = replica_gradient(r, half, half, &other);
    rv = rv != 0 ? rv : replica_fetch_grad(r);
    if (rv != 0) {
        return rv;
    }
    *sample = batch_sample_of_gradients(r->average, r->engine.grad, r->n, half,
                                        positions);
    replica_put_grad(r);
    *sum += other;
    return 0;
}

/* The same on a GPU; LOCO_ENOENT: it has no memory for that. */
static int gradient_on_gpu(struct replica *r,
                           uint32_t half,
                           double *sum,
                           struct batch_sample *sample)
{
    double norms2[3], other = 0;
    int rv =
        r->outer.half == NULL ? LOCO_ENOENT : replica_gradient(r, 0, half, sum);

    if (rv == 0 && !replica_outer_keep_half(r)) {
        rv = LOCO_ENOENT;
    }
    rv = rv != 0 ? rv : replica_gradient(r, half, half, &other);
    rv = rv != 0 ? rv : replica_outer_halves(r, norms2);
    if (rv == LOCO_ENOMEM && replica_lower_micro_batch(r)) {
        return LOCO_ENOENT;
    }
    if (rv == 0) {
        *sample = batch_sample_of_sums(half, norms2, (double)half * r->opt.seq);
        *sum += other;
    }
    return rv;
}

static int tested_gradient(struct replica *r, uint32_t rows, double *sum)
{
    const struct batch_rule rule = method_batch_rule(&r->opt.method);
    struct batch_sample sample;
    int rv = gradient_on_gpu(r, rows / 2, sum, &sample);

    if (rv == LOCO_ENOENT) {
        rv = gradient_of_halves(r, rows / 2, sum, &sample);
    }
    if (rv == 0) {
        r->asked = (uint32_t)batch_request(
            &rule, &sample,
            trainers_request(all_of(r), r->numbers, r->trainer));
    }
    return rv;
}

int replica_trainers_gradient(struct replica *r, uint32_t *rows, double *sum)
{
    *rows = r->rows;
    if (r->since > 0) {
        return replica_gradient(r, 0, *rows, sum);
    }
    *rows = batch_rows_tested(r->rows);
    return tested_gradient(r, *rows, sum);
}

/* ---- rounds ------------------------------------------------------------- */

int replica_trainers_pack(struct replica *r)
{
    const struct trainers *t = all_of(r);
    int rv = replica_fetch(r);

    trainers_fill(t, r->round + 1, r->trainer, r->asked, r->contribution);
    return rv != 0 ? rv
                   : rule_displacement(r->contribution +
                                           trainers_section(t, r->trainer),
                                       r->engine.phi, r->engine.theta, r->n);
}

int replica_trainers_lift(struct replica *r)
{
    float *theta = r->engine.theta;
    int rv = replica_fetch(r);

    for (uint64_t i = 0; rv == 0 && i < r->n; i++) {
        theta[i] = theta[i] - r->engine.phi[i];
    }
    return rv;
}

static void put_down(struct replica *r, bool rebase)
{
    float *theta = r->engine.theta;

    if (!rebase) {
        at_anchor(r);
        return;
    }
    for (uint64_t i = 0; i < r->n; i++) {
        theta[i] = r->engine.phi[i] + theta[i];
    }
    replica_put_theta(r);
}

void replica_trainers_loaded(struct replica *r, uint64_t round, bool rebase)
{
    uint32_t k = trainers_in(all_of(r), round + 1);

    work_for(r, r->trainer < k ? r->trainer : k - 1);
    put_down(r, rebase);
    if (!rebase) {
        choose_rows(r);
    }
}

int replica_trainers_apply(struct replica *r, uint64_t round, bool rebase)
{
    const struct trainers *t = all_of(r);
    int rv = trainers_step(t, &r->opt.method.rule, round, r->average, r->phi,
                           r->numbers);

    rv = rv != 0 || !rebase ? rv : replica_trainers_lift(r);
    if (rv == 0) {
        work_for(r, trainers_take(t, round, r->average, r->phi, r->numbers,
                                  r->trainer));
        put_down(r, rebase);
    }
    return rv;
}
