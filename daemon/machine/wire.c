/* wire.c - the encoded vectors of rounds, in a few slots (jobs/wire_slots.h).
 *
 * A worker that reads one (HASH) pins it and reads it piece by piece under its
 * lock. When an attempt is given up and its slot goes on as that of the next
 * one (INHERIT), the slot's version changes and the reader stops at the next
 * piece: nobody waits for a whole vector.
 *
 * Of the attempt in flight pieces of the hash are made as they become final, in
 * the same way, so that little is left for HASH (leaves.h). Not of one that
 * inherited: which of its bytes are final is not said here.
 *
 * The pages of a slot that is free go back, those of the two that rounds take
 * in turns when the system asks for them; that of the last commit is free when
 * the trainer has taken it over and its file is written (past.c), from which it
 * is served then. A GPU that was told of the pages keeps them.
 */
#include <stdlib.h>

#include "daemon/machine/internal.h"
#include "proto/base/err.h"
#include "proto/base/pages.h"

struct wire_guard *machine_guard(struct machine *m,
                                 const struct wire_slot *slot)
{
    return &m->wire.guard[slot - m->wire.slots.slot];
}

/* A slot for new bytes. */
static struct wire_slot *
slot_make(struct machine *m, enum wire_use use, uint64_t key)
{
    uint64_t round = use == WIRE_RING ? attempt_round(key) : key;
    size_t bytes = m->codec->bytes(terms_elements(&m->terms, round));
    struct wire_slot *s = wire_slots_choose(&m->wire.slots);

    if (s == NULL) {
        return NULL;
    }
    if (s->bytes == NULL) {
        /* Whole pages, until the trainer is gone. */
        s->room = pages_whole(m->codec->bytes(m->n_wire));
        s->bytes = pages_take(s->room);
    }
    if (s->bytes == NULL ||
        leaves_fit(&machine_guard(m, s)->leaves, bytes) != 0) {
        return NULL;
    }
    if (use == WIRE_RING) {
        leaves_begin(&machine_guard(m, s)->leaves); /* nobody reads: no lock */
    }
    wire_slots_begin(&m->wire.slots, s, use, key);
    return s;
}

struct wire_slot *
machine_slot_for(struct machine *m, enum wire_use use, uint64_t key)
{
    struct wire_slot *s = wire_slots_find(&m->wire.slots, use, key);

    return s != NULL ? s : slot_make(m, use, key);
}

static void give_slot_back(struct machine *m, struct wire_slot *s)
{
    if (!wire_slots_keeps(&m->wire.slots, s)) {
        pages_forget(s->bytes, s->room);
        s->lean = true;
    } else if (!s->lent) {
        pages_lend(s->bytes, s->room);
        s->lent = true;
    }
}

/* Addresses stay; what is behind them when they are used again is nobody's. Two
 * slots are only lent: a system that has memory leaves them their pages. */
static void give_back(struct machine *m)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &m->wire.slots.slot[i];

        if (s->use == WIRE_FREE && s->pins == 0 && s->bytes != NULL &&
            !s->lean) {
            give_slot_back(m, s);
        }
    }
}

/* A commit that this peer was not in may come before the last one is reported.
 */
static bool is_taken(const struct machine *m)
{
    return m->wire.slots.sparing &&
           atomic_load(&m->wire.applied) == m->wire.given;
}

void machine_wire_give(struct machine *m, uint64_t round)
{
    if (is_taken(m)) {
        wire_slots_forget(&m->wire.slots, round);
        give_back(m);
    }
    m->wire.given = round;
    atomic_store(&m->wire.applied, 0);
}

void machine_wire_release(struct machine *m)
{
    if (is_taken(m)) {
        wire_slots_release(&m->wire.slots);
        give_back(m);
    }
}

/* What was made of this slot's hash is void, and what is being made. */
static void forget_leaves(struct wire_guard *g)
{
    (void)pthread_mutex_lock(&g->lock);
    g->leaf_version++;
    leaves_stop(&g->leaves);
    (void)pthread_mutex_unlock(&g->lock);
}

int machine_inherit(struct machine *m, const struct job_inherit *job)
{
    const struct wire_slot *slot =
        wire_slots_inherit(&m->wire.slots, job->from, job->to);
    struct wire_guard *g;

    if (slot == NULL) {
        return LOCO_ENOENT;
    }
    g = machine_guard(m, slot);
    (void)pthread_mutex_lock(&g->lock);
    g->version++; /* a hash of the attempt before is of no use any more */
    (void)pthread_mutex_unlock(&g->lock);
    forget_leaves(g);
    return 0;
}

void machine_final(struct machine *m, const struct segment *s)
{
    struct wire_slot *slot =
        wire_slots_find(&m->wire.slots, WIRE_RING, s->attempt);
    uint64_t ready[LEAVES_STEP_MAX];
    struct wire_guard *g;
    size_t n;

    if (slot == NULL || !s->final) {
        return;
    }
    g = machine_guard(m, slot);
    if (!g->leaves.on) {
        return;
    }
    n = leaves_final(&g->leaves, m->codec->bytes(s->offset),
                     m->codec->bytes(s->offset + s->len), ready);
    if (!g->leaves.on) {
        forget_leaves(g); /* this attempt is not what it was taken for */
        return;
    }
    for (size_t i = 0; i < n; i++) {
        machine_leaves(m, slot, ready[i]);
    }
}

void machine_leaves_stop(struct machine *m)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        forget_leaves(&m->wire.guard[i]);
    }
}
