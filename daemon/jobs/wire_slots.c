/* wire_slots.c - see wire_slots.h. */
#include "daemon/jobs/wire_slots.h"

#include "daemon/jobs/segments.h"

struct wire_slot *
wire_slots_find(struct wire_slots *w, enum wire_use use, uint64_t key)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        if (w->slot[i].use == use && w->slot[i].key == key) {
            return &w->slot[i];
        }
    }
    return NULL;
}

struct wire_slot *wire_slots_choose(struct wire_slots *w)
{
    struct wire_slot *best = NULL;

    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &w->slot[i];

        if (s->pins > 0 || s->use == WIRE_REDUCED) {
            continue;
        }
        if (best == NULL || s->use == WIRE_FREE ||
            (best->use != WIRE_FREE && s->made < best->made)) {
            best = s;
        }
    }
    return best;
}

void wire_slots_begin(struct wire_slots *w,
                      struct wire_slot *s,
                      enum wire_use use,
                      uint64_t key)
{
    s->use = use;
    s->key = key;
    s->hashed = 0;
    s->made = ++w->n_made;
}

void wire_slots_hashed(struct wire_slots *w, struct wire_slot *s)
{
    s->hashed = ++w->n_hashed;
}

struct wire_slot *
wire_slots_apply(struct wire_slots *w, enum wire_use from, uint64_t round)
{
    struct wire_slot *best = NULL;

    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &w->slot[i];
        uint64_t of = from == WIRE_RING ? attempt_round(s->key) : s->key;

        if (s->use == from && of == round && s->hashed > 0 &&
            (best == NULL || s->hashed > best->hashed)) {
            best = s;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    for (int i = 0; i < WIRE_SLOTS; i++) {
        if (w->slot[i].use == WIRE_REDUCED) {
            w->slot[i].use = WIRE_FREE;
        }
    }
    best->use = WIRE_REDUCED;
    best->key = round;
    return best;
}

struct wire_slot *
wire_slots_inherit(struct wire_slots *w, uint64_t from, uint64_t to)
{
    struct wire_slot *slot = wire_slots_find(w, WIRE_RING, from);

    if (slot == NULL) {
        w->refused = to;
        return NULL;
    }
    for (int i = 0; i < WIRE_SLOTS; i++) { /* of another branch */
        struct wire_slot *s = &w->slot[i];

        if (s != slot && s->use == WIRE_RING && s->key == to) {
            s->use = WIRE_FREE;
        }
    }
    wire_slots_begin(w, slot, WIRE_RING, to);
    return slot;
}
