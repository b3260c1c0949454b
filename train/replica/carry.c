/* carry.c - see replica/carry.h. */
#include "train/replica/carry.h"

#include <string.h>

#include "train/replica/host.h"

static const struct plugin_table *table(const struct replica *r)
{
    return device_table(r->backend.device);
}

static struct gpu *gpu(const struct replica *r)
{
    return device_gpu(r->backend.device);
}

int carry_out(struct replica *r,
              struct carry *c,
              const float *next,
              float *to,
              uint64_t n)
{
    struct carry before = *c;
    int rv = before.bytes > 0 ? carry_done(r) : 0;

    c->bytes = 0;
    if (rv == 0 && next != NULL) {
        *c = (struct carry){to, n * sizeof(float), !before.half,
                            replica_is_registered(r, to, n * sizeof(float))};
        rv = table(r)->get_beside(
            gpu(r), c->direct ? (void *)to : r->outer.pinned[c->half], next,
            c->bytes);
    }
    if (rv == 0 && before.bytes > 0 && !before.direct) {
        memcpy(before.to, r->outer.pinned[before.half], before.bytes);
    }
    return rv;
}

int carry_in(struct replica *r, void *to, const void *from, size_t bytes)
{
    return replica_is_registered(r, from, bytes)
               ? table(r)->put_beside(gpu(r), to, from, bytes)
               : table(r)->put(gpu(r), to, from, bytes);
}

int carry_done(struct replica *r)
{
    return table(r)->copies_done(gpu(r));
}
