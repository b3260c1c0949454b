/* state_room.c - see replica/state_room.h. */
#include "train/replica/state_room.h"

#include <stdlib.h>
#include <sys/mman.h>

static size_t bytes_of(uint64_t n)
{
    return (size_t)n * sizeof(float);
}

struct state_room *state_room_take(uint64_t n)
{
    struct state_room *m = calloc(1, sizeof *m);
    void *p = m == NULL ? MAP_FAILED
                        : mmap(NULL, bytes_of(n), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
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
        (void)munmap(m->x, bytes_of(m->n));
        free(m);
    }
}

bool state_room_is_shared(struct state_room *m)
{
    return atomic_load(&m->holders) > 1;
}
