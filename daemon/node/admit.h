/* admit.h - who may speak to us at all.
 *
 * Versions of the protocol, invitations, revocations (admit.c).
 */
#ifndef LOCO_DAEMON_NODE_ADMIT_H
#define LOCO_DAEMON_NODE_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/invite.h"
#include "proto/messages.h"

struct node;

#define NODE_GATES_MAX   128
#define NODE_REFUSAL_MAX 128 /* a sentence for people */

/* A control link in a run for invited peers. */
struct node_gate {
    bool used;
    bool open;    /* its peer is admitted, by invitation `number` */
    bool refused; /* and told so; it is being closed */
    uint32_t link, number;
    struct peer_id peer;
    uint64_t due_ms;         /* an ADMISSION must be here by then */
    struct event_link_up up; /* kept back until then */
    uint64_t up_ms;          /* when that was */
};

struct node_admit {
    struct node_gate gates[NODE_GATES_MAX];
    struct revocation revoked;  /* sequence 0: none is known */
    enum refusal refusal;       /* what a peer said last */
    char why[NODE_REFUSAL_MAX]; /* the same as a sentence */
    uint64_t refused_ms, n_refused;
};

/* True: the event is not for anybody else. */
bool node_admit_link_up(struct node *n, const struct event_link_up *ev);
bool node_admit_link_down(struct node *n, const struct event_link_down *ev);
/* The same for a message over a link whose peer is not admitted. */
bool node_admit_recv(struct node *n, const struct event_recv *ev);
bool node_is_admitted(const struct node *n, const struct peer_id *peer);
void node_admit_configured(struct node *n);
/* Whether it speaks a version that we do; false: it is refused. */
bool node_admit_version(struct node *n,
                        uint32_t link,
                        const struct peer_id *peer,
                        const struct hello *m);
void node_admit_advance(struct node *n);
void node_on_told_revocation(struct node *n, const uint8_t *bytes, size_t len);
/* Why nobody lets us in; NULL: somebody does, or nobody said no. */
const char *node_refusal(const struct node *n);

/* One more was told no. */
void node_admit_refused(struct node *n);

#endif
