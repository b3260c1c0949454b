/* dht.h - the DHT over our links.
 *
 * Requests to a peer without a link wait in `pending` while it is dialled; the
 * peers cache is written from the table (dht.c).
 */
#ifndef LOCO_DAEMON_NODE_DHT_H
#define LOCO_DAEMON_NODE_DHT_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/dht/dht.h"
#include "p2p/swarm/peers.h"

struct node;

#define NODE_PENDING_MAX 32 /* messages that wait for a dial */

struct node_pending {
    bool used;
    int peer;
    uint16_t message;
    uint32_t len;
    uint8_t bytes[1500]; /* a STORE request is below that */
};

struct node_dht {
    struct dht core;
    struct dht_out out;
    void *memory;
    struct address published; /* port 0: no record of ours is out */
    bool peers_damaged;       /* the cache that we were given; not said yet */
    struct hash32 peers_saved;
    uint64_t get_ms, gap_ms, peers_ms;
    struct node_pending pending[NODE_PENDING_MAX];
};

int node_dht_open(struct node *n);
void node_dht_link_up(struct node *n, int peer);
/* What the table knows of a linked peer may have changed. */
void node_dht_seen(struct node *n, int peer);
void node_dht_unreachable(struct node *n, int peer);
void node_dht_recv(struct node *n, int peer, const struct event_recv *ev);
void node_dht_advance(struct node *n);
uint64_t node_dht_deadline(const struct node *n);

#endif
