/* pair.c - see replica/pair.h. */
#include "train/replica/pair.h"

#include <string.h>

#include "train/replica/device.h"
#include "train/replica/outer.h"
#include "train/replica/outer_pass.h"
#include "train/replica/state.h"
#include "train/sync/finite.h"
#include "train/sync/pair_mean.h"

/* At another anchor, with nothing made since; the clock of learning rates
 * counts a turn as a round. */
static void begin(struct replica *r)
{
    r->packed = false;
    r->since = r->packed_since = 0;
    r->tokens_pending = r->packed_tokens = 0;
}

/* The new anchor and momentum, beside the old ones. */
static int make(struct replica *r, const uint8_t *wire, bool first)
{
    const struct engine *e = &r->engine;
    const struct pair_mean partner = {r->opt.codec, wire, first};
    const struct outer_state in = {r->phi, r->m};
    /* Free between two inner steps. */
    const struct outer_state made = {e->next_phi, e->next_m};
    int rv = pair_mean_apply(&partner, &r->opt.method.rule, &made, &in,
                             r->contribution, r->n);

    if (rv == 0) {
        memcpy(e->theta, made.phi, r->n * sizeof(float));
    }
    if (rv == 0 && !r->makes_beside) {
        memcpy(r->phi, made.phi, r->n * sizeof(float));
        memcpy(r->m, made.m, r->n * sizeof(float));
    }
    return rv;
}

static int make_here(struct replica *r, const uint8_t *wire, bool first)
{
    int rv = r->makes_beside ? replica_begin_next(r) : 0;

    rv = rv != 0 ? rv : make(r, wire, first);
    if (r->makes_beside) {
        replica_end_next(r, rv == 0);
    }
    if (rv == 0) {
        replica_put_theta(r);
        replica_outer_forget(r);
    }
    return rv;
}

int replica_apply_pair(struct replica *r,
                       uint64_t round,
                       const uint8_t *wire,
                       bool first)
{
    int rv = r->outer.on ? replica_outer_pair(r, wire, first)
                         : make_here(r, wire, first);

    if (rv != 0) {
        return rv;
    }
    r->round = round;
    begin(r);
    return 0;
}

static float mixed(float own, float other, float share)
{
    float d = other - own;
    float part = share * d;

    return own + part;
}

static int can_mix(const float *own, const float *other, float s, uint64_t n)
{
    unsigned bad = 0;

    for (uint64_t i = 0; i < n; i++) {
        bad |= (unsigned)not_finite(mixed(own[i], other[i], s));
    }
    return finite_or_error(bad);
}

static void mix(float *own, const float *other, float share, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        own[i] = mixed(own[i], other[i], share);
    }
}

int replica_mix(struct replica *r, const float *state, double share)
{
    int rv = can_mix(r->phi, state, (float)share, r->n);

    rv = rv != 0 ? rv : can_mix(r->m, state + r->n, (float)share, r->n);
    rv = rv != 0 ? rv : replica_own_state(r, true);
    if (rv != 0) {
        return rv;
    }
    mix(r->phi, state, (float)share, r->n);
    mix(r->m, state + r->n, (float)share, r->n);
    memcpy(r->engine.theta, r->phi, r->n * sizeof(float));
    replica_put_theta(r);
    replica_outer_forget(r);
    begin(r);
    return 0;
}
