/* ring.h - ring all-reduce as arithmetic: which segment goes where, and when.
 *
 * A vector of `elements` is cut into n chunks, one per member, at multiples of
 * the codec's block; a chunk travels as segments. In step s (0 .. 2n-3) the
 * member at rank i sends chunk (i - s) mod n to the next rank and receives
 * chunk (i - 1 - s) mod n from the one before:
 *     s <= n-2   reduce-scatter: partial sums, ADD at every hop
 *     s >= n-1   all-gather: the owner's final bytes, forwarded as they are
 * Each member sends 2(n-1)/n of the vector (Patarasuk & Yuan 2009). A segment
 * is passed on as soon as it has been received: the ring is a pipeline of
 * segments, not of steps. At most RING_WINDOW are posted and in flight.
 *
 * Pure arithmetic and counters. A ring does not fail by itself: the caller
 * watches ring_progress() and cancels the attempt.
 */
#ifndef LOCO_P2P_RING_H
#define LOCO_P2P_RING_H

#include "p2p/core.h"
#include "p2p/limits.h"

#define RING_WINDOW 8 /* segments posted, and segments in flight */

/* Position in the sequence of segments of one direction. */
struct ring_cursor {
    uint32_t step;    /* 0 .. 2n-3; 2n-2: at the end */
    uint32_t segment; /* within the chunk of that step */
    uint32_t number;  /* segments before it, over all steps */
};

struct ring {
    uint32_t n, rank;
    uint64_t elements;
    uint32_t block, segment_elements;
    uint64_t attempt;
    double scale; /* of the own contribution */
    struct peer_id next, prev;
    struct ring_cursor post, received; /* receive side: posted, done */
    struct ring_cursor send, sent;     /* send side: queued, done */
    uint64_t bytes;                    /* moved, both directions */
};

/* Elements [*begin, *end) of chunk c of n. Empty chunks exist where the vector
 * has fewer blocks than members. */
void ring_chunk(uint64_t elements,
                uint32_t block,
                uint32_t n,
                uint32_t c,
                uint64_t *begin,
                uint64_t *end);

/* A ring of n >= 2. segment_elements is a multiple of block. */
void ring_init(struct ring *r,
               uint64_t elements,
               uint32_t block,
               uint32_t segment_elements,
               uint32_t n,
               uint32_t rank);

/* Emit what can be posted and sent now. */
void ring_pump(struct ring *r, struct out *out);

/* A segment of this attempt is done (rc 0). LOCO_EPROTO when it is not the
 * one that is due: shells complete a direction in order. */
int ring_done(struct ring *r, const struct event *event);

bool ring_finished(const struct ring *r);

/* Segments completed in both directions: grows while the ring lives. */
uint64_t ring_progress(const struct ring *r);

#endif
