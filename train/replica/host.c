/* host.c - see replica/host.h. */
#include "train/replica/host.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/pages.h"

#define CACHE_LINE ((size_t)64)
#define LARGE      ((size_t)1 << 20)

/* Zeros, from the start of a cache line on: the widest vector of a processor
 * then never lies in two. */
static float *take_lines(size_t bytes)
{
    size_t room = (bytes / CACHE_LINE + 1) * CACHE_LINE;
    void *p = aligned_alloc(CACHE_LINE, room);

    return p == NULL ? NULL : memset(p, 0, room);
}

float *replica_take_vector(struct replica *r, uint64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);
    struct replica_memory *v = &r->vectors[r->n_vectors++];

    v->bytes = r->opt.device != NULL || bytes >= LARGE ? bytes : 0;
    v->x = v->bytes > 0 ? pages_take(bytes) : take_lines(bytes);
    return v->x;
}

void replica_free_vectors(struct replica *r)
{
    for (unsigned i = 0; i < r->n_vectors; i++) {
        const struct replica_memory *v = &r->vectors[i];

        if (v->bytes > 0) {
            pages_give(v->x, v->bytes);
        } else {
            free(v->x);
        }
    }
    r->n_vectors = 0;
}

static const struct plugin_table *table(const struct replica *r)
{
    return device_table(r->backend.device);
}

static bool travels(const struct replica *r, const float *x)
{
    const struct engine *e = &r->engine;

    if (r->outer.on) {
        return x == r->contribution || x == r->phi || x == e->next_phi ||
               (r->m != NULL && (x == r->m || x == e->next_m)) ||
               (e->base != NULL && (x == e->base || x == e->theta)) ||
               x == e->sum;
    }
    return x == e->theta || x == e->grad || x == e->m || x == e->u ||
           x == e->v || x == r->spare ||
           (r->opt.method.gradients && x == r->average);
}

void replica_register(struct replica *r)
{
    if (r->backend.device == NULL) {
        return;
    }
    for (unsigned i = 0; i < r->n_vectors; i++) {
        const struct replica_memory *v = &r->vectors[i];

        if (v->bytes > 0 && travels(r, v->x)) {
            (void)table(r)->host_register(device_gpu(r->backend.device), v->x,
                                          pages_whole(v->bytes));
        }
    }
}

void replica_unregister(struct replica *r)
{
    for (unsigned i = 0; r->backend.device != NULL && i < r->n_vectors; i++) {
        table(r)->host_unregister(device_gpu(r->backend.device),
                                  r->vectors[i].x);
    }
}

bool replica_is_registered(const struct replica *r, const void *p, size_t bytes)
{
    return table(r)->is_registered(device_gpu(r->backend.device), p, bytes);
}

void replica_know_wire(struct replica *r, const uint8_t *wire, size_t bytes)
{
    struct replica_outer *o = &r->outer;
    unsigned i = 0;

    while (i < o->n_wires && o->wires[i] != wire) {
        i++;
    }
    if (!o->on || i < o->n_wires || i == REPLICA_WIRES_MAX) {
        return;
    }
    o->wires[o->n_wires++] = wire;
    (void)table(r)->host_register(device_gpu(r->backend.device),
                                  (void *)(uintptr_t)wire, bytes);
}
