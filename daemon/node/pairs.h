/* pairs.h - the regime of pairs: replicas average two by two.
 *
 * Turns with a random partner (p2p/pair/pair.h), and one mean of all replicas
 * at the end (pairs.c).
 */
#ifndef LOCO_DAEMON_NODE_PAIRS_H
#define LOCO_DAEMON_NODE_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/held.h"
#include "p2p/core.h"
#include "proto/messages.h"

struct node;

#define NODE_MIXED_MAX 16 /* branches of a tree of PEERS_MAX */

struct node_pairs {
    uint64_t turn_ms, turn_tokens; /* of the turn under way */
    bool step_failed;              /* with the partner; now alone */
    uint64_t n_byes;
    struct peer_id owner; /* who named the state that is fetched */
    /* The mean at the end: whose state is being fetched, its share (0: it is
     * the whole), where that leads; branches mixed in or given up. */
    int final_peer;
    double merge_share;
    struct node_point merged;
    enum end_phase end_phase; /* as our heartbeat says */
    uint64_t final_ms;
    uint32_t n_mixed;
    struct peer_id mixed[NODE_MIXED_MAX];
};

/* runs of pairs, terms.pairs. */
void node_pair_open(struct node *n);
/* From whose replica (row) the state is fetched; MEMBERS_NONE: no more. */
void node_pair_owner(struct node *n, int peer);
/* It is here, and not finite: another one. */
void node_pair_spoiled(struct node *n);

#endif
