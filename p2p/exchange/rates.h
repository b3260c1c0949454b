/* rates.h - what the bandwidth map means for the members of one group.
 *
 * The coordinator asks two things of the map (bandwidth.h): in which order a
 * ring is fastest, and how much each member of a butterfly should own.
 *
 * A ring sends the same number of bytes over each of its edges, so it is as
 * fast as its slowest one. Only the edges of past rings are measured. The
 * others are *guessed*: if an end has shown its speed on most of its edges, an
 * edge is no faster than the fastest of these; otherwise it is as fast as the
 * fastest edge known. So a slow edge is avoided, and a slow line is recognised
 * after rings went over most edges of its owner. Nothing is sent to find out.
 * As confidence fades, unknown edges are tried again.
 *
 * A ring is only given up for one whose slowest edge is faster by a fifth:
 * measurements scatter, and new edges cost new connections.
 *
 * The line of a member of a butterfly is as fast as its fastest edge: an edge
 * that is slower may be so because of the other end. Only ratios count there.
 *
 * Pure; the coordinator decides, nobody else computes it again.
 */
#ifndef LOCO_P2P_EXCHANGE_RATES_H
#define LOCO_P2P_EXCHANGE_RATES_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/exchange/bandwidth.h"
#include "p2p/exchange/butterfly.h"
#include "p2p/exchange/order.h"

/* Less than two fresh samples of an edge count as nothing. */
#define RATES_CONFIDENCE 25
/* Known edges of one of n members after which it is judged by them. */
#define RATES_ENOUGH(n) ((n) > 4 ? ((n)*2) / 3 : 3)
/* A new order has to be faster by one part in so many. */
#define RATES_GAIN 5

struct rates {
    uint32_t n;
    uint64_t fastest; /* edge of all; 0: nothing is known */
    /* i sends to k, bytes a second; 0: not known */
    uint64_t edge[VIEW_MEMBERS_MAX][VIEW_MEMBERS_MAX];
    /* Fastest known edge out of a member and into it, and how many are. */
    uint64_t up[VIEW_MEMBERS_MAX], down[VIEW_MEMBERS_MAX];
    uint8_t n_up[VIEW_MEMBERS_MAX], n_down[VIEW_MEMBERS_MAX];
};

/* `map` NULL: nothing is known. */
void rates_init(struct rates *r,
                const struct bandwidth *map,
                const struct peer_id *ids,
                uint32_t n,
                uint64_t now_ms);

/* Of the edge from i to k, known or guessed; 0: nothing at all is known. */
uint64_t rates_guess(const struct rates *r, uint32_t i, uint32_t k);

/* The slowest edge of ring[n]. */
uint64_t rates_ring(const struct rates *r, const uint8_t *ring, uint32_t n);

/* `ring` holds a ring of the members in `mask` through g: put one in its place
 * that is faster by a fifth, the fastest that is found; false: there is none,
 * or nothing is known. The same for the same seed. */
bool rates_order(const struct rates *r,
                 const struct order_graph *g,
                 uint64_t mask,
                 uint64_t seed,
                 uint8_t ring[VIEW_MEMBERS_MAX]);

/* For butterfly_shares(): the lines of all n members. */
void rates_lines(const struct rates *r,
                 struct butterfly_rate lines[VIEW_MEMBERS_MAX]);

#endif
