/* transfer.h - one object fetched from a peer, piece by piece.
 *
 * An *object* is a buffer that others hold too: the state of a round, the
 * reduced bytes of a commit, a data shard. It is cut into pieces; up to
 * TRANSFER_WINDOW are posted and asked for (FETCH) at a time, and arrive in
 * order over the bulk connection. A source that is silent for fetch_ms, or
 * says FETCH_NO, is given up; the transfer goes on from the next one where it
 * stopped. What arrived is not trusted: the owner hashes the whole object.
 *
 * Pure. One transfer at a time; several sources at once come later.
 */
#ifndef LOCO_P2P_TRANSFER_H
#define LOCO_P2P_TRANSFER_H

#include "p2p/core.h"
#include "p2p/members.h"

#define TRANSFER_WINDOW 8
#define TRANSFER_PIECE  (256U << 10) /* bytes */

struct transfer {
    struct members *members; /* borrowed */
    uint32_t fetch_ms;
    bool active, finished;
    bool want_source; /* the owner must name the next one */
    enum buffer_kind buffer;
    uint64_t index;
    uint64_t total; /* in the unit of the buffer (bytes or elements) */
    uint32_t piece; /* same unit */
    uint64_t n_pieces, asked, done;
    uint64_t attempt; /* of FETCH segments, grows for ever */
    int source;
    uint64_t progress_ms;
};

void transfer_init(struct transfer *t,
                   struct members *members,
                   uint32_t fetch_ms,
                   uint64_t first_attempt);

/* Begin an object; the owner then names a source. An unfinished one ends. */
void transfer_start(struct transfer *t,
                    enum buffer_kind buffer,
                    uint64_t index,
                    uint64_t total,
                    uint32_t piece,
                    struct out *out);

void transfer_stop(struct transfer *t, struct out *out);

/* Go on from this linked peer (row). */
void transfer_source(struct transfer *t,
                     int peer,
                     uint64_t now_ms,
                     struct out *out);

void transfer_seg_done(struct transfer *t,
                       const struct event *ev,
                       struct out *out);

void transfer_refused(struct transfer *t,
                      int peer,
                      const struct fetch_no *no,
                      struct out *out);

void transfer_tick(struct transfer *t, uint64_t now_ms, struct out *out);

uint64_t transfer_deadline(const struct transfer *t);

#endif
