/* node.h - one whole peer as a pure core.
 *
 * It composes discovery (p2p/dht), membership and transfers (p2p/swarm), views
 * and rounds (p2p/round) over exchanges (p2p/exchange), pairs (p2p/pair) and
 * stages (p2p/pipeline), routes events between them and walks a peer through
 * the life of a run:
 *
 *   starting -> joining -> syncing -> waiting -> training <-> averaging
 *            -> finished, or draining -> stopped at any time
 *
 * The daemon drives it with p2p/uv, the simulator with daemon/sim; both run
 * exactly this code. No allocation after node_open.
 */
#ifndef LOCO_DAEMON_NODE_NODE_H
#define LOCO_DAEMON_NODE_NODE_H

#include "p2p/core.h"
#include "p2p/dht/dht.h"
#include "p2p/exchange/bandwidth.h"
#include "p2p/limits.h"
#include "p2p/pipeline/route.h"
#include "p2p/round/timeline.h"
#include "p2p/swarm/strangers.h"
#include "p2p/terms.h"
#include "proto/messages.h"
#include "proto/sign.h"

#define NODE_BOOTSTRAP_MAX 8
#define NODE_LOST_MAX      16 /* remembered lost peers, newest first */
#define NODE_TIMELINE_MIN  8  /* remembered attempts at rounds */
#define NODE_EDGES_MIN     256
#define NODE_STRANGERS_MAX 16 /* groups of addresses that are shown */

enum node_state {
    NODE_STARTING,
    NODE_WAITING,
    NODE_JOINING,
    NODE_SYNCING,
    NODE_TRAINING,
    NODE_AVERAGING,
    NODE_PAUSED,
    NODE_DRAINING,
    NODE_FINISHED,
    NODE_STATE_COUNT
};

/* Every time limit, in milliseconds before scaling. */
struct node_timing {
    uint32_t heartbeat_ms; /* between two heartbeats on one link */
    uint32_t suspect_ms;   /* silence after which a peer is suspected */
    uint32_t dead_ms;      /* silence after which it is lost */
    uint32_t redial_ms;    /* a lost link must be back within this */
    uint32_t ballot_ms;    /* one ballot of a view change */
    uint32_t plan_ms;      /* a coordinator must plan within this */
    uint32_t vote_ms;      /* votes must arrive within this of one's own */
    uint32_t hop_ms;       /* a ring hop without progress is broken */
    uint32_t fetch_ms;     /* a fetched piece must arrive within this */
    uint32_t hedge_ms;     /* a dial without answer: try other ways too */
    uint32_t probe_ms;     /* a PROBE is answered within this */
    uint32_t retest_ms;    /* reachability is tested again */
    uint32_t upgrade_ms;   /* between tries to do without a relay */
    uint32_t punch_ms;     /* between two meetings with one peer, doubled, */
    uint32_t punch_max_ms; /* at last */
    uint32_t tick_ms;      /* slow housekeeping */
};

struct node_options {
    struct peer_id self;
    uint8_t public_key[32];
    struct signer signer; /* borrowed for the node's life */
    struct hash32 run_id;
    bool dialable; /* it listens: others may dial it */
    uint16_t listen_port;
    uint64_t relay_bytes_per_hour; /* carried for others; 0: nothing */
    /* Served to peers that are in no view of ours, all together, over a long
     * time; and at once (0: sixteen times text and state). */
    uint64_t stranger_bytes_per_s, stranger_burst_bytes;
    uint64_t seed;           /* of the node's own random choices */
    uint64_t rounds;         /* drain after this round; 0: no limit */
    const uint8_t *manifest; /* wire form, borrowed for node_open; or NULL */
    size_t manifest_len;
    struct address bootstrap[NODE_BOOTSTRAP_MAX];
    unsigned n_bootstrap;  /* 0: a first peer */
    struct peer_id pin;    /* the bootstrap's expected id; zero: any */
    const uint8_t *record; /* last SAVEd bytes of an earlier life, or NULL */
    size_t record_len;
    const uint8_t *peers; /* last bytes of JOB_PEERS, borrowed for node_open;
                             NULL: none. Damaged ones are ignored, and said */
    size_t peers_len;
    const uint8_t *chain; /* last bytes of JOB_CHAIN, as `peers` */
    size_t chain_len;
    uint32_t site;      /* where it stands; 0: at none */
    bool has_admission; /* shown on every link, see invite.h */
    struct admission admission;
    /* Versions of the protocol that it speaks; 0: PROTO_OLDEST, PROTO_NEWEST */
    uint8_t oldest, newest;
    uint32_t features;         /* bits for HELLO */
    uint32_t time_scale;       /* all timing and run waits times this; >= 1 */
    struct node_timing timing; /* zero fields take the defaults */
    uint32_t timeline;         /* attempts kept; 0: NODE_TIMELINE_MIN */
    uint32_t edges;            /* of the bandwidth map; 0: NODE_EDGES_MIN */
    uint32_t edge_sample_us;   /* bandwidth.h; 0: its default */
    uint32_t audit_every;      /* leases of others, in one round of so many; 0:
                                  REPEAT_EVERY. Tests ask for more. */
};

struct node_lost {
    struct peer_id peer;
    uint64_t round;
    uint32_t detected_ms; /* last sign of life to detection */
    const char *reason;   /* static text */
};

/* What `loco status` shows, and what tests look at; a plain copy, safe to hand
 * to another thread. */
struct node_status {
#define FIELD(type, member, key, kind, metric, part) type member;
#include "daemon/node/status.def"
    enum node_state state;
    bool audits;      /* of the run: members repeat sums.. */
    bool audits_work; /* ..and leases */
    bool watches;     /* of the run: members name who strays */
    char reason[CORE_TEXT_MAX];
    enum reach_class reach;
    char reach_reason[CORE_TEXT_MAX];
    uint16_t stage_hosts[ROUTE_STAGES_MAX]; /* peers that hold each of them */
    uint64_t epoch;
    uint64_t run_tokens; /* committed in this branch */
    uint64_t stop_rounds;
    double round_trained; /* 0 to 1: part of the next round's inner steps that
                             this peer has made */
    struct hash32 view_hash, params_hash, commit_hash;
    float loss;
    uint32_t n_lost;
    struct node_lost lost[NODE_LOST_MAX];
    bool fetch_by_url; /* from a server; else from fetch_sources peers */
    struct dht_counts dht;
    uint64_t stranger_refused[STRANGER_REFUSAL_COUNT];
    uint32_t n_strangers;
    struct strangers_row strangers[NODE_STRANGERS_MAX];
};

#define NODE_SWARM_MAX 64 /* rows; a view has at most as many */

/* A peer that a node knows of, for a person to look at: a plain copy of its row
 * in the membership table. What it says of itself (its speed, its round) is
 * shown as it said it: nothing here is proof, and nothing rests on it. */
struct node_peer {
    struct peer_id id;
    bool self, in_view;
    bool convicted; /* this peer holds a proof that it lied */
    /* Of a link to it; inbound: it dialled; punched: we met at a relay. */
    bool linked, relayed, inbound, punched;
    /* PEER_ALIVE and so on (proto/messages.h); a member that was declared lost
     * is PEER_DEAD here even while a rumour says otherwise. */
    uint8_t state;
    enum reach_class reach;
    uint32_t stage; /* of a pipeline, from 1; 0: none, or not chosen */
    uint64_t round, inner_step;
    uint32_t tokens_per_s;
    uint64_t silent_ms; /* since its last sign of life here; UINT64_MAX: none */
};

/* The contributions that the last committed round averaged, in ring order.
 * Steps are counted from 0 and half-open: [first_step, last_step). */
struct node_commit {
    uint64_t round, epoch;
    struct hash32 plan_hash, result_hash;
    enum exchange_kind kind; /* of the plan */
    uint32_t n;
    struct peer_id member[VIEW_MEMBERS_MAX];
    uint64_t weight[VIEW_MEMBERS_MAX]; /* tokens */
    uint64_t first_step[VIEW_MEMBERS_MAX];
    uint64_t last_step[VIEW_MEMBERS_MAX];
    uint64_t lease[VIEW_MEMBERS_MAX]; /* as in a plan */
    /* Elements before the last `upto` were reduced by these plans, in turn. */
    uint32_t n_ranges;
    struct plan_range ranges[ROUND_RANGES_MAX];
    bool has_ledger;
    struct ledger ledger; /* after it */
    bool takes_back;      /* what came after that state */
    struct rollback rollback;
};

struct node;

/* Allocate and start at `now_ms`. The first step is due at once.
 * LOCO_ENOMEM; LOCO_EFORMAT when `record` is damaged. */
int node_open(struct node **node,
              const struct node_options *opt,
              uint64_t now_ms);

void node_close(struct node *node);

/* The port that others can dial, once it is bound. */
void node_set_port(struct node *node, uint16_t port);

/* A proof that this peer lied was checked by the machine: it is to go out of
 * the view, and does not come in again by us. Lost with the process: said again
 * after each start, before the first step. */
void node_convict(struct node *node, const struct peer_id *id);

/* So many bytes go from one peer to the other: it is believed, as if we had
 * measured it. */
void node_set_rate(struct node *node,
                   const struct peer_id *from,
                   const struct peer_id *to,
                   uint64_t bytes_per_s,
                   uint64_t now_ms);

void node_step(void *node, const struct event *event, struct out *out);

uint64_t node_deadline(const void *node);

enum node_state node_state(const struct node *node);
void node_status(const struct node *node, struct node_status *status);

/* Fill `out` at `now_ms`: the peer itself first, then members of the view, then
 * who is linked, then who is only heard of, last who is gone. A table that is
 * too small has the first ones. The number of rows. */
uint32_t node_swarm(const struct node *node,
                    struct node_peer *out,
                    uint32_t max,
                    uint64_t now_ms);

/* NULL before the first commit that this peer saw. */
const struct node_commit *node_last_commit(const struct node *node);

/* The record of the commit whose state is in place, for the checkpoint: with
 * leases it names the text, and it proves to others that the commit was made.
 * NULL: it is not here, or there is none. */
const struct commit *node_record(const struct node *node);

/* The last attempts at rounds; borrowed until the next step. */
const struct timeline *node_timeline(const struct node *node);

/* How fast bytes went between peers; borrowed until the next step. */
const struct bandwidth *node_bandwidth(const struct node *node);

/* The name of that stage's averaging group. */
struct hash32 node_group_of(const struct hash32 *run, uint32_t stage);

/* Members that the first view of a stage has at least, of a run that begins
 * with so many peers. */
uint32_t node_group_share(uint32_t min_peers, uint32_t stages);

/* What a peer that sends REFUSED means by it. */
const char *node_refusal_sentence(enum refusal reason);

/* What a state is called, by the hashes of its parameters and of what is behind
 * them. */
struct hash32 node_state_hash(const struct hash32 *params,
                              const struct hash32 *momentum);

const char *node_state_name(enum node_state state);

#endif
