/* local_owners.c - the fake machine's slices of the parameters: the daemon's
 * store (daemon/slice_store.h) with real vectors, below one queue of jobs that
 * take their time. See local.h. */
#include "daemon/slice_store.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/hash.h"
#include "tests/sim/local_internal.h"
#include "tests/sim/world_internal.h"

struct owned_job {
    struct action action;
    struct owned_job *next;
};

struct local_owned {
    struct slice_store *store;
    struct method method;
    float *initial, *scratch; /* (n_params) */
    struct owned_job *first, *last;
};

/* What a disk has: of each slice its last mark; what was read last. */
struct local_slices {
    struct slice_mark mark[TERMS_SLICES_MAX]; /* v NULL: none */
    struct slice_version read[TERMS_SLICES_MAX];
    float *reading; /* (n_params); NULL: nothing was read */
};

void local_owners_terms(const struct local *l,
                        const struct machine *m,
                        struct run_terms *t)
{
    const struct local_slices *d = m->disk.slices;
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
    for (uint32_t i = 0; d != NULL && i < t->n_slices; i++) {
        t->slice_held[i] = d->mark[i].at;
        t->slice_read[i] = d->read[i];
    }
}

static int initial(void *self, uint64_t at, uint64_t len, float *out)
{
    const struct local_owned *o = self;

    memcpy(out, o->initial + at, len * sizeof *out);
    return 0;
}

/* ---- the disk ---------------------------------------------------------- */

/* What an earlier life wrote. */
static void recall(const struct local *l, struct machine *m)
{
    if (m->disk.slices == NULL) {
        m->disk.slices = world_alloc(sizeof *m->disk.slices);
    }
    for (uint32_t i = 0; i < m->terms->n_slices; i++) {
        const float *v = m->disk.slices->mark[i].v;
        uint64_t n = slice_store_len(m->owned->store, i);

        if (v != NULL &&
            slice_store_put(m->owned->store, i, v, v + n, v + 2 * n) != 0) {
            abort();
        }
    }
    if (m->disk.slices->reading != NULL) {
        slice_store_put_reading(m->owned->store, m->disk.slices->reading);
    }
    (void)l;
}

/* One mark, when the job that came after it is done: so some wait, and some are
 * overtaken. */
static void write_mark(struct machine *m)
{
    struct slice_mark mark;

    if (slice_store_next_mark(m->owned->store, &mark)) {
        free(m->disk.slices->mark[mark.slice].v);
        m->disk.slices->mark[mark.slice] = mark;
    }
}

static void write_reading(const struct local *l, struct machine *m)
{
    struct local_slices *d = m->disk.slices;
    size_t bytes = l->opt.n_params * sizeof(float);

    if (d->reading == NULL) {
        d->reading = world_alloc(bytes);
    }
    memcpy(d->reading, slice_store_reading(m->owned->store), bytes);
    memcpy(d->read, slice_store_seen(m->owned->store),
           m->terms->n_slices * sizeof d->read[0]);
}

void local_owners_wipe(struct machine *m)
{
    struct local_slices *d = m->disk.slices;

    for (uint32_t i = 0; d != NULL && i < TERMS_SLICES_MAX; i++) {
        free(d->mark[i].v);
    }
    free(d == NULL ? NULL : d->reading);
    free(d);
}

struct slice_version
local_slice_on_disk(const struct local *l, uint32_t peer, uint32_t slice)
{
    const struct local_slices *d = l->machines[peer].disk.slices;

    return d == NULL ? (struct slice_version){0} : d->mark[slice].at;
}

void local_owners_open(const struct local *l, struct machine *m)
{
    const struct run_terms *t = m->terms;
    struct slice_store_options so = {.n = t->n_params,
                                     .count = t->n_slices,
                                     .each = t->slice_elements,
                                     .codec = l->codec,
                                     .initial = initial};
    struct local_owned *o;

    if (!terms_owned(t) || m->owned != NULL) {
        return;
    }
    o = m->owned = world_alloc(sizeof *o);
    o->method = (struct method){.group = METHOD_OWNERS,
                                .delayed = true,
                                .rule = {.lr = l->opt.lr, .mu = l->opt.mu}};
    o->initial = world_alloc(t->n_params * sizeof *o->initial);
    o->scratch = world_alloc(t->n_params * sizeof *o->scratch);
    local_initial(l, m, o->initial);
    so.method = &o->method;
    so.self = o;
    if (slice_store_open(&o->store, &so) != 0) {
        abort();
    }
    recall(l, m);
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
    slice_store_close(o->store);
    free(o->initial);
    free(o->scratch);
    free(o);
    m->owned = NULL;
}

size_t local_owned_bytes(const struct machine *m, const struct segment *seg)
{
    return m->owned == NULL ? 0 : slice_store_wire_len(m->owned->store, seg);
}

int local_owned_fill(const struct machine *m,
                     const struct segment *seg,
                     uint8_t *dst)
{
    return m->owned == NULL ? LOCO_ENOENT
                            : slice_store_fill(m->owned->store, seg, dst);
}

int local_owned_take(struct machine *m,
                     const struct segment *seg,
                     const uint8_t *src,
                     size_t len)
{
    return m->owned == NULL ? LOCO_ENOENT
                            : slice_store_take(m->owned->store, seg, src, len);
}

static int begin(struct local *l, struct machine *m)
{
    size_t bytes = l->opt.n_params * sizeof(float);

    memcpy(m->phi, slice_store_reading(m->owned->store), bytes);
    memcpy(m->theta, m->phi, bytes);
    m->base_step = m->inner_step;
    m->packed = false;
    write_reading(l, m);
    return 0;
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

    const float *held =
        m->owned == NULL ? NULL : slice_store_held(m->owned->store, slice);

    return held == NULL
               ? 0
               : hash_of(held, 3 * sizeof *held *
                                   slice_store_len(m->owned->store, slice));
}

static const uint8_t *piece_of(const struct machine *m, const struct action *a)
{
    return a->job.op == SLICE_GIVE
               ? slice_store_given(m->owned->store, a->job.give)
               : slice_store_slot(m->owned->store, a->job.slot);
}

static void
report(struct local *l, uint32_t peer, const struct action *a, uint64_t before)
{
    struct machine *m = &l->machines[peer];
    uint64_t n = a->job.op == SLICE_READ
                     ? 0
                     : slice_store_len(m->owned->store, a->job.slice);
    struct local_sliced x = {
        .job = &a->job, .maker = a->peer, .task = a->request, .before = before};
    const float *v = slice_store_held(m->owned->store, a->job.slice);
    bool has_piece = a->job.op == SLICE_FILL || a->job.op == SLICE_APPLY ||
                     (a->job.op == SLICE_GIVE && a->job.what == OWNERS_PIECE);

    if (has_piece) {
        x.piece = hash_of(piece_of(m, a), l->codec->bytes(n));
    }
    if (v != NULL && n > 0) {
        x.after = local_slice_hash(l, peer, a->job.slice);
        x.phi = hash_of(v, n * sizeof(float));
        if (slice_store_as_read(m->owned->store, v, n, m->owned->scratch) ==
            0) {
            x.reading = hash_of(m->owned->scratch, n * sizeof(float));
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

    write_mark(m);
    e.rc = job->action.job.op == SLICE_READ
               ? begin(l, m)
               : slice_store_run(o->store, &job->action, m->contribution);
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
