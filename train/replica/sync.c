/* sync.c - what a replica gives to a round and takes from its commit;
 * see replica.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/replica/device.h"
#include "train/replica/outer.h"
#include "train/replica/state.h"
#include "train/replica/trainers.h"
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

bool replica_shares_sum(const struct method *m)
{
    return m->delayed;
}

bool replica_owns_moments(const struct replica *r)
{
    const struct method *m = &r->opt.method;

    return r->have_optimizer && !(replica_shares_u(m) && replica_shares_v(m));
}

bool replica_begins_with_phi(const struct method *m)
{
    return !replica_shares_u(m) && !replica_shares_v(m) &&
           !replica_shares_sum(m) && m->trainers == 0;
}

#define N_ARRIVALS 4

uint64_t replica_state_elements(const struct method *m, uint64_t n)
{
    if (m->trainers > 0) {
        return (n + 2) * m->trainers; /* anchors and numbers */
    }
    return n * (1 + (uint64_t)replica_shares_m(m) +
                (uint64_t)replica_shares_u(m) + (uint64_t)replica_shares_v(m) +
                (uint64_t)replica_shares_sum(m)) +
           (replica_shares_sum(m) ? N_ARRIVALS : 0);
}

_Static_assert(TRAINERS_MAX >= 4, "m, u, v, sum");

void replica_state_names(const struct method *m, struct replica_names *out)
{
    const char *const names[] = {replica_shares_m(m) ? "m" : NULL,
                                 replica_shares_u(m) ? "adam_u" : NULL,
                                 replica_shares_v(m) ? "adam_v" : NULL,
                                 replica_shares_sum(m) ? "sum" : NULL};

    out->n = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i] != NULL) {
            (void)snprintf(out->name[out->n++], sizeof out->name[0], "%s",
                           names[i]);
        }
    }
    for (uint32_t i = 1; i < m->trainers; i++) {
        (void)snprintf(out->name[out->n++], sizeof out->name[0], "trainer_%u",
                       i);
    }
}

size_t replica_state(const struct replica *r,
                     struct replica_vector out[REPLICA_STATE_MAX])
{
    const struct method *m = &r->opt.method;
    size_t n = 0;

    out[n++] = (struct replica_vector){r->phi, r->n};
    if (m->trainers > 0) {
        out[n++] =
            (struct replica_vector){r->phi + r->n, (m->trainers - 1) * r->n};
        out[n++] =
            (struct replica_vector){(float *)(uintptr_t)r->numbers,
                                    trainers_numbers(&r->layout.trainers)};
        return n;
    }
    if (replica_shares_m(m)) {
        out[n++] = (struct replica_vector){r->m, r->n};
    }
    if (replica_shares_u(m)) {
        out[n++] = (struct replica_vector){r->state_u, r->n};
    }
    if (replica_shares_v(m)) {
        out[n++] = (struct replica_vector){r->state_v, r->n};
    }
    if (replica_shares_sum(m)) {
        out[n++] = (struct replica_vector){r->engine.sum, r->n};
        out[n++] = (struct replica_vector){(float *)(uintptr_t)r->arrivals,
                                           N_ARRIVALS};
    }
    return n;
}

/* Whether it makes tasks of its own length, from where each began. */
static bool has_tasks(const struct replica *r)
{
    return r->opt.method.group == METHOD_QUORUM;
}

/* Whole numbers below 2^24, exact in a float. */
static void note_arrivals(struct replica *r)
{
    const struct delayed_state *d = &r->engine.delayed;

    r->arrivals[0] = (float)d->size;
    r->arrivals[1] = (float)d->next;
    r->arrivals[2] = (float)d->count;
}

/* False: such numbers have no meaning. */
static bool take_arrivals(struct replica *r, const float *x)
{
    struct delayed_state *d = &r->engine.delayed;

    if (!(x[0] >= 1 && x[0] < 65536 && x[1] >= 1 && x[1] < 65536 && x[2] >= 0 &&
          x[2] < x[0])) {
        return false;
    }
    d->size = (uint32_t)x[0];
    d->next = (uint32_t)x[1];
    d->count = (uint32_t)x[2];
    note_arrivals(r);
    return true;
}

/* What trainers ask for: whole, and what a checkpoint has room for. */
static bool are_requests(const float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!(x[i] >= 0 && x[i] < REPLICA_NUMBERS_END &&
              (float)(uint32_t)x[i] == x[i])) {
            return false;
        }
    }
    return true;
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
    if (has_tasks(r)) { /* rounds have no steps: a worker counts its own */
        return r->inner_step;
    }
    return cycle_step(&r->layout.cycle, r->round) + r->since;
}

uint64_t replica_left(const struct replica *r)
{
    uint64_t at = cycle_step(&r->layout.cycle, r->round + 1);
    uint64_t k = replica_clock(r);

    if (has_tasks(r)) {
        return r->task > r->since ? r->task - r->since : 0;
    }
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

uint64_t replica_replaced(const struct replica *r, bool loaded)
{
    return r->packed && !loaded && method_keeps_beside(&r->opt.method)
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

/* At the anchor of r->round, with nothing made since. */
static void begin(struct replica *r)
{
    const struct method *m = &r->opt.method;

    r->packed = false;
    r->since = r->round > 0 ? method_head_start(m) : 0;
    r->tokens_pending = r->packed_since = r->packed_tokens = 0;
    count_steps(r);
}

/* The contribution is spent; what was made after it goes on, or is lost. */
static void spend(struct replica *r)
{
    if (!r->packed || !method_keeps_beside(&r->opt.method)) {
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
        replica_clear_moments(r);
    }
}

int replica_init(struct replica *r)
{
    int rv = replica_own_state(r, false);

    if (rv != 0) {
        return rv;
    }
    if (r->opt.init != NULL) {
        rv = r->opt.init(r->opt.init_self, r->engine.theta);
    } else {
        llama_part_init(&r->opt.model, &r->opt.part, r->engine.theta,
                        r->opt.seed);
    }
    replica_put_theta(r);
    engine_start(&r->engine);
    replica_outer_forget(r);
    if (r->opt.method.trainers > 0) {
        replica_trainers_init(r);
    }
    replica_clear_moments(r);
    if (r->opt.method.period_u > 0) {
        memset(r->state_u, 0, r->n * sizeof(float));
    }
    if (r->opt.method.period_v > 0) {
        memset(r->state_v, 0, r->n * sizeof(float));
    }
    r->task = r->opt.method.period;
    note_arrivals(r);
    r->round = 0;
    begin(r);
    return rv;
}

/* The vector of round + 1. */
static int pack(struct replica *r)
{
    struct layout_part parts[METHOD_STREAMS_MAX];
    size_t n;
    int rv;

    if (r->opt.method.trainers > 0) {
        return replica_trainers_pack(r);
    }
    n = layout_parts(&r->layout, r->round + 1, parts);
    rv = r->outer.on ? 0 : replica_fetch(r);
    for (size_t i = 0; i < n && rv == 0; i++) {
        const struct layout_part *p = &parts[i];

        rv = r->outer.on ? replica_outer_pack(r, p)
                         : engine_pack(&r->engine, p->s, &p->turn,
                                       r->contribution + p->at);
        memset(r->contribution + p->at + p->len, 0,
               (p->room - p->len) * sizeof(float));
    }
    if (method_packs_theta(&r->opt.method) && rv == 0) {
        replica_put_theta(r);
    }
    return rv;
}

/* After a commit without this peer: the contribution that is open goes into
 * the next round, whose vector may be another. */
static int pack_again(struct replica *r)
{
    bool another = r->layout.cycle.n > 1 || r->opt.method.trainers > 0;

    return r->packed && another ? pack(r) : 0;
}

/* theta = phi_new + (theta - phi_old). */
static int rebase_on(struct replica *r, const float *phi)
{
    float *theta = r->engine.theta;
    int rv = replica_fetch(r);

    for (uint64_t i = 0; rv == 0 && i < r->n && theta != r->phi; i++) {
        theta[i] = phi[i] + (theta[i] - r->phi[i]);
    }
    if (rv == 0) {
        replica_put_theta(r);
    }
    return rv;
}

static int all_finite(const float *x, uint64_t n)
{
    unsigned bad = 0;

    for (uint64_t i = 0; i < n; i++) {
        bad |= (unsigned)not_finite(x[i]);
    }
    return finite_or_error(bad);
}

int replica_load(struct replica *r,
                 uint64_t round,
                 const float *state,
                 bool rebase)
{
    const struct method *m = &r->opt.method;
    struct replica_vector to[REPLICA_STATE_MAX];
    uint64_t n = replica_state_elements(m, r->n);
    size_t count;
    int rv;

    if (replica_shares_sum(m) && !take_arrivals(r, state + n - N_ARRIVALS)) {
        return LOCO_EPROTO;
    }
    if (m->group == METHOD_PAIR && all_finite(state, n) != 0) {
        return LOCO_ENUMERIC;
    }
    if (m->trainers > 0 &&
        !are_requests(state + r->n * m->trainers,
                      trainers_numbers(&r->layout.trainers))) {
        return LOCO_EPROTO;
    }
    rebase = rebase && !m->gradients;
    rv = replica_own_state(r, true);
    if (rv != 0) {
        return rv;
    }
    count = replica_state(r, to);
    if (m->trainers > 0) {
        rv = rebase ? replica_trainers_lift(r) : 0;
    } else if (rebase && !has_tasks(r)) {
        rv = rebase_on(r, state);
    } else if (!rebase) {
        memcpy(r->engine.theta, state, r->n * sizeof(float));
        replica_put_theta(r);
        engine_start(&r->engine); /* what is only this peer's begins anew */
    }
    if (rv != 0) {
        return rv;
    }
    replica_outer_forget(r);
    for (size_t i = 0; i < count; i++) {
        copy(to[i].x, state, to[i].n);
        state += to[i].n;
    }
    if (replica_shares_sum(m)) { /* engine_start began a cycle */
        (void)take_arrivals(r, r->arrivals);
    }
    if (m->trainers > 0) {
        replica_trainers_loaded(r, round, rebase);
    }
    r->round = round;
    if (rebase) {
        return pack_again(r);
    }
    replica_put_moments(r, r->state_u, r->state_v);
    begin(r);
    reset_moments(r);
    return 0;
}

void replica_set_moments(struct replica *r,
                         const float *u,
                         const float *v,
                         uint64_t steps)
{
    const struct method *m = &r->opt.method;

    if (m->moments == METHOD_RESET) {
        return;
    }
    replica_put_moments(r, replica_shares_u(m) ? NULL : u,
                        replica_shares_v(m) ? NULL : v);
    if (!replica_shares_u(m) && !replica_shares_v(m)) {
        r->optimizer.t = steps;
    }
}

int replica_restore(struct replica *r,
                    uint64_t round,
                    const float *state,
                    const float *u,
                    const float *v,
                    uint64_t moment_steps,
                    uint64_t inner_step,
                    uint64_t tokens_seen)
{
    int rv = replica_load(r, round, state, false);

    if (u != NULL && v != NULL) {
        replica_set_moments(r, u, v, moment_steps);
    }
    r->inner_step = inner_step;
    r->tokens_seen = tokens_seen;
    return rv;
}

void replica_forget_moments(struct replica *r)
{
    replica_clear_moments(r);
    replica_put_moments(r, r->state_u, r->state_v);
}

/* The anchor, and nothing on its way to others. */
static void back_to_anchor(struct replica *r)
{
    struct engine *e = &r->engine;
    size_t bytes = r->n * sizeof(float);

    copy(e->theta, e->phi == NULL ? r->phi : e->phi, r->n);
    copy(e->base, r->phi, r->n);
    if (e->sent != NULL) {
        memset(e->sent, 0, bytes);
    }
    if (e->own != NULL) {
        memset(e->own, 0, bytes);
    }
    if (e->own_m != NULL) {
        memset(e->own_m, 0, bytes);
    }
    r->stale = false;
    begin(r);
}

void replica_abandon(struct replica *r)
{
    if (!r->packed) {
        back_to_anchor(r);
        return;
    }
    r->since = r->packed_since;
    r->tokens_pending = r->packed_tokens;
}

bool replica_rest(struct replica *r)
{
    const struct engine *e = &r->engine;

    if (memcmp(e->theta, e->phi == NULL ? r->phi : e->phi,
               r->n * sizeof(float)) == 0) {
        return false;
    }
    back_to_anchor(r);
    return true;
}

int replica_recover(struct replica *r, bool device, char *errmsg)
{
    int rv;

    if (!r->mirrored) {
        return LOCO_EINVAL;
    }
    if (r->have_backend && r->planned.host > 0 &&
        r->backend.finish(&r->backend) == LOCO_ETIMEOUT) {
        r->opt.moments_stay = true; /* those of the GPU that hangs are lost */
    }
    replica_close_work(r);
    if (!device) {
        r->opt.device = NULL;
    }
    back_to_anchor(r);
    rv = replica_open_work(r, errmsg);
    if (rv != 0) {
        replica_close_work(r);
        return rv;
    }
    replica_put_theta(r);
    replica_put_moments(r, r->state_u, r->state_v);
    count_steps(r);
    return 0;
}

/* ---- rounds ------------------------------------------------------------ */

static void packed(struct replica *r)
{
    r->packed = true;
    r->packed_since = r->since;
    r->packed_tokens = r->tokens_pending;
}

int replica_pack(struct replica *r)
{
    int rv;

    if (!r->have_backend) {
        return LOCO_EDEVICE;
    }
    rv = pack(r);
    packed(r);
    return rv;
}

bool replica_packs_pieces(const struct replica_options *opt)
{
    const struct method *m = &opt->method;

    return opt->device == NULL && m->group == METHOD_ALL && !m->gradients &&
           m->fragments <= 1 && m->overlap == 0 && m->period_u == 0 &&
           m->period_v == 0;
}

bool replica_in_pieces(const struct replica *r)
{
    return !r->mirrored && replica_packs_pieces(&r->opt);
}

static int bring_displacement(void *self, uint64_t at, uint64_t n, float *out)
{
    const struct replica *r = self;

    return rule_displacement(out, r->phi + at, r->engine.theta + at, n);
}

struct engine_source replica_pack_pieces(struct replica *r)
{
    assert(!r->mirrored); /* the engine's copies would be old ones */
    packed(r);
    return (struct engine_source){bring_displacement, r};
}

/* Of the parts that are taken over as they are; those that go through a rule
 * are seen by what becomes of them. */
static int
check_taken(const struct replica *r, const struct layout_part *parts, size_t n)
{
    unsigned bad = 0;

    for (size_t i = 0; i < n; i++) {
        enum stream_tensor tensor = r->engine.streams[parts[i].s].tensor;
        const float *x = r->average + parts[i].at;
        bool taken = tensor == STREAM_MOMENT_1 || tensor == STREAM_MOMENT_2 ||
                     has_tasks(r); /* whose rule works in place */

        for (uint64_t k = 0; taken && k < parts[i].len; k++) {
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
    int rv;

    if (!r->have_backend) {
        return LOCO_EDEVICE;
    }
    replica_put_grad(r);
    r->optimizer.t = k;
    rv = optimizer_step(&r->optimizer, &r->backend, r->theta, r->grad, &rate,
                        NULL);
    return rv != 0 ? rv : replica_fetch_step(r);
}

void replica_exchanged(struct replica *r)
{
    struct engine *e = &r->engine;

    if (r->makes_beside) {
        return; /* replica_end_next() */
    }
    r->phi = e->phi;
    r->average = e->next_phi;
    if (e->m != NULL) {
        r->m = e->m;
        e->grad = e->next_m;
        r->grad = r->mirrored ? r->grad : e->grad;
    }
}

/* The wire bytes of the only part, which has no padding (layout.h). */
struct wire_mean {
    const struct codec *codec;
    const uint8_t *wire;
};

_Static_assert(ENGINE_WINDOW % CODEC_BLOCK_MAX == 0, "windows are blocks");

static int bring(void *self, uint64_t at, uint64_t n, float *out)
{
    const struct wire_mean *w = self;

    return w->codec->decode(out, w->wire + w->codec->bytes((size_t)at),
                            (size_t)n);
}

static int apply_part(struct replica *r,
                      const struct layout_part *p,
                      const struct replica_commit *c,
                      bool decoded)
{
    const struct engine_average a = {
        decoded ? r->average + p->at : NULL,
        c->share,
        c->arrivals > 0 ? c->arrivals : 1,
    };
    struct wire_mean mean = {r->opt.codec, c->wire};
    const struct engine_source source = {bring, &mean};
    struct engine *e = &r->engine;
    int rv = decoded ? engine_apply(e, p->s, &p->turn, &a)
                     : engine_apply_from(e, p->s, &p->turn, &a, &source);

    if (e->streams[p->s].tensor == STREAM_PARAMETERS) {
        replica_exchanged(r);
    }
    return rv;
}

static int take_part(struct replica *r,
                     const struct layout_part *p,
                     const struct replica_commit *c,
                     bool decoded)
{
    enum stream_tensor tensor = r->engine.streams[p->s].tensor;
    int rv = tensor == STREAM_PARAMETERS ? replica_fetch(r) : 0;

    rv = rv != 0 ? rv : apply_part(r, p, c, decoded);
    if (rv != 0) {
        return rv;
    }
    switch (tensor) {
    case STREAM_GRADIENT:
        return step_with_mean(r);
    case STREAM_MOMENT_1:
        copy(r->state_u, r->engine.u, r->n);
        replica_put_moments(r, r->engine.u, NULL);
        return 0;
    case STREAM_MOMENT_2:
        copy(r->state_v, r->engine.v, r->n);
        replica_put_moments(r, NULL, r->engine.v);
        return 0;
    default:
        replica_put_theta(r);
        return 0;
    }
}

/* Cycles of delayed Nesterov have as many arrivals as the view has members. */
static void follow_members(struct replica *r, uint32_t members)
{
    if (members > 0) {
        delayed_resize(&r->engine.delayed, members);
    }
    note_arrivals(r);
}

/* Another room or, in place, the memory of the average and of the gradient
 * take the new anchor and momentum until everything is known to be finite. Only
 * the first part, parameters or a gradient, can fail. */
static int take_parts(struct replica *r,
                      const struct layout_part *parts,
                      size_t n,
                      const struct replica_commit *c)
{
    bool decoded;
    int rv;

    decoded = n != 1 || r->opt.method.trainers > 0 ||
              !engine_streams_mean(&r->engine, parts[0].s, &parts[0].turn);
    rv = decoded ? r->opt.codec->decode(r->average, c->wire,
                                        layout_elements(&r->layout, c->round))
                 : 0;
    if (rv == 0 && r->opt.method.trainers > 0) {
        n = 0;
        rv = replica_trainers_apply(r, c->round, c->share <= 0.0);
    }
    rv = rv != 0 || !decoded ? rv : check_taken(r, parts, n);
    for (size_t i = 0; i < n && rv == 0; i++) {
        rv = take_part(r, &parts[i], c, decoded);
    }
    return rv;
}

static int take_average(struct replica *r, const struct replica_commit *c)
{
    struct layout_part parts[METHOD_STREAMS_MAX];
    size_t n = layout_parts(&r->layout, c->round, parts);
    int rv;

    if (r->outer.on) {
        return replica_outer_commit(r, &parts[0], c);
    }
    if (!r->makes_beside) {
        rv = replica_own_state(r, true);
        return rv != 0 ? rv : take_parts(r, parts, n, c);
    }
    rv = replica_begin_next(r);
    rv = rv != 0 ? rv : take_parts(r, parts, n, c);
    replica_end_next(r, rv == 0);
    return rv;
}

int replica_commit(struct replica *r, const struct replica_commit *c)
{
    int rv = take_average(r, c);

    if (rv != 0) {
        return rv;
    }
    r->round = c->round;
    if (r->engine.moments_reset) {
        r->engine.moments_reset = false;
        r->optimizer.t = 0;
        if (r->mirrored) { /* else the engine did */
            replica_clear_moments(r);
        }
    }
    if (has_tasks(r)) {
        follow_members(r, c->members);
    }
    if (c->share > 0.0 || r->opt.method.gradients) {
        spend(r);
        return 0;
    }
    count_steps(r);
    return pack_again(r);
}
