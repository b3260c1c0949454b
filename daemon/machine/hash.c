/* hash.c - hashes of buffers, on a worker. */
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/internal.h"
#include "proto/base/err.h"
#include "proto/hash.h"

/* Elements of a slot that are read under its lock at a time: a multiple of all
 * blocks, so that they can be encoded on the way. */
#define HASH_PIECE ((uint64_t)1 << 18)

/* Of a slot: what HASH asked for. */
struct hash_job {
    struct machine_job job;
    struct wire_slot *slot; /* pinned */
    struct wire_guard *guard;
    uint64_t version; /* of the guard */
    bool encode;      /* elements from `from` on */
    uint64_t from;
    uint64_t elements;         /* of the slot's round */
    const float *contribution; /* the trainer's, alive until closed */
    float *error;              /* machine.wire.error */
};

/* Of one group of pieces (jobs/leaves.h) of an attempt in flight, which is
 * final. */
struct leaf_job {
    struct machine_job job;
    uint64_t group;
    struct wire_slot *slot; /* pinned */
    struct wire_guard *guard;
    uint64_t version; /* the guard's leaf_version */
};

/* Elements [at, at + n) of the slot: encoded from j->from on. */
static int hash_piece(struct hash_job *j,
                      uint64_t at,
                      uint64_t n,
                      struct hash_tree_state *s)
{
    const struct codec *c = j->job.m->codec;
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
static int hash_encoded(struct hash_job *j)
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
        (void)pthread_mutex_lock(&j->guard->lock);
        rv = j->guard->version == j->version ? hash_piece(j, at, n, s)
                                             : LOCO_ECANCELED;
        (void)pthread_mutex_unlock(&j->guard->lock);
    }
    if (rv == 0) {
        hash_tree_final(s, &j->job.answer.hashed.hash);
    }
    free(s);
    return rv;
}

/* The leaves of one group: made before, or now. `out`: of all pieces. */
static int leaves_of(struct hash_job *j, uint64_t group, struct hash32 *out)
{
    struct wire_guard *g = j->guard;
    const struct leaves *l = &g->leaves;
    uint64_t from, to, first = group * LEAVES_GROUP;
    int rv = 0;

    (void)pthread_mutex_lock(&g->lock);
    leaves_group(l, group, &from, &to);
    if (g->version != j->version) {
        rv = LOCO_ECANCELED;
    } else if (l->made[group]) {
        memcpy(out + first, l->leaf + first,
               (size_t)hash_tree_pieces(to - from) * sizeof *out);
    } else {
        hash_tree_leaves(j->slot->bytes + from, (size_t)(to - from),
                         out + first);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return rv;
}

/* The same, of bytes that are there. */
static int hash_slot(struct hash_job *j)
{
    uint64_t n = j->guard->leaves.n;
    struct hash32 *leaves = malloc(n * sizeof *leaves);
    int rv = leaves == NULL ? LOCO_ENOMEM : 0;

    for (uint64_t g = 0; g < j->guard->leaves.n_groups && rv == 0; g++) {
        rv = leaves_of(j, g, leaves);
    }
    if (rv == 0) {
        hash_tree_root(leaves, (size_t)n, &j->job.answer.hashed.hash);
    }
    free(leaves);
    return rv;
}

static void hash_run(struct machine_job *job)
{
    struct hash_job *j = (struct hash_job *)job;

    job->rc = j->encode ? hash_encoded(j) : hash_slot(j);
}

static void hash_done(struct machine_job *job, int status)
{
    (void)status;
    ((struct hash_job *)job)->slot->pins--;
}

static const struct job_kind hash_kind = {
    .size = sizeof(struct hash_job),
    .pool = POOL_WORKERS,
    .run = hash_run,
    .done = hash_done,
};

static void leaf_run(struct machine_job *job)
{
    struct leaf_job *j = (struct leaf_job *)job;
    struct wire_guard *g = j->guard;

    (void)pthread_mutex_lock(&g->lock);
    if (g->leaf_version == j->version) {
        uint64_t from, to;

        leaves_group(&g->leaves, j->group, &from, &to);
        leaves_make(&g->leaves, j->group, j->slot->bytes + from);
    }
    (void)pthread_mutex_unlock(&g->lock);
}

static void leaf_done(struct machine_job *job, int status)
{
    (void)status;
    ((struct leaf_job *)job)->slot->pins--;
}

static const struct job_kind leaf_kind = {
    .size = sizeof(struct leaf_job),
    .pool = POOL_WORKERS,
    .run = leaf_run,
    .done = leaf_done,
};

void machine_leaves(struct machine *m, struct wire_slot *slot, uint64_t group)
{
    struct leaf_job *j = machine_job_new(m, &leaf_kind, NULL);

    if (j == NULL) {
        return; /* HASH makes it */
    }
    j->group = group;
    j->slot = slot;
    j->guard = machine_guard(m, slot);
    j->version = j->guard->leaf_version; /* only this thread changes it */
    slot->pins++;
    machine_job_submit(&j->job);
}

/* The slot that HASH names; NULL: there is none. Others than those of rounds
 * are checked piece by piece. */
static struct wire_slot *slot_of(struct machine *m, const struct job_hash *job)
{
    struct wire_slots *w = &m->wire.slots;

    if (job->buffer == BUFFER_REDUCED) {
        return wire_slots_find(w, WIRE_FETCHED, job->index);
    }
    if (job->buffer != BUFFER_RING || m->trainer == NULL ||
        job->request == w->refused) {
        return NULL;
    }
    return job->encode ? machine_slot_for(m, WIRE_RING, job->request)
                       : wire_slots_find(w, WIRE_RING, job->request);
}

/* A contribution that was announced is encoded: into the slot. LOCO_ENOENT: it
 * was not. */
static int take_offer(struct machine *m, const struct hash_job *j)
{
    const struct codec *c = m->codec;
    uint64_t n = j->elements - j->from;
    const uint8_t *own = machine_own_encoded(m, 0, j->elements);

    if (own == NULL) {
        return LOCO_ENOENT;
    }
    (void)pthread_mutex_lock(&j->guard->lock);
    memcpy(j->slot->bytes + c->bytes(j->from), own + c->bytes(j->from),
           c->bytes(n));
    (void)pthread_mutex_unlock(&j->guard->lock);
    return 0;
}

int machine_hash(struct machine *m, const struct job *job)
{
    const struct job_hash *what = &job->hash;
    struct wire_slot *slot;
    struct hash_job *j;

    if (what->buffer == BUFFER_STEP) {
        return machine_pair_hash(m, job);
    }
    slot = slot_of(m, what);
    if (slot == NULL) {
        return LOCO_ENOENT;
    }
    j = machine_job_new(m, &hash_kind, job);
    if (j == NULL) {
        return LOCO_ENOMEM;
    }
    j->encode = what->encode;
    j->from = what->from;
    j->slot = slot;
    j->guard = machine_guard(m, slot);
    j->elements = terms_elements(&m->terms, what->buffer == BUFFER_RING
                                                ? attempt_round(what->request)
                                                : what->index);
    j->contribution =
        m->trainer == NULL ? NULL : trainer_contribution(m->trainer);
    j->error = m->wire.error;
    j->version = j->guard->version; /* only this thread changes it */
    if (j->encode && machine_sends_offer(m)) {
        int rv = take_offer(m, j);

        if (rv != 0) {
            free(j);
            return rv;
        }
        j->from = j->elements; /* nothing is left to be encoded */
    }
    slot->pins++;
    wire_slots_hashed(&m->wire.slots, slot);
    machine_job_submit(&j->job);
    return 0;
}
