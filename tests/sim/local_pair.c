/* local_pair.c - the fake machine's side of an exchange between two replicas,
 * and of the mean at the end, as daemon/machine_pair.c and
 * train/replica_pair.c have them. See local.h. */
#include "tests/sim/local_internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/hash.h"
#include "tests/sim/world_internal.h"
#include "train/sync/pair_mean.h"
#include "train/sync/rule.h"

#define PULL 0.7F

int local_pair_fill(const struct local *l,
                    const struct machine *m,
                    const struct segment *seg,
                    uint8_t *dst)
{
    const float *from = seg->buffer == BUFFER_ANCHOR ? m->phi : m->contribution;

    return m->round < seg->index
               ? l->codec->encode(dst, from + seg->offset, seg->len, 1.0F)
               : LOCO_ENOENT; /* that step is taken */
}

uint8_t *local_pair_in(const struct local *l,
                       struct machine *m,
                       const struct segment *seg)
{
    if (m->pair_in == NULL) {
        m->pair_in = world_alloc(2 * l->vector_bytes);
    }
    return m->pair_in + (seg->buffer == BUFFER_STEP ? l->vector_bytes : 0);
}

/* Anchor and displacement as they go out. */
static uint8_t *own_payload(const struct local *l, const struct machine *m)
{
    uint8_t *p = world_alloc(2 * l->vector_bytes);

    (void)l->codec->encode(p, m->phi, l->opt.n_params, 1.0F);
    (void)l->codec->encode(p + l->vector_bytes, m->contribution,
                           l->opt.n_params, 1.0F);
    return p;
}

int local_pair_hash(const struct local *l,
                    const struct machine *m,
                    bool first,
                    struct hash32 *hash)
{
    uint8_t *own = own_payload(l, m);
    struct hash32 both[2];

    if (m->pair_in == NULL) {
        free(own);
        return LOCO_ENOENT;
    }
    hash_tree(own, 2 * l->vector_bytes, &both[first ? 0 : 1]);
    hash_tree(m->pair_in, 2 * l->vector_bytes, &both[first ? 1 : 0]);
    hash_bytes("loco-pair-1", both, sizeof both, hash);
    free(own);
    return 0;
}

static void step(const struct local *l, struct machine *m, bool alone, bool low)
{
    const struct rule rule = {.form = RULE_HEAVY_BALL,
                              .lr = l->opt.lr,
                              .mu = l->opt.mu,
                              .gamma = PULL};
    struct outer_state state = {m->phi, m->m};
    size_t n = l->opt.n_params;
    float *a = world_alloc(n * sizeof *a), *b = world_alloc(n * sizeof *b);
    float *mean = world_alloc(n * sizeof *mean);
    uint8_t *own = own_payload(l, m);

    if (!alone) {
        (void)l->codec->decode(a, own + l->vector_bytes, n);
        (void)l->codec->decode(b, m->pair_in + l->vector_bytes, n);
        pair_mean_step(mean, low ? a : b, low ? b : a, n);
        (void)l->codec->decode(a, own, n);
        (void)l->codec->decode(b, m->pair_in, n);
        pair_mean_anchor(b, m->phi, a, b, n);
    }
    (void)rule_apply_pulled(&rule, &state, &state,
                            alone ? m->contribution : mean, alone ? NULL : b,
                            n);
    memcpy(m->theta, m->phi, n * sizeof(float));
    free(a);
    free(b);
    free(mean);
    free(own);
}

void local_pair_apply(struct local *l, uint32_t peer, const struct action *a)
{
    struct machine *m = &l->machines[peer];
    struct local_event e = {.type = LOCAL_APPLIED, .round = a->round};

    e.inner_step = m->inner_step;
    e.tokens = local_open_tokens(l, m);
    if (m->terms == NULL || (!a->alone && m->pair_in == NULL)) {
        e.rc = LOCO_ENOENT;
        local_tell(l, peer, &e);
        return;
    }
    step(l, m, a->alone, a->first);
    m->base_step = m->inner_step;
    m->packed = false;
    m->round = a->round;
    local_state_keep(l, m, a->round);
    local_params_hash(l, peer, &e.params_hash);
    local_tree(l, m->m, l->state_bytes / 2, &e.momentum_hash);
    local_tell(l, peer, &e);
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
