/* replica_pair.c - see replica_pair.h. */
#include "train/replica_pair.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/replica_device.h"
#include "train/sync/finite.h"
#include "train/sync/pair_mean.h"

/* Elements at a time: a multiple of every codec's block. */
#define PIECE ((uint64_t)1 << 16)

/* At an anchor, with nothing made since; the clock of learning rates counts a
 * turn as a round. */
static void begin(struct replica *r)
{
    r->packed = false;
    r->since = r->packed_since = 0;
    r->tokens_pending = r->packed_tokens = 0;
}

struct work {
    float *own, *theirs, *mean; /* (PIECE) */
    uint8_t *wire;              /* of a piece */
};

/* What the wire makes of `own`, and what came; both decoded. */
static int decode_both(const struct replica *r,
                       struct work *w,
                       const float *own,
                       const uint8_t *theirs,
                       uint64_t n)
{
    const struct codec *c = r->opt.codec;
    int rv = c->encode(w->wire, own, n, 1.0F);

    rv = rv != 0 ? rv : c->decode(w->own, w->wire, n);
    return rv != 0 ? rv : c->decode(w->theirs, theirs, n);
}

/* Elements [at, at + n): the new anchor to the engine's next_phi, momentum to
 * its next_m, which are free between two inner steps. */
static int step_piece(struct replica *r,
                      struct work *w,
                      const uint8_t *wire,
                      bool first,
                      uint64_t at,
                      uint64_t n)
{
    const struct codec *c = r->opt.codec;
    const float *g = r->contribution + at, *pull = NULL;
    struct outer_state in = {.phi = r->phi + at, .m = r->m + at};
    struct outer_state out = {.phi = r->engine.next_phi + at,
                              .m = r->engine.next_m + at};
    int rv = 0;

    if (wire != NULL) {
        rv = decode_both(r, w, g, wire + c->bytes(r->n) + c->bytes(at), n);
        pair_mean_step(w->mean, first ? w->own : w->theirs,
                       first ? w->theirs : w->own, n);
        g = w->mean;
        rv = rv != 0 ? rv : decode_both(r, w, in.phi, wire + c->bytes(at), n);
        pair_mean_anchor(w->theirs, in.phi, w->own, w->theirs, n);
        pull = w->theirs;
    }
    return rv != 0
               ? rv
               : rule_apply_pulled(&r->opt.method.rule, &out, &in, g, pull, n);
}

int replica_apply_pair(struct replica *r,
                       uint64_t round,
                       const uint8_t *wire,
                       bool first)
{
    struct work w = {
        .own = malloc(PIECE * sizeof(float)),
        .theirs = malloc(PIECE * sizeof(float)),
        .mean = malloc(PIECE * sizeof(float)),
        .wire = malloc(r->opt.codec->bytes(PIECE)),
    };
    int rv =
        w.own == NULL || w.theirs == NULL || w.mean == NULL || w.wire == NULL
            ? LOCO_ENOMEM
            : 0;

    for (uint64_t at = 0; at < r->n && rv == 0; at += PIECE) {
        uint64_t n = r->n - at < PIECE ? r->n - at : PIECE;

        rv = step_piece(r, &w, wire, first, at, n);
    }
    free(w.own);
    free(w.theirs);
    free(w.mean);
    free(w.wire);
    if (rv != 0) {
        return rv;
    }
    memcpy(r->engine.theta, r->engine.next_phi, r->n * sizeof(float));
    memcpy(r->phi, r->engine.next_phi, r->n * sizeof(float));
    memcpy(r->m, r->engine.next_m, r->n * sizeof(float));
    replica_put_theta(r);
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
    if (rv != 0) {
        return rv;
    }
    mix(r->phi, state, (float)share, r->n);
    mix(r->m, state + r->n, (float)share, r->n);
    memcpy(r->engine.theta, r->phi, r->n * sizeof(float));
    replica_put_theta(r);
    begin(r);
    return 0;
}
