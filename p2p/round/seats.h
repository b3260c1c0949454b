/* seats.h - who of those that want in gets a place in a view.
 *
 * Peers on probation hold at most a quarter of the seats. Ids are free,
 * addresses are not: an *address group* is one IPv4 /24 or IPv6 /48
 * (p2p/prefix.h); a private address is a group of its own. A group holds at
 * most VIEW_PROBATION_MAX seats, and where there is no free one a newcomer
 * takes that of a peer on probation from a group that has two or more of these
 * more than its own: first from the largest group, there from who joined last.
 *
 * A group does not become more than half of the full members by joining: one
 * network would then decide alone.
 *
 * The address is the one that its JOIN names. A member that hears the JOIN
 * compares it with the link that it comes over (daemon/node/view.c).
 *
 * Pure functions; everybody gets the same for the same view.
 */
#ifndef LOCO_P2P_ROUND_SEATS_H
#define LOCO_P2P_ROUND_SEATS_H

#include "proto/messages.h"

/* The place of a newcomer at that address: n_members, it is free; less, that
 * member's, who goes; -1: there is none. `full`: it will not be on probation.
 */
int seats_find(const struct view_body *v,
               const struct msg_address *at,
               bool full);

/* Whether one more at that address may count: its group then has at most half
 * of the full members, or had more than half before, as founders may. */
bool seats_may_count(const struct view_body *v, const struct msg_address *at);

/* Whether a member at one address may say that it is at the other now: nobody
 * bears that out, so it stays in its group. One whose address was private or
 * not known yet had none. */
bool seats_may_move(const struct msg_address *from,
                    const struct msg_address *to);

/* Whether two addresses are of one group. */
bool seats_same_group(const struct msg_address *a, const struct msg_address *b);

#endif
