/* machine_wire.c - the encoded vectors of rounds, in a few slots.
 *
 * A slot is one whole encoded vector: of an attempt in flight, of the last
 * commit, or fetched. A worker that reads one (HASH) pins it, so that it is not
 * taken for another purpose, and reads it piece by piece under its lock; when
 * an attempt is given up and its slot goes on as that of the next one
 * (INHERIT), the slot's version changes and the reader stops at the next piece:
 * nobody waits for a whole vector, and nothing is copied.
 *
 * Of the attempt in flight pieces of the hash are made as they become final, in
 * the same way, so that little is left for HASH (leaves.h). Not of one that
 * inherited: which of its bytes are final is not said here.
 */
#include <stdlib.h>
#include <unistd.h>

#include "daemon/machine_internal.h"
#include "proto/base/err.h"

struct wire_slot *
machine_slot_find(struct machine *m, enum wire_use use, uint64_t key)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &m->wire[i];

        if (s->use == use &&
            (use == WIRE_RING ? s->attempt : s->round) == key) {
            return s;
        }
    }
    return NULL;
}

/* A slot for new bytes: a free one, else an older attempt that nobody reads. */
static struct wire_slot *
slot_make(struct machine *m, enum wire_use use, uint64_t key)
{
    struct wire_slot *best = NULL;

    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &m->wire[i];

        if (s->pins > 0 || s->use == WIRE_REDUCED) {
            continue;
        }
        if (best == NULL || s->use == WIRE_FREE ||
            (best->use != WIRE_FREE && s->made < best->made)) {
            best = s;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    if (best->bytes == NULL) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        best->room = (m->codec->bytes(m->n_wire) + page - 1) / page * page;
        best->bytes = aligned_alloc(page, best->room);
        if (best->bytes == NULL) {
            return NULL;
        }
    }
    if (leaves_fit(&best->leaves,
                   m->codec->bytes(terms_elements(
                       &m->terms,
                       use == WIRE_RING ? machine_round_of(key) : key))) != 0) {
        return NULL;
    }
    if (use == WIRE_RING) {
        leaves_begin(&best->leaves); /* nobody reads it: no lock */
    }
    best->use = use;
    best->attempt = best->round = key;
    best->hashed = 0;
    best->made = ++m->n_made;
    return best;
}

struct wire_slot *
machine_slot_for(struct machine *m, enum wire_use use, uint64_t key)
{
    struct wire_slot *s = machine_slot_find(m, use, key);

    return s != NULL ? s : slot_make(m, use, key);
}

struct wire_slot *
machine_slot_applied(struct machine *m, enum buffer_kind buffer, uint64_t round)
{
    struct wire_slot *best = NULL;

    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &m->wire[i];
        bool match =
            buffer == BUFFER_RING
                ? s->use == WIRE_RING && machine_round_of(s->attempt) == round
                : s->use == WIRE_FETCHED && s->round == round;

        if (match && s->hashed > 0 &&
            (best == NULL || s->hashed > best->hashed)) {
            best = s;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    for (int i = 0; i < WIRE_SLOTS; i++) {
        if (m->wire[i].use == WIRE_REDUCED) {
            m->wire[i].use = WIRE_FREE;
        }
    }
    best->use = WIRE_REDUCED;
    best->round = round;
    return best;
}

/* What was made of this slot's hash is void, and what is being made. */
static void forget_leaves(struct wire_slot *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->leaf_version++;
    leaves_stop(&s->leaves);
    (void)pthread_mutex_unlock(&s->lock);
}

/* The bytes of a failed attempt are the start of the next one's. */
void machine_inherit(struct machine *m, const struct action *a)
{
    struct local_event ev = {.type = LOCAL_INHERITED, .rc = LOCO_ENOENT};
    struct wire_slot *slot = machine_slot_find(m, WIRE_RING, a->attempt);

    if (slot == NULL) {
        /* Nothing of that attempt may be sent or hashed: it would be junk. */
        m->refused_attempt = a->request;
        ev.request = a->request;
        machine_post(m, &ev);
        return;
    }
    for (int i = 0; i < WIRE_SLOTS; i++) { /* of another branch */
        struct wire_slot *s = &m->wire[i];

        if (s != slot && s->use == WIRE_RING && s->attempt == a->request) {
            s->attempt = 0;
        }
    }
    (void)pthread_mutex_lock(&slot->lock);
    slot->version++; /* a hash of the attempt before is of no use any more */
    (void)pthread_mutex_unlock(&slot->lock);
    forget_leaves(slot);
    slot->attempt = a->request;
    slot->hashed = 0;
    slot->made = ++m->n_made;
}

void machine_final(struct machine *m, const struct segment *s)
{
    struct wire_slot *slot = machine_slot_find(m, WIRE_RING, s->attempt);
    uint64_t ready[LEAVES_STEP_MAX];
    size_t n;

    if (slot == NULL || !s->final || !slot->leaves.on) {
        return;
    }
    n = leaves_final(&slot->leaves, m->codec->bytes(s->offset),
                     m->codec->bytes(s->offset + s->len), ready);
    if (!slot->leaves.on) {
        forget_leaves(slot); /* this attempt is not what it was taken for */
        return;
    }
    for (size_t i = 0; i < n; i++) {
        machine_leaf(m, slot, ready[i]);
    }
}

void machine_leaves_stop(struct machine *m)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        forget_leaves(&m->wire[i]);
    }
}
