/* sample.h - what only a peer with the state of a commit can say of it.
 *
 * The hash of a state is public, and so is the list of its leaves. The *sample*
 * of a state is a hash over some of its bytes: nothing that is public has it,
 * nobody sends it, and whoever holds that state makes the same one. A joiner
 * proves by it that it holds the state (message_join_proof()).
 *
 * The bytes of a state are those that FETCH serves: the parameters, and what
 * follows them. They are cut into *blocks* of SAMPLE_BLOCK_BYTES, the last one
 * shorter. Which blocks are in the sample follows from the state hash:
 *
 *     sample = hash("loco-sample-1", state hash || block b_0 || b_1 ..)
 *     b_i = i for all blocks, where these are SAMPLE_BLOCKS at most;
 *     else b_i = mix(first word of the state hash, i) mod blocks, i in
 *     0 .. SAMPLE_BLOCKS - 1
 *
 * So a peer that lacks a hundredth of a large state passes once in 13 commits,
 * one that lacks half of it never. Cost: SAMPLE_BLOCKS blocks are 1 MiB, 1.5 ms
 * of a core for each commit, of a state of any size.
 *
 * Pure, no failure, no allocation.
 */
#ifndef LOCO_PROTO_SAMPLE_H
#define LOCO_PROTO_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"

#define SAMPLE_BLOCK_BYTES 4096
#define SAMPLE_BLOCKS      256

/* Some bytes of a state; the next part follows them. Borrowed. */
struct sample_part {
    const void *bytes;
    uint64_t len;
};

/* Of the state with that hash, which is in `n` parts. */
void sample_state(const struct hash32 *state,
                  const struct sample_part *parts,
                  size_t n,
                  struct hash32 *sample);

#endif
