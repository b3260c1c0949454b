/* agenda.h - what is to happen, earliest first; of one time in the order in
 * which it was put there.
 *
 * A binary heap of records of one size. A record begins with its key, or with
 * the two numbers of it; the owner knows the unit of time. Records are copied:
 * what they point to belongs to whoever has the record. Memory doubles as
 * needed.
 */
#ifndef LOCO_DAEMON_SIM_WORLD_AGENDA_H
#define LOCO_DAEMON_SIM_WORLD_AGENDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agenda_key {
    uint64_t at, order;
};

struct agenda {
    size_t size; /* of a record; set once, the rest is 0 at first */
    uint32_t n, room;
    uint64_t order;
    uint8_t *record; /* (room) */
};

/* The next one of all; its `order` is set. False: out of memory; nothing was
 * put there. */
bool agenda_put(struct agenda *a, void *record);

/* With the order that it has. */
bool agenda_put_again(struct agenda *a, const void *record);

/* Time of the earliest; UINT64_MAX: there is none. */
uint64_t agenda_when(const struct agenda *a);

/* False: there is none. */
bool agenda_take(struct agenda *a, void *record);

/* The records that are left must have been taken. */
void agenda_free(struct agenda *a);

#endif
