/* addr.h - struct address and the system's socket addresses, both ways.
 *
 * An address is 16 bytes and a port; IPv4 is mapped (RFC 4291 2.5.5.2), and a
 * mapped address becomes AF_INET again. Numeric text only: names are resolved
 * elsewhere, because that blocks. Pure functions.
 */
#ifndef LOCO_P2P_UV_ADDR_H
#define LOCO_P2P_UV_ADDR_H

#include <sys/socket.h>

#include "p2p/core.h"

/* LOCO_EINVAL for a family that is neither AF_INET nor AF_INET6. */
int address_from_sockaddr(const struct sockaddr *sa, struct address *out);

/* Returns the length for connect(2) and bind(2). */
socklen_t address_to_sockaddr(const struct address *a,
                              struct sockaddr_storage *out);

/* "192.0.2.1", "::1"; LOCO_EINVAL for anything else. */
int address_parse(const char *host, uint16_t port, struct address *out);

#endif
