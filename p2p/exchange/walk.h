/* walk.h - the way of a slice through sites: pure arithmetic.
 *
 * Where links inside a *site* are fast and those between sites are not, a
 * vector should cross each of the slow ones once in either direction. The
 * members of a plan stand site by site; the first of each site is its
 * *gateway*, the only one that speaks with other sites. There are as many
 * slices as sites. The partial sum of slice k begins in site k + 1 and walks
 * from site to site until it ends in site k:
 *
 *     in the first one     m1 -> m2 -> .. -> gateway
 *     in the others        gateway -> m1 -> .. (-> gateway, to go on)
 *
 * where everybody adds its contribution; the sum after the last one is final,
 * and goes the same way round again, as it is:
 *
 *     gateway -> m1 -> m2 -> ..  in each site, gateway -> gateway between them
 *
 * Of L sites each sends 2(L-1)/L of the vector to another one, whatever the
 * number of members; inside, a member sends about twice the vector. With one
 * member a site it is a ring (ring.h), step for step.
 *
 * A *hop* is one member sending the slice to another. Pure; nothing fails.
 */
#ifndef LOCO_P2P_EXCHANGE_WALK_H
#define LOCO_P2P_EXCHANGE_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"

/* Partial sums visit each member, gateways perhaps twice; final bytes all but
 * one. */
#define WALK_HOPS_MAX (3 * VIEW_MEMBERS_MAX)

/* Members [first[s], first[s + 1]) are site s, the gateway first. */
struct walk_sites {
    uint32_t n; /* sites, at least 1; members in all: first[n], at least 2 */
    uint32_t first[VIEW_MEMBERS_MAX + 1];
};

struct walk_hop {
    uint8_t from, to; /* ranks */
    bool adds;        /* the receiver adds its contribution */
    bool ends;        /* and that makes the sum final */
    bool final;       /* final bytes are passed on */
    int16_t after;    /* the hop by which `from` got it; -1: it begins there */
    uint8_t depth;    /* hops before it, one after the other */
};

/* Rank k begins a site where gateway[k]; false: the first rank does not. */
bool walk_sites_of(const bool *gateway, uint32_t n, struct walk_sites *s);

/* The site of a member. */
uint32_t walk_site(const struct walk_sites *s, uint32_t rank);

/* All hops of that slice, each after the one that it needs. */
uint32_t walk_of(const struct walk_sites *s,
                 uint32_t slice,
                 struct walk_hop hops[WALK_HOPS_MAX]);

#endif
