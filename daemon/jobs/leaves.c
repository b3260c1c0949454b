/* leaves.c - see leaves.h. */
#include "daemon/jobs/leaves.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

int leaves_fit(struct leaves *l, uint64_t bytes)
{
    uint64_t n = hash_tree_pieces(bytes);

    if (l->missing == NULL || l->n != n) {
        leaves_free(l);
        l->missing = calloc(n, sizeof *l->missing);
        l->leaf = calloc(n, sizeof *l->leaf);
        l->made = calloc(n, sizeof *l->made);
        if (l->missing == NULL || l->leaf == NULL || l->made == NULL) {
            leaves_free(l);
            return LOCO_ENOMEM;
        }
    }
    l->n = n;
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

void leaves_piece(const struct leaves *l,
                  uint64_t p,
                  uint64_t *from,
                  uint64_t *to)
{
    *from = p * HASH_PIECE_BYTES;
    *to = *from + HASH_PIECE_BYTES < l->bytes ? *from + HASH_PIECE_BYTES
                                              : l->bytes;
}

void leaves_begin(struct leaves *l)
{
    uint64_t from, to;

    for (uint64_t p = 0; p < l->n; p++) {
        leaves_piece(l, p, &from, &to);
        l->missing[p] = (uint32_t)(to - from);
        l->made[p] = false;
    }
    l->on = true;
}

void leaves_stop(struct leaves *l)
{
    l->on = false;
    if (l->made != NULL) {
        memset(l->made, 0, l->n * sizeof *l->made);
    }
}

size_t leaves_final(struct leaves *l,
                    uint64_t from,
                    uint64_t to,
                    uint64_t ready[LEAVES_STEP_MAX])
{
    uint64_t first = from / HASH_PIECE_BYTES, begin, end;
    size_t n = 0;

    assert(from <= to && (!l->on || to <= l->bytes));
    for (uint64_t p = first; l->on && p < l->n && from < to; p++) {
        uint32_t part;

        leaves_piece(l, p, &begin, &end);
        part = (uint32_t)((to < end ? to : end) - from);
        from += part;
        if (part > l->missing[p] || n == LEAVES_STEP_MAX) {
            l->on = false; /* said twice, or too much at once: not a hint */
            return n;
        }
        l->missing[p] -= part;
        if (l->missing[p] == 0) {
            ready[n++] = p;
        }
    }
    return n;
}

void leaves_make(struct leaves *l, uint64_t p, const uint8_t *piece)
{
    uint64_t from, to;

    if (!l->made[p]) {
        leaves_piece(l, p, &from, &to);
        hash_tree_leaf(piece, (size_t)(to - from), &l->leaf[p]);
        l->made[p] = true;
    }
}
