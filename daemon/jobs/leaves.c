/* leaves.c - see leaves.h. */
#include "daemon/jobs/leaves.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

#define GROUP_BYTES ((uint64_t)LEAVES_GROUP * HASH_PIECE_BYTES)

int leaves_fit(struct leaves *l, uint64_t bytes)
{
    uint64_t n = hash_tree_pieces(bytes);
    uint64_t n_groups = (n + LEAVES_GROUP - 1) / LEAVES_GROUP;

    if (l->missing == NULL || l->n != n) {
        leaves_free(l);
        l->missing = calloc(n_groups, sizeof *l->missing);
        l->leaf = calloc(n, sizeof *l->leaf);
        l->made = calloc(n_groups, sizeof *l->made);
        if (l->missing == NULL || l->leaf == NULL || l->made == NULL) {
            leaves_free(l);
            return LOCO_ENOMEM;
        }
    }
    l->n = n;
    l->n_groups = n_groups;
    l->bytes = bytes;
    leaves_stop(l);
    return 0;
}

void leaves_free(struct leaves *l)
{
    free(l->missing);
    free(l->leaf);
    free(l->made);
    memset(l, 0, sizeof *l);
}

void leaves_group(const struct leaves *l,
                  uint64_t g,
                  uint64_t *from,
                  uint64_t *to)
{
    *from = g * GROUP_BYTES;
    *to = *from + GROUP_BYTES < l->bytes ? *from + GROUP_BYTES : l->bytes;
}

void leaves_begin(struct leaves *l)
{
    uint64_t from, to;

    for (uint64_t g = 0; g < l->n_groups; g++) {
        leaves_group(l, g, &from, &to);
        l->missing[g] = (uint32_t)(to - from);
        l->made[g] = false;
    }
    l->on = true;
}

void leaves_stop(struct leaves *l)
{
    l->on = false;
    if (l->made != NULL) {
        memset(l->made, 0, l->n_groups * sizeof *l->made);
    }
}

size_t leaves_final(struct leaves *l,
                    uint64_t from,
                    uint64_t to,
                    uint64_t ready[LEAVES_STEP_MAX])
{
    uint64_t first = from / GROUP_BYTES, begin, end;
    size_t n = 0;

    assert(from <= to && (!l->on || to <= l->bytes));
    for (uint64_t g = first; l->on && g < l->n_groups && from < to; g++) {
        uint32_t part;

        leaves_group(l, g, &begin, &end);
        part = (uint32_t)((to < end ? to : end) - from);
        from += part;
        if (part > l->missing[g] || n == LEAVES_STEP_MAX) {
            l->on = false; /* said twice, or too much at once: not a hint */
            return n;
        }
        l->missing[g] -= part;
        if (l->missing[g] == 0) {
            ready[n++] = g;
        }
    }
    return n;
}

void leaves_make(struct leaves *l, uint64_t g, const uint8_t *bytes)
{
    uint64_t from, to;

    if (!l->made[g]) {
        leaves_group(l, g, &from, &to);
        hash_tree_leaves(bytes, (size_t)(to - from),
                         &l->leaf[g * LEAVES_GROUP]);
        l->made[g] = true;
    }
}
