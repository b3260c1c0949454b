/* pieces.c - leaf lists, and pieces checked by them. See local.h. */
#include <stdlib.h>

#include "daemon/sim/machine/internal.h"
#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "proto/hash.h"

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

struct hash32 *local_leaves_make(const struct machine *m,
                                 const uint8_t *object,
                                 const struct segment *seg)
{
    struct transfer_object o = pieces_object(m->terms, seg->buffer, seg->index);
    struct hash32 *leaves = world_alloc(transfer_pieces(&o) * sizeof *leaves);

    pieces_make(&o, object, leaves);
    return leaves;
}

int local_verify(const struct machine *m,
                 const struct job_verify *job,
                 struct report_verified *report)
{
    struct transfer_object o;
    struct piece_roots roots;
    uint32_t piece = (uint32_t)job->request, len;
    const uint8_t *object;
    uint64_t at;
    int rc;

    if (!pieces_has(&m->leaves, job->buffer, job->index, piece)) {
        return LOCO_ENOENT;
    }
    if (piece == TRANSFER_LEAVES) {
        rc = pieces_roots(&m->leaves, m->terms, &roots);
        report->hash = roots.hash;
        report->params_hash = roots.params;
        report->momentum_hash = roots.momentum;
        return rc;
    }
    object = job->buffer == BUFFER_STATE ? m->incoming.bytes
                                         : m->shard_in[job->index];
    if (object == NULL) {
        return LOCO_ENOENT;
    }
    o = pieces_object(m->terms, job->buffer, job->index);
    at = transfer_piece_at(&o, piece, &len);
    return pieces_check(&m->leaves, piece, object + at, len);
}
