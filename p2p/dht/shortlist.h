/* shortlist.h - what an iterative lookup knows: peers by distance to a target.
 *
 * Sorted by XOR distance, closest first, each id once. The lookup asks the
 * closest that nobody asked yet and is over when the k closest that did not
 * fail have answered (Maymounkov & Mazieres 2002, section 2.3). Failed peers
 * stay listed so that another answer cannot bring them back. In a full list the
 * farthest peer that did not answer makes room for a closer one: a liar that
 * invents ever closer peers cannot push out peers that answered.
 * Of entries that share an address prefix (prefix.h) all but the first
 * prefix_max are a *reserve*, asked only if fewer than k others are alive: ids
 * cost a liar nothing, addresses do.
 * Cost: insertion O(SHORTLIST_MAX); 3.2 KB.
 *
 * Several lists may search side by side, no peer being asked on two of them
 * (dht/lookup.c): an entry that another list asked is ELSEWHERE until that
 * answered or failed.
 *
 * *Depth* of an entry: 1 for a peer from our own table, one more than that of
 * the peer that told us for the others: the hops of the lookup.
 *
 * Pure, cannot fail, fixed size.
 */
#ifndef LOCO_P2P_DHT_SHORTLIST_H
#define LOCO_P2P_DHT_SHORTLIST_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/id.h"

/* 3k for k = 20: the k closest, and two thirds for failed and farther ones. */
#define SHORTLIST_MAX 60

enum shortlist_state {
    SHORTLIST_NEW,
    SHORTLIST_ASKED,
    SHORTLIST_ELSEWHERE, /* another list asked it, no answer yet */
    SHORTLIST_ANSWERED,
    SHORTLIST_FAILED,
    SHORTLIST_STATE_COUNT
};

struct shortlist_entry {
    struct peer_id id;
    struct address address;
    uint8_t state; /* enum shortlist_state */
    uint8_t depth;
    bool reserve;
};

struct shortlist {
    struct peer_id target;
    uint32_t prefix_max; /* 0: no cap */
    uint32_t n;
    struct shortlist_entry entry[SHORTLIST_MAX];
};

void shortlist_init(struct shortlist *s,
                    const struct peer_id *target,
                    uint32_t prefix_max);

/* False: already listed, or too far for a full list. */
bool shortlist_add(struct shortlist *s,
                   const struct peer_id *id,
                   const struct address *address,
                   uint32_t depth);

/* The entry or NULL; valid until the next shortlist_add(). */
struct shortlist_entry *shortlist_find(struct shortlist *s,
                                       const struct peer_id *id);

/* Whether some entry lives there. */
bool shortlist_lists(const struct shortlist *s, const struct address *address);

/* The closest entry in state NEW among the k closest that did not fail, or
 * NULL. *settled: all of these k have answered, so the lookup is over. Reserves
 * count once they were asked. */
struct shortlist_entry *
shortlist_next(struct shortlist *s, uint32_t k, bool *settled);

#endif
