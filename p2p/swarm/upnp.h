/* upnp.h - what is said to a home router that speaks UPnP (Internet Gateway
 * Device 1 and 2), and what of its answers is believed.
 *
 * A search goes out by multicast; who answers names a description (XML) by an
 * http address; the description names the address where a service that maps
 * ports takes SOAP calls. Everybody in the LAN can answer, so
 *   - an answer counts only where it names the very IPv4 address that it came
 *     from, a private one, and so must the description: nobody sends us to a
 *     third machine;
 *   - the service's type is one of three that we know, paths are printable;
 *   - values are looked for by their tag; nothing builds a tree, and answers
 *     have at most UPNP_ANSWER_MAX bytes.
 *
 * Pure: bytes in, bytes out. Fails with LOCO_EPROTO (not an answer that counts)
 * or LOCO_ERANGE (room too small).
 */
#ifndef LOCO_P2P_SWARM_UPNP_H
#define LOCO_P2P_SWARM_UPNP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"

#define UPNP_PATH_MAX   256
#define UPNP_ASK_MAX    2048
#define UPNP_ANSWER_MAX 65536 /* a description has some 5 KB */
#define UPNP_VALUE_MAX  64
#define UPNP_GROUP      "239.255.255.250"
#define UPNP_PORT       1900

/* Something over HTTP in the LAN. */
struct upnp_place {
    struct address at;
    char path[UPNP_PATH_MAX];
};

struct upnp_service {
    const char *type; /* static text */
    struct upnp_place control;
};

/* What a call maps or gives back. */
struct upnp_port {
    uint16_t inner, outer;
    uint32_t lease_s;   /* 0: without end, as some routers want it */
    const char *client; /* our address in the LAN, as text */
};

enum upnp_call { UPNP_ADD, UPNP_DELETE, UPNP_ADDRESS };

/* The multicast datagram. Returns its length. */
int upnp_search_encode(char *out, size_t room);

/* What answered the search from the address `from`. */
int upnp_search_decode(const uint8_t *bytes,
                       size_t len,
                       const struct address *from,
                       struct upnp_place *described);

/* GET of a description; a call of a service. Return the length. */
int upnp_get_encode(const struct upnp_place *place, char *out, size_t room);
int upnp_call_encode(const struct upnp_service *s,
                     enum upnp_call call,
                     const struct upnp_port *port,
                     char *out,
                     size_t room);

/* An HTTP answer that has come so far; `ended`: no more comes. 0: complete, its
 * body is bytes[*at] on, *n long (chunks are put together in place);
 * LOCO_EBUSY: more is to come; LOCO_EPROTO. */
int upnp_http_decode(
    char *bytes, size_t len, bool ended, int *status, size_t *at, size_t *n);

/* The service that maps ports, in a description from there. */
int upnp_service_find(const char *xml,
                      size_t len,
                      const struct upnp_place *described,
                      struct upnp_service *out);

/* The text between <tag> and </tag>, with any namespace, at most
 * UPNP_VALUE_MAX - 1 bytes of it. */
int upnp_value_find(const char *xml,
                    size_t len,
                    const char *tag,
                    char out[UPNP_VALUE_MAX]);

#endif
