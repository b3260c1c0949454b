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

bool wire_slots_keeps(const struct wire_slots *w, const struct wire_slot *s)
{
    return s->made > 0 && s->made + 1 >= w->n_made;
}

/* Of free ones: 0 is taken first. */
static int turn_of(const struct wire_slots *w, const struct wire_slot *s)
{
    if (s->made > 0 && s->made == w->n_made) {
        return 2;
    }
    return s->bytes != NULL && !s->lean ? 0 : 1;
}

static bool is_better(const struct wire_slots *w,
                      const struct wire_slot *s,
                      const struct wire_slot *best)
{
    if (s->use == WIRE_FREE && best->use == WIRE_FREE) {
        int turn = turn_of(w, s), of_best = turn_of(w, best);

        return !w->sparing || turn < of_best ||
               (turn == of_best && s->made < best->made);
    }
    return s->use == WIRE_FREE ||
           (best->use != WIRE_FREE && s->made < best->made);
}

struct wire_slot *wire_slots_choose(struct wire_slots *w)
{
    struct wire_slot *best = NULL;

    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &w->slot[i];

        if (s->pins > 0 || s->use == WIRE_REDUCED) {
            continue;
        }
        if (best == NULL || is_better(w, s, best)) {
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
    s->lean = s->lent = false;
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
    best->saved = false;
    return best;
}

void wire_slots_forget(struct wire_slots *w, uint64_t round)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &w->slot[i];
        uint64_t of = s->use == WIRE_RING ? attempt_round(s->key) : s->key;

        if (s->use != WIRE_REDUCED && of < round && s->pins == 0) {
            s->use = WIRE_FREE;
        }
    }
}

void wire_slots_release(struct wire_slots *w)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &w->slot[i];

        if (s->use == WIRE_REDUCED && s->saved && s->pins == 0) {
            s->use = WIRE_FREE;
        }
    }
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
