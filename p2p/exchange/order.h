/* order.h - who takes part, in which order, when some pairs cannot talk.
 *
 * A ring is a Hamiltonian cycle of the graph of edges that carry data. First a
 * few dozen random permutations (with few bad edges one of them fits), then a
 * bounded search. Where none is found, members have to stay out: those of a
 * pair without an edge take turns. A butterfly needs all edges: a clique.
 *
 * Pure functions on values.
 */
#ifndef LOCO_P2P_EXCHANGE_ORDER_H
#define LOCO_P2P_EXCHANGE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"

/* Who can send to whom: bit k of edges[i]. Symmetric but for what
 * order_cut_one_way() took away, which only rings may have. */
struct order_graph {
    uint32_t n;
    uint64_t edges[VIEW_MEMBERS_MAX];
};

void order_init(struct order_graph *g, uint32_t n); /* all edges */
void order_cut(struct order_graph *g, uint32_t i, uint32_t k);
/* i does not send to k. */
void order_cut_one_way(struct order_graph *g, uint32_t i, uint32_t k);

/* Whether each of ring[n] can send to the next one, the last to the first. */
bool order_closes(const struct order_graph *g, const uint8_t *ring, uint32_t n);

/* A ring of the members in `mask`, the same for the same seed; false: none was
 * found (never for one member, or for two with an edge). */
bool order_ring(const struct order_graph *g,
                uint64_t mask,
                uint64_t seed,
                uint8_t ring[VIEW_MEMBERS_MAX]);

/* The largest part of `mask` found that has a ring. Of a pair without an edge
 * the one with more missing edges goes; of equal ones, `turn` chooses: with
 * first[i] < first[k] member k goes, and with equal ones the seed says. */
uint64_t order_largest(const struct order_graph *g,
                       uint64_t mask,
                       const uint64_t first[VIEW_MEMBERS_MAX],
                       uint64_t seed);

/* Numbers of sites that were measured begin here; named ones are below. */
#define ORDER_SITE_MEASURED 0x80000000U

/* For order_nested(), by member. */
struct order_sites {
    uint32_t site[VIEW_MEMBERS_MAX]; /* 0: one of its own */
    uint32_t most;                   /* members of a site; 0: any number */
    uint64_t lead; /* who is a gateway where that is possible */
};

/* Sites of those in `mask` that name none: whoever says of each other that they
 * are near (bit k of near[i] and bit i of near[k]), all with all, at most
 * s->most. One that lies about it is believed by nobody else. */
void order_near(uint64_t mask,
                const uint64_t near[VIEW_MEMBERS_MAX],
                struct order_sites *s);

/* The members in `mask` site by site, each beginning with its gateway:
 * gateway[k] where order[k] is one. Those of a site are a ring, and so are
 * the gateways. False: none was found, or it would be a plain ring because all
 * are of one site, or of one each. */
bool order_nested(const struct order_graph *g,
                  uint64_t mask,
                  const struct order_sites *s,
                  uint64_t seed,
                  uint8_t order[VIEW_MEMBERS_MAX],
                  bool gateway[VIEW_MEMBERS_MAX]);

/* The largest part of `mask` found in which every pair has an edge; who goes
 * first is as above. */
uint64_t order_clique(const struct order_graph *g,
                      uint64_t mask,
                      const uint64_t first[VIEW_MEMBERS_MAX],
                      uint64_t seed);

#endif
