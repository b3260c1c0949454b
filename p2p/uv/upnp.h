/* upnp.h - map a port of a router that speaks UPnP; the sockets around
 * p2p/swarm/upnp.h.
 *
 * Blocks: about UPNP_SEARCH_MS for the search, UPNP_HTTP_MS for each exchange,
 * UPNP_JOB_MS in all, whatever is answered; so a worker calls it. At most
 * UPNP_ROUTERS_MAX answers are followed and UPNP_ANSWERS_MAX looked at; an
 * exchange takes UPNP_ANSWER_MAX bytes. Internal to p2p/uv.
 */
#ifndef LOCO_P2P_UV_UPNP_H
#define LOCO_P2P_UV_UPNP_H

#include "p2p/uv/portmap.h"

#define UPNP_SEARCH_MS   2000
#define UPNP_HTTP_MS     3000
#define UPNP_JOB_MS      8000
#define UPNP_ROUTERS_MAX 4
#define UPNP_ANSWERS_MAX 64

/* As portmap_ask(). */
int upnp_ask(struct portmap *p);

#endif
