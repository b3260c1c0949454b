/* snapshot.c - see snapshot.h. */
#include "daemon/snapshot.h"

#include <stdlib.h>
#include <string.h>

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

struct snapshot *snapshot_make(const struct replica *r)
{
    struct snapshot *s = calloc(1, sizeof *s);
    size_t bytes = r->n * sizeof(float);
    struct replica_vector state[REPLICA_STATE_MAX];
    size_t count = replica_state(r, state);
    float *to;

    if (s == NULL) {
        return NULL;
    }
    s->refs = 1;
    s->round = r->round;
    s->inner_step = r->inner_step;
    s->tokens = r->tokens_seen;
    s->n = r->n;
    s->n_state = replica_state_elements(&r->opt.method, r->n);
    s->state = to = malloc(s->n_state * sizeof(float));
    s->moments = malloc(2 * bytes);
    if (s->state == NULL || s->moments == NULL) {
        snapshot_free(s);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        memcpy(to, state[i].x, state[i].n * sizeof(float));
        to += state[i].n;
    }
    replica_moments(r, s->moments);
    name_vectors(s, &r->opt.method);
    return s;
}

/* Pieces do not lie across the end of phi: each part has its own tree. */
static void
hash_kept(struct snapshot *s, struct hash32 *params, struct hash32 *rest)
{
    size_t first = s->n * sizeof(float);
    size_t behind = (s->n_state - s->n) * sizeof(float);
    size_t n = (size_t)hash_tree_pieces(first);

    /* Nothing behind phi is one leaf to the tree, and none to a fetch. */
    s->leaves =
        malloc((n + (size_t)hash_tree_pieces(behind)) * sizeof *s->leaves);
    hash_tree_keep(s->state, first, s->leaves, params);
    hash_tree_keep(s->state + s->n, behind,
                   s->leaves == NULL ? NULL : s->leaves + n, rest);
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
        hash_kept(s, params, rest);
        return;
    }
    hash_tree(state[0].x, state[0].n * sizeof(float), params);
    hash_tree_init(&tree);
    for (size_t i = 1; i < n; i++) {
        hash_tree_update(&tree, state[i].x, state[i].n * sizeof(float));
    }
    hash_tree_final(&tree, rest);
}
