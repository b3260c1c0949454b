/* snapshot.c - see snapshot.h. */
#include "daemon/machine/snapshot.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/hash_threads.h"
#include "proto/base/pages.h"
#include "proto/hash.h"
#include "proto/sample.h"

#define PIECE_BYTES ((size_t)1 << 20)

void snapshot_free(struct snapshot *s)
{
    if (s != NULL && --s->refs == 0) {
        if (s->room == NULL) {
            free(s->state);
        }
        state_room_drop(s->room);
        free(s->moments);
        free(s->idle);
        free(s->leaves);
        free(s);
    }
}

struct state_room *snapshot_take_room(struct snapshot *s)
{
    struct state_room *room = s == NULL ? NULL : s->room;

    if (room != NULL) {
        s->room = NULL;
        s->state = NULL;
    }
    return room;
}

bool snapshot_reduce(struct snapshot *s, const struct method *method)
{
    if (s->room != NULL && state_room_is_shared(s->room)) {
        return false;
    }
    if (replica_begins_with_phi(method)) {
        pages_forget(s->state + s->n, (s->n_state - s->n) * sizeof(float));
    }
    free(s->moments);
    free(s->idle);
    free(s->leaves);
    s->moments = s->idle = NULL;
    s->leaves = NULL;
    return true;
}

/* ---- copies ------------------------------------------------------------- */

/* What the replica's threads copy, piece by piece: `next` is to be done. */
struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    atomic_size_t next;
};

static void copy_pieces(void *arg, int worker)
{
    struct copy *w = arg;
    size_t at;

    (void)worker;
    while ((at = atomic_fetch_add(&w->next, PIECE_BYTES)) < w->bytes) {
        size_t left = w->bytes - at;

        memcpy(w->to + at, w->from + at,
               left < PIECE_BYTES ? left : PIECE_BYTES);
    }
}

static void
copy(const struct replica *r, float *to, const float *from, uint64_t n)
{
    struct copy w = {.to = (uint8_t *)to,
                     .from = (const uint8_t *)from,
                     .bytes = n * sizeof(float)};

    if (r->backend.pool == NULL) {
        copy_pieces(&w, 0);
    } else {
        pool_run(r->backend.pool, copy_pieces, &w);
    }
}

static float *take_copy(uint64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);

    if (x != NULL) {
        pages_prefer_large(x, (size_t)n * sizeof *x);
    }
    return x;
}

/* What `old`, which is as large, does not need any more. */
static void take_over(struct snapshot *s, struct snapshot *old)
{
    float **moments = old->moments != NULL ? &old->moments : &old->idle;

    s->idle = *moments;
    *moments = NULL;
    if (s->room == NULL && old->room == NULL) {
        s->state = old->state;
        old->state = NULL;
    }
}

/* One with all its memory, which `old` had if it is as large; NULL. */
static struct snapshot *
with_memory(struct snapshot *old, struct replica *r, bool moments)
{
    uint64_t n_state = replica_state_elements(&r->opt.method, r->n);
    struct snapshot *s = calloc(1, sizeof *s);

    if (s != NULL) {
        s->refs = 1;
        s->n = r->n;
        s->n_state = n_state;
        s->room = replica_hold_state(r);
        s->state = s->room == NULL ? NULL : s->room->x;
    }
    if (s != NULL && old != NULL && old->n == r->n && old->n_state == n_state) {
        take_over(s, old);
    }
    snapshot_free(old);
    if (s != NULL && s->state == NULL) {
        s->state = take_copy(n_state);
    }
    if (s != NULL && moments) {
        s->moments = s->idle != NULL ? s->idle : take_copy(2 * r->n);
        s->idle = NULL;
    }
    if (s != NULL && (s->state == NULL || (s->moments == NULL && moments))) {
        snapshot_free(s);
        return NULL;
    }
    return s;
}

struct snapshot *
snapshot_begin(struct replica *r, struct snapshot *old, bool moments)
{
    bool takes = moments && r->have_optimizer;
    struct snapshot *s = with_memory(old, r, takes);

    if (s == NULL) {
        return NULL;
    }
    s->round = r->round;
    s->inner_step = r->inner_step;
    s->tokens = r->tokens_seen;
    s->lacks = !takes && replica_owns_moments(r);
    s->moment_steps = r->have_optimizer && !s->lacks ? r->optimizer.t : 0;
    if (takes && r->backend.device == NULL) {
        copy(r, s->moments, r->optimizer.u, r->n);
        copy(r, s->moments + r->n, r->optimizer.v, r->n);
    } else if (takes && replica_moments(r, s->moments) != 0) {
        free(s->moments); /* the GPU is lost */
        s->moments = NULL;
        s->moment_steps = 0;
    }
    return s;
}

void snapshot_fill(const struct replica *r, struct snapshot *s)
{
    struct replica_vector state[REPLICA_STATE_MAX];
    size_t count = replica_state(r, state);
    float *to = s->state;

    for (size_t i = 0; i < count && s->room == NULL; i++) {
        copy(r, to, state[i].x, state[i].n);
        to += state[i].n;
    }
}

struct snapshot *snapshot_make(struct replica *r, struct snapshot *old)
{
    struct snapshot *s = snapshot_begin(r, old, true);

    if (s != NULL) {
        snapshot_fill(r, s);
    }
    return s;
}

/* ---- hashes ------------------------------------------------------------- */

/* Pieces do not lie across the end of phi: each part has its own tree. */
static void hash_kept(const struct replica *r,
                      struct snapshot *s,
                      struct hash32 *params,
                      struct hash32 *rest)
{
    size_t first = s->n * sizeof(float);
    size_t behind = (s->n_state - s->n) * sizeof(float);
    size_t n = (size_t)hash_tree_pieces(first);
    /* Nothing behind phi is one leaf to the tree, and none to a fetch. */
    size_t all = n + (size_t)hash_tree_pieces(behind);

    s->leaves = malloc(all * sizeof *s->leaves);
    hash_pool(r->backend.pool, s->state, first, s->leaves, params);
    hash_pool(r->backend.pool, s->state + s->n, behind,
              s->leaves == NULL ? NULL : s->leaves + n, rest);
}

void snapshot_hash(const struct replica *r,
                   struct snapshot *s,
                   struct hash32 *params,
                   struct hash32 *rest)
{
    struct replica_vector state[REPLICA_STATE_MAX];
    struct hash_tree_state tree;
    size_t n;

    if (s != NULL) {
        hash_kept(r, s, params, rest);
        return;
    }
    n = replica_state(r, state);
    hash_tree(state[0].x, state[0].n * sizeof(float), params);
    hash_tree_init(&tree);
    for (size_t i = 1; i < n; i++) {
        hash_tree_update(&tree, state[i].x, state[i].n * sizeof(float));
    }
    hash_tree_final(&tree, rest);
}

void snapshot_sample(const struct replica *r,
                     const struct snapshot *s,
                     const struct hash32 *state,
                     struct hash32 *sample)
{
    struct replica_vector at[REPLICA_STATE_MAX];
    struct sample_part parts[REPLICA_STATE_MAX];
    size_t n = 1;

    if (s != NULL) {
        at[0] = (struct replica_vector){s->state, s->n_state};
    } else {
        n = replica_state(r, at);
    }
    for (size_t i = 0; i < n; i++) {
        parts[i] = (struct sample_part){at[i].x, at[i].n * sizeof(float)};
    }
    sample_state(state, parts, n, sample);
}
