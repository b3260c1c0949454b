/* fellow.h - what a peer of a crowd does for its membership core, as
 * daemon/node/swarm.c does it in a node: membership.h and pairs.h run a
 * thousand of these cores without the rest of a node.
 *
 * Pure, as the core is.
 */
#ifndef LOCO_DAEMON_SIM_FELLOW_H
#define LOCO_DAEMON_SIM_FELLOW_H

#include "p2p/swarm/members.h"

#define FELLOW_GAP_MS 1000 /* between two steps: the process stood still */

/* Eight neighbours, of whom one that is silent for seconds is lost. */
struct members_options fellow_options(const struct identity *id, uint64_t seed);

/* Links and the messages of the membership. The row of the peer that sent a
 * message of another kind, which is in `scratch` (message_struct_max());
 * MEMBERS_NONE: nothing is left to do; LOCO_EPROTO: it is malformed. */
int fellow_event(struct members *m,
                 uint64_t life,
                 void *scratch,
                 const struct event *ev,
                 struct out *out);

#endif
