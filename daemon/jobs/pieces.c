/* pieces.c - see pieces.h. */
#include "daemon/jobs/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

static bool is_state(enum buffer_kind buffer)
{
    return buffer == BUFFER_STATE || buffer == BUFFER_STATE_LEAVES;
}

struct transfer_object pieces_object(const struct run_terms *t,
                                     enum buffer_kind buffer,
                                     uint64_t index)
{
    struct transfer_object o = {.piece = t->piece_bytes};

    if (is_state(buffer)) {
        o.total = t->state_bytes;
        o.first = t->n_params * sizeof(float);
    } else {
        o.total = t->shards[index].bytes;
    }
    return o;
}

uint64_t pieces_list_bytes(const struct run_terms *t,
                           enum buffer_kind buffer,
                           uint64_t index)
{
    struct transfer_object o;

    if (!is_state(buffer) && index >= t->n_shards) {
        return 0;
    }
    o = pieces_object(t, buffer, index);
    return transfer_pieces(&o) * sizeof(struct hash32);
}

enum buffer_kind pieces_object_kind(enum buffer_kind leaves)
{
    return leaves == BUFFER_STATE_LEAVES ? BUFFER_STATE : BUFFER_SHARD;
}

void pieces_make(const struct transfer_object *o,
                 const uint8_t *object,
                 struct hash32 *leaves)
{
    uint32_t n = (uint32_t)transfer_pieces(o), len;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = transfer_piece_at(o, i, &len);

        hash_tree_leaf(object + at, len, &leaves[i]);
    }
}

int pieces_take(struct pieces *p,
                const struct run_terms *t,
                const struct segment *s,
                const uint8_t *src)
{
    enum buffer_kind buffer = pieces_object_kind(s->buffer);

    if (!pieces_has(p, buffer, s->index, TRANSFER_LEAVES)) {
        size_t bytes = (size_t)pieces_list_bytes(t, buffer, s->index);

        pieces_free(p);
        p->buffer = buffer;
        p->index = s->index;
        p->n = bytes / sizeof(struct hash32);
        p->leaves = calloc(p->n, sizeof(struct hash32));
        if (p->leaves == NULL) {
            return LOCO_ENOMEM;
        }
    }
    memcpy((uint8_t *)p->leaves + s->offset, src, s->len);
    return 0;
}

bool pieces_has(const struct pieces *p,
                enum buffer_kind buffer,
                uint64_t index,
                uint32_t piece)
{
    return p->leaves != NULL && p->buffer == buffer && p->index == index &&
           (piece == TRANSFER_LEAVES || piece < p->n);
}

int pieces_roots(const struct pieces *p,
                 const struct run_terms *t,
                 struct piece_roots *roots)
{
    struct transfer_object o = pieces_object(t, p->buffer, p->index);
    size_t first = (size_t)((o.first + o.piece - 1) / o.piece);
    struct hash32 *copy = malloc((p->n + 1) * sizeof *copy);

    memset(roots, 0, sizeof *roots);
    if (copy == NULL) {
        return LOCO_ENOMEM;
    }
    memcpy(copy, p->leaves, p->n * sizeof *copy);
    if (p->buffer == BUFFER_STATE) {
        hash_tree_root(copy, first, &roots->params);
        hash_tree_root(copy + first, p->n - first, &roots->momentum);
    } else {
        hash_tree_root(copy, p->n, &roots->hash);
    }
    free(copy);
    return 0;
}

int pieces_check(const struct pieces *p,
                 uint32_t piece,
                 const uint8_t *bytes,
                 size_t len)
{
    struct hash32 hash;

    hash_tree_leaf(bytes, len, &hash);
    return hash32_eq(&hash, &p->leaves[piece]) ? 0 : LOCO_EHASH;
}

void pieces_free(struct pieces *p)
{
    free(p->leaves);
    memset(p, 0, sizeof *p);
}
