/* lanes.h - where contributions to an own slice wait until all are there.
 *
 * The owner of a slice in a butterfly (p2p/exchange/butterfly.h) receives it
 * from every member, segment by segment. Each member has a *lane* of a few
 * *slots*; a slot holds one encoded segment. When a slot is full in all lanes,
 * lanes_sum() encodes the own contribution into the own lane (not where it is
 * `raw`), sums all lanes in their order and encodes the result once.
 *
 *     lanes_fit -> (lanes_at, bytes, lanes_keep)* -> lanes_sum
 *
 * A slot counts for one attempt only. Memory: n lanes * slots * one encoded
 * segment, taken when first needed or when more is asked for. One thread.
 * Fails with LOCO_ENOMEM, LOCO_ENOENT for a slot that is not full, and the
 * codes of codec.h.
 */
#ifndef LOCO_TRAIN_SYNC_CODEC_LANES_H
#define LOCO_TRAIN_SYNC_CODEC_LANES_H

#include "train/sync/codec/codec.h"

struct lane_slot {
    uint64_t attempt; /* 0: empty */
    uint32_t n;       /* elements */
    float scale;
};

struct lanes {
    const struct codec *codec;
    uint32_t n_lanes, n_slots;
    size_t slot_bytes;
    uint8_t *bytes;
    struct lane_slot *slots;
    size_t size; /* of bytes */
};

/* One segment of the own slice. */
struct lanes_sum {
    uint64_t attempt;
    uint32_t lane, slot; /* own lane */
    uint32_t n;          /* elements */
    const float *own;
    const uint8_t *encoded; /* the same, encoded already; or NULL: no `next` is
                               made of it */
    bool raw;               /* the own contribution counts as it is */
    float scale;            /* of the own contribution */
    float clip;             /* codec.h; 0: none */
    bool centred;
    uint8_t *dst;
    float *next;   /* (n) what rounding took from the own contribution,
                      in its own unit; or NULL */
    float *result; /* (n) decoded; or NULL */
    uint32_t bad;  /* on failure: the lane at fault; else n_lanes */
};

/* Room for that many; what was there is gone if it has another shape. */
int lanes_fit(struct lanes *l,
              const struct codec *codec,
              size_t segment_elements,
              uint32_t n_lanes,
              uint32_t n_slots);
void lanes_free(struct lanes *l);

/* Where the bytes of a slot go; NULL: no such slot. */
uint8_t *lanes_at(struct lanes *l, uint32_t lane, uint32_t slot);

/* They are there: n elements of this attempt. */
void lanes_keep(struct lanes *l,
                uint64_t attempt,
                uint32_t lane,
                uint32_t slot,
                uint32_t n,
                float scale);

int lanes_sum(struct lanes *l, struct lanes_sum *s);

/* Whether sums are `raw`. Of a type that sends parts, the encoding of a sum
 * leaves most of it out; that comes sooner if it goes into the next sum as a
 * whole, and not through the owner's next contribution, encoded. Not with
 * audits: others make that sum again. (Such a type has error feedback and no
 * clip: rules.def.) Nobody else can tell. */
bool lanes_raw(enum codec_id type, bool audits);

#endif
