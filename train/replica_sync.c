/* replica_sync.c - what a replica gives to a round and takes from its commit;
 * see replica.h. */
#include <string.h>

#include "proto/base/err.h"
#include "train/replica.h"
#include "train/sync/finite.h"

/* ---- the state --------------------------------------------------------- */

bool replica_shares_m(const struct method *m)
{
    return m->period > 0 && method_has_momentum(m);
}

bool replica_shares_u(const struct method *m)
{
    return m->gradients || m->period_u > 0;
}

bool replica_shares_v(const struct method *m)
{
    return m->gradients || m->period_v > 0;
}

size_t replica_state_count(const struct method *m)
{
    return 1 + (size_t)replica_shares_m(m) + (size_t)replica_shares_u(m) +
           (size_t)replica_shares_v(m);
}

/* The same, to be written. */
static size_t state_of(const struct replica *r, float *out[REPLICA_STATE_MAX])
{
    const struct method *m = &r->opt.method;
    size_t n = 0;

    out[n++] = r->phi;
    if (replica_shares_m(m)) {
        out[n++] = r->m;
    }
    if (replica_shares_u(m)) {
        out[n++] = r->state_u;
    }
    if (replica_shares_v(m)) {
        out[n++] = r->state_v;
    }
    return n;
}

size_t replica_state(const struct replica *r,
                     const float *out[REPLICA_STATE_MAX])
{
    float *at[REPLICA_STATE_MAX];
    size_t n = state_of(r, at);

    for (size_t i = 0; i < n; i++) {
        out[i] = at[i];
    }
    return n;
}

static void copy(float *to, const float *from, uint64_t n)
{
    if (to != NULL && to != from) {
        memcpy(to, from, n * sizeof *to);
    }
}

/* ---- counts ------------------------------------------------------------ */

uint64_t replica_clock(const struct replica *r)
{
    return cycle_step(&r->layout.cycle, r->round) + r->since;
}

uint64_t replica_left(const struct replica *r)
{
    uint64_t at = cycle_step(&r->layout.cycle, r->round + 1);
    uint64_t k = replica_clock(r);

    return at > k ? at - k : 0;
}

uint64_t replica_beside(const struct replica *r)
{
    uint64_t upto = r->packed_since + r->opt.method.overlap;

    return r->packed && upto > r->since ? upto - r->since : 0;
}

uint64_t replica_elements(const struct replica *r)
{
    return layout_elements(&r->layout, r->round + 1);
}

/* Whether steps made while a round was under way outlive its commit. */
static bool keeps_beside(const struct method *m)
{
    return m->overlap > 0 && (m->eager || m->take != METHOD_OVERWRITE);
}

uint64_t replica_replaced(const struct replica *r, bool loaded)
{
    return r->packed && !loaded && keeps_beside(&r->opt.method)
               ? r->packed_tokens
               : r->tokens_pending;
}

/* Shared moments are those of so many steps of the run. */
static void count_steps(struct replica *r)
{
    if (replica_shares_u(&r->opt.method) || replica_shares_v(&r->opt.method)) {
        r->optimizer.t = replica_clock(r);
    }
}

/* At the anchor of r->round, with nothing made since. Others are as many steps
 * beyond their packing as they overlap; but the eager ones pack at once. */
static void begin(struct replica *r)
{
    const struct method *m = &r->opt.method;

    r->packed = false;
    r->since = r->round > 0 && !m->eager ? m->overlap : 0;
    r->tokens_pending = r->packed_since = r->packed_tokens = 0;
    count_steps(r);
}

/* The contribution is spent; what was made after it goes on, or is lost. */
static void spend(struct replica *r)
{
    if (!r->packed || !keeps_beside(&r->opt.method)) {
        begin(r);
        return;
    }
    r->packed = false;
    r->since -= r->packed_since;
    r->tokens_pending -= r->packed_tokens;
    r->packed_since = r->packed_tokens = 0;
    count_steps(r);
}

/* ---- beginning --------------------------------------------------------- */

static void reset_moments(struct replica *r)
{
    if (r->opt.method.moments == METHOD_RESET) {
        optimizer_reset(&r->optimizer);
    }
}

void replica_init(struct replica *r)
{
    llama_init_params(&r->opt.model, r->theta, r->opt.seed);
    engine_start(&r->engine);
    optimizer_reset(&r->optimizer);
    if (r->opt.method.period_u > 0) {
        memset(r->state_u, 0, r->n * sizeof(float));
    }
    if (r->opt.method.period_v > 0) {
        memset(r->state_v, 0, r->n * sizeof(float));
    }
    r->round = 0;
    begin(r);
}

/* The vector of round + 1. */
static int pack(struct replica *r)
{
    struct layout_part parts[METHOD_STREAMS_MAX];
    size_t n = layout_parts(&r->layout, r->round + 1, parts);
    int rv = 0;

    for (size_t i = 0; i < n && rv == 0; i++) {
        const struct layout_part *p = &parts[i];

        rv = engine_pack(&r->engine, p->s, &p->turn, r->contribution + p->at);
        memset(r->contribution + p->at + p->len, 0,
               (p->room - p->len) * sizeof(float));
    }
    return rv;
}

/* After a commit without this peer: the contribution that is open goes into
 * the next round, whose vector may be another. */
static int pack_again(struct replica *r)
{
    return r->packed && r->layout.cycle.n > 1 ? pack(r) : 0;
}

/* theta = phi_new + (theta - phi_old). */
static void rebase_on(struct replica *r, const float *phi)
{
    for (uint64_t i = 0; i < r->n && r->theta != r->phi; i++) {
        r->theta[i] = phi[i] + (r->theta[i] - r->phi[i]);
    }
}

int replica_load(struct replica *r,
                 uint64_t round,
                 const float *state,
                 bool rebase)
{
    const struct method *m = &r->opt.method;
    float *to[REPLICA_STATE_MAX];
    size_t n;

    rebase = rebase && !m->gradients;
    if (rebase) {
        rebase_on(r, state);
    } else {
        memcpy(r->theta, state, r->n * sizeof(float));
        engine_start(&r->engine); /* what is only this peer's begins anew */
    }
    n = state_of(r, to);
    for (size_t i = 0; i < n; i++) {
        copy(to[i], state + i * r->n, r->n);
    }
    r->round = round;
    if (rebase) {
        return pack_again(r);
    }
    if (m->period_u > 0) {
        copy(r->optimizer.u, r->state_u, r->n);
    }
    if (m->period_v > 0) {
        copy(r->optimizer.v, r->state_v, r->n);
    }
    begin(r);
    reset_moments(r);
    return 0;
}

int replica_restore(struct replica *r,
                    uint64_t round,
                    const float *state,
                    const float *u,
                    const float *v,
                    uint64_t inner_step,
                    uint64_t tokens_seen)
{
    const struct method *m = &r->opt.method;
    int rv = replica_load(r, round, state, false);

    if (m->moments != METHOD_RESET && u != NULL && v != NULL) {
        copy(replica_shares_u(m) ? NULL : r->optimizer.u, u, r->n);
        copy(replica_shares_v(m) ? NULL : r->optimizer.v, v, r->n);
        if (!replica_shares_u(m) && !replica_shares_v(m)) {
            r->optimizer.t = inner_step;
        }
    }
    r->inner_step = inner_step;
    r->tokens_seen = tokens_seen;
    return rv;
}

/* ---- rounds ------------------------------------------------------------ */

int replica_pack(struct replica *r)
{
    int rv = pack(r);

    r->packed = true;
    r->packed_since = r->since;
    r->packed_tokens = r->tokens_pending;
    return rv;
}

/* Of the moments' parts; those of parameters and gradients are seen by what is
 * done with them. */
static int check_moments(const struct replica *r,
                         const struct layout_part *parts,
                         size_t n)
{
    unsigned bad = 0;

    for (size_t i = 0; i < n; i++) {
        enum stream_tensor tensor = r->engine.streams[parts[i].s].tensor;
        const float *x = r->average + parts[i].at;

        for (uint64_t k = 0; k < parts[i].len && (tensor == STREAM_MOMENT_1 ||
                                                  tensor == STREAM_MOMENT_2);
             k++) {
            bad |= (unsigned)not_finite(x[k]);
        }
    }
    return finite_or_error(bad);
}

/* DDP: the step that the averaged gradient asks for, the same at every peer. */
static int step_with_mean(struct replica *r)
{
    uint64_t k = cycle_step(&r->layout.cycle, r->round);
    struct optimizer_rate rate = {.lr = schedule_lr(&r->opt.schedule, k),
                                  .grad_scale = 1.0};

    r->optimizer.t = k;
    return optimizer_step(&r->optimizer, &r->backend, r->theta, r->grad, &rate,
                          NULL);
}

static int
take_part(struct replica *r, const struct layout_part *p, double share)
{
    struct engine_average a = {r->average + p->at, NULL, share, 1};
    int rv = engine_apply(&r->engine, p->s, &p->turn, &a);

    switch (r->engine.streams[p->s].tensor) {
    case STREAM_GRADIENT:
        return rv != 0 ? rv : step_with_mean(r);
    case STREAM_MOMENT_1:
        copy(r->state_u, r->optimizer.u, r->n);
        return rv;
    case STREAM_MOMENT_2:
        copy(r->state_v, r->optimizer.v, r->n);
        return rv;
    default:
        return rv;
    }
}

int replica_apply(struct replica *r,
                  uint64_t round,
                  const uint8_t *wire,
                  double share)
{
    /* The average's and, between two steps, the gradient's memory take the new
     * anchor and momentum until everything is known to be finite. Only the
     * first part, parameters or a gradient, can fail. */
    struct layout_part parts[METHOD_STREAMS_MAX];
    size_t n = layout_parts(&r->layout, round, parts);
    int rv = r->opt.codec->decode(r->average, wire,
                                  layout_elements(&r->layout, round));

    rv = rv != 0 ? rv : check_moments(r, parts, n);
    for (size_t i = 0; i < n && rv == 0; i++) {
        rv = take_part(r, &parts[i], share);
    }
    if (rv != 0) {
        return rv;
    }
    r->round = round;
    if (r->engine.moments_reset) {
        r->engine.moments_reset = false;
        r->optimizer.t = 0;
    }
    if (share > 0.0 || r->opt.method.gradients) {
        spend(r);
        return 0;
    }
    count_steps(r);
    return pack_again(r);
}
