/* segments.h - which bytes a segment (p2p/core.h) names, and whether they lie
 * within their buffer.
 *
 * Vectors of rounds and pairs are counted in elements and travel encoded; all
 * other buffers are counted in bytes and travel as they are. The matrices of a
 * pipeline (FORTH, BACK) have a layout of their own and no part in this.
 *
 * Pure. The terms are those of the run that is configured.
 */
#ifndef LOCO_DAEMON_JOBS_SEGMENTS_H
#define LOCO_DAEMON_JOBS_SEGMENTS_H

#include "daemon/jobs/offers.h"
#include "p2p/core.h"
#include "p2p/exchange/butterfly.h"
#include "p2p/terms.h"
#include "train/sync/codec/codec.h"

/* The round that an attempt is at. */
static inline uint64_t attempt_round(uint64_t attempt)
{
    return attempt & 0xffffffff;
}

static inline bool segment_is_pair(const struct segment *s)
{
    return s->buffer == BUFFER_ANCHOR || s->buffer == BUFFER_STEP;
}

static inline bool segment_is_stage(const struct segment *s)
{
    return s->buffer == BUFFER_FORTH || s->buffer == BUFFER_BACK;
}

static inline bool segment_is_leaves(const struct segment *s)
{
    return s->buffer == BUFFER_STATE_LEAVES || s->buffer == BUFFER_SHARD_LEAVES;
}

/* The round that a segment of a vector is of. */
static inline uint64_t segment_round(const struct segment *s)
{
    return s->buffer == BUFFER_RING ? attempt_round(s->attempt) : s->index;
}

/* What the owner of a slice sends as the sum of it. */
static inline bool segment_is_result(const struct segment *s)
{
    return s->buffer == BUFFER_RING && s->final && s->op == SEGMENT_COPY &&
           (s->seg & BUTTERFLY_FINAL) != 0;
}

/* How that vector is cut. */
struct offer_cut segment_cut(const struct run_terms *t,
                             const struct codec *c,
                             const struct segment *s);

/* Bytes that it takes on the wire, with its proof if it has one; not of FORTH
 * and BACK. */
size_t segment_wire_len(const struct run_terms *t,
                        const struct codec *c,
                        const struct segment *s);

/* Where its bytes begin in their buffer. LOCO_ERANGE: it is empty, does not
 * begin at a block, or lies outside of the buffer that it names. */
int segment_place(const struct run_terms *t,
                  const struct codec *c,
                  const struct segment *s,
                  size_t *at);

#endif
