/* audit_room.h - the contributions to one block, while its sum is repeated.
 *
 * Whoever repeats a sum (p2p/round/audit.h) gets the block of each member of a
 * plan with its proof, sums them as the owner of the slice had to, and compares
 * the bytes with those of the result. What is in the room is what others get
 * who want to see for themselves, and what goes into the evidence
 * (evidence.h), so bytes and proofs stay as they came.
 *
 *     audit_room_take*, audit_room_own -> audit_room_sum -> audit_room_at
 *
 * One block at a time; the first take of another one empties the room. Memory:
 * a lane of one block and its proof for each member. One thread.
 */
#ifndef LOCO_DAEMON_JOBS_AUDIT_ROOM_H
#define LOCO_DAEMON_JOBS_AUDIT_ROOM_H

#include "daemon/jobs/offers.h"

struct audit_room {
    uint64_t round, offset; /* the block: of this commit, from this element */
    uint32_t len, lanes;    /* elements; members of the plan */
    uint64_t have;          /* bit i: lane i is filled */
    float scale[CODEC_TERMS_MAX];
    size_t lane_bytes, size;
    uint8_t *bytes;
};

/* A block with its proof behind it, of lane s->lane, for the round and place
 * that `s` names. LOCO_EHASH: it is not what its maker announced. LOCO_EINVAL:
 * no such lane. LOCO_ENOMEM. */
int audit_room_take(struct audit_room *r,
                    const struct offer_cut *cut,
                    const struct segment *s,
                    const uint8_t *src);

/* The same of the own contribution to that round. LOCO_ENOENT: it is not here
 * any more. LOCO_EHASH: what is here is not what we announced. */
int audit_room_own(struct audit_room *r,
                   const struct offer_cut *cut,
                   const struct offers *offers,
                   const struct segment *s);

/* A lane: its block, then its proof. NULL: it is not here. */
const uint8_t *audit_room_at(const struct audit_room *r,
                             uint64_t round,
                             uint64_t offset,
                             uint32_t lane);

/* How a run sums. */
struct audit_sum {
    const struct codec *codec;
    float clip;
    bool centred;
    const uint8_t *result; /* the encoded block of the commit */
};

/* *wrong: the sum of all lanes has other bytes, or these lanes have no sum, so
 * that an honest owner had none either. LOCO_ENOENT: a lane is empty.
 * LOCO_ENOMEM. */
int audit_room_sum(const struct audit_room *r,
                   const struct audit_sum *sum,
                   bool *wrong);

void audit_room_free(struct audit_room *r);

#endif
