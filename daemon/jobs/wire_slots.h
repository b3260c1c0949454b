/* wire_slots.h - which encoded vector lies in which of a few slots.
 *
 * A slot holds one whole vector: that of an attempt in flight (RING), of the
 * last commit (REDUCED), or one that was fetched (FETCHED). Who reads one
 * elsewhere *pins* it, and it is not taken for another purpose. When an attempt
 * is given up, its slot goes on as that of the next one (inherit): nothing is
 * copied.
 *
 *     wire_slots_find, or wire_slots_choose -> memory -> wire_slots_begin
 *     -> wire_slots_hashed -> wire_slots_apply
 *
 * Pure: the memory behind a slot is the caller's.
 */
#ifndef LOCO_DAEMON_JOBS_WIRE_SLOTS_H
#define LOCO_DAEMON_JOBS_WIRE_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_SLOTS 4 /* in flight, being hashed, last commit, fetched */

enum wire_use { WIRE_FREE, WIRE_RING, WIRE_REDUCED, WIRE_FETCHED };

struct wire_slot {
    enum wire_use use;
    uint64_t key;    /* RING: the attempt; REDUCED, FETCHED: the round */
    uint64_t made;   /* order of use: the oldest is taken first */
    uint64_t hashed; /* order of hashing; 0: not hashed */
    unsigned pins;   /* jobs reading it */
    uint8_t *bytes;  /* kept from one use to the next; NULL: none yet */
    size_t room;     /* of them */
    bool saved;      /* REDUCED: a file has the same bytes */
    bool lean;       /* its pages were given back since its last use, */
    bool lent;       /* or lent to the system (proto/base/pages.h) */
};

struct wire_slots {
    struct wire_slot slot[WIRE_SLOTS];
    uint64_t n_made, n_hashed;
    bool sparing;     /* the pages of free slots go back: all are as good */
    uint64_t refused; /* this attempt was to inherit and could not; 0: none */
};

/* NULL: there is none. */
struct wire_slot *
wire_slots_find(struct wire_slots *w, enum wire_use use, uint64_t key);

/* A slot for new bytes: a free one, else the one longest in use that is neither
 * read nor of the last commit. NULL: all are. Sparing: of the free ones not the
 * one that was begun last, as bytes for it may still be on their way; one that
 * has its pages, since new ones cost more than the copying; the one begun
 * first.
 */
struct wire_slot *wire_slots_choose(struct wire_slots *w);

/* Whether that one is used again soon: rounds take two in turns. */
bool wire_slots_keeps(const struct wire_slots *w, const struct wire_slot *s);

/* It has memory, and is of that use from now on. */
void wire_slots_begin(struct wire_slots *w,
                      struct wire_slot *s,
                      enum wire_use use,
                      uint64_t key);

/* Its hash is asked for. */
void wire_slots_hashed(struct wire_slots *w, struct wire_slot *s);

/* The vector of `round` that was hashed last, out of attempts in flight or
 * fetched ones, is that of the last commit from now on. NULL: there is none. */
struct wire_slot *
wire_slots_apply(struct wire_slots *w, enum wire_use from, uint64_t round);

/* What is here of rounds before `round` is of no use any more: such slots are
 * free, where nobody reads them. */
void wire_slots_forget(struct wire_slots *w, uint64_t round);

/* The vector of the last commit is in a file, and nobody needs it here any
 * more: its slot is free. */
void wire_slots_release(struct wire_slots *w);

/* The bytes of a failed attempt are the start of the next one's. NULL: they are
 * gone, and nothing of `to` may be sent or hashed: it would be junk. */
struct wire_slot *
wire_slots_inherit(struct wire_slots *w, uint64_t from, uint64_t to);

#endif
