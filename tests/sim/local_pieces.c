/* local_pieces.c - leaf lists, and pieces checked by them. See local.h. */
#include <stdlib.h>
#include <string.h>

#include "p2p/transfer.h"
#include "proto/base/err.h"
#include "proto/hash.h"
#include "tests/sim/local_internal.h"
#include "tests/sim/world_internal.h"

static struct transfer_object object_of(const struct local *l,
                                        enum buffer_kind buffer)
{
    bool state = buffer == BUFFER_STATE || buffer == BUFFER_STATE_LEAVES;

    return (struct transfer_object){
        .piece = l->opt.piece_bytes,
        .first = state ? l->state_bytes / 2 : 0,
        .total = state ? l->state_bytes : l->opt.shard_bytes,
    };
}

void local_tree(const struct local *l,
                const void *bytes,
                size_t len,
                struct hash32 *out)
{
    const uint8_t *at = bytes;
    size_t piece = l->opt.piece_bytes, n = (len + piece - 1) / piece;
    struct hash32 *leaves = world_alloc((n + 1) * sizeof *leaves);

    for (size_t i = 0; i < n; i++) {
        size_t rest = len - i * piece;

        hash_tree_leaf(at + i * piece, rest < piece ? rest : piece, &leaves[i]);
    }
    hash_tree_root(leaves, n, out);
    free(leaves);
}

size_t local_leaves_bytes(const struct local *l, const struct segment *seg)
{
    struct transfer_object o = object_of(l, seg->buffer);

    return (size_t)transfer_pieces(&o) * sizeof(struct hash32);
}

static void hash_piece(const struct local *l,
                       const uint8_t *object,
                       enum buffer_kind buffer,
                       uint32_t piece,
                       struct hash32 *out)
{
    struct transfer_object o = object_of(l, buffer);
    uint32_t len;
    uint64_t at = transfer_piece_at(&o, piece, &len);

    hash_tree_leaf(object + at, len, out);
}

uint8_t *local_leaves_make(const struct local *l,
                           const uint8_t *object,
                           enum buffer_kind buffer)
{
    struct transfer_object o = object_of(l, buffer);
    uint32_t n = (uint32_t)transfer_pieces(&o);
    struct hash32 *leaves = world_alloc(n * sizeof *leaves);

    for (uint32_t i = 0; i < n; i++) {
        hash_piece(l, object, buffer, i, &leaves[i]);
    }
    return (uint8_t *)leaves;
}

uint8_t *local_leaves_in(const struct local *l,
                         struct machine *m,
                         const struct segment *seg)
{
    struct local_leaves *in = &m->leaves;
    enum buffer_kind buffer =
        seg->buffer == BUFFER_STATE_LEAVES ? BUFFER_STATE : BUFFER_SHARD;

    if (in->bytes == NULL || in->buffer != buffer || in->index != seg->index) {
        free(in->bytes);
        in->bytes = world_alloc(local_leaves_bytes(l, seg));
        in->buffer = buffer;
        in->index = seg->index;
    }
    return in->bytes;
}

static void roots(const struct local *l,
                  const struct local_leaves *in,
                  struct local_event *e)
{
    struct transfer_object o = object_of(l, in->buffer);
    size_t n = (size_t)transfer_pieces(&o), per = n / 2;
    struct hash32 *copy = world_alloc(n * sizeof *copy);

    memcpy(copy, in->bytes, n * sizeof *copy);
    if (o.first > 0) {
        hash_tree_root(copy, per, &e->params_hash);
        hash_tree_root(copy + per, per, &e->momentum_hash);
    } else {
        hash_tree_root(copy, n, &e->hash);
    }
    free(copy);
}

int local_verify(const struct local *l,
                 struct machine *m,
                 const struct action *a,
                 struct local_event *e)
{
    const struct local_leaves *in = &m->leaves;
    uint32_t piece = (uint32_t)a->request;
    const uint8_t *object;
    struct hash32 hash;

    if (in->bytes == NULL || in->buffer != a->buffer || in->index != a->index) {
        return LOCO_ENOENT;
    }
    if (piece == TRANSFER_LEAVES) {
        roots(l, in, e);
        return 0;
    }
    object =
        a->buffer == BUFFER_STATE ? m->incoming.bytes : m->shard_in[a->index];
    if (object == NULL) {
        return LOCO_ENOENT;
    }
    hash_piece(l, object, a->buffer, piece, &hash);
    return memcmp(&hash, in->bytes + piece * sizeof hash, sizeof hash) == 0
               ? 0
               : LOCO_EHASH;
}
