/* addr.c - see addr.h. */
#include "p2p/uv/addr.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/err.h"

int address_from_sockaddr(const struct sockaddr *sa, struct address *out)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    memset(out, 0, sizeof *out);
    if (sa->sa_family == AF_INET) {
        memcpy(&in, sa, sizeof in);
        prefix_map_v4(out->ip);
        memcpy(out->ip + 12, &in.sin_addr, 4);
        out->port = ntohs(in.sin_port);
        return 0;
    }
    if (sa->sa_family == AF_INET6) {
        memcpy(&in6, sa, sizeof in6);
        memcpy(out->ip, &in6.sin6_addr, 16);
        out->port = ntohs(in6.sin6_port);
        return 0;
    }
    return LOCO_EINVAL;
}

socklen_t address_to_sockaddr(const struct address *a,
                              struct sockaddr_storage *out)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    memset(out, 0, sizeof *out);
    if (prefix_is_v4(a->ip)) {
        memset(&in, 0, sizeof in);
        in.sin_family = AF_INET;
        in.sin_port = htons(a->port);
        memcpy(&in.sin_addr, a->ip + 12, 4);
        memcpy(out, &in, sizeof in);
        return sizeof in;
    }
    memset(&in6, 0, sizeof in6);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(a->port);
    memcpy(&in6.sin6_addr, a->ip, 16);
    memcpy(out, &in6, sizeof in6);
    return sizeof in6;
}

int address_parse(const char *host, uint16_t port, struct address *out)
{
    memset(out, 0, sizeof *out);
    out->port = port;
    if (inet_pton(AF_INET, host, out->ip + 12) == 1) {
        prefix_map_v4(out->ip);
        return 0;
    }
    return inet_pton(AF_INET6, host, out->ip) == 1 ? 0 : LOCO_EINVAL;
}
