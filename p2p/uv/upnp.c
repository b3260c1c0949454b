/* upnp.c - see upnp.h.
 *
 * Happy path: search() -> describe() each that answered until one has a service
 * that maps ports -> map(), then its outer address. What can go wrong: nobody
 * answers; an answer that is no answer, too long or too slow (the next one is
 * tried); a port that another machine has (error 718: others are tried); a
 * router that knows only leases without end (725).
 */
#include "p2p/uv/upnp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "p2p/swarm/upnp.h"
#include "p2p/uv/addr.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define PORT_TRIES     4
#define ERROR_CONFLICT 718
#define ERROR_ENDLESS  725
#define DATAGRAM_MAX   1536
#define STATUS_OK      200
#define STATUS_REFUSED 500 /* with the reason in the body */

struct talk {
    uint64_t end_ms;
    struct upnp_service service;
    char lan[INET_ADDRSTRLEN]; /* our address there */
    char ask[UPNP_ASK_MAX];
    char answer[UPNP_ANSWER_MAX + 1];
    size_t at, n; /* of the body in `answer` */
    int status;
};

/* Until `fd` is ready; false: not before `end_ms`. */
static bool ready(int fd, short what, uint64_t end_ms)
{
    struct pollfd pfd = {.fd = fd, .events = what};
    uint64_t now = monotonic_ms();

    return now < end_ms && poll(&pfd, 1, (int)(end_ms - now)) > 0;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- HTTP -----------------------------------------------------------------
 */

static int connect_to(struct talk *j, const struct address *at, uint64_t end_ms)
{
    struct sockaddr_storage ss;
    socklen_t len = address_to_sockaddr(at, &ss), len_self = sizeof ss;
    struct sockaddr_in self;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0;
    socklen_t len_error = sizeof error;

    if (fd < 0) {
        return LOCO_EIO;
    }
    len_self = sizeof self;
    if ((connect(fd, (const struct sockaddr *)&ss, len) == 0 ||
         (errno == EINPROGRESS && ready(fd, POLLOUT, end_ms))) &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len_error) == 0 &&
        error == 0 &&
        getsockname(fd, (struct sockaddr *)&self, &len_self) == 0 &&
        inet_ntop(AF_INET, &self.sin_addr, j->lan, sizeof j->lan) != NULL) {
        return fd;
    }
    close(fd);
    return LOCO_ETIMEOUT;
}

static int send_all(int fd, const char *bytes, size_t len, uint64_t end_ms)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);

        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        } else if (n == 0 || errno != EAGAIN || !ready(fd, POLLOUT, end_ms)) {
            return LOCO_ECLOSED;
        }
    }
    return 0;
}

static int receive(struct talk *j, int fd, uint64_t end_ms)
{
    size_t len = 0;
    int rv = LOCO_EBUSY;

    while (rv == LOCO_EBUSY && len < UPNP_ANSWER_MAX &&
           ready(fd, POLLIN, end_ms)) {
        ssize_t n = recv(fd, j->answer + len, UPNP_ANSWER_MAX - len, 0);

        if (n < 0 && errno == EAGAIN) {
            continue;
        }
        if (n < 0) {
            return LOCO_ECLOSED;
        }
        len += (size_t)n;
        rv =
            upnp_http_decode(j->answer, len, n == 0, &j->status, &j->at, &j->n);
    }
    return rv == LOCO_EBUSY ? LOCO_ETIMEOUT : rv; /* too slow, or too long */
}

/* The first `len` bytes of j->ask, and what comes back. */
static int exchange(struct talk *j, const struct address *at, int len)
{
    uint64_t end_ms = earlier(monotonic_ms() + UPNP_HTTP_MS, j->end_ms);
    int fd = len < 0 ? len : connect_to(j, at, end_ms), rv;

    if (fd < 0) {
        return fd;
    }
    rv = send_all(fd, j->ask, (size_t)len, end_ms);
    rv = rv != 0 ? rv : receive(j, fd, end_ms);
    close(fd);
    return rv;
}

/* ---- who is a router ------------------------------------------------------
 */

static int describe(struct talk *j, const struct upnp_place *place)
{
    int rv =
        exchange(j, &place->at, upnp_get_encode(place, j->ask, sizeof j->ask));

    if (rv == 0 && j->status != STATUS_OK) {
        rv = LOCO_EPROTO;
    }
    return rv != 0
               ? rv
               : upnp_service_find(j->answer + j->at, j->n, place, &j->service);
}

static bool is_listed(const struct upnp_place *list,
                      unsigned n,
                      const struct upnp_place *place)
{
    for (unsigned i = 0; i < n; i++) {
        if (address_eq(&list[i].at, &place->at)) {
            return true;
        }
    }
    return false;
}

/* Who answers, each address once. A flood of answers ends it early. */
static unsigned
hear(int fd, uint64_t end_ms, struct upnp_place list[UPNP_ROUTERS_MAX])
{
    unsigned n = 0;

    for (unsigned i = 0; i < UPNP_ANSWERS_MAX && n < UPNP_ROUTERS_MAX &&
                         ready(fd, POLLIN, end_ms);
         i++) {
        struct sockaddr_storage ss;
        socklen_t len = sizeof ss;
        uint8_t bytes[DATAGRAM_MAX];
        struct address from;
        ssize_t got = recvfrom(fd, bytes, sizeof bytes, MSG_DONTWAIT,
                               (struct sockaddr *)&ss, &len);

        if (got > 0 &&
            address_from_sockaddr((const struct sockaddr *)&ss, &from) == 0 &&
            upnp_search_decode(bytes, (size_t)got, &from, &list[n]) == 0) {
            n += !is_listed(list, n, &list[n]);
        }
    }
    return n;
}

static unsigned search(struct upnp_place list[UPNP_ROUTERS_MAX])
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(UPNP_PORT)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), ttl = 2;
    char ask[UPNP_ASK_MAX];
    int len = upnp_search_encode(ask, sizeof ask);
    unsigned n = 0;

    if (fd < 0 || len < 0) {
        return 0;
    }
    if (inet_pton(AF_INET, UPNP_GROUP, &to.sin_addr) == 1 &&
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl) == 0 &&
        sendto(fd, ask, (size_t)len, 0, (const struct sockaddr *)&to,
               sizeof to) == len) {
        n = hear(fd, monotonic_ms() + UPNP_SEARCH_MS, list);
    }
    close(fd);
    return n;
}

/* ---- what it is asked -----------------------------------------------------
 */

/* 0, LOCO_EBUSY with the router's reason (0: unknown), or why it failed. */
static int call(struct talk *j,
                enum upnp_call what,
                const struct upnp_port *port,
                unsigned *error)
{
    char text[UPNP_VALUE_MAX];
    int rv = exchange(
        j, &j->service.control.at,
        upnp_call_encode(&j->service, what, port, j->ask, sizeof j->ask));

    *error = 0;
    if (rv != 0 || j->status == STATUS_OK) {
        return rv;
    }
    if (j->status == STATUS_REFUSED &&
        upnp_value_find(j->answer + j->at, j->n, "errorCode", text) == 0) {
        *error = (unsigned)strtoul(text, NULL, 10);
    }
    return LOCO_EBUSY;
}

static int map(struct talk *j, struct portmap *p)
{
    struct upnp_port port = {
        .inner = p->inner, .lease_s = p->lease_s, .client = j->lan};
    unsigned error;
    int rv = LOCO_EBUSY;

    for (unsigned i = 0; i < PORT_TRIES && rv == LOCO_EBUSY; i++) {
        port.outer = p->outer;
        rv = call(j, UPNP_ADD, &port, &error);
        if (error == ERROR_ENDLESS) {
            port.lease_s = 0;
        } else if (error == ERROR_CONFLICT) {
            p->outer = (uint16_t)(p->outer < 60000 ? p->outer + 1237
                                                   : p->outer - 20000);
        } else {
            break;
        }
    }
    return rv;
}

static int ask_service(struct talk *j, struct portmap *p)
{
    struct upnp_port port = {.outer = p->outer};
    char text[UPNP_VALUE_MAX];
    unsigned error;

    if (p->lease_s == 0) {
        return call(j, UPNP_DELETE, &port, &error) == 0 ? 0 : LOCO_EBUSY;
    }
    if (map(j, p) != 0) {
        return LOCO_EBUSY;
    }
    p->way = PORTMAP_UPNP;
    if (call(j, UPNP_ADDRESS, &port, &error) != 0 ||
        upnp_value_find(j->answer + j->at, j->n, "NewExternalIPAddress",
                        text) != 0 ||
        address_parse(text, p->outer, &p->at) != 0) {
        memset(&p->at, 0, sizeof p->at); /* the peers will tell us */
        p->at.port = p->outer;
    }
    return 0;
}

int upnp_ask(struct portmap *p)
{
    struct upnp_place list[UPNP_ROUTERS_MAX];
    struct talk *j = malloc(sizeof *j);
    unsigned n, i = 0;
    int rv = LOCO_ENOENT;

    if (j == NULL) {
        return LOCO_ENOENT;
    }
    j->end_ms = monotonic_ms() + UPNP_JOB_MS;
    n = search(list);
    while (i < n && describe(j, &list[i]) != 0) {
        i++;
    }
    if (i < n) {
        rv = ask_service(j, p);
    }
    free(j);
    return rv;
}
