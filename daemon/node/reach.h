/* reach.h - who can dial us, and what we do for those who cannot.
 *
 * Our own class comes from tests (p2p/swarm/reach.h); for others we probe, and
 * carry connections (p2p/swarm/relay.h).
 */
#ifndef LOCO_DAEMON_NODE_REACH_H
#define LOCO_DAEMON_NODE_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/limiter.h"
#include "p2p/swarm/reach.h"
#include "p2p/swarm/relay.h"
#include "proto/messages.h"

struct node;

#define NODE_PROBES_MAX 8 /* addresses dialled for others at a time */

/* An address that we dial because its owner asked. */
struct node_probe {
    bool used;
    uint64_t name;       /* of ours, for the shell */
    struct peer_id peer; /* who asked */
    uint64_t request;    /* under this number */
    struct address address;
};

struct node_reach {
    struct reach core;
    struct relay relay;
    uint64_t relay_ms;
    struct limiter probe_limiter;
    void *probe_memory;
    struct limiter meet_limiter; /* meetings that one peer asks for */
    void *meet_memory;
    uint64_t probe_name;
    struct node_probe probes[NODE_PROBES_MAX];
    uint64_t probes_refused;
};

int node_reach_open(struct node *n);
void node_reach_link_up(struct node *n,
                        int peer,
                        const struct event_link_up *ev);
void node_reach_advance(struct node *n);
void node_on_probe_done(struct node *n, const struct event *event);
void node_on_relay(struct node *n, const struct event *event);
void node_on_relay_moved(struct node *n, const struct event *event);
/* A relay says where another peer is seen, with which we are to meet. */
void node_on_met(struct node *n, const struct event *event);
void node_on_bulk_met(struct node *n, const struct event *event);
void node_on_punched(struct node *n, const struct event *event);
/* A peer says where it sees us. */
void node_on_observed(struct node *n, const struct msg_address *at);
void node_on_mapped(struct node *n, const struct local_event *e);

#endif
