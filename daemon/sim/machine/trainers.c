/* trainers.c - the fake machine of a run whose trainers share the rounds
 * (AdLoCo), as train/replica/trainers.c has it, with the same
 * train/sync/trainers.h below. Its parameters are the anchors of all trainers,
 * its "momentum" begins with their numbers, and theta has one model. What a
 * peer's gradients ask for is a pseudo-random number. See local.h. */
#include "daemon/sim/machine/internal.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/rng.h"
#include "train/sync/rule.h"

#define FIRST_REQUEST 2

void local_trainers_open(struct local *l)
{
    l->trainers = (struct trainers){
        .count = l->opt.trainers,
        .merge_every = l->opt.merge_every,
        .most = 1000,
        .block = l->opt.block,
        .n = l->opt.trainers > 0 ? l->opt.n_params / l->opt.trainers : 0,
    };
}

void local_trainers_begin(const struct local *l, struct machine *m)
{
    const struct trainers *t = &l->trainers;

    for (uint32_t i = 1; i < t->count; i++) {
        memcpy(m->phi + i * t->n, m->phi, t->n * sizeof(float));
    }
    trainers_begin(t, m->m, FIRST_REQUEST);
}

/* theta is at the anchor of `own`; with rebase as far from it as it was from
 * the one before, which is in scratch. */
static void
live(const struct local *l, struct machine *m, uint32_t own, bool rebase)
{
    const float *before = l->scratch + m->trainer * l->trainers.n;
    const float *phi = m->phi + own * l->trainers.n;

    for (uint64_t i = 0; i < l->trainers.n; i++) {
        m->theta[i] = rebase ? phi[i] + (m->theta[i] - before[i]) : phi[i];
    }
    m->trainer = own;
}

void local_trainers_loaded(const struct local *l,
                           struct machine *m,
                           uint64_t round,
                           bool rebase)
{
    uint32_t k = trainers_in(&l->trainers, round + 1);

    live(l, m, m->trainer < k ? m->trainer : k - 1, rebase);
}

void local_trainers_turn(const struct local *l,
                         struct machine *m,
                         const struct job_train *job)
{
    if (l->trainers.count > 0 && m->terms != NULL && !m->packed &&
        m->inner_step == m->base_step) {
        live(l, m,
             trainers_assign(&l->trainers, m->m, m->round + 1, job->members,
                             job->rank),
             false);
    }
}

int local_trainers_fill(const struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    const struct trainers *t = &l->trainers;
    const uint64_t words[] = {l->opt.seed, peer, m->life, m->packed_step};
    uint32_t request = trainers_request(t, m->m, m->trainer);

    trainers_fill(t, m->round + 1, m->trainer,
                  request + (uint32_t)(rng_mix(words, 4) % 3), m->contribution);
    return rule_displacement(m->contribution + trainers_section(t, m->trainer),
                             m->phi + m->trainer * t->n, m->theta, t->n);
}

int local_trainers_step(const struct local *l,
                        struct machine *m,
                        const struct job_apply *job,
                        const uint8_t *bytes)
{
    const struct trainers *t = &l->trainers;
    const struct rule rule = {.lr = l->opt.lr};
    uint64_t n = trainers_elements(t, job->round);
    float *mean = world_alloc(n * sizeof *mean);
    int rc = l->codec->decode(mean, bytes, n);

    rc = rc != 0 ? rc : trainers_step(t, &rule, job->round, mean, m->phi, m->m);
    if (rc == 0) {
        live(l, m, trainers_take(t, job->round, mean, m->phi, m->m, m->trainer),
             job->rebase);
    }
    free(mean);
    return rc;
}
