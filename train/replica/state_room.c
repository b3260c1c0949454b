/* state_room.c - see replica/state_room.h. */
#include "train/replica/state_room.h"

#include <stdlib.h>

#include "proto/base/pages.h"

static size_t bytes_of(uint64_t n)
{
    return (size_t)n * sizeof(float);
}

struct state_room *state_room_take(uint64_t n)
{
    struct state_room *m = calloc(1, sizeof *m);
    void *p = m == NULL ? NULL : pages_take(bytes_of(n));

    if (p == NULL) {
        free(m);
        return NULL;
    }
    m->x = p;
    m->n = n;
    atomic_init(&m->holders, 1);
    return m;
}

struct state_room *state_room_hold(struct state_room *m)
{
    (void)atomic_fetch_add(&m->holders, 1);
    return m;
}

void state_room_drop(struct state_room *m)
{
    if (m != NULL && atomic_fetch_sub(&m->holders, 1) == 1) {
        pages_give(m->x, bytes_of(m->n));
        free(m);
    }
}

bool state_room_is_shared(struct state_room *m)
{
    return atomic_load(&m->holders) > 1;
}
