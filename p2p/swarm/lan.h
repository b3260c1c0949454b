/* lan.h - what peers of one run say to each other on a LAN, by IPv4 and IPv6
 * multicast.
 *
 * A datagram of 52 bytes: "locolan1", hash("loco-lan-1", run id), u64 of the
 * process, u16 port, u16 flags (bit 0: answer, please), little-endian. The
 * hash tells members of the run, and nobody else, which run it is. What is
 * heard is an address to dial, no more: the handshake proves the rest. A
 * datagram's sender is easily forged, so it counts only from a network that one
 * of our interfaces is in (lan_is_near()).
 *
 * When: at once, after 1, 3 and 10 s, then every minute; an answer at most
 * once a second. Of what comes in at most 10 a second are looked at.
 *
 * Pure: bytes and time come in. Bad bytes are dropped and counted.
 */
#ifndef LOCO_P2P_SWARM_LAN_H
#define LOCO_P2P_SWARM_LAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"

#define LAN_BYTES 52
#define LAN_PORT  7701
/* Organization-local scope (RFC 2365); the TTL of 1 keeps it on the link. */
#define LAN_GROUP "239.255.77.1"
/* Link-local scope, not permanently assigned (RFC 4291, 2.7). */
#define LAN_GROUP6 "ff12::6c6f:636f"

struct lan {
    struct hash32 tag;
    uint64_t instance; /* random: not to hear oneself */
    uint16_t port;
    unsigned n_said;
    uint64_t say_ms;    /* next announcement */
    uint64_t answer_ms; /* no answer before */
    uint64_t second_ms; /* of `n_heard` */
    unsigned n_heard;
    uint64_t n_dropped; /* malformed, or too many */
};

void lan_init(struct lan *l,
              const struct hash32 *run,
              uint64_t instance,
              uint16_t port,
              uint64_t now_ms);

/* Whether something is to be said now; then `out` holds it. */
bool lan_say(struct lan *l, uint64_t now_ms, uint8_t out[LAN_BYTES]);

/* A datagram: true where a peer of this run listens at *port of its sender. It
 * may make something to say. */
bool lan_hear(struct lan *l,
              const uint8_t *bytes,
              size_t len,
              uint64_t now_ms,
              uint16_t *port);

/* Whether `ip` is in the network of our interface's address `own` under `mask`,
 * all as in struct address. */
bool lan_is_near(const uint8_t ip[16],
                 const uint8_t own[16],
                 const uint8_t mask[16]);

/* When lan_say() has something. */
uint64_t lan_deadline(const struct lan *l);

#endif
