/* reduce.h - the arithmetic of an all-reduce, segment by segment.
 *
 * In a ring a piece is the own contribution encoded (ENCODE), then added to
 * what came in (ADD). In a butterfly the owner of a slice keeps what comes in
 * *lanes* (LANE) and sums all of them (SUM). What rounding takes from the own
 * contribution can be kept for the next one: in the contribution's unit,
 * whatever weight it has in the mean.
 *
 * Which bytes a segment reads and writes is the caller's to know: a place in a
 * vector of the attempt. Not thread-safe. Memory: the lanes
 * (train/sync/codec/lanes.h). Fails with the codes of codec.h and lanes.h.
 */
#ifndef LOCO_DAEMON_JOBS_REDUCE_H
#define LOCO_DAEMON_JOBS_REDUCE_H

#include "p2p/core.h"
#include "train/sync/codec/lanes.h"
#include "train/sync/stray.h"

struct reduce {
    const struct codec *codec;
    uint32_t segment_elements; /* of the longest segment */
    float clip;                /* of a sum of lanes; 0: none (codec.h) */
    bool centred;              /* the same */
    bool raw;                  /* of the own contribution (lanes_raw) */
    struct lanes lanes;
    struct strays *strays; /* sees what is summed; NULL: nobody watches */
    uint64_t before;       /* elements of the vectors of other turns, which it
                              knows as those before that of this round */
};

/* Vectors of the round, from their first element on. */
struct reduce_vectors {
    const float *own;       /* the contribution */
    const uint8_t *encoded; /* of the segment at hand, its encoded part of it
                               (SUM); NULL: it is made from `own` */
    float *error;           /* what rounding took from it; NULL: not kept */
    float *result;          /* the mean, decoded; NULL: not wanted */
};

/* dst = the own part, weighted. */
int reduce_encode(const struct reduce *r,
                  const struct reduce_vectors *v,
                  const struct segment *s,
                  uint8_t *dst);

/* dst = src and the own part. `result` is written where that is final. */
int reduce_add(const struct reduce *r,
               const struct reduce_vectors *v,
               const struct segment *s,
               uint8_t *dst,
               const uint8_t *src);

/* Where what comes for the own slice waits; NULL: no memory, no such lane, or
 * too long. */
uint8_t *reduce_lane(struct reduce *r, const struct segment *s);

/* It came; src may be where it waits. LOCO_EBUSY: it cannot wait anywhere. */
int reduce_keep(struct reduce *r, const struct segment *s, const uint8_t *src);

/* Whether bytes of a result can be applied: LOCO_EPROTO, LOCO_ENUMERIC: no
 * encoder wrote them. */
int reduce_usable(const struct reduce *r,
                  const struct segment *s,
                  const uint8_t *src);

/* dst = the sum of all lanes; on failure s->lane is the one at fault. */
int reduce_sum(struct reduce *r,
               const struct reduce_vectors *v,
               struct segment *s,
               uint8_t *dst);

#endif
