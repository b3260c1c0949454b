/* machine_pair.c - the bytes of an exchange between two replicas.
 *
 * What we send is encoded as it goes: the anchor from the newest snapshot,
 * which nobody changes, the displacement from the trainer's contribution, which
 * stays until the next TRAIN. Both are those of turn t as long as no step t was
 * taken; afterwards a frame that still waits for its turn to be written is
 * refused. What arrives lies in m->pair_in until the step is taken. A worker
 * hashes both payloads; while it does nothing may arrive.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/machine_internal.h"
#include "proto/base/err.h"
#include "proto/hash.h"

/* Elements that are encoded and hashed at a time: a multiple of all blocks. */
#define PIECE ((uint64_t)1 << 16)

bool machine_is_pair(const struct segment *s)
{
    return s->buffer == BUFFER_ANCHOR || s->buffer == BUFFER_STEP;
}

/* The snapshot of the anchor that turn `turn` starts from; NULL. */
static struct snapshot *anchor_of(struct machine *m, uint64_t turn)
{
    machine_snapshots_collect(m);
    return m->snapshots[0] != NULL && m->snapshots[0]->round < turn
               ? m->snapshots[0]
               : NULL;
}

int machine_pair_fill(struct machine *m, const struct segment *s, uint8_t *dst)
{
    const struct snapshot *anchor = anchor_of(m, s->index);
    const float *from;

    if (anchor == NULL || m->trainer == NULL) {
        return LOCO_ENOENT;
    }
    from = s->buffer == BUFFER_ANCHOR ? anchor->state
                                      : trainer_contribution(m->trainer);
    return m->codec->encode(dst, from + s->offset, s->len, 1.0F);
}

uint8_t *machine_pair_at(struct machine *m, const struct segment *s)
{
    size_t vector = m->codec->bytes(m->n);

    if (m->pair_hashing > 0) {
        return NULL;
    }
    if (m->pair_in == NULL) {
        m->pair_in = malloc(2 * vector);
    }
    return m->pair_in == NULL
               ? NULL
               : m->pair_in + (s->buffer == BUFFER_STEP ? vector : 0) +
                     m->codec->bytes(s->offset);
}

/* ---- the hash of both ------------------------------------------------- */

static int hash_vector(const struct machine_job *j,
                       const float *x,
                       uint8_t *wire,
                       struct hash_tree_state *h)
{
    const struct codec *c = j->m->codec;
    int rv = 0;

    for (uint64_t at = 0; at < j->m->n && rv == 0; at += PIECE) {
        uint64_t n = j->m->n - at < PIECE ? j->m->n - at : PIECE;

        rv = c->encode(wire, x + at, n, 1.0F);
        if (rv == 0) {
            hash_tree_update(h, wire, c->bytes(n));
        }
    }
    return rv;
}

void machine_pair_hash_run(struct machine_job *j)
{
    const struct codec *c = j->m->codec;
    struct hash_tree_state *h = malloc(2 * sizeof *h);
    uint8_t *wire = malloc(c->bytes(PIECE));
    struct hash32 both[2];

    j->rc = h == NULL || wire == NULL ? LOCO_ENOMEM : 0;
    if (j->rc == 0) {
        hash_tree_init(&h[0]);
        hash_tree_init(&h[1]);
        j->rc = hash_vector(j, j->snapshot->state, wire, &h[0]);
    }
    if (j->rc == 0) {
        j->rc = hash_vector(j, j->contribution, wire, &h[0]);
    }
    if (j->rc == 0) {
        hash_tree_update(&h[1], j->m->pair_in, 2 * c->bytes(j->m->n));
        hash_tree_final(&h[0], &both[j->encode ? 0 : 1]);
        hash_tree_final(&h[1], &both[j->encode ? 1 : 0]);
        hash_bytes("loco-pair-1", both, sizeof both, &j->hash);
    }
    free(h);
    free(wire);
}

void machine_pair_hash(struct machine *m, const struct action *a)
{
    struct local_event ev = {.type = LOCAL_HASHED,
                             .rc = LOCO_ENOENT,
                             .buffer = a->buffer,
                             .index = a->index,
                             .request = a->request};
    struct snapshot *anchor = anchor_of(m, a->index);
    struct machine_job *j =
        anchor == NULL || m->pair_in == NULL || m->trainer == NULL
            ? NULL
            : machine_job_new(m, JOB_HASH);

    if (j == NULL) {
        machine_post(m, &ev);
        return;
    }
    j->buffer = a->buffer;
    j->index = a->index;
    j->request = a->request;
    j->encode = a->first; /* our own goes first */
    j->contribution = trainer_contribution(m->trainer);
    j->snapshot = anchor;
    anchor->refs++;
    m->pair_hashing++;
    machine_job_submit(m, j);
}

void machine_pair_apply(struct machine *m, const struct action *a)
{
    struct local_event ev = {.type = LOCAL_APPLIED, .rc = LOCO_ENOENT};
    struct trainer_command c = {
        .type = TRAINER_PAIR,
        .round = a->round,
        .wire = a->alone ? NULL : m->pair_in,
        .first = a->first,
    };

    if (m->trainer == NULL || (!a->alone && m->pair_in == NULL)) {
        machine_post(m, &ev);
        return;
    }
    (void)trainer_post(m->trainer, &c);
}
