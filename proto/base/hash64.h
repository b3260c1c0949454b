/* hash64.h - a checksum against disks, not against people.
 *
 * Four lanes of 64-bit words, each step `lane = rotl(lane ^ word, 27) * odd`:
 * a bijection in the lane and in the word, so that any change of one word is
 * always seen; other changes are missed with probability about 2^-64. Reads
 * several GB/s. Whatever a peer could forge is hashed with BLAKE2b elsewhere.
 *
 * Pieces are chained by passing the last result as the next seed.
 */
#ifndef LOCO_PROTO_BASE_HASH64_H
#define LOCO_PROTO_BASE_HASH64_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/bytes.h"

/* Odd, from the fractional parts of the golden ratio and of sqrt(2). */
#define HASH64_K1 0x9E3779B97F4A7C15U
#define HASH64_K2 0x6A09E667F3BCC909U

static inline uint64_t hash64_step(uint64_t lane, uint64_t word)
{
    lane ^= word;
    return (lane << 27 | lane >> 37) * HASH64_K1;
}

/* A bijection that spreads every bit (SplitMix64's output function). */
static inline uint64_t hash64_finish(uint64_t h)
{
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9U;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBU;
    return h ^ (h >> 31);
}

static inline uint64_t hash64(const void *data, size_t len, uint64_t seed)
{
    const uint8_t *p = data;
    uint64_t lanes[4] = {seed, seed + HASH64_K1, seed ^ HASH64_K2, ~seed};
    uint64_t h = seed ^ (uint64_t)len * HASH64_K2;
    uint8_t tail[32] = {0};

    for (; len >= 32; len -= 32, p += 32) {
        for (unsigned i = 0; i < 4; i++) {
            lanes[i] = hash64_step(lanes[i], get_u64(p + (size_t)8 * i));
        }
    }
    if (len > 0) {
        memcpy(tail, p, len);
        for (unsigned i = 0; i < 4; i++) {
            lanes[i] = hash64_step(lanes[i], get_u64(tail + (size_t)8 * i));
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        h = hash64_finish(h ^ lanes[i]);
    }
    return h;
}

#endif
