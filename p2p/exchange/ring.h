/* ring.h - ring all-reduce as arithmetic: which segment goes where, and when.
 *
 * A vector is reduced stripe by stripe. A *stripe* is cut into n chunks, one
 * per member, at multiples of the codec's block; a chunk travels as segments.
 * In step s (0 .. 2n-3) of a stripe the member at rank i sends chunk
 * (i - s) mod n to the next rank and receives chunk (i - 1 - s) mod n from the
 * one before:
 *     s <= n-2   reduce-scatter: partial sums, ADD at every hop
 *     s >= n-1   all-gather: the owner's final bytes, forwarded as they are
 * Each member sends 2(n-1)/n of the vector (Patarasuk & Yuan 2009). A segment
 * is passed on as soon as it has been received: the ring is a pipeline of
 * segments, not of steps. At most RING_WINDOW are posted and in flight.
 *
 * Why stripes: whole ones are final everywhere at about the same time, so when
 * a member dies all before the one in flight is finished and only the rest is
 * done again (ring_final). Their size: at least chunk_segments per chunk, so
 * that a segment travels while others are sent; and at most RING_STRIPES_MAX.
 *
 * Inherited elements [0, from) are final already. Who holds less of them gets
 * the rest from the rank before, which holds it or is getting it in turn; this
 * *fill* goes before the first stripe in each direction.
 *
 * Pure arithmetic and counters. A ring does not fail by itself: the caller
 * watches ring_progress() and cancels the attempt.
 */
#ifndef LOCO_P2P_EXCHANGE_RING_H
#define LOCO_P2P_EXCHANGE_RING_H

#include "p2p/core.h"
#include "p2p/limits.h"

#define RING_WINDOW         8  /* segments posted, and segments in flight */
#define RING_CHUNK_SEGMENTS 8  /* a good chunk_segments over real links */
#define RING_STRIPES_MAX    16 /* a death costs one or two of them */

/* What is reduced, and how it is cut. All members agree on it. */
struct ring_shape {
    uint64_t elements;
    uint64_t from;             /* elements before it are inherited */
    uint32_t block;            /* everything is cut at multiples of it */
    uint32_t segment_elements; /* a multiple of block */
    uint32_t chunk_segments;   /* at least, in a chunk of a whole stripe */
    uint32_t n;                /* members, >= 2 */
};

/* Position in the sequence of segments of one direction. */
struct ring_cursor {
    bool filled;      /* past the inherited part */
    uint32_t stripe;  /* n_stripes: at the end */
    uint32_t step;    /* 0 .. 2n-3 */
    uint32_t segment; /* within the chunk of that step, or the fill */
    uint32_t number;  /* segments before it, over all */
};

struct ring {
    struct ring_shape shape;
    uint32_t rank, n_stripes;
    uint64_t stripe_elements;
    uint64_t holds[2]; /* inherited elements held: here, at the next rank */
    uint64_t attempt;
    double scale; /* of the own contribution */
    struct peer_id next, prev;
    struct ring_cursor post, received; /* receive side: posted, done */
    struct ring_cursor send, sent;     /* send side: queued, done */
    uint64_t bytes;                    /* moved, both directions */
};

/* Elements of a whole stripe; a multiple of the block. */
uint64_t ring_stripe_elements(const struct ring_shape *shape);

/* Elements [*begin, *end) of chunk c of stripe k. Empty chunks exist where a
 * stripe has fewer blocks than members. */
void ring_chunk(const struct ring_shape *shape,
                uint32_t stripe,
                uint32_t c,
                uint64_t *begin,
                uint64_t *end);

/* `holds`, `next_holds`: inherited elements held here and at the next rank, at
 * most shape->from. Somebody in the ring holds all of them. */
void ring_init(struct ring *r,
               const struct ring_shape *shape,
               uint32_t rank,
               uint64_t holds,
               uint64_t next_holds);

/* Emit what can be posted and sent now. */
void ring_pump(struct ring *r, struct out *out);

/* A segment of this attempt is done (rc 0). LOCO_EPROTO when it is not the
 * one that is due: shells complete a direction in order. */
int ring_done(struct ring *r, const struct event_seg_done *event);

bool ring_finished(const struct ring *r);

/* Segments of one direction, all told: from the rank before, or to the next. */
uint32_t ring_segments(const struct ring *r, bool sending);

/* Elements [0, this) are final here: inherited ones and whole stripes. */
uint64_t ring_final(const struct ring *r);

/* Segments completed in both directions: grows while the ring lives. */
uint64_t ring_progress(const struct ring *r);

#endif
