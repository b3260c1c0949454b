/* local_owners.c - the fake machine's slices of the parameters, with real
 * vectors: one queue of jobs, done one after the other. What a slice is and
 * what an arrival does to it is train/sync/slices.h. See local.h. */
#include "tests/sim/local_internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "tests/sim/world_internal.h"
#include "train/sync/slices.h"

#define GIVES 32

struct owned_job {
    struct action action;
    struct owned_job *next;
};

struct owned_give {
    uint64_t attempt;
    struct peer_id peer;
    uint8_t *bytes;
    size_t len;
};

struct local_owned {
    float *held[SLICES_MAX]; /* phi, m, sum of each; NULL: not held */
    float *reading;          /* (n_params) */
    float *piece;            /* (slice) scratch */
    uint8_t *slot[STREAM_SLOTS];
    struct owned_give give[GIVES];
    struct owned_job *first, *last;
};

static uint64_t elements(const struct run_terms *t, uint32_t slice)
{
    uint64_t left = t->n_params - slice * t->slice_elements;

    return left < t->slice_elements ? left : t->slice_elements;
}

static size_t slot_bytes(const struct local *l, const struct run_terms *t)
{
    size_t n = t->slice_elements, wire = l->codec->bytes(n);
    size_t read = l->reading->bytes(n), state = 3 * n * sizeof(float);

    wire = wire > read ? wire : read;
    return wire > state ? wire : state;
}

void local_owners_terms(const struct local *l, struct run_terms *t)
{
    uint32_t block = l->opt.block;
    uint64_t blocks = (t->n_params + block - 1) / block;
    uint64_t n = l->opt.slices;

    if (n == 0) {
        return;
    }
    t->slice_elements = (blocks + n - 1) / n * block;
    t->n_slices =
        (uint32_t)((t->n_params + t->slice_elements - 1) / t->slice_elements);
    t->slice_segment = l->opt.segment_elements;
    t->slice_seed = l->opt.seed;
    t->by_speed = true;
}

void local_owners_open(const struct local *l, struct machine *m)
{
    struct local_owned *o;

    if (!terms_owned(m->terms) || m->owned != NULL) {
        return;
    }
    o = m->owned = world_alloc(sizeof *o);
    o->reading = world_alloc(l->opt.n_params * sizeof(float));
    o->piece = world_alloc(m->terms->slice_elements * sizeof(float));
    for (uint32_t k = 0; k < STREAM_SLOTS; k++) {
        o->slot[k] = world_alloc(slot_bytes(l, m->terms));
    }
}

void local_owners_free(struct machine *m)
{
    struct local_owned *o = m->owned;

    if (o == NULL) {
        return;
    }
    while (o->first != NULL) {
        struct owned_job *job = o->first;

        o->first = job->next;
        free(job);
    }
    for (uint32_t i = 0; i < SLICES_MAX; i++) {
        free(o->held[i]);
    }
    for (uint32_t k = 0; k < STREAM_SLOTS; k++) {
        free(o->slot[k]);
    }
    for (uint32_t k = 0; k < GIVES; k++) {
        free(o->give[k].bytes);
    }
    free(o->reading);
    free(o->piece);
    free(o);
    m->owned = NULL;
}

/* ---- segments --------------------------------------------------------- */

bool local_is_owned(const struct segment *seg)
{
    return seg->buffer == BUFFER_PIECE || seg->buffer == BUFFER_SLICE ||
           seg->buffer == BUFFER_READING;
}

static size_t
wire(const struct local *l, enum buffer_kind buffer, uint64_t elements)
{
    return buffer == BUFFER_PIECE   ? l->codec->bytes(elements)
           : buffer == BUFFER_SLICE ? elements * sizeof(float)
                                    : l->reading->bytes(elements);
}

size_t local_owned_bytes(const struct local *l, const struct segment *seg)
{
    return wire(l, seg->buffer, seg->len);
}

int local_owned_fill(const struct local *l,
                     const struct machine *m,
                     const struct segment *seg,
                     uint8_t *dst)
{
    const struct owned_give *g;
    size_t at = wire(l, seg->buffer, seg->offset);
    size_t len = wire(l, seg->buffer, seg->len);

    if (m->owned == NULL || seg->slot >= GIVES) {
        return LOCO_ENOENT;
    }
    g = &m->owned->give[seg->slot];
    if (g->attempt != seg->attempt || !id_eq(&g->peer, &seg->peer) ||
        at + len > g->len) {
        return LOCO_ENOENT; /* its place is another's by now */
    }
    memcpy(dst, g->bytes + at, len);
    return 0;
}

int local_owned_take(const struct local *l,
                     struct machine *m,
                     const struct segment *seg,
                     const uint8_t *src,
                     size_t len)
{
    size_t at = wire(l, seg->buffer, seg->offset);

    if (m->owned == NULL || seg->slot >= STREAM_SLOTS) {
        return LOCO_ENOENT;
    }
    if (len != wire(l, seg->buffer, seg->len) ||
        at + len > slot_bytes(l, m->terms)) {
        return LOCO_EPROTO;
    }
    memcpy(m->owned->slot[seg->slot] + at, src, len);
    return 0;
}

/* ---- jobs ------------------------------------------------------------- */

static int give_state(struct owned_give *g, const float *held, uint64_t n)
{
    g->len = 3 * n * sizeof(float);
    memcpy(g->bytes, held, g->len);
    return 0;
}

static int give(struct local *l, struct machine *m, const struct action *a)
{
    struct local_owned *o = m->owned;
    const struct slice_job *job = &a->job;
    struct owned_give *g = &o->give[job->give];
    uint64_t n = elements(m->terms, job->slice);
    uint64_t at = job->slice * m->terms->slice_elements;
    const float *held = o->held[job->slice];

    if (g->bytes == NULL) {
        g->bytes = world_alloc(slot_bytes(l, m->terms));
    }
    g->attempt = a->attempt;
    g->peer = a->peer;
    switch (job->what) {
    case OWNERS_PIECE:
        g->len = l->codec->bytes(n);
        return l->codec->encode(g->bytes, m->contribution + at, n, 1.0F);
    case OWNERS_RECORD:
        g->len = l->codec->bytes(n);
        memcpy(g->bytes, o->slot[job->slot], g->len);
        return 0;
    case OWNERS_STATE:
        return held == NULL ? LOCO_ENOENT : give_state(g, held, n);
    default:
        if (job->what == OWNERS_READING && held == NULL) {
            return LOCO_ENOENT;
        }
        g->len = l->reading->bytes(n);
        return l->reading->encode(
            g->bytes, job->what == OWNERS_READING ? held : o->reading + at, n,
            1.0F);
    }
}

/* What came into a slot is numbers. */
static int
check(struct local *l, struct machine *m, const struct slice_job *job)
{
    struct local_owned *o = m->owned;
    uint64_t n = elements(m->terms, job->slice);
    const uint8_t *slot = o->slot[job->slot];

    if (job->what == OWNERS_STATE) {
        for (uint64_t i = 0; i < 3 * n; i++) {
            float x;

            memcpy(&x, slot + i * sizeof x, sizeof x);
            if (!(x - x == 0.0F)) {
                return LOCO_ENUMERIC;
            }
        }
        return 0;
    }
    return (job->what == OWNERS_PIECE || job->what == OWNERS_RECORD
                ? l->codec
                : l->reading)
        ->decode(o->piece, slot, n);
}

static float *hold(struct local_owned *o, uint32_t slice, uint64_t n)
{
    if (o->held[slice] == NULL) {
        o->held[slice] = world_alloc(3 * n * sizeof(float));
    }
    return o->held[slice];
}

static int
build(struct local *l, struct machine *m, const struct slice_job *job)
{
    uint64_t n = elements(m->terms, job->slice);
    float *v = hold(m->owned, job->slice, n);

    local_initial(l, m, l->scratch);
    memcpy(v, l->scratch + job->slice * m->terms->slice_elements,
           n * sizeof(float));
    memset(v + n, 0, 2 * n * sizeof(float));
    return 0;
}

static int load(struct local *l, struct machine *m, const struct slice_job *job)
{
    struct local_owned *o = m->owned;
    uint64_t n = elements(m->terms, job->slice);
    float *v = hold(o, job->slice, n);

    if (job->what == OWNERS_STATE) {
        memcpy(v, o->slot[job->slot], 3 * n * sizeof(float));
        return 0;
    }
    memset(v + n, 0, 2 * n * sizeof(float));
    if (job->slot != SLICE_NO_SLOT) {
        return l->reading->decode(v, o->slot[job->slot], n);
    }
    memcpy(v, o->reading + job->slice * m->terms->slice_elements,
           n * sizeof(float));
    return 0;
}

static int
apply(struct local *l, struct machine *m, const struct slice_job *job)
{
    const struct method method = {
        .group = METHOD_OWNERS,
        .delayed = true,
        .rule = {.lr = l->opt.lr, .mu = l->opt.mu},
    };
    struct local_owned *o = m->owned;
    uint64_t n = elements(m->terms, job->slice);
    float *v = o->held[job->slice];
    struct delayed_state d = {
        .size = job->size, .next = job->next, .count = job->count};
    int rc;

    if (v == NULL) {
        return LOCO_ENOENT;
    }
    d.phi = v;
    d.m = v + n;
    d.sum = v + 2 * n;
    rc = l->codec->decode(o->piece, o->slot[job->slot], n);
    return rc != 0 ? rc : slices_arrive(&method, &d, o->piece, 1, n);
}

/* As it comes out of the wire type of readings. */
static int
as_read(const struct local *l, const float *phi, uint64_t n, float *out)
{
    uint8_t *bytes = world_alloc(l->reading->bytes(n));
    int rc = l->reading->encode(bytes, phi, n, 1.0F);

    rc = rc == 0 ? l->reading->decode(out, bytes, n) : rc;
    free(bytes);
    return rc;
}

static int keep(struct local *l, struct machine *m, const struct slice_job *job)
{
    struct local_owned *o = m->owned;
    uint64_t n = elements(m->terms, job->slice);
    float *to = o->reading + job->slice * m->terms->slice_elements;

    if (job->slot != SLICE_NO_SLOT) {
        return l->reading->decode(to, o->slot[job->slot], n);
    }
    return o->held[job->slice] == NULL ? LOCO_ENOENT
                                       : as_read(l, o->held[job->slice], n, to);
}

static int fill(struct local *l, struct machine *m, const struct slice_job *job)
{
    return l->codec->encode(m->owned->slot[job->slot],
                            m->contribution +
                                job->slice * m->terms->slice_elements,
                            elements(m->terms, job->slice), 1.0F);
}

static int begin(struct local *l, struct machine *m)
{
    memcpy(m->phi, m->owned->reading, l->opt.n_params * sizeof(float));
    memcpy(m->theta, m->phi, l->opt.n_params * sizeof(float));
    m->base_step = m->inner_step;
    m->packed = false;
    return 0;
}

static int work(struct local *l, struct machine *m, const struct action *a)
{
    switch (a->job.op) {
    case SLICE_CHECK:
        return check(l, m, &a->job);
    case SLICE_FILL:
        return fill(l, m, &a->job);
    case SLICE_GIVE:
        return give(l, m, a);
    case SLICE_APPLY:
        return apply(l, m, &a->job);
    case SLICE_BUILD:
        return build(l, m, &a->job);
    case SLICE_LOAD:
        return load(l, m, &a->job);
    case SLICE_FORGET:
        free(m->owned->held[a->job.slice]);
        m->owned->held[a->job.slice] = NULL;
        return 0;
    case SLICE_KEEP:
        return keep(l, m, &a->job);
    case SLICE_READ:
        return begin(l, m);
    case SLICE_OP_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

/* ---- what a checker sees ---------------------------------------------- */

static uint64_t hash_of(const void *bytes, size_t len)
{
    struct hash32 h;

    hash_bytes("sim-slice", bytes, len, &h);
    return hash32_u64(&h);
}

uint64_t local_slice_hash(const struct local *l, uint32_t peer, uint32_t slice)
{
    const struct machine *m = &l->machines[peer];

    return m->owned == NULL || m->owned->held[slice] == NULL
               ? 0
               : hash_of(m->owned->held[slice],
                         3 * elements(m->terms, slice) * sizeof(float));
}

static const uint8_t *piece_of(const struct machine *m, const struct action *a)
{
    return a->job.op == SLICE_GIVE ? m->owned->give[a->job.give].bytes
                                   : m->owned->slot[a->job.slot];
}

static void
report(struct local *l, uint32_t peer, const struct action *a, uint64_t before)
{
    struct machine *m = &l->machines[peer];
    uint64_t n = a->job.op == SLICE_READ ? 0 : elements(m->terms, a->job.slice);
    struct local_sliced x = {
        .job = &a->job, .maker = a->peer, .task = a->request, .before = before};
    const float *v = m->owned->held[a->job.slice];
    bool has_piece = a->job.op == SLICE_FILL || a->job.op == SLICE_APPLY ||
                     (a->job.op == SLICE_GIVE && a->job.what == OWNERS_PIECE);

    if (has_piece) {
        x.piece = hash_of(piece_of(m, a), l->codec->bytes(n));
    }
    if (v != NULL && n > 0) {
        x.after = local_slice_hash(l, peer, a->job.slice);
        x.phi = hash_of(v, n * sizeof(float));
        if (as_read(l, v, n, m->owned->piece) == 0) {
            x.reading = hash_of(m->owned->piece, n * sizeof(float));
        }
    }
    l->calls.sliced(l->calls.self, peer, &x);
}

/* ---- the queue -------------------------------------------------------- */

void local_slice(struct local *l, uint32_t peer, const struct action *a)
{
    struct machine *m = &l->machines[peer];
    struct local_owned *o = m->owned;
    struct owned_job *job = world_alloc(sizeof *job);

    job->action = *a;
    job->next = NULL;
    *(o->first == NULL ? &o->first : &o->last->next) = job;
    o->last = job;
    if (o->first == job) {
        world_timer(l->world, peer, l->opt.work_ms * m->slow, SLICE_TOKEN);
    }
}

void local_slice_done(struct local *l, uint32_t peer)
{
    struct machine *m = &l->machines[peer];
    struct local_owned *o = m->owned;
    struct owned_job *job = o->first;
    struct local_event e = {.type = LOCAL_SLICED,
                            .job = job->action.job,
                            .attempt = job->action.attempt};
    uint64_t before = job->action.job.op == SLICE_READ
                          ? 0
                          : local_slice_hash(l, peer, job->action.job.slice);

    e.rc = work(l, m, &job->action);
    if (e.rc == 0 && l->calls.sliced != NULL) {
        report(l, peer, &job->action, before);
    }
    if (job->action.job.op == SLICE_READ) {
        e.inner_step = m->inner_step;
        local_params_hash(l, peer, &e.params_hash);
    }
    local_tell(l, peer, &e);
    o->first = job->next;
    free(job);
    if (o->first != NULL) {
        world_timer(l->world, peer, l->opt.work_ms * m->slow, SLICE_TOKEN);
    }
}
