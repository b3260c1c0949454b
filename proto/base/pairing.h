/* pairing.h - who averages with whom in one step of random pairs.
 *
 * The pairs of step t are a pure function of the run's seed, the epoch of the
 * member list and t: a permutation of the sorted members, cut in twos. With an
 * odd number the last has a *bye*: it steps alone. So everybody knows the pairs
 * of all future steps of an epoch without a message. Algorithms page 8.3, with
 * vectors; NoLoCo, arXiv:2506.10911.
 */
#ifndef LOCO_PROTO_BASE_PAIRING_H
#define LOCO_PROTO_BASE_PAIRING_H

#include "proto/base/rng.h"

#define PAIRING_BYE UINT32_MAX
#define PAIRING_TAG 0x5041495253U /* "PAIRS" */

/* The partner's index in the list of n members sorted by id, or PAIRING_BYE.
 * self < n; scratch (n). O(n). */
static inline uint32_t pairing_partner(uint64_t seed,
                                       uint64_t epoch,
                                       uint64_t t,
                                       uint32_t n,
                                       uint32_t self,
                                       uint32_t *scratch)
{
    const uint64_t words[4] = {seed, epoch, t, PAIRING_TAG};

    rng_perm(scratch, n, rng_mix(words, 4));
    for (uint32_t i = 0; i + 1 < n; i += 2) {
        if (scratch[i] == self) {
            return scratch[i + 1];
        }
        if (scratch[i + 1] == self) {
            return scratch[i];
        }
    }
    return PAIRING_BYE;
}

#endif
