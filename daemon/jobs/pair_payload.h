/* pair_payload.h - what two replicas exchange: the anchor, then the
 * displacement, both encoded.
 *
 * Both peers hash both payloads, in an order that they agree on, and so see
 * that they step with the same bytes.
 *
 * Pure. Memory: that of a piece while the hash is made. Fails with LOCO_ENOMEM
 * and the codes of codec.h.
 */
#ifndef LOCO_DAEMON_JOBS_PAIR_PAYLOAD_H
#define LOCO_DAEMON_JOBS_PAIR_PAYLOAD_H

#include "p2p/core.h"
#include "proto/id.h"
#include "train/sync/codec/codec.h"

/* One's own, before it is encoded: n elements each. */
struct pair_payload {
    const struct codec *codec;
    uint64_t n;
    const float *anchor, *displacement;
};

/* Bytes of a whole payload, and where those of a segment begin. */
size_t pair_payload_bytes(const struct codec *c, uint64_t n);
size_t
pair_payload_at(const struct codec *c, uint64_t n, const struct segment *s);

/* What a segment of the own one has on the wire. */
int pair_payload_fill(const struct pair_payload *own,
                      const struct segment *s,
                      uint8_t *dst);

/* Of both; `first`: the own one goes first. */
int pair_payload_hash(const struct pair_payload *own,
                      const uint8_t *partner,
                      bool first,
                      struct hash32 *hash);

#endif
