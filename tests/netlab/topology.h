/* topology.h - who is connected to whom, and which way a packet goes.
 *
 * A *node* is a network namespace with an interface of its own (a host, a home
 * router's outer side) or a hub, which is only a place where links meet. A
 * *link* joins two nodes and is two wires, one each way. Packets take the way
 * with the fewest links; of equal ones the link that was made first.
 * *Addresses* are prefixes that a node answers for; the longest one wins. IPv4
 * is mapped into IPv6 (::ffff:a.b.c.d), so one table serves both.
 *
 * Pure; fixed tables; a name that is unknown or one too many is a sentence in
 * `why`. A way is looked up in O(1), computed anew at each new link.
 */
#ifndef LOCO_TESTS_NETLAB_TOPOLOGY_H
#define LOCO_TESTS_NETLAB_TOPOLOGY_H

#include <stddef.h>

#include "tests/netlab/wire.h"

#define NODES_MAX     64
#define LINKS_MAX     256 /* wires, that is directions */
#define ADDRESSES_MAX 256
#define NAME_MAX_LEN  31
#define NOWHERE       UINT16_MAX

struct node {
    char name[NAME_MAX_LEN + 1];
    int tun_fd;   /* -1: no interface of the router's in it */
    int space_fd; /* the namespace; -1: a hub */
};

struct link {
    uint16_t from, to;
    struct wire wire;
};

struct prefix {
    uint8_t ip[16];
    unsigned bits;
    uint16_t node;
};

struct topology {
    unsigned n_nodes, n_links, n_prefixes;
    uint64_t seed;
    struct node nodes[NODES_MAX];
    struct link links[LINKS_MAX];
    struct prefix prefixes[ADDRESSES_MAX]; /* longest first */
    uint16_t next[NODES_MAX][NODES_MAX];   /* [at][to]: a link or NOWHERE */
    char why[160];                         /* of the last failure */
};

void topology_init(struct topology *t, uint64_t seed);

/* Index of the node or NOWHERE, with `why`. */
uint16_t topology_find(struct topology *t, const char *name);

/* A new node without descriptors; NOWHERE: name taken or too many. */
uint16_t topology_node(struct topology *t, const char *name);

/* The wire from a to b, made with its opposite when there is none; NULL: one
 * and the same node or too many. */
struct link *topology_link(struct topology *t, uint16_t a, uint16_t b);

/* `node` answers for what lies in the prefix ("11.0.1.0/24", "2001:db8::1").
 * False, with `why`: it cannot be read or there are too many. */
bool topology_address(struct topology *t, uint16_t node, const char *prefix);

/* Destination of an IPv4 or IPv6 packet, or NOWHERE. */
uint16_t
topology_route(const struct topology *t, const uint8_t *packet, size_t len);

#endif
