/* arrivals.h - who of those that connect may shake hands, and when.
 *
 * A handshake costs half a millisecond of a core, and ids cost nothing. So who
 * connects *enters* at once, or *waits* until there is something left for it:
 *
 *   - all strangers together have a budget (budget.h), and one group of
 *     addresses of the internet (IPv4 /24, IPv6 /48) has a smaller one. A
 *     private address is a group of its own. Behind it or on this machine many
 *     are honest: no such limit;
 *   - the address where somebody that the core trusts was linked last is
 *     *known*. It has a budget of its own and does not wait behind others: a
 *     member whose link broke is back at once. Nobody can connect from an
 *     address of somebody else; who has the same one (a machine, a router) can
 *     use up its budget, and then all from there are strangers. The budget is
 *     the peer's: a seat in the view is not worth more with more addresses;
 *   - while some wait nobody passes them, and only who has said something gets
 *     its turn. First who comes from the group that was let in longest ago, of
 *     these by turns the one that waits longest and one by lot. A crowd that
 *     gives up sooner than an honest peer loses by the first, one that does not
 *     by the second;
 *   - where all places are taken, the next one takes that of one of the largest
 *     group, by lot. Nobody waits longer than its own patience lasts.
 *
 * Pure: time comes in; 100 KB. Cannot fail.
 */
#ifndef LOCO_P2P_SWARM_ARRIVALS_H
#define LOCO_P2P_SWARM_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/swarm/budget.h"
#include "proto/id.h"

#define ARRIVALS_WAITING_MAX 1024
#define ARRIVALS_GROUPS_MAX  (ARRIVALS_WAITING_MAX + 256)
#define ARRIVALS_KNOWN_MAX   128

struct arrivals_options {
    struct budget_price all, group, known; /* of one handshake */
    uint32_t waiting_max;                  /* at most ARRIVALS_WAITING_MAX */
    uint32_t patience_ms;
    uint32_t known_ms; /* after its last link */
    uint64_t seed;     /* of lots */
};

/* Who waits. */
struct arrivals_place {
    bool used, said;
    bool known; /* when it came */
    uint32_t group;
    uint64_t since_ms;
    uint8_t ip[16];
};

struct arrivals_group {
    bool used;
    bool limited;   /* not private */
    uint8_t ip[16]; /* what is no part of it is 0 */
    struct budget_meter paid;
    uint32_t n_waiting;
};

struct arrivals_known {
    struct peer_id who;
    uint8_t ip[16];
    struct budget_meter paid;
    uint64_t until_ms; /* 0: a free row */
};

struct arrivals {
    struct arrivals_options opt;
    struct budget_meter all;
    uint32_t n_waiting;
    uint64_t rng;
    bool by_lot; /* the next turn */
    struct arrivals_place places[ARRIVALS_WAITING_MAX];
    struct arrivals_group groups[ARRIVALS_GROUPS_MAX];
    struct arrivals_known known[ARRIVALS_KNOWN_MAX];
};

/* For a home connection; patience_ms and seed are left to the caller. */
void arrivals_options_default(struct arrivals_options *opt);

void arrivals_init(struct arrivals *a, const struct arrivals_options *opt);

#define ARRIVALS_ENTER (-1)
#define ARRIVALS_NONE  (-1)

/* Somebody connected from there: ARRIVALS_ENTER, or the place where it waits.
 * Whoever waited there before is to be sent away. */
int arrivals_come(struct arrivals *a, const uint8_t ip[16], uint64_t now_ms);

/* Who waits there has said how it begins; is gone, or to be sent away. */
void arrivals_said(struct arrivals *a, int place);
void arrivals_gone(struct arrivals *a, int place);

/* Whose turn it is; ARRIVALS_NONE: nobody's now. It enters, or is gone. */
int arrivals_next(struct arrivals *a, uint64_t now_ms);
void arrivals_enter(struct arrivals *a, int place, uint64_t now_ms);

/* Whose patience is over, no longer waiting; ARRIVALS_NONE. */
int arrivals_late(struct arrivals *a, uint64_t now_ms);

/* A peer that the core trusts has, or had until now, a link to that address. */
void arrivals_know(struct arrivals *a,
                   const struct peer_id *who,
                   const uint8_t ip[16],
                   uint64_t now_ms);

#endif
