/* internal.h - the node itself: its cores and its children.
 *
 * A child is one concern with a struct and a file of its own; the smallest are
 * here, the others in a header (proof.h, twin.h, ...). Only that file writes
 * the child's fields; others ask by its verbs. Everything is driven by the
 * regime's advance(): it looks at the state and starts what is missing, so that
 * a lost message or a failed step is simply tried again; event handlers only
 * note what happened.
 */
#ifndef LOCO_DAEMON_NODE_INTERNAL_H
#define LOCO_DAEMON_NODE_INTERNAL_H

#include "daemon/node/admit.h"
#include "daemon/node/audit.h"
#include "daemon/node/branch.h"
#include "daemon/node/data.h"
#include "daemon/node/dht.h"
#include "daemon/node/eval.h"
#include "daemon/node/fetch.h"
#include "daemon/node/held.h"
#include "daemon/node/judge.h"
#include "daemon/node/node.h"
#include "daemon/node/pairs.h"
#include "daemon/node/pipe.h"
#include "daemon/node/proof.h"
#include "daemon/node/reach.h"
#include "daemon/node/regime.h"
#include "daemon/node/rounds.h"
#include "daemon/node/stages.h"
#include "daemon/node/strays.h"
#include "daemon/node/sync.h"
#include "daemon/node/text.h"
#include "daemon/node/training.h"
#include "daemon/node/twin.h"
#include "daemon/node/view.h"
#include "daemon/node/work.h"
#include "p2p/exchange/bandwidth.h"
#include "p2p/pair/pair.h"
#include "p2p/round/ballot.h"
#include "p2p/round/history.h"
#include "p2p/round/round.h"
#include "p2p/round/timeline.h"
#include "p2p/swarm/members.h"
#include "p2p/swarm/transfer.h"
#include "proto/messages.h"

/* Links that a node looks for: HyParView's active view of 5 to 8. */
#define NODE_LINKS_WANTED 8

/* What happened in the last rounds (timeline.c): p2p/round/timeline.h is told;
 * no decision rests on it. */
struct node_trace {
    struct timeline core;
    void *memory;
};

/* How fast bytes go between members (bandwidth.c): feeds the map of
 * p2p/exchange/bandwidth.h, and spreads what is ours. */
struct node_speeds {
    struct bandwidth map;
    void *memory;
    uint64_t told_ms;
};

struct node {
    struct node_options opt; /* its signer is ours, which counts, */
    struct signer pen;       /* and asks this one */
    struct node_timing t;    /* scaled */

    /* Valid during a step. */
    struct out *out;
    uint64_t now, wall_s;
    void *scratch;       /* any decoded message */
    uint32_t heard_link; /* of the frame that is handled now; 0: none is */

    uint64_t rng, life;
    uint64_t started_ms, last_step_ms, wake_ms;
    enum node_state phase;
    bool stopped;
    bool draining, finished;
    uint64_t drain_ms;
    const char *reason;
    struct run_terms terms;
    const struct regime *regime; /* of these terms */
    const struct inner *inner;   /* the same */
    struct hash32 group; /* who averages: the run, or one of its stages */

    /* Cores. */
    struct members members;
    void *members_memory;
    struct ballot ballot;
    struct round round;
    struct pair pair;
    struct transfer transfer;
    struct history history;

    /* Children. */
    struct node_data data;
    struct node_text text;
    struct node_held held;
    struct node_fetches fetches;
    struct node_sync sync;
    struct node_way way;
    struct node_training training;
    struct node_rounds rounds;
    struct node_quorum quorum;
    struct node_pairs pairs;
    struct node_stages stages;
    struct node_pipe pipe;
    struct node_eval eval;
    struct node_judge judge;
    struct node_audit audit;
    struct node_strays strays;
    struct node_work work;
    struct node_view view;
    struct node_branch branch;
    struct node_proof proof;
    struct node_reach reach;
    struct node_dht dht;
    struct node_trace timeline;
    struct node_speeds bandwidth;
    struct node_admit admit;
    struct node_twin twin;

    uint32_t n_lost;
    struct node_lost lost[NODE_LOST_MAX];
    bool save_failed; /* the last time that something was to be on disk */
    uint32_t malformed;
    uint64_t stale;
};

/* status.c: what the phase is, at the end of a step. */
void node_phase_advance(struct node *n);

/* node.c */
struct ballot_context node_context(struct node *n);
/* A wait that tests may stretch. */
static inline uint64_t node_scaled(const struct node *n, uint64_t ms)
{
    return ms * n->opt.time_scale;
}
/* Over a link whose peer need not be admitted; to members: members_send(). */
void node_say(struct node *n,
              uint32_t link,
              enum message_type type,
              const void *message);
/* Receives of that stream end up to this attempt, and sends of it. */
void node_cancel(struct node *n, uint32_t stream, uint64_t attempt);
/* The process ends; without room in `out` for that it goes on, and what asked
 * for the end does so again. */
void node_stop(struct node *n, int exit_code);

/* A link is up, and its peer may speak. */
void node_link_up(struct node *n, const struct event_link_up *ev);
/* The same, and it is known who is there. */
void node_link_open(struct node *n, const struct event_link_up *ev);

/* timeline.c */
int node_timeline_open(struct node *n);
/* After a step: what has changed since the last one? */
void node_timeline_note(struct node *n);
/* Before the round takes it in. */
void node_timeline_segment(struct node *n, const struct event_seg_done *ev);
void node_timeline_committed(struct node *n);
void node_timeline_trouble(struct node *n, const char *why);
void node_timeline_lost(struct node *n,
                        const struct peer_id *id,
                        const char *reason);
void node_timeline_left(struct node *n, const struct peer_id *id);

/* bandwidth.c */
int node_bandwidth_open(struct node *n);
void node_bandwidth_note(struct node *n, const struct event_seg_done *ev);
void node_bandwidth_advance(struct node *n);

/* recv.c: a message on its way from its link to its handler. MESSAGE_MAP of
 * proto/messages.h says for each message over which links it may come. Its
 * handler is node_on_NAME of its struct, as node_on_vote(); it takes the row of
 * the peer that said it or, where that peer need not be admitted, the link. A
 * message without a handler does not link. */
#define HANDLER_LINK(schema)                                                   \
    void node_on_##schema(struct node *n, uint32_t link,                       \
                          const struct schema *m);
#define HANDLER_PEER(schema)                                                   \
    void node_on_##schema(struct node *n, int peer, const struct schema *m);
#define HANDLER_SECOND(schema)            HANDLER_PEER(schema)
#define HANDLER_ENVELOPE(schema)          /* recv.c opens it */
#define X(name, value, schema, gate, ...) HANDLER_##gate(schema)
MESSAGE_MAP(X)
#undef X
#undef HANDLER_LINK
#undef HANDLER_PEER
#undef HANDLER_SECOND
#undef HANDLER_ENVELOPE

void node_on_recv(struct node *n, const struct event *event);

/* False: a frame of a stranger that has used up its budget; nothing follows
 * from it. */
bool node_affords(struct node *n, const struct event *event);
/* That event has been handled: a stranger pays for what it is answered. The
 * first `n_said` actions are of its handler. */
void node_answered(struct node *n, const struct event *event, uint32_t n_said);

/* Decode what came into n->scratch. False: it is malformed, and its link is
 * closed. */
bool node_decode(struct node *n, const struct event_recv *ev);

void node_hang_up(struct node *n, uint32_t link);

#endif
