/* segment.h - a named piece of a buffer that travels between two peers, or that
 * is awaited. A core names it, the shell moves its bytes (core.h).
 */
#ifndef LOCO_P2P_SEGMENT_H
#define LOCO_P2P_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"

/* What a segment does to the buffer it names. */
enum segment_op {
    SEGMENT_COPY,   /* receive: bytes replace the piece; send: bytes as held */
    SEGMENT_ADD,    /* receive: piece = enc(dec(bytes) + own contribution) */
    SEGMENT_ENCODE, /* send: first encode the own contribution, then send it */
    SEGMENT_LANE,   /* receive: bytes wait in `lane`, `slot` for a SUM; OFFER:
                       in `lane` for an AUDIT */
    SEGMENT_SUM,    /* ACTION_SUM: piece = enc(sum of scale * dec(lane)) */
    SEGMENT_OP_COUNT
};

/* Buffers that segments can name. The owner of the shell resolves them. */
enum buffer_kind {
    BUFFER_RING,    /* wire bytes of the round in flight */
    BUFFER_REDUCED, /* wire bytes of the last committed round; `index` round */
    BUFFER_STATE,   /* what all members hold alike, the parameters first;
                       `index` round */
    BUFFER_SHARD,   /* data shard `index` of the manifest */
    BUFFER_STATE_LEAVES, /* hashes of the pieces of that state: parameters,
                            then momentum (proto/hash.h), 32 bytes each */
    BUFFER_SHARD_LEAVES, /* the same of that shard */
    BUFFER_ANCHOR,  /* pairs, turn `index`: parameters. What is sent is our own,
                       what is received is the partner's */
    BUFFER_STEP,    /* pairs, the same: displacement since the anchor */
    BUFFER_FORTH,   /* stages: activations of micro-batch `index`, elements of
                       the cut. Received: input of `slot`; sent: its output */
    BUFFER_BACK,    /* stages, their gradient. Received: that of the output of
                       `slot`; sent: that of its input */
    BUFFER_OFFER,   /* a contribution to round `index`, encoded, with its proof;
                       `name`, sent: whose, by the first bytes of its offer */
    BUFFER_MOMENTS, /* the inner moments with which a member began the lease of
                       its contribution to round `index`, u then v, in bf16,
                       with their proof; `name`, sent: which, by the first bytes
                       of the root of their blocks. LANE: a block of them,
                       number `lane` */
    BUFFER_KIND_COUNT
};

struct segment {
    struct peer_id peer;
    uint64_t attempt;
    uint32_t stream; /* one counter space of attempts: STREAM_RING, ... */
    uint32_t seg;    /* number within the attempt and direction */
    enum buffer_kind buffer;
    uint64_t index;  /* which round, shard or micro-batch, see buffer_kind */
    uint64_t name;   /* STATE, its leaves; sent: which of that round, by the
                        first bytes of its hash, since a branch, or the mean at
                        the end of pairs, has another; 0: any */
    uint64_t offset; /* STATE, SHARD: bytes; others: elements */
    uint32_t len;    /* STATE, SHARD: bytes; others: elements */
    enum segment_op op;
    double scale; /* factor of the own contribution for ADD, ENCODE and SUM;
                     LANE: of what arrives, in the sum */
    bool final;   /* RING: what the piece then holds, or what is sent of it, is
                     the result */
    uint8_t lane; /* LANE: of this contribution; SUM: the own one, and in a
                     SEG_DONE that failed the one that could not be summed */
    uint8_t lanes, slot; /* LANE, SUM: lanes in all; place in each of them.
                            FORTH, BACK: where the micro-batch is kept here */
    /* A contribution that was announced: its proof follows its bytes
     * (daemon/jobs/offers.h). What comes must be what `maker` announced by
     * `offer`. */
    bool proven;
    struct peer_id maker;
    struct hash32 offer;
};

/* A fetch from one of several sources at a time is a stream of its own. */
#define STREAM_FETCHES 8
enum {
    STREAM_RING,
    STREAM_FETCH,
    STREAM_PAIR = STREAM_FETCH + STREAM_FETCHES,
    STREAM_PIPE,  /* stages: attempts are the tags of p2p/pipeline/pipeline.h */
    STREAM_EVAL,  /* stages: held-out windows, daemon/node/eval_pass.c */
    STREAM_AUDIT, /* contributions to a sum that is repeated */
    STREAM_WORK,  /* what a lease that is repeated began with, and came to */
    STREAM_COUNT  /* 14 to 27 are reserved (PROTOCOL.md, section 25) */
};

#endif
