/* branch.h - other views of the run, and which of them to be in.
 *
 * Two branches exist after a cut; branch.c says which one wins.
 */
#ifndef LOCO_DAEMON_NODE_BRANCH_H
#define LOCO_DAEMON_NODE_BRANCH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/held.h"
#include "p2p/round/view.h"
#include "p2p/swarm/members.h"

struct node;
struct node_proven;

struct node_branch {
    uint64_t view_ask_ms, commit_ask_ms;
    int asked;      /* for its view; MEMBERS_NONE: nobody */
    bool has_other; /* a view of others that may be another branch */
    struct view_body other;
    struct hash32 other_hash;
    int other_peer;
    bool follows;     /* the view that ballot.h has pending follows ours, or a
                         proven one */
    uint64_t gone_ms; /* since when nobody holds `known`; 0: somebody does */
};

/* Leave our view when nobody who is here holds the commit that binds it. */
void node_watch_commit(struct node *n);
/* Linked peer with the best branch (in a view, or finished); MEMBERS_NONE. */
int node_best_peer(const struct node *n);
/* Whether what the members of a proven view say together is of a better branch
 * than what we hold. */
bool node_tip_ahead(const struct node *n,
                    const struct node_proven *v,
                    const struct node_point *tip);
/* Whether that branch wins over ours where no view is proven: more committed
 * tokens, then the lower commit hash. */
bool node_beat_ahead(const struct node *n, const struct heartbeat *b);

/* Dial them all, and hear them. */
void node_learn_members(struct node *n, const struct view_body *v);
/* Give up our view: as after a restart we still count for its majority, but are
 * not left in it, and come back as a joiner. */
void node_leave_view(struct node *n, const char *why);
/* Forget what rounds wait for: another branch counts attempts from elsewhere.
 */
void node_cancel_rounds(struct node *n);
/* Whether that peer is still in a view that the one on our disk followed
 * without it, and holds nothing that is not on our disk. */
bool node_left_behind(const struct node *n, const struct member *p);
/* More than half of the view on our disk are here and in none: they can go on
 * with what they have. */
bool node_can_go_on(const struct node *n);
/* Whether a linked peer names a view, proven or not. */
bool node_sees_claim(const struct node *n);
/* Whether one names a view that may be there: proven, named by a host of our
 * invitation, or claimed for a moment only. */
bool node_sees_view(const struct node *n);

/* The process slept. */
void node_branch_gap(struct node *n);
/* Of the group that is left. */
void node_branch_forget(struct node *n);

#endif
