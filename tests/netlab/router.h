/* router.h - the process that carries packets between network namespaces.
 *
 * One TUN interface per host; every packet is read from one, sent over the
 * wires of the topology and written to another. One thread, one epoll. The
 * router makes the namespaces itself and is the only one to hold them, so they
 * vanish with it and nothing is left to clean, whatever dies.
 */
#ifndef LOCO_TESTS_NETLAB_ROUTER_H
#define LOCO_TESTS_NETLAB_ROUTER_H

#include "tests/netlab/topology.h"

#define MTU_MAX 1500

struct router {
    struct topology topology;
    int epoll_fd;
    int home_fd;         /* the namespace that the router itself lives in */
    uint64_t held_bytes; /* of all packets that exist */
    uint64_t unrouted, no_memory, refused; /* refused: by the interface */
};

/* A namespace for `node`, with loopback up; with an interface of `mtu` bytes
 * where mtu is not 0. False: topology.why says what failed. */
bool router_space(struct router *r, uint16_t node, unsigned mtu);

#endif
