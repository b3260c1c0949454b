/* portmap.h - ask the home router for a port: NAT-PMP, then UPnP.
 *
 * These calls block for up to about 8 s: a worker makes them (mapper.h). The
 * router is whoever answers at the default gateway (NAT-PMP, which PCP servers
 * answer too, RFC 6887 appendix A) or by multicast (UPnP); nothing of what it
 * says is trusted: whether the port is open is found out by other peers.
 * Internal to p2p/uv.
 */
#ifndef LOCO_P2P_UV_PORTMAP_H
#define LOCO_P2P_UV_PORTMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"

struct portmap {
    uint16_t inner, outer; /* ports; outer as wished, then as given */
    uint32_t lease_s;      /* wished, then given; 0: remove the mapping */
    struct address at;     /* given: the router's outer address and port */
    const char *how;       /* "NAT-PMP", "UPnP": static text */
};

/* 0; LOCO_ENOENT: no router answers; LOCO_EBUSY: it refuses. */
int portmap_ask(struct portmap *p);

#endif
