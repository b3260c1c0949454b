/* strays.h - this peer names the members whose contributions go another way
 * than those of the others. The machine below watches the slices that it sums
 * (train/sync/stray.h); what follows from the names is in p2p/round/rests.h.
 */
#ifndef LOCO_DAEMON_NODE_STRAYS_H
#define LOCO_DAEMON_NODE_STRAYS_H

#include "p2p/local.h"
#include "p2p/round/rests.h"
#include "proto/limits.h"

struct node;

struct node_strays {
    struct rests rests;
    /* The members of the commit that the machine was asked about. */
    uint64_t attempt, round;
    uint32_t n;
    struct peer_id member[VIEW_MEMBERS_MAX];
};

void node_strays_open(struct node *n);

/* A round was committed, with this peer: ask who strays. */
void node_strays_committed(struct node *n);

void node_on_strays(struct node *n, const struct local_event *e);

struct node_status;
void node_strays_status(const struct node *n, struct node_status *s);

#endif
