/* rng.h - deterministic randomness that peers can agree on.
 *
 * SplitMix64 (Steele et al. 2014): one add and three xor-shifts, all state in
 * one word that the caller owns. rng_mix() turns counters (run seed, epoch,
 * round, ...) into a seed, so that every peer derives the same choice without
 * a message. Vectors: algorithms page 0.5, checked in tests/unit/proto.
 */
#ifndef LOCO_PROTO_BASE_RNG_H
#define LOCO_PROTO_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Next word; advances *state. */
static inline uint64_t rng_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15U);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* Fold `n` words into one seed. */
static inline uint64_t rng_mix(const uint64_t *words, size_t n)
{
    uint64_t h = 0x6A09E667F3BCC909U;

    for (size_t i = 0; i < n; i++) {
        uint64_t s = h ^ words[i];
        h = rng_next(&s);
    }
    return h;
}

/* Uniform in 0..n-1 without modulo bias; n > 0. */
static inline uint64_t rng_below(uint64_t *state, uint64_t n)
{
    uint64_t limit = UINT64_MAX - (UINT64_MAX % n + 1) % n; /* inclusive */
    uint64_t x;

    do {
        x = rng_next(state);
    } while (x > limit);
    return x % n;
}

/* Uniform in [0, 1) with 24 bits, exact in fp32. */
static inline float rng_float(uint64_t *state)
{
    return (float)(rng_next(state) >> 40) * (1.0f / 16777216.0f);
}

/* p[0..n) becomes the permutation of 0..n-1 that `seed` names. */
static inline void rng_perm(uint32_t *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint32_t)i;
    }
    for (size_t i = n; i-- > 1;) {
        size_t j = (size_t)rng_below(&seed, i + 1);
        uint32_t t = p[i];
        p[i] = p[j];
        p[j] = t;
    }
}

#endif
