/* fetch.h - bytes in pieces: from whom, and for whom.
 *
 * Fetches have several sources; one that served a piece with a wrong hash is
 * named and asked for nothing more. States that were in place are served to
 * others for a while.
 */
#ifndef LOCO_DAEMON_NODE_FETCH_H
#define LOCO_DAEMON_NODE_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/round/ballot.h"
#include "p2p/swarm/members.h"
#include "p2p/swarm/transfer.h"
#include "proto/messages.h"

struct node;

#define NODE_PAST_MAX 64 /* states that were in place, for those who fetch */

struct node_fetches {
    struct past_state past[NODE_PAST_MAX]; /* by round */
    uint32_t n_past, n_shunned;
    struct budget_shares strangers; /* bytes that went to them */
};

typedef bool node_want(const struct node *n, const struct member *p);
/* A linked peer that satisfies `want`, chosen at random; MEMBERS_NONE. */
int node_pick(struct node *n, node_want *want);
/* Begin a transfer: buffer, leaves, index, root and total are given, the rest
 * is filled in. False: too large. */
bool node_fetch(struct node *n, struct transfer_object *o);
/* Sources for it, as many as there can be; false: it has none. */
bool node_fetch_sources(struct node *n, node_want *want);
/* Served us something wrong (a row, or MEMBERS_NONE). */
void node_name_liar(struct node *n, int peer);
void node_on_verified(struct node *n, const struct local_event *e);
/* The state in place has changed; `result` of the commit behind it, or NULL. */
void node_note_state(struct node *n, const struct hash32 *result);
/* The state that was in place after that round; NULL: not known any more. */
const struct past_state *node_past_at(const struct node *n, uint64_t round);
void node_on_sent_failed(struct node *n, const struct event_seg_done *ev);

/* A peer is asked for nothing more. */
void node_fetches_shunned(struct node *n);
/* Of the group that is left. */
void node_fetches_forget(struct node *n);

#endif
