/* slice_store.c - see slice_store.h. */
#include "daemon/slice_store.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/sync/slices.h"

struct give {
    uint64_t attempt; /* for whom, under which; 0: for nobody. By the lock */
    struct peer_id peer;
    uint8_t *bytes;
    size_t len;
};

struct slice_store {
    struct slice_store_options opt;
    const struct codec *reading_codec;
    size_t room; /* bytes of the longest thing that travels */
    float *held[SLICES_MAX];
    float *reading, *piece;
    uint8_t *slot[STREAM_SLOTS];
    struct slice_version seen[SLICES_MAX]; /* of the reading */
    pthread_mutex_t lock;
    struct slice_mark mark[SLICES_MAX]; /* v NULL: none. By the lock */
    uint32_t mark_turn;
    struct give give[SLICE_GIVES_MAX];
};

uint64_t slice_store_len(const struct slice_store *s, uint32_t slice)
{
    uint64_t left = s->opt.n - slice * s->opt.each;

    return left < s->opt.each ? left : s->opt.each;
}

static size_t
wire(const struct slice_store *s, enum buffer_kind buffer, uint64_t elements)
{
    return buffer == BUFFER_PIECE   ? s->opt.codec->bytes(elements)
           : buffer == BUFFER_SLICE ? elements * sizeof(float)
                                    : s->reading_codec->bytes(elements);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

int slice_store_open(struct slice_store **store,
                     const struct slice_store_options *opt)
{
    struct slice_store *s;

    if (opt->count == 0 || opt->count > SLICES_MAX || opt->each == 0 ||
        (opt->n + opt->each - 1) / opt->each != opt->count) {
        return LOCO_EINVAL;
    }
    s = calloc(1, sizeof *s);
    if (s == NULL) {
        return LOCO_ENOMEM;
    }
    (void)pthread_mutex_init(&s->lock, NULL);
    s->opt = *opt;
    s->reading_codec = codec_get(slices_reading(opt->codec->id));
    s->room = larger(wire(s, BUFFER_SLICE, 3 * opt->each),
                     larger(wire(s, BUFFER_PIECE, opt->each),
                            wire(s, BUFFER_READING, opt->each)));
    s->reading = calloc(opt->n, sizeof *s->reading);
    s->piece = calloc(opt->each, sizeof *s->piece);
    for (uint32_t k = 0; k < STREAM_SLOTS; k++) {
        s->slot[k] = calloc(1, s->room);
        if (s->slot[k] == NULL || s->reading == NULL || s->piece == NULL) {
            slice_store_close(s);
            return LOCO_ENOMEM;
        }
    }
    *store = s;
    return 0;
}

void slice_store_close(struct slice_store *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t i = 0; i < SLICES_MAX; i++) {
        free(s->held[i]);
        free(s->mark[i].v);
    }
    for (uint32_t k = 0; k < STREAM_SLOTS; k++) {
        free(s->slot[k]);
    }
    for (uint32_t k = 0; k < SLICE_GIVES_MAX; k++) {
        free(s->give[k].bytes);
    }
    free(s->reading);
    free(s->piece);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- segments --------------------------------------------------------- */

bool slice_store_is(const struct segment *seg)
{
    return seg->buffer == BUFFER_PIECE || seg->buffer == BUFFER_SLICE ||
           seg->buffer == BUFFER_READING;
}

size_t slice_store_wire_len(const struct slice_store *s,
                            const struct segment *seg)
{
    return wire(s, seg->buffer, seg->len);
}

/* Where it lies, in bytes; false: outside of its slice. */
static bool
place(const struct slice_store *s, const struct segment *seg, size_t *at)
{
    uint64_t n;

    if (seg->index >= s->opt.count) {
        return false;
    }
    n = slice_store_len(s, (uint32_t)seg->index) *
        (seg->buffer == BUFFER_SLICE ? 3 : 1);
    if (seg->offset > n || seg->len > n - seg->offset ||
        (seg->buffer == BUFFER_PIECE &&
         seg->offset % s->opt.codec->block != 0) ||
        (seg->buffer == BUFFER_READING &&
         seg->offset % s->reading_codec->block != 0)) {
        return false;
    }
    *at = wire(s, seg->buffer, seg->offset);
    return true;
}

int slice_store_fill(struct slice_store *s,
                     const struct segment *seg,
                     uint8_t *dst)
{
    const struct give *g;
    size_t at, len = slice_store_wire_len(s, seg);
    int rc = LOCO_ENOENT; /* its place is another's by now */

    if (seg->slot >= SLICE_GIVES_MAX || !place(s, seg, &at)) {
        return LOCO_ERANGE;
    }
    g = &s->give[seg->slot];
    (void)pthread_mutex_lock(&s->lock);
    if (g->attempt == seg->attempt && id_eq(&g->peer, &seg->peer) &&
        at + len <= g->len) {
        memcpy(dst, g->bytes + at, len);
        rc = 0;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

int slice_store_take(struct slice_store *s,
                     const struct segment *seg,
                     const uint8_t *src,
                     size_t len)
{
    size_t at;

    if (seg->slot >= STREAM_SLOTS || !place(s, seg, &at)) {
        return LOCO_ERANGE;
    }
    if (len != slice_store_wire_len(s, seg)) {
        return LOCO_EPROTO;
    }
    memcpy(s->slot[seg->slot] + at, src, len);
    return 0;
}

/* ---- jobs ------------------------------------------------------------- */

static float *hold(struct slice_store *s, uint32_t slice)
{
    if (s->held[slice] == NULL) {
        s->held[slice] = calloc(3 * slice_store_len(s, slice), sizeof(float));
    }
    return s->held[slice];
}

static int encode_give(struct slice_store *s,
                       const struct slice_job *job,
                       const float *contribution,
                       struct give *g)
{
    uint64_t n = slice_store_len(s, job->slice);
    uint64_t at = job->slice * s->opt.each;
    const float *held = s->held[job->slice];

    switch (job->what) {
    case OWNERS_PIECE:
        g->len = wire(s, BUFFER_PIECE, n);
        return s->opt.codec->encode(g->bytes, contribution + at, n, 1.0F);
    case OWNERS_RECORD:
        g->len = wire(s, BUFFER_PIECE, n);
        memcpy(g->bytes, s->slot[job->slot], g->len);
        return 0;
    case OWNERS_STATE:
        if (held == NULL) {
            return LOCO_ENOENT;
        }
        g->len = wire(s, BUFFER_SLICE, 3 * n);
        memcpy(g->bytes, held, g->len);
        return 0;
    default:
        if (job->what == OWNERS_READING && held == NULL) {
            return LOCO_ENOENT;
        }
        g->len = wire(s, BUFFER_READING, n);
        return s->reading_codec->encode(
            g->bytes, job->what == OWNERS_READING ? held : s->reading + at, n,
            1.0F);
    }
}

/* From now on it is for that peer; NULL: for nobody. */
static void give_to(struct slice_store *s,
                    struct give *g,
                    uint64_t attempt,
                    const struct peer_id *peer)
{
    (void)pthread_mutex_lock(&s->lock);
    g->attempt = attempt;
    if (peer != NULL) {
        g->peer = *peer;
    }
    (void)pthread_mutex_unlock(&s->lock);
}

static int
give(struct slice_store *s, const struct action *a, const float *contribution)
{
    struct give *g = &s->give[a->job.give];
    int rc;

    give_to(s, g, 0, NULL);
    if (g->bytes == NULL) {
        g->bytes = calloc(1, s->room);
    }
    if (g->bytes == NULL) {
        return LOCO_ENOMEM;
    }
    rc = encode_give(s, &a->job, contribution, g);
    if (rc == 0) {
        give_to(s, g, a->attempt, &a->peer);
    }
    return rc;
}

static int check(struct slice_store *s, const struct slice_job *job)
{
    uint64_t n = slice_store_len(s, job->slice);
    const uint8_t *slot = s->slot[job->slot];

    if (job->what != OWNERS_STATE) {
        bool piece = job->what == OWNERS_PIECE || job->what == OWNERS_RECORD;
        const struct codec *codec = piece ? s->opt.codec : s->reading_codec;
        int rc = codec->decode(s->piece, slot, n);

        /* What no encoder writes would be no better if it came again. */
        return rc == LOCO_EPROTO ? LOCO_ENUMERIC : rc;
    }
    for (uint64_t i = 0; i < 3 * n; i++) {
        float x;

        memcpy(&x, slot + i * sizeof x, sizeof x);
        if (!isfinite(x)) {
            return LOCO_ENUMERIC;
        }
    }
    return 0;
}

static int load(struct slice_store *s, const struct slice_job *job)
{
    uint64_t n = slice_store_len(s, job->slice);
    float *v = hold(s, job->slice);

    if (v == NULL) {
        return LOCO_ENOMEM;
    }
    if (job->op == SLICE_LOAD && job->what == OWNERS_STATE) {
        memcpy(v, s->slot[job->slot], 3 * n * sizeof *v);
        return 0;
    }
    memset(v + n, 0, 2 * n * sizeof *v);
    if (job->op == SLICE_BUILD) {
        return s->opt.initial(s->opt.self, job->slice * s->opt.each, n, v);
    }
    if (job->slot != SLICE_NO_SLOT) {
        return s->reading_codec->decode(v, s->slot[job->slot], n);
    } else {
        memcpy(v, s->reading + job->slice * s->opt.each, n * sizeof *v);
    }
    return 0;
}

static int apply(struct slice_store *s, const struct slice_job *job)
{
    uint64_t n = slice_store_len(s, job->slice);
    float *v = s->held[job->slice];
    struct delayed_state d = {
        .phi = v, .size = job->size, .next = job->next, .count = job->count};
    int rc;

    if (v == NULL) {
        return LOCO_ENOENT;
    }
    d.m = v + n;
    d.sum = v + 2 * n;
    rc = s->opt.codec->decode(s->piece, s->slot[job->slot], n);
    return rc != 0 ? rc : slices_arrive(s->opt.method, &d, s->piece, 1, n);
}

int slice_store_as_read(const struct slice_store *s,
                        const float *phi,
                        uint64_t n,
                        float *out)
{
    uint8_t *bytes = malloc(wire(s, BUFFER_READING, n));
    int rc;

    if (bytes == NULL) {
        return LOCO_ENOMEM;
    }
    rc = s->reading_codec->encode(bytes, phi, n, 1.0F);
    rc = rc == 0 ? s->reading_codec->decode(out, bytes, n) : rc;
    free(bytes);
    return rc;
}

static int keep(struct slice_store *s, const struct slice_job *job)
{
    uint64_t n = slice_store_len(s, job->slice);
    float *to = s->reading + job->slice * s->opt.each;

    s->seen[job->slice] = job->at;
    if (job->slot != SLICE_NO_SLOT) {
        return s->reading_codec->decode(to, s->slot[job->slot], n);
    }
    return s->held[job->slice] == NULL
               ? LOCO_ENOENT
               : slice_store_as_read(s, s->held[job->slice], n, to);
}

/* ---- the disk --------------------------------------------------------- */

/* A copy, in the place of one that was not written yet. */
static int mark(struct slice_store *s, const struct slice_job *job)
{
    size_t bytes = 3 * slice_store_len(s, job->slice) * sizeof(float);
    struct slice_mark new = {.slice = job->slice, .at = job->at}, old;

    if (s->held[job->slice] == NULL) {
        return LOCO_ENOENT;
    }
    (void)pthread_mutex_lock(&s->lock);
    old = s->mark[job->slice];
    s->mark[job->slice].v = NULL;
    (void)pthread_mutex_unlock(&s->lock);
    new.v = old.v == NULL ? malloc(bytes) : old.v;
    if (new.v == NULL) {
        return LOCO_ENOMEM;
    }
    memcpy(new.v, s->held[job->slice], bytes);
    (void)pthread_mutex_lock(&s->lock);
    s->mark[job->slice] = new;
    (void)pthread_mutex_unlock(&s->lock);
    return 0;
}

bool slice_store_next_mark(struct slice_store *s, struct slice_mark *out)
{
    bool found = false;

    (void)pthread_mutex_lock(&s->lock);
    for (uint32_t k = 0; k < s->opt.count && !found; k++) {
        uint32_t i = (s->mark_turn + k) % s->opt.count;

        if (s->mark[i].v != NULL) {
            *out = s->mark[i];
            s->mark[i].v = NULL;
            s->mark_turn = i + 1;
            found = true;
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
    return found;
}

int slice_store_put(struct slice_store *s,
                    uint32_t slice,
                    const float *phi,
                    const float *m,
                    const float *sum)
{
    uint64_t n = slice_store_len(s, slice);
    float *v = hold(s, slice);

    if (v == NULL) {
        return LOCO_ENOMEM;
    }
    memcpy(v, phi, n * sizeof *v);
    memcpy(v + n, m, n * sizeof *v);
    memcpy(v + 2 * n, sum, n * sizeof *v);
    return 0;
}

void slice_store_put_reading(struct slice_store *s, const float *phi)
{
    memcpy(s->reading, phi, s->opt.n * sizeof *phi);
}

const struct slice_version *slice_store_seen(const struct slice_store *s)
{
    return s->seen;
}

int slice_store_run(struct slice_store *s,
                    const struct action *a,
                    const float *contribution)
{
    const struct slice_job *job = &a->job;

    switch (job->op) {
    case SLICE_CHECK:
        return check(s, job);
    case SLICE_FILL:
        return s->opt.codec->encode(s->slot[job->slot],
                                    contribution + job->slice * s->opt.each,
                                    slice_store_len(s, job->slice), 1.0F);
    case SLICE_GIVE:
        return give(s, a, contribution);
    case SLICE_APPLY:
        return apply(s, job);
    case SLICE_BUILD:
    case SLICE_LOAD:
        return load(s, job);
    case SLICE_FORGET:
        free(s->held[job->slice]);
        s->held[job->slice] = NULL;
        return 0;
    case SLICE_KEEP:
        return keep(s, job);
    case SLICE_MARK:
        return mark(s, job);
    case SLICE_READ:
    case SLICE_OP_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

const float *slice_store_reading(const struct slice_store *s)
{
    return s->reading;
}

const float *slice_store_held(const struct slice_store *s, uint32_t slice)
{
    return s->held[slice];
}

const uint8_t *slice_store_slot(const struct slice_store *s, uint32_t slot)
{
    return s->slot[slot];
}

const uint8_t *slice_store_given(const struct slice_store *s, uint32_t give)
{
    return s->give[give].bytes;
}
