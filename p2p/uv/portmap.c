/* portmap.c - see portmap.h.
 *
 * PCP (p2p/swarm/pcp.h) and NAT-PMP are one datagram each way and quick to say
 * no; UPnP (upnp.c) is a search by multicast and HTTP. What can go wrong: no
 * router, one that does not answer in time.
 */
#include "p2p/uv/portmap.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <natpmp.h>

#include "p2p/prefix.h"
#include "p2p/uv/addr.h"
#include "p2p/uv/upnp.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define PCP_TRIES    3 /* 250, 500, 1000 ms: no answer after that */
#define PCP_FIRST_MS 250
#define NATPMP_MS    2000 /* for each of two questions */

/* ---- PCP ---------------------------------------------------------------- */

/* The answer to `ask` within so long; LOCO_ETIMEOUT. */
static int pcp_wait(int fd,
                    const struct pcp_map *ask,
                    uint64_t wait_ms,
                    struct pcp_mapped *got)
{
    uint64_t end_ms = monotonic_ms() + wait_ms, now;

    while ((now = monotonic_ms()) < end_ms) {
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        uint8_t bytes[PCP_BYTES_MAX];
        ssize_t n;
        int rv;

        (void)poll(&pfd, 1, (int)(end_ms - now));
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno == ECONNREFUSED) {
            return LOCO_ENOENT; /* nobody is on that port */
        }
        rv = n < 0 ? LOCO_EPROTO : pcp_map_decode(ask, bytes, (size_t)n, got);
        if (rv != LOCO_EPROTO) {
            return rv;
        }
    }
    return LOCO_ETIMEOUT;
}

/* On a socket that is connected to the gateway's port 5351. */
static int pcp_talk(int fd, struct portmap *p)
{
    struct pcp_map ask = {
        .inner = p->inner, .outer = p->outer, .lease_s = p->lease_s};
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    uint8_t bytes[PCP_MAP_BYTES];
    struct pcp_mapped got;
    struct address self;
    int rv = LOCO_ETIMEOUT;

    if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0 ||
        address_from_sockaddr((const struct sockaddr *)&ss, &self) != 0) {
        return LOCO_ENOENT;
    }
    memcpy(ask.client, self.ip, sizeof ask.client);
    memcpy(ask.nonce, p->nonce, sizeof ask.nonce);
    pcp_map_encode(&ask, bytes);
    for (unsigned i = 0; i < PCP_TRIES && rv == LOCO_ETIMEOUT; i++) {
        if (send(fd, bytes, sizeof bytes, 0) < 0) {
            return LOCO_ENOENT;
        }
        rv = pcp_wait(fd, &ask, PCP_FIRST_MS << i, &got);
    }
    if (rv == 0) {
        p->at = got.at;
        p->outer = got.at.port;
        p->lease_s = got.lease_s;
        p->way = PORTMAP_PCP;
    }
    return rv == LOCO_ETIMEOUT ? LOCO_ENOENT : rv;
}

/* libnatpmp finds the gateway, and its port is the same. */
static int pcp_ask(struct portmap *p)
{
    natpmp_t n;
    int rv;

    if (initnatpmp(&n, 0, 0) != 0) {
        return LOCO_ENOENT; /* no default gateway */
    }
    rv = pcp_talk(n.s, p);
    (void)closenatpmp(&n);
    return rv;
}

/* ---- NAT-PMP ------------------------------------------------------------ */

/* The answer to the question that is out, repeated until it comes. */
static int natpmp_wait(natpmp_t *n, natpmpresp_t *answer)
{
    uint64_t end_ms = monotonic_ms() + NATPMP_MS;
    int rv = NATPMP_TRYAGAIN;

    while (rv == NATPMP_TRYAGAIN && monotonic_ms() < end_ms) {
        struct pollfd fd = {.fd = n->s, .events = POLLIN};
        struct timeval tv = {0};
        uint64_t left = end_ms - monotonic_ms(), wait;

        (void)getnatpmprequesttimeout(n, &tv);
        wait = (uint64_t)tv.tv_sec * 1000 + (uint64_t)tv.tv_usec / 1000 + 1;
        (void)poll(&fd, 1, (int)(wait < left ? wait : left));
        rv = readnatpmpresponseorretry(n, answer);
    }
    if (rv == 0) {
        return 0;
    }
    return rv == NATPMP_TRYAGAIN || rv == NATPMP_ERR_NOGATEWAYSUPPORT
               ? LOCO_ENOENT
               : LOCO_EBUSY;
}

static int natpmp_talk(natpmp_t *n, struct portmap *p)
{
    natpmpresp_t answer;
    int rv =
        sendpublicaddressrequest(n) < 0 ? LOCO_ENOENT : natpmp_wait(n, &answer);

    if (rv != 0) {
        return rv;
    }
    memset(&p->at, 0, sizeof p->at);
    prefix_map_v4(p->at.ip);
    memcpy(p->at.ip + 12, &answer.pnu.publicaddress.addr, 4);
    /* RFC 6886 3.4: a removal names no outer port. */
    if (sendnewportmappingrequest(n, NATPMP_PROTOCOL_TCP, p->inner,
                                  p->lease_s > 0 ? p->outer : 0,
                                  p->lease_s) < 0) {
        return LOCO_ENOENT;
    }
    rv = natpmp_wait(n, &answer);
    if (rv == 0) {
        p->at.port = p->outer = answer.pnu.newportmapping.mappedpublicport;
        p->lease_s = answer.pnu.newportmapping.lifetime;
        p->way = PORTMAP_NATPMP;
    }
    return rv;
}

static int natpmp_ask(struct portmap *p)
{
    natpmp_t n;
    int rv;

    if (initnatpmp(&n, 0, 0) != 0) {
        return LOCO_ENOENT; /* no default gateway */
    }
    rv = natpmp_talk(&n, p);
    (void)closenatpmp(&n);
    return rv;
}

/* ---- one after the other ------------------------------------------------ */

struct way {
    const char *name;
    int (*ask)(struct portmap *p);
};

static const struct way ways[] = {
    [PORTMAP_NONE] = {"", NULL},
    [PORTMAP_PCP] = {"PCP", pcp_ask},
    [PORTMAP_NATPMP] = {"NAT-PMP", natpmp_ask},
    [PORTMAP_UPNP] = {"UPnP", upnp_ask},
};

const char *portmap_way_name(enum portmap_way way)
{
    return ways[way].name;
}

int portmap_ask(struct portmap *p)
{
    enum portmap_way held = p->way;
    int rv = LOCO_ENOENT;

    if (held != PORTMAP_NONE) {
        rv = ways[held].ask(p);
    }
    for (int w = PORTMAP_PCP; w <= PORTMAP_UPNP && rv != 0; w++) {
        int next;

        if (p->lease_s == 0 || w == (int)held) {
            continue; /* what is given back is not asked for elsewhere */
        }
        next = ways[w].ask(p);
        rv = next == LOCO_ENOENT ? rv : next;
    }
    return rv;
}
