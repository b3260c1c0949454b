/* wire.c - see bench/internal.h: the bytes behind segments.
 *
 * A finished piece of the exchange is decoded into the result while it is in
 * the cache, and its wire bytes are not kept: those that are sent on or hashed
 * are made again (train/sync/codec/recode.h). So partial sums, which nobody has
 * decoded, can wait for their way on where the result will be: encoded they
 * need no more room than that. Types that cannot be made again have a whole
 * vector of wire bytes.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/bench/internal.h"
#include "proto/base/err.h"
#include "proto/base/pages.h"
#include "proto/hash.h"
#include "train/sync/codec/recode.h"

static uint64_t read_clock(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

uint64_t bench_cpu_ns(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

/* ---- memory ----------------------------------------------------------- */

/* What wire bytes are made and cut in: a block, or one element. */
static size_t unit_of(const struct codec *c)
{
    return c->block > 1 ? c->block : 1;
}

/* A group of pieces of the hash begins and ends within units. */
static size_t group_room(const struct codec *c)
{
    return (size_t)LEAVES_GROUP * HASH_PIECE_BYTES + 2 * c->bytes(unit_of(c));
}

int bench_wire_make(struct rank *r)
{
    const struct codec *c = r->opt.codec;
    bool ok;

    r->wire_bytes = c->bytes(r->opt.elements);
    ok = leaves_fit(&r->leaves, r->wire_bytes) == 0;
    r->leaf_jobs = calloc(r->leaves.n_groups, sizeof *r->leaf_jobs);
    if (recode_can(c)) {
        r->notes =
            calloc(recode_notes(c, r->opt.elements) + 1, sizeof *r->notes);
        r->group = malloc(group_room(c));
        ok = ok && r->notes != NULL && r->group != NULL;
    } else {
        r->wire = bench_map(r->wire_bytes);
        ok = ok && r->wire != NULL;
    }
    return ok && r->leaf_jobs != NULL ? 0 : LOCO_ENOMEM;
}

void bench_wire_free(struct rank *r)
{
    lanes_free(&r->reduce.lanes);
    leaves_free(&r->leaves);
    free(r->leaf_jobs);
    free(r->notes);
    free(r->group);
    free(r->final);
    pages_give(r->wire, r->wire_bytes);
}

/* Another attempt starts the result anew. False: not of the round in flight. */
static bool begin(struct rank *r, const struct segment *s)
{
    if (s->buffer != BUFFER_RING || r->hashing) {
        return false;
    }
    if (s->attempt != r->attempt) {
        r->attempt = s->attempt;
        r->decoded = 0;
        r->leaves.on = false;
        if (r->opt.overlap && r->n_leaf_jobs == 0) {
            leaves_begin(&r->leaves);
        }
    }
    return true;
}

/* Where bytes lie that are not final: a partial sum. */
static uint8_t *partial_at(struct rank *r, const struct segment *s)
{
    return r->wire != NULL ? r->wire + r->opt.codec->bytes(s->offset)
                           : (uint8_t *)(r->result + s->offset);
}

/* Where final bytes are written before they are decoded: a place of their own,
 * which is free again after that. NULL: no memory. */
static uint8_t *final_at(struct rank *r, const struct segment *s)
{
    if (r->wire != NULL) {
        return partial_at(r, s);
    }
    if (r->final == NULL) {
        r->final = malloc(r->opt.codec->bytes(r->terms.segment_elements));
    }
    return r->final;
}

static int16_t *notes_at(struct rank *r, uint64_t element)
{
    return r->notes + element / unit_of(r->opt.codec);
}

/* ---- the hash --------------------------------------------------------- */

/* Group `g` of the hash: final bytes, made anew in `r->group` where need be. On
 * the worker; NULL: the result is not what final bytes decode to. */
static const uint8_t *group_of(struct rank *r, uint64_t g)
{
    const struct codec *c = r->opt.codec;
    size_t unit = unit_of(c), unit_bytes = c->bytes(unit);
    uint64_t from, to, first, end;

    leaves_group(&r->leaves, g, &from, &to);
    if (r->wire != NULL) {
        return r->wire + from;
    }
    first = from / unit_bytes * unit;
    end = (to + unit_bytes - 1) / unit_bytes * unit;
    end = end < r->opt.elements ? end : r->opt.elements;
    return recode(c, r->group, r->result + first, end - first,
                  notes_at(r, first)) == 0
               ? r->group + (from - c->bytes(first))
               : NULL;
}

static void make_leaves(struct rank *r, uint64_t g)
{
    const uint8_t *bytes = r->leaves.made[g] ? NULL : group_of(r, g);

    if (bytes != NULL) {
        leaves_make(&r->leaves, g, bytes);
    }
}

int bench_wire_hash(struct rank *r, struct hash32 *hash)
{
    if (!r->leaves.on) { /* not asked for, or not of this attempt */
        leaves_stop(&r->leaves);
    }
    for (uint64_t g = 0; g < r->leaves.n_groups; g++) {
        make_leaves(r, g); /* those that were not ready */
        if (!r->leaves.made[g]) {
            return LOCO_ENUMERIC;
        }
    }
    hash_tree_root(r->leaves.leaf, (size_t)r->leaves.n, hash);
    return 0;
}

/* On the worker; jobs are done in order, so the leaves are its own. */
static void leaf_run(struct worker_job *job)
{
    struct bench_leaf *l = job->data;
    uint64_t began_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);

    if (l->rank->opt.roam != NULL) {
        l->rank->opt.roam();
    }
    make_leaves(l->rank, l->group);
    l->cpu_ns = read_clock(CLOCK_THREAD_CPUTIME_ID) - began_ns;
}

static void leaf_done(struct worker_job *job, int status)
{
    struct bench_leaf *l = job->data;

    (void)status;
    l->rank->n_leaf_jobs--;
    if (l->rank->now.reduced_ns == 0) {
        l->rank->now.hash_ns += l->cpu_ns;
    }
}

/* Groups of the hash that are complete now go to the worker. */
static void hash_ahead(struct rank *r, const struct segment *s)
{
    const struct codec *c = r->opt.codec;
    uint64_t ready[LEAVES_STEP_MAX];
    size_t n = leaves_final(&r->leaves, c->bytes(s->offset),
                            c->bytes(s->offset + s->len), ready);

    for (size_t i = 0; i < n; i++) {
        struct bench_leaf *l = &r->leaf_jobs[ready[i]];

        *l = (struct bench_leaf){.rank = r, .group = ready[i]};
        l->job.data = l;
        r->n_leaf_jobs +=
            worker_submit(&r->workers, &l->job, leaf_run, leaf_done) == 0;
    }
}

/* This rank is the one that something happens to, and now it does. */
static void strike(struct rank *r)
{
    struct bench_place *here;

    if (r->opt.fault == BENCH_FAULT_NONE || r->opt.board == NULL ||
        r->opt.rank + 1 != r->opt.n ||
        r->round != r->opt.warmup + r->opt.rounds ||
        (double)r->decoded < r->opt.fault_at * (double)r->opt.elements) {
        return;
    }
    here = &r->opt.board[r->opt.rank];
    if (atomic_load(&here->struck_ns) == 0) {
        atomic_store(&here->struck_ns, uv_hrtime());
        (void)raise(r->opt.fault == BENCH_FAULT_KILL ? SIGKILL : SIGSTOP);
    }
}

void bench_wire_reduced(struct rank *r)
{
    if (r->decoded == r->opt.elements) {
        r->now.reduced_ns = uv_hrtime();
        r->now.cpu_ns = bench_cpu_ns() - r->now.cpu_ns;
    }
}

/* What became final, decoded from `bytes`, may complete the result. */
static void count(struct rank *r, const struct segment *s, const uint8_t *bytes)
{
    if (r->wire == NULL) {
        recode_note(r->opt.codec, notes_at(r, s->offset), bytes, s->len);
    }
    hash_ahead(r, s);
    r->decoded += s->len;
    strike(r);
    bench_wire_reduced(r);
}

/* ---- segments --------------------------------------------------------- */

static size_t on_wire_len(void *self, const struct segment *s)
{
    const struct rank *r = self;

    return segment_wire_len(&r->terms, r->opt.codec, s);
}

/* Whether what is sent must be made again. */
static bool is_decoded(const struct rank *r, const struct segment *s)
{
    return r->wire == NULL && s->final;
}

/* Partial sums go out from where they lie. */
static const uint8_t *on_lend(void *self, const struct segment *s)
{
    struct rank *r = self;

    return s->op == SEGMENT_COPY && !is_decoded(r, s) && begin(r, s)
               ? partial_at(r, s)
               : NULL;
}

/* Bytes that are not decoded at once come in where they stay. */
static uint8_t *on_place(void *self, const struct segment *s)
{
    struct rank *r = self;

    if (s->op == SEGMENT_LANE) {
        return begin(r, s) ? reduce_lane(&r->reduce, s) : NULL;
    }
    return s->op == SEGMENT_COPY && !is_decoded(r, s) && begin(r, s)
               ? partial_at(r, s)
               : NULL;
}

static struct reduce_vectors vectors(const struct rank *r)
{
    return (struct reduce_vectors){.own = r->input, .result = r->result};
}

static int on_fill(void *self, const struct segment *s, uint8_t *dst)
{
    struct rank *r = self;
    const struct reduce_vectors v = vectors(r);

    if (!begin(r, s)) {
        return LOCO_ENOENT;
    }
    if (s->op == SEGMENT_ENCODE) {
        return reduce_encode(&r->reduce, &v, s, dst);
    }
    return is_decoded(r, s) ? recode(r->opt.codec, dst, r->result + s->offset,
                                     s->len, notes_at(r, s->offset))
                            : LOCO_ENOENT;
}

static int on_sum(void *self, struct segment *s)
{
    struct rank *r = self;
    const struct reduce_vectors v = vectors(r);
    uint8_t *dst = begin(r, s) ? final_at(r, s) : NULL;
    int rv = dst == NULL ? LOCO_ENOENT : reduce_sum(&r->reduce, &v, s, dst);

    if (rv == 0) {
        count(r, s, dst);
    }
    return rv;
}

static int
on_take(void *self, const struct segment *s, const uint8_t *src, size_t len)
{
    struct rank *r = self;
    const struct reduce_vectors v = vectors(r);
    const uint8_t *bytes = src; /* what this piece is now */
    uint8_t *dst;
    int rv = 0;

    if (!begin(r, s)) {
        return LOCO_ENOENT;
    }
    if (s->op == SEGMENT_LANE) {
        return reduce_keep(&r->reduce, s, src);
    }
    if (s->op == SEGMENT_ADD) {
        bytes = dst = s->final ? final_at(r, s) : partial_at(r, s);
        rv =
            dst == NULL ? LOCO_ENOMEM : reduce_add(&r->reduce, &v, s, dst, src);
    } else if (s->final) {
        rv = r->opt.codec->decode(r->result + s->offset, src, s->len);
    } else if (src != partial_at(r, s)) {
        memcpy(partial_at(r, s), src, len);
    }
    if (rv == 0 && s->final) {
        count(r, s, bytes);
    }
    return rv;
}

void bench_wire_calls(struct shell_calls *calls)
{
    calls->wire_len = on_wire_len;
    calls->fill = on_fill;
    calls->lend = on_lend;
    calls->place = on_place;
    calls->take = on_take;
    calls->sum = on_sum;
}
