/* node_swarm.h - the peers that a node knows of, for a person to look at.
 *
 * A plain copy of the membership table (p2p/members.h), the peer itself first,
 * then members of the view, then who is linked, then who is only heard of, last
 * who is gone. What another peer says of itself (its speed, its round) is shown
 * as it said it: nothing here is proof, and nothing rests on it.
 *
 * Pure. Nothing fails; a table that is too small shows the first ones.
 */
#ifndef LOCO_DAEMON_NODE_SWARM_H
#define LOCO_DAEMON_NODE_SWARM_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node.h"

#define NODE_SWARM_MAX 64 /* rows; a view has at most as many */

/* PEER_ALIVE and so on (proto/messages.h); a member that was declared lost is
 * PEER_DEAD here even while a rumour says otherwise. */
struct node_peer {
    struct peer_id id;
    bool self, in_view;
    bool linked, relayed, inbound; /* of a link to it; inbound: it dialled */
    uint8_t state;
    enum reach_class reach;
    uint32_t stage; /* of a pipeline, from 1; 0: none, or not chosen */
    uint64_t round, inner_step;
    uint32_t tokens_per_s;
    uint64_t silent_ms; /* since its last sign of life here; UINT64_MAX: none */
};

/* Fill `out` at `now_ms`; the number of rows. */
uint32_t node_swarm(const struct node *node,
                    struct node_peer *out,
                    uint32_t max,
                    uint64_t now_ms);

#endif
