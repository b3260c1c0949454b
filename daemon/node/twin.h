/* twin.h - one identity, one process.
 *
 * A second link of a peer is kept back until it is known which process is
 * behind it (twin.c).
 */
#ifndef LOCO_DAEMON_NODE_TWIN_H
#define LOCO_DAEMON_NODE_TWIN_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/messages.h"

struct node;

#define NODE_TWINS_MAX 64

struct node_second {
    bool used;
    bool told;    /* its HELLO is here */
    bool refused; /* it is being closed */
    struct hello hello;
    uint64_t due_ms; /* for the HELLO, then for the answer of the other one */
    uint64_t ask_ms; /* next CLAIM */
    struct event_link_up up; /* kept back until then */
    uint64_t up_ms;          /* when that was */
};

struct node_twin {
    uint32_t n;
    struct node_second second[NODE_TWINS_MAX];
    uint64_t accepted_ms; /* the first HEARTBEAT of a peer; 0: none yet */
    uint64_t proven_ms;   /* another process was proven last; 0: never */
    uint64_t warn_ms;
};

/* True: the event is not for anybody else. */
bool node_twin_link_up(struct node *n, const struct event_link_up *ev);
bool node_twin_link_down(struct node *n, const struct event_link_down *ev);
/* The same for a message over a second link that is kept back. */
bool node_twin_recv(struct node *n, const struct event_recv *ev);
/* False: this HELLO is of another process; its link is being closed. */
bool node_twin_hello(struct node *n,
                     int peer,
                     uint32_t link,
                     const struct hello *m);
void node_twin_advance(struct node *n);
void node_twin_gap(struct node *n);
/* What a person is to know; NULL: nothing. */
const char *node_twin_reason(const struct node *n);

/* A peer sent a HEARTBEAT: it takes us for the process that we are. */
void node_twin_accepted(struct node *n);

#endif
