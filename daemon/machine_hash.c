/* machine_hash.c - hashes of buffers, on a worker. */
#include <stdlib.h>

#include "daemon/machine_internal.h"
#include "proto/base/err.h"
#include "proto/hash.h"

/* Elements of a slot that are read under its lock at a time: a multiple of all
 * blocks, so that they can be encoded on the way. */
#define HASH_PIECE ((uint64_t)1 << 18)

/* Elements [at, at + n) of the slot: encoded from j->from on. */
static int hash_piece(struct machine_job *j,
                      uint64_t at,
                      uint64_t n,
                      struct hash_tree_state *s)
{
    const struct codec *c = j->m->codec;
    uint8_t *bytes = j->slot->bytes + c->bytes(at);
    struct codec_op op = {.n = n, .scale = 1};
    int rv = 0;

    if (at >= j->from) {
        op.own = j->contribution + at;
        op.next = j->error == NULL ? NULL : j->error + at;
        rv = c->encode_op(bytes, &op);
    }
    if (rv == 0) {
        hash_tree_update(s, bytes, c->bytes(n));
    }
    return rv;
}

/* A contribution that is encoded on the way. LOCO_ECANCELED when the slot
 * became that of another attempt. */
static int hash_encoded(struct machine_job *j)
{
    struct hash_tree_state *s = malloc(sizeof *s);
    uint64_t all = j->elements, n;
    int rv = s == NULL ? LOCO_ENOMEM : 0;

    if (rv == 0) {
        hash_tree_init(s);
    }
    for (uint64_t at = 0; at < all && rv == 0; at += n) {
        uint64_t end = at < j->from ? j->from : all;

        n = end - at < HASH_PIECE ? end - at : HASH_PIECE;
        (void)pthread_mutex_lock(&j->slot->lock);
        rv = j->slot->version == j->version ? hash_piece(j, at, n, s)
                                            : LOCO_ECANCELED;
        (void)pthread_mutex_unlock(&j->slot->lock);
    }
    if (rv == 0) {
        hash_tree_final(s, &j->hash);
    }
    free(s);
    return rv;
}

/* The leaf of one piece: made before, or now. */
static int leaf_of(struct machine_job *j, uint64_t p, struct hash32 *out)
{
    struct wire_slot *slot = j->slot;
    const struct leaves *l = &slot->leaves;
    uint64_t from, to;
    int rv = 0;

    (void)pthread_mutex_lock(&slot->lock);
    if (slot->version != j->version) {
        rv = LOCO_ECANCELED;
    } else if (l->made[p]) {
        *out = l->leaf[p];
    } else {
        leaves_piece(l, p, &from, &to);
        hash_tree_leaf(slot->bytes + from, (size_t)(to - from), out);
    }
    (void)pthread_mutex_unlock(&slot->lock);
    return rv;
}

/* The same, of bytes that are there. */
static int hash_slot(struct machine_job *j)
{
    uint64_t n = j->slot->leaves.n;
    struct hash32 *leaves = malloc(n * sizeof *leaves);
    int rv = leaves == NULL ? LOCO_ENOMEM : 0;

    for (uint64_t p = 0; p < n && rv == 0; p++) {
        rv = leaf_of(j, p, &leaves[p]);
    }
    if (rv == 0) {
        hash_tree_root(leaves, (size_t)n, &j->hash);
    }
    free(leaves);
    return rv;
}

/* On a worker. */
void machine_hash_run(struct machine_job *j)
{
    if (j->buffer == BUFFER_STEP) {
        machine_pair_hash_run(j);
        return;
    }
    j->rc = j->encode ? hash_encoded(j) : hash_slot(j);
}

/* On a worker: one piece of an attempt in flight is final. */
void machine_leaf_run(struct machine_job *j)
{
    struct wire_slot *slot = j->slot;

    (void)pthread_mutex_lock(&slot->lock);
    if (slot->leaf_version == j->version) {
        leaves_make(&slot->leaves, j->index,
                    slot->bytes + j->index * HASH_PIECE_BYTES);
    }
    (void)pthread_mutex_unlock(&slot->lock);
}

void machine_leaf(struct machine *m, struct wire_slot *slot, uint64_t piece)
{
    struct machine_job *j = machine_job_new(m, JOB_LEAF);

    if (j == NULL) {
        return; /* HASH makes it */
    }
    j->index = piece;
    j->slot = slot;
    j->version = slot->leaf_version; /* only this thread changes it */
    slot->pins++;
    machine_job_submit(m, j);
}

static void hash_failed(struct machine *m, const struct action *a, int rc)
{
    struct local_event ev = {
        .type = LOCAL_HASHED,
        .rc = rc,
        .buffer = a->buffer,
        .index = a->index,
        .request = a->request,
    };

    machine_post(m, &ev);
}

void machine_hash(struct machine *m, const struct action *a)
{
    struct machine_job *j;
    struct wire_slot *slot = NULL;
    bool ready;

    if (a->buffer == BUFFER_STEP) {
        machine_pair_hash(m, a);
        return;
    }
    if (a->buffer == BUFFER_RING) {
        slot = a->encode ? machine_slot_for(m, WIRE_RING, a->request)
                         : machine_slot_find(m, WIRE_RING, a->request);
        ready = slot != NULL && m->trainer != NULL &&
                a->request != m->refused_attempt;
    } else if (a->buffer == BUFFER_REDUCED) {
        slot = machine_slot_find(m, WIRE_FETCHED, a->index);
        ready = slot != NULL;
    } else {
        ready = false; /* others are checked piece by piece */
    }
    j = ready ? machine_job_new(m, JOB_HASH) : NULL;
    if (j == NULL) {
        hash_failed(m, a, ready ? LOCO_ENOMEM : LOCO_ENOENT);
        return;
    }
    j->buffer = a->buffer;
    j->index = a->index;
    j->request = a->request;
    j->encode = a->encode;
    j->from = a->segment.offset;
    j->slot = slot;
    j->elements = terms_elements(&m->terms, a->buffer == BUFFER_RING
                                                ? machine_round_of(a->request)
                                                : a->index);
    j->contribution =
        m->trainer == NULL ? NULL : trainer_contribution(m->trainer);
    j->error = m->error;
    if (slot != NULL) {
        j->version = slot->version; /* only this thread changes it */
        slot->pins++;
        slot->hashed = ++m->n_hashes;
    }
    machine_job_submit(m, j);
}
