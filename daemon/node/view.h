/* view.h - coming into a view and leaving it.
 *
 * Founding, joining, losses (view.c). Other views of the run are branch.h's.
 */
#ifndef LOCO_DAEMON_NODE_VIEW_H
#define LOCO_DAEMON_NODE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/round/view.h"
#include "p2p/swarm/members.h"

struct node;

struct node_view {
    uint64_t found_stable_ms;
    struct hash32 found_set;
    uint8_t linked_candidates; /* and ourselves; 0 in a view */
    uint64_t members_ask_ms;
    bool has_guests;
    uint64_t join_ms, doubt_ms;
    bool entered; /* this process was in a view */
};

void node_view_advance(struct node *n);
/* A link to that peer is kept until a view is adopted. */
void node_view_guest(struct node *n, int peer);
/* The process slept. */
void node_view_gap(struct node *n);
/* We leave our group: say goodbye, if we took part in it. */
void node_view_leave(struct node *n);
void node_on_adopted(struct node *n);
void node_on_lost(struct node *n, const struct members_lost *lost);
/* We hold the commit that was made from `base`: so will those who wait. */
void node_joiners_follow(struct node *n, const struct hash32 *base);
/* Note the loss of a member for the status and the log. */
void node_note_lost(struct node *n,
                    const struct peer_id *id,
                    uint32_t silent_ms,
                    const char *reason);

#endif
