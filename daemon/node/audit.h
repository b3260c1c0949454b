/* audit.h - this peer repeats sums of others, and says what it found. See
 * audit.c, and p2p/round/audit.h.
 */
#ifndef LOCO_DAEMON_NODE_AUDIT_H
#define LOCO_DAEMON_NODE_AUDIT_H

#include "p2p/round/audit.h"
#include "p2p/round/rests.h"
#include "proto/messages.h"

struct node;

#define AUDIT_OWN 5 /* OFFERS_PAST_MAX */

/* A commit that this peer was in, and the view that made it. */
struct node_audited {
    struct audit_commit commit; /* round 0: none */
    struct view_body view;
};

struct node_audit {
    struct audit core;
    struct node_audited next; /* until its result is in place here */
    struct view_body view;    /* of core.commit */
    struct {
        uint64_t round;
        struct hash32 offer;
    } own[AUDIT_OWN];     /* what we contributed last: others may ask for it */
    struct rests silence; /* who did not serve what it contributed */
    struct accuse found;  /* a wrong sum; `tells` times it will be said again */
    uint32_t tells;
    uint64_t tell_ms;
    uint64_t n_convicted;     /* wrong sums that this peer found */
    struct peer_id convicted; /* who made the last one */
};

void node_audit_open(struct node *n);

/* What draws of one kind of audit sign and hash with. */
struct audit_names {
    const char *sign, *hash;
};

/* What draws in an audit of that commit: made of our signature of it, which is
 * said to nobody. False: it could not be signed. */
bool node_audit_secret(const struct node *n,
                       const struct audit_names *names,
                       const struct hash32 *commit,
                       uint64_t *secret);

/* A round was committed, with this peer. */
void node_audit_committed(struct node *n);

/* What we offered is in the commit of that round: others may ask for it, also
 * where we have the commit from them. */
void node_audit_offered(struct node *n,
                        uint64_t round,
                        const struct hash32 *offer);

/* Its result is in place: repeat some of its sums. */
void node_audit_applied(struct node *n);

/* The state in place is another one, or the view is left: results that come now
 * may be of another branch, which has rounds of the same numbers. */
void node_audit_stop(struct node *n);

void node_audit_tick(struct node *n);
uint64_t node_audit_deadline(const struct node *n);

void node_audit_seg_done(struct node *n, const struct event_seg_done *ev);
void node_on_audited(struct node *n, const struct local_event *e);

/* That struct in its encoding, for a job; len 0: it has none, or there is
 * no room. */
struct out_span node_span_of(struct node *n,
                             const struct msg_schema *schema,
                             const void *message);

/* A FETCH of a contribution. False: it is refused. */
bool node_audit_serve(struct node *n, int peer, const struct fetch *f);

struct node_status;
void node_audit_status(const struct node *n, struct node_status *s);

#endif
