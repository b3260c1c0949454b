/* peers.h - the peers cache: whom to ask after a restart when no bootstrap of
 * the invitation answers.
 *
 * At most PEERS_CACHE_MAX contacts of the routing table, from every bucket
 * first the one that has been there longest (who was up long will be up: Saroiu
 * et al. 2002, Maymounkov & Mazieres 2002 section 2.1). As bytes: one message
 * (proto/msg.h) [bin "loco-peers-1", [[bin id, bin ip, port]...]]; the file is
 * no part of the protocol. Ids are pinned when the addresses are dialled, so a
 * file that somebody else wrote can waste dials and no more.
 *
 * Pure, no allocation. Bytes that are no such list are LOCO_EFORMAT.
 */
#ifndef LOCO_P2P_SWARM_PEERS_H
#define LOCO_P2P_SWARM_PEERS_H

#include <stddef.h>
#include <stdint.h>

#include "p2p/dht/kbucket.h"

#define PEERS_CACHE_MAX   64
#define PEERS_MAGIC_BYTES 12
#define PEERS_BYTES_MAX   (PEERS_CACHE_MAX * 60 + 32)

struct peers_contact {
    struct peer_id id;
    uint8_t ip[16]; /* IPv4 mapped */
    uint16_t port;  /* not 0 */
};

struct peers {
    uint8_t magic[PEERS_MAGIC_BYTES];
    uint32_t n;
    struct peers_contact contact[PEERS_CACHE_MAX];
};

/* The contacts of `t` worth keeping, far buckets first. */
void peers_collect(struct peers *p, const struct kbucket_table *t);

/* Bytes written, or LOCO_ERANGE. */
int peers_encode(const struct peers *p, uint8_t *out, size_t cap);

int peers_decode(const uint8_t *in, size_t len, struct peers *p);

#endif
