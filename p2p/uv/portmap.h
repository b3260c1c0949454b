/* portmap.h - ask the home router for a port: PCP, then NAT-PMP, then UPnP.
 *
 * These calls block for up to about 15 s: a worker makes them (mapper.h). The
 * router is whoever answers at the default gateway (PCP and NAT-PMP, IPv4) or
 * by multicast (UPnP); nothing of what it says is trusted: whether the port is
 * open is found out by other peers. What is held is renewed and given back the
 * way it was got; another way is looked for when that fails.
 * Internal to p2p/uv.
 */
#ifndef LOCO_P2P_UV_PORTMAP_H
#define LOCO_P2P_UV_PORTMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/swarm/pcp.h"

enum portmap_way { PORTMAP_NONE, PORTMAP_PCP, PORTMAP_NATPMP, PORTMAP_UPNP };

struct portmap {
    uint16_t inner, outer; /* ports; outer as wished, then as given */
    uint32_t lease_s;      /* wished, then given; 0: remove the mapping */
    uint8_t nonce[PCP_NONCE_BYTES]; /* the same while a mapping is held */
    enum portmap_way way; /* how it is held (NONE: not yet), then was got */
    struct address at;    /* given: the router's outer address and port */
};

/* "PCP", "NAT-PMP", "UPnP". */
const char *portmap_way_name(enum portmap_way way);

/* 0; LOCO_ENOENT: no router answers; LOCO_EBUSY: it refuses. */
int portmap_ask(struct portmap *p);

#endif
