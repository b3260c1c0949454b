/* snapshot.c - see snapshot.h. */
#include "daemon/snapshot.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/pool.h"
#include "proto/hash.h"

void snapshot_free(struct snapshot *s)
{
    if (s != NULL && --s->refs == 0) {
        free(s->state);
        free(s->moments);
        free(s->leaves);
        free(s);
    }
}

/* What a checkpoint calls them; shared ones are those of the state. */
static void name_vectors(struct snapshot *s, const struct method *m)
{
    const float *at = s->state;

    s->phi = at;
    s->u = s->moments;
    s->v = s->moments + s->n;
    if (replica_shares_m(m)) {
        s->m = at += s->n;
    }
    if (replica_shares_u(m)) {
        s->u = at += s->n;
    }
    if (replica_shares_v(m)) {
        s->v = at += s->n;
    }
    if (replica_shares_sum(m)) {
        s->sum = at += s->n;
    }
    if (m->trainers > 0) {
        s->others = at + s->n;
        s->n_others = m->trainers - 1;
        at += s->n_others * s->n;
    }
    s->numbers = at + s->n;
    s->n_numbers = (size_t)(s->n_state - (uint64_t)(s->numbers - s->state));
}

/* ---- the replica's threads ---------------------------------------------- */

/* Bytes to copy, or to hash piece by piece: `next` is the one to be done. */
struct spread {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
    struct hash32 *leaves;
    atomic_size_t next;
};

static void take_pieces(void *arg, int worker)
{
    struct spread *w = arg;
    size_t i, n = (size_t)hash_tree_pieces(w->bytes);

    (void)worker;
    while ((i = atomic_fetch_add(&w->next, 1)) < n) {
        size_t at = i * HASH_PIECE_BYTES, left = w->bytes - at;
        size_t len = left < HASH_PIECE_BYTES ? left : HASH_PIECE_BYTES;

        if (w->leaves != NULL) {
            hash_tree_leaf(w->from + at, len, &w->leaves[i]);
        } else if (len > 0) {
            memcpy(w->to + at, w->from + at, len);
        }
    }
}

static void spread(const struct replica *r, struct spread *w)
{
    if (r->backend.pool == NULL) {
        take_pieces(w, 0);
    } else {
        pool_run(r->backend.pool, take_pieces, w);
    }
}

static void
copy(const struct replica *r, float *to, const float *from, uint64_t n)
{
    struct spread w = {.to = (uint8_t *)to,
                       .from = (const uint8_t *)from,
                       .bytes = n * sizeof(float)};

    spread(r, &w);
}

/* ---- copies ------------------------------------------------------------- */

/* One with all its memory, which `old` had if it is as large; NULL. */
static struct snapshot *with_memory(struct snapshot *old,
                                    const struct replica *r)
{
    uint64_t n_state = replica_state_elements(&r->opt.method, r->n);
    struct snapshot *s = calloc(1, sizeof *s);
    bool fits = old != NULL && old->n == r->n && old->n_state == n_state;

    if (s != NULL) {
        s->refs = 1;
        s->n = r->n;
        s->n_state = n_state;
        if (fits) {
            s->state = old->state;
            s->moments = old->moments;
            old->state = old->moments = NULL;
        }
    }
    snapshot_free(old);
    if (s != NULL && s->state == NULL) {
        s->state = malloc(n_state * sizeof(float));
    }
    if (s != NULL && s->moments == NULL) {
        s->moments = malloc(2 * r->n * sizeof(float));
    }
    if (s != NULL && (s->state == NULL || s->moments == NULL)) {
        snapshot_free(s);
        return NULL;
    }
    return s;
}

struct snapshot *snapshot_make(const struct replica *r, struct snapshot *old)
{
    struct snapshot *s = with_memory(old, r);
    struct replica_vector state[REPLICA_STATE_MAX];
    size_t count = replica_state(r, state);
    float *to;

    if (s == NULL) {
        return NULL;
    }
    s->round = r->round;
    s->inner_step = r->inner_step;
    s->tokens = r->tokens_seen;
    to = s->state;
    for (size_t i = 0; i < count; i++) {
        copy(r, to, state[i].x, state[i].n);
        to += state[i].n;
    }
    if (r->have_optimizer && r->backend.device == NULL) {
        copy(r, s->moments, r->optimizer.u, r->n);
        copy(r, s->moments + r->n, r->optimizer.v, r->n);
    } else {
        replica_moments(r, s->moments);
    }
    name_vectors(s, &r->opt.method);
    return s;
}

/* ---- hashes ------------------------------------------------------------- */

/* The root of `bytes` bytes, their leaves to leaves[hash_tree_pieces(bytes)];
 * `work` has as much room. */
static void hash_spread(const struct replica *r,
                        const float *from,
                        size_t bytes,
                        struct hash32 *leaves,
                        struct hash32 *work,
                        struct hash32 *root)
{
    size_t n = (size_t)hash_tree_pieces(bytes);
    struct spread w = {
        .from = (const uint8_t *)from, .bytes = bytes, .leaves = leaves};

    spread(r, &w);
    memcpy(work, leaves, n * sizeof *work);
    hash_tree_root(work, n, root);
}

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
    struct hash32 *work = malloc(all * sizeof *work);

    s->leaves = malloc(all * sizeof *s->leaves);
    if (work != NULL && s->leaves != NULL) {
        hash_spread(r, s->state, first, s->leaves, work, params);
        hash_spread(r, s->state + s->n, behind, s->leaves + n, work, rest);
    } else {
        free(s->leaves);
        s->leaves = NULL;
        hash_tree(s->state, first, params);
        hash_tree(s->state + s->n, behind, rest);
    }
    free(work);
}

void snapshot_hash(const struct replica *r,
                   struct snapshot *s,
                   struct hash32 *params,
                   struct hash32 *rest)
{
    struct replica_vector state[REPLICA_STATE_MAX];
    size_t n = replica_state(r, state);
    struct hash_tree_state tree;

    if (s != NULL) {
        hash_kept(r, s, params, rest);
        return;
    }
    hash_tree(state[0].x, state[0].n * sizeof(float), params);
    hash_tree_init(&tree);
    for (size_t i = 1; i < n; i++) {
        hash_tree_update(&tree, state[i].x, state[i].n * sizeof(float));
    }
    hash_tree_final(&tree, rest);
}
