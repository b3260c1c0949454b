/* pair.c - the fake machine's side of an exchange between two replicas,
 * and of the mean at the end, as daemon/machine/pair.c and
 * train/replica/pair.c have them. See local.h. */
#include "daemon/sim/machine/internal.h"

#include <string.h>

#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "train/sync/pair_mean.h"

#define PULL 0.7F

struct pair_payload local_pair_own(const struct local *l,
                                   const struct machine *m)
{
    return (struct pair_payload){.codec = l->codec,
                                 .n = l->opt.n_params,
                                 .anchor = m->phi,
                                 .displacement = m->contribution};
}

uint8_t *local_pair_in(const struct local *l, struct machine *m)
{
    if (m->pair_in == NULL) {
        m->pair_in = world_alloc(2 * l->vector_bytes);
    }
    return m->pair_in;
}

static void step(const struct local *l, struct machine *m, bool alone, bool low)
{
    const struct rule rule = {.form = RULE_HEAVY_BALL,
                              .lr = l->opt.lr,
                              .mu = l->opt.mu,
                              .gamma = PULL};
    const struct pair_mean partner = {l->codec, alone ? NULL : m->pair_in, low};
    struct outer_state state = {m->phi, m->m};

    (void)pair_mean_apply(&partner, &rule, &state, &state, m->contribution,
                          l->opt.n_params);
    memcpy(m->theta, m->phi, l->opt.n_params * sizeof(float));
}

int local_pair_apply(struct local *l,
                     struct machine *m,
                     const struct job_pair *job,
                     struct report_state *report)
{
    report->inner_step = m->inner_step;
    report->tokens = local_open_tokens(l, m);
    if (!job->alone && m->pair_in == NULL) {
        return LOCO_ENOENT;
    }
    step(l, m, job->alone, job->first);
    m->base_step = m->inner_step;
    m->packed = false;
    m->round = job->turn;
    local_state_keep(l, m, job->turn);
    local_hash_anchor(l, m, report);
    return 0;
}

void local_pair_mix(const struct local *l,
                    struct machine *m,
                    const uint8_t *state,
                    double share)
{
    float *own[2] = {m->phi, m->m};
    size_t half = l->state_bytes / 2;

    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < l->opt.n_params; i++) {
            float other, d, part;

            memcpy(&other, state + k * half + i * sizeof other, sizeof other);
            d = other - own[k][i];
            part = (float)share * d;
            own[k][i] = own[k][i] + part;
        }
    }
}
