/* hash_lanes.h - several whole pieces of a tree hash at once.
 *
 * The leaves of a tree (hash.h) do not depend on each other. A vector register
 * has a word of each of several BLAKE2b states, so that one instruction does
 * the same step of all: the hash of each is what libsodium gives, sooner.
 *
 * hash_lanes.c is compiled once per instruction set; hash.c asks the processor.
 * Where there is no set, or one piece only, libsodium hashes it. A single piece
 * cannot be cut: a caller that has many hands them over together.
 *
 * Cost (one core of a Xeon with AVX-512, 128 MiB, ns a byte): libsodium 1.01,
 * four lanes 0.45, eight lanes 0.26.
 */
#ifndef LOCO_PROTO_HASH_LANES_H
#define LOCO_PROTO_HASH_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"

struct hash_lanes {
    const char *isa;
    size_t n; /* pieces at once */
    /* The leaves of n pieces of HASH_PIECE_BYTES, one behind the other. */
    void (*leaves)(const uint8_t *pieces, struct hash32 *leaves);
};

/* The fastest one that this processor runs; `isa` not NULL: that one. NULL:
 * there is none. */
const struct hash_lanes *hash_lanes_get(const char *isa);

#endif
