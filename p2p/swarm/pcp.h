/* pcp.h - one question of the Port Control Protocol and its answer (RFC 6887).
 *
 * MAP asks the router at the default gateway, UDP port 5351, to send what
 * arrives at one of its outer ports to us for some time. The question has 60
 * bytes, big-endian:
 *
 *     0  version 2, opcode 1 (MAP), 2 reserved
 *     4  lifetime in seconds; 0 removes the mapping
 *     8  our address, IPv4 as ::ffff:a.b.c.d: a router that sees another one
 *        refuses, for there is a NAT between
 *    24  nonce, 12 bytes: who does not know it cannot change the mapping
 *    36  protocol 6 (TCP), 3 reserved
 *    40  our port, the outer port that we would like
 *    44  the outer address that we would like: none
 *
 * and the answer the same length or more: version 2, opcode 0x81, reserved, a
 * result code, lifetime, the router's time, 12 reserved; then nonce, protocol,
 * our port, the outer port and address. A router that only speaks NAT-PMP, the
 * version before, answers with its own version, 0.
 *
 * Pure functions on bytes. What does not answer this very question is
 * LOCO_EPROTO: dropped, and the next datagram is waited for.
 */
#ifndef LOCO_P2P_SWARM_PCP_H
#define LOCO_P2P_SWARM_PCP_H

#include <stddef.h>
#include <stdint.h>

#include "p2p/core.h"

#define PCP_NONCE_BYTES 12
#define PCP_MAP_BYTES   60
#define PCP_BYTES_MAX   1100 /* of any PCP datagram */

struct pcp_map {
    uint8_t client[16]; /* our address on the way to the router */
    uint8_t nonce[PCP_NONCE_BYTES];
    uint16_t inner, outer; /* outer 0: any */
    uint32_t lease_s;      /* 0: remove */
};

struct pcp_mapped {
    struct address at; /* the router's outer address and port */
    uint32_t lease_s;
    uint8_t result; /* as the router said, 0: done */
};

void pcp_map_encode(const struct pcp_map *ask, uint8_t out[PCP_MAP_BYTES]);

/* 0: mapped (or removed); LOCO_EBUSY: refused, see result; LOCO_ENOENT: the
 * router does not speak this version; LOCO_EPROTO: no answer to `ask`. */
int pcp_map_decode(const struct pcp_map *ask,
                   const uint8_t *bytes,
                   size_t len,
                   struct pcp_mapped *out);

#endif
