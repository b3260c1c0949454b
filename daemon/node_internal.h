/* node_internal.h - the inside of a node, shared by the node_*.c files only.
 *
 *   node.c        open, step, dispatch of events, deadline
 *   node_admit.c  who may speak to us, in runs for invited peers
 *   node_data.c   manifest and shards: getting them
 *   node_lease.c  which part of the text is ours to train
 *   node_text.c   and how much of it is here
 *   node_fetch.c  bytes in pieces: from whom, and for whom
 *   node_sync.c   the state: getting what a member must hold
 *   node_follow.c the commits behind it, one by one
 *   node_view.c   founding, joining, losses, leaving
 *   node_branch.c other views of the run, which of them wins
 *   node_proof.c  which views are the run's: proofs asked for and given
 *   node_round.c  training, commits, evaluation, the end of a run
 *   node_pair.c   all of that for runs whose replicas average in pairs
 *   node_owners.c the same for runs whose members own slices; its bytes and
 *                 jobs are in node_owners_move.c
 *   node_quorum.c rounds of those who are ready
 *   node_stage.c  a model cut into stages: which of them is ours
 *   node_pipe.c   and the steps that all stages make together
 *   node_eval.c   and the held-out text that passes through them
 *   node_dht.c    the DHT's messages over our links
 *   node_reach.c  who can dial us, and what we do for those who cannot
 *   node_stale.c  messages of another view, round or run, counted
 *   node_status.c what a person may see
 *   node_timeline.c  what happened in the last rounds
 *   node_bandwidth.c how fast bytes go between members
 *
 * Everything is driven by node_advance(): it looks at the state and starts
 * what is missing, so that a lost message or a failed step is simply tried
 * again; event handlers only note what happened.
 */
#ifndef LOCO_DAEMON_NODE_INTERNAL_H
#define LOCO_DAEMON_NODE_INTERNAL_H

#include "daemon/node.h"
#include "p2p/ballot.h"
#include "p2p/chain.h"
#include "p2p/dht.h"
#include "p2p/history.h"
#include "p2p/limiter.h"
#include "p2p/members.h"
#include "p2p/pair.h"
#include "p2p/peers.h"
#include "p2p/pipeline.h"
#include "p2p/reach.h"
#include "p2p/relay.h"
#include "p2p/round.h"
#include "p2p/transfer.h"

#define NODE_PENDING_MAX 32 /* DHT messages that wait for a dial */

/* One committed point of a branch. */
struct node_point {
    uint64_t round, tokens;
    struct hash32 commit;
};

enum node_sync_phase {
    SYNC_IDLE,
    SYNC_WALK,    /* asking for records, from the newest back to what we hold */
    SYNC_COMMIT,  /* asked for the record of the next commit */
    SYNC_REDUCED, /* fetching its reduced bytes */
    SYNC_REDUCED_HASH,
    SYNC_STATE, /* fetching parameters and momentum */
    SYNC_LOAD   /* LOAD or APPLY under way */
};

struct node_pending {
    bool used;
    int peer;
    uint16_t message;
    uint32_t len;
    uint8_t bytes[1500]; /* a STORE request is below that */
};

/* Links that a node looks for: HyParView's active view of 5 to 8. */
#define NODE_LINKS_WANTED 8

#define NODE_MIXED_MAX 16 /* branches of a tree of PEERS_MAX */

#define NODE_PROBES_MAX 8 /* addresses dialled for others at a time */

/* An address that we dial because its owner asked. */
struct node_probe {
    bool used;
    uint64_t name;       /* of ours, for the shell */
    struct peer_id peer; /* who asked */
    uint64_t request;    /* under this number */
    struct address address;
};

/* How much of our contribution is in the commit that is being applied. Of a
 * part the rest is given up: who knows which elements to keep is gone. */
/* What was in place, for those who fetch it. */
#define NODE_PAST_MAX 64
struct node_past {
    uint64_t round;
    struct hash32 state;
    struct hash32 result; /* reduced bytes that led to it; zero: not known */
};

/* A commit on the way to the newest one (node_follow.c); `linked`: the one
 * before it is known from its record. */
struct node_step {
    uint64_t round; /* 0: none */
    struct hash32 commit;
    bool linked;
};

struct node_way {
    struct node_step step[NODE_PAST_MAX]; /* of a round: at round % MAX */
    uint64_t asked, ask_ms; /* whose record; when it is asked for again */
    bool has_next;
    struct commit next; /* the record of the next commit to be applied */
    /* How fast the others are, and our line (0: not known); when a pause began
     * in which no state is fetched (0: there is none), how long it is. */
    uint64_t seen_round, seen_ms, round_ms, bytes_per_s;
    bool began; /* seen_ms is when that round was made */
    uint64_t paused_ms, pause_ms;
};

/* Who is outside, on its way in. */
struct node_follow_speed {
    uint64_t round_ms; /* the others take for one; 0: not known */
    uint64_t wire_ms;  /* the bytes of one take on our line */
    bool slow;         /* it cannot follow */
    uint32_t behind;   /* rounds */
    uint64_t left_ms;  /* until it is there; 0: not known */
};

/* A view whose chain was verified. */
#define NODE_PROVEN_MAX 4
struct node_proven {
    bool used;
    struct hash32 view, genesis;
    uint32_t n_weak; /* weak ties in its chain */
    struct view_body body;
    uint64_t at_ms;
};

/* A peer that could not prove the view that it names. */
#define NODE_DOUBTED_MAX 16
struct node_doubted {
    int peer;
    struct hash32 view;
    uint64_t until_ms;
};

/* A shard from its URLs. */
struct node_download {
    bool active;
    uint64_t bytes, resumed_bytes; /* here; of them at the first report */
    uint64_t began_ms;             /* since that report; 0: none yet */
    uint32_t failures;             /* in a row */
    uint64_t after_ms;             /* not again before */
};

enum node_spent { SPENT_NOT, SPENT_PARTLY, SPENT_WHOLLY };

/* The contribution of a task that was finished while a round was under way in
 * which this peer had no weight. */
struct node_task {
    bool waits;
    uint64_t tokens, last_step;
};

/* Whether this peer's stage is chosen, and its machine ready for it. */
enum node_staging { STAGING_NONE, STAGING_ASKED, STAGING_DONE };

#define NODE_QUEUE_UNIT 16U /* heartbeat.queue counts in 1/16 */

/* A micro-batch on its way to or from another stage. */
#define NODE_PIPE_MOVES (4 * PIPELINE_SLOTS_MAX)
struct node_pipe_move {
    bool used;
    enum pipeline_action_type type;
    uint64_t tag;
    uint32_t micro, host, slot;
    uint32_t named; /* segments that went out; the others wait for room in it */
    uint32_t left;  /* segments that are not done */
};

/* Held-out windows in a place of a stage (node_eval.c). */
enum node_eval_state {
    EVAL_FREE,
    EVAL_POSTED, /* awaited */
    EVAL_HERE,
    EVAL_FORTH, /* being computed */
    EVAL_READY, /* for the next stage */
    EVAL_LEAVES
};

struct node_eval_slot {
    enum node_eval_state state;
    uint32_t micro;
    uint32_t named, left; /* as in struct node_pipe_move */
    uint64_t since_ms;    /* in that state */
};

/* The evaluation that passes here, or did so last. */
struct node_eval {
    bool active;
    uint64_t tag;            /* names it; only grows */
    struct node_point point; /* what is evaluated */
    struct peer_id hosts[ROUTE_STAGES_MAX];
    uint64_t life[ROUTE_STAGES_MAX]; /* of their processes */
    struct node_eval_slot slot[EVAL_SLOTS];
    uint32_t next;   /* micro-batch that gets a place next */
    uint32_t wanted; /* those before have a place at the next host */
    uint32_t n_computed, n_done;
    bool computing;
    bool unnamed; /* segments wait for room in `out` */
    uint64_t progress_ms, say_ms;
    /* Of whose turn it is to begin one: tries at that round, since when, and
     * when the next one may be. */
    uint32_t tries;
    uint64_t round_tried, since_ms, try_ms;
};

#define NODE_GATES_MAX 128

/* A control link in a run for invited peers (node_admit.c). */
struct node_gate {
    bool used;
    bool open;    /* its peer is admitted, by invitation `number` */
    bool refused; /* and told so; it is being closed */
    uint32_t link, number;
    struct peer_id peer;
    uint64_t due_ms; /* an ADMISSION must be here by then */
    struct event up; /* kept back until then */
};

#define NODE_TWINS_MAX 64

/* A second link of a peer, kept back until it is known which process is behind
 * it (node_twin.c). */
struct node_twin {
    bool used;
    bool told;    /* its HELLO is here */
    bool refused; /* it is being closed */
    struct hello hello;
    uint64_t due_ms; /* for the HELLO, then for the answer of the other one */
    uint64_t ask_ms; /* next CLAIM */
    struct event up;
};

struct node {
    struct node_options opt;
    struct node_timing t; /* scaled */
    struct members members;
    void *members_memory;
    struct ballot ballot;
    struct round round;
    struct pair pair;
    struct transfer transfer;
    struct dht dht;
    struct dht_out dht_out;
    void *dht_memory;
    void *scratch; /* any decoded message */

    /* Valid during a step. */
    struct out *out;
    uint64_t now, wall_s;

    uint64_t rng, life;
    uint64_t started_ms, last_step_ms, wake_ms;
    bool stopped;

    /* What the run is. */
    uint8_t *manifest;
    uint32_t manifest_len, manifest_got; /* len 0: unknown */
    uint64_t manifest_ask_ms;
    bool configuring, configured;
    struct run_terms terms;

    /* Data. */
    bool data_ready;
    uint32_t shard;        /* being fetched */
    uint64_t shard_front;  /* where training was when that began ... */
    uint64_t shard_ahead;  /* ... and how much further when the last one came */
    struct text_span text; /* what can be trained (node_text.c) */
    bool exchanges;        /* a round's bytes are on their way */
    uint64_t quiet_ms;     /* from a commit to that, last time; 0: not known */
    struct node_download download;

    /* The state that is in place, and the newest commit we are bound by. */
    bool loaded, loading;
    struct node_point applied, known;
    struct hash32 params_hash, momentum_hash, state_hash;
    bool known_from_ring;     /* its bytes are in BUFFER_RING */
    bool applying;            /* APPLY or LOAD under way */
    struct node_point target; /* of the APPLY or LOAD under way */
    enum node_spent target_spent;
    struct hash32 target_result; /* reduced bytes of the APPLY under way */

    /* Synchronising. */
    enum node_sync_phase sync;
    uint64_t sync_since_ms;
    struct node_past past[NODE_PAST_MAX]; /* by round */
    uint32_t n_past, n_shunned;
    bool delta_failed; /* take the whole state */
    bool load_rebase;  /* the LOAD under way was asked for with rebase */
    bool rebase;       /* keep our displacement over the next LOAD */
    struct history history;
    struct node_way way;
    struct commit delta;
    struct hash32 expect;       /* state hash or result hash */
    struct round_record record; /* with leases: of what is in place */
    bool record_assumed;        /* nobody had it (node_lease.c) */
    uint64_t record_since_ms;   /* that it is missing */
    uint64_t record_ms;         /* it is asked for again after that */
    struct peer_id owner;       /* pairs: who named the state that is fetched */

    /* Training. */
    bool training, paused, packed;
    struct node_task task; /* packed, and not offered yet (quorum) */
    uint64_t arrival_ms;   /* quorum: since when somebody is ready; 0: no */
    uint64_t inner_step, first_step, own_tokens;
    uint64_t lease; /* first position of the TRAIN under way, plus 1; 0: none */
    float loss, tokens_per_s;
    uint64_t commit_ms, round_ms; /* of the last commit; its duration */
    uint64_t n_committed, tokens_dropped;
    struct node_commit last_commit;
    bool has_commit;

    /* Pairs. */
    uint64_t turn_ms, turn_tokens; /* of the turn under way */
    bool step_failed;              /* with the partner; now alone */
    uint64_t n_byes;
    /* The mean at the end: whose state is being fetched, its share (0: it is
     * the whole), where that leads; branches mixed in or given up. */
    int final_peer;
    double merge_share;
    struct node_point merged;
    uint64_t final_ms;
    uint32_t n_mixed;
    struct peer_id mixed[NODE_MIXED_MAX];

    /* Stages. */
    struct hash32 group; /* who averages: the run, or one of its stages */
    enum node_staging staging;
    uint32_t stage;    /* from 0 */
    uint64_t stage_ms; /* when it was chosen, or could be at the earliest */
    uint64_t stage_look_ms; /* at the swarm, the last time */
    bool moved;             /* chosen by rebalancing: it stays */
    bool stage_late; /* chosen without a host in a view of it, when others had
                        theirs */
    uint32_t n_moves;
    bool pipe_open;
    struct pipeline pipe;
    struct pipeline_out pipe_out;
    struct node_pipe_move pipe_moves[NODE_PIPE_MOVES];
    uint64_t busy_ms;       /* of these steps that the machine worked */
    bool busy;              /* it does, since queue_at_ms or before */
    uint32_t idle_permille; /* of the last round's steps */
    bool hangs; /* this machine does not answer: in no view until it does */
    uint64_t train_since_ms; /* the task under way */
    uint32_t train_steps;    /* of it */
    uint64_t train_step_ms;  /* the longest step, as a mean of its task */
    bool pipe_unnamed;       /* segments of some wait for room in `out` */
    uint64_t pipe_life[PIPELINE_HOSTS_MAX];   /* by host: of its process */
    uint64_t pipe_bad_ms[PIPELINE_HOSTS_MAX]; /* since when bytes to it fail */
    uint64_t pipe_void;     /* tags up to this one are cancelled */
    uint64_t pipe_wait_ms;  /* all stages have a host that is level since; 0 */
    uint64_t pipe_idle_ms;  /* the last steps ended */
    uint64_t pipe_bulk_ms;  /* connections are looked after again */
    uint64_t pack_round;    /* what is being packed is for it */
    uint64_t steps_over_ms; /* all steps of the round are made; 0: not yet */
    /* Micro-batches at this machine: now, since when, times how long. */
    uint64_t queue_now, queue_at_ms, queue_sum, queue_ms;
    uint32_t queue;          /* mean of the round before, for others */
    uint64_t balanced_round; /* who moves was looked at after it */

    struct node_owners *owners; /* node_owners.h */

    /* Evaluation. */
    bool evaluating;
    struct node_point eval_point;
    struct node_eval eval; /* of a model cut into stages */
    double bits, bits_before;
    uint64_t bits_round;
    bool has_bits, has_before;

    /* Views. */
    uint64_t found_stable_ms;
    uint8_t muster; /* candidates linked, and ourselves; 0: none. Pairs: how
                       far the mean at the end is here (node_pair.c) */
    uint64_t members_ask_ms;
    bool has_guests;
    struct hash32 found_set;
    uint64_t join_ms, view_ask_ms, commit_ask_ms;
    bool has_other; /* a view of others that may be another branch */
    struct view_body other;
    struct hash32 other_hash;
    int other_peer;
    uint64_t doubt_ms;
    uint64_t gone_ms; /* since when nobody holds `known`; 0: somebody does */

    /* Proofs. */
    struct chain chain;       /* of our own view, or the last one */
    struct chain other_chain; /* the last one that was verified */
    uint8_t *chain_bytes, *other_chain_bytes, *proof_bytes;
    uint32_t
        saved_len;    /* in proof_bytes: of an earlier life, not checked yet */
    bool chain_dirty; /* not on disk */
    struct node_proven *proven; /* [NODE_PROVEN_MAX] */
    struct node_doubted doubted[NODE_DOUBTED_MAX];
    bool proof_asked; /* part by part: */
    int proof_peer;
    struct hash32 proof_view, wanted_view;
    uint32_t proof_got, proof_total;
    uint64_t proof_due_ms;
    uint64_t claim_since_ms; /* somebody names a view; 0: nobody */
    struct hash32 attested;  /* newest commit that signatures show */
    uint64_t attest_ms;
    /* Whose record was asked for, and the state that most members named with
     * it. */
    struct node_point asked;
    struct hash32 asked_state;

    bool draining;
    uint64_t drain_ms;
    bool finished;

    /* Reachability. */
    struct reach reach;
    struct relay relay;
    struct limiter probe_limiter;
    void *probe_memory;
    uint64_t probe_name, relay_ms;
    struct node_probe probes[NODE_PROBES_MAX];

    /* DHT. */
    struct address published; /* port 0: no record of ours is out */
    bool peers_damaged;       /* the cache that we were given; not said yet */
    struct hash32 peers_saved;
    uint64_t dht_get_ms, dht_gap_ms, peers_ms;
    struct node_pending pending[NODE_PENDING_MAX];

    struct timeline timeline;
    void *timeline_memory;
    struct bandwidth bandwidth;
    void *bandwidth_memory;
    uint64_t bandwidth_told_ms;

    /* Admission. */
    struct node_gate gates[NODE_GATES_MAX];
    struct revocation revoked; /* sequence 0: none is known */
    enum refusal refusal;      /* what a peer said last */
    uint64_t refused_ms, n_refused;

    /* One identity, one process. */
    uint32_t n_twins;
    struct node_twin twins[NODE_TWINS_MAX];
    uint64_t accepted_ms; /* the first HEARTBEAT of a peer; 0: none yet */
    uint64_t twin_ms;     /* another process was proven last; 0: never */
    uint64_t twin_warn_ms;

    uint32_t n_lost;
    struct node_lost lost[NODE_LOST_MAX];
    bool save_failed; /* the last time that something was to be on disk */
    const char *reason;
    uint32_t malformed;
    uint64_t stale, probes_refused;
};

/* node.c */
struct ballot_context node_context(struct node *n);
struct heartbeat node_heartbeat(struct node *n);
void node_local_action(struct node *n, enum action_type type, uint64_t round);
bool node_point_eq(const struct node_point *a, const struct node_point *b);

/* A link is up, and its peer may speak. */
void node_link_up(struct node *n, const struct event *ev);
/* The same, and it is known who is there. */
void node_link_open(struct node *n, const struct event *ev);

/* node_admit.c. True: the event is not for anybody else. */
bool node_admit_link_up(struct node *n, const struct event *ev);
bool node_admit_link_down(struct node *n, const struct event *ev);
bool node_admit_recv(struct node *n, const struct event *ev);
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

/* node_twin.c. True: the event is not for anybody else. */
bool node_twin_link_up(struct node *n, const struct event *ev);
bool node_twin_link_down(struct node *n, const struct event *ev);
bool node_twin_recv(struct node *n, const struct event *ev);
/* False: this HELLO is of another process; its link is being closed. */
bool node_twin_hello(struct node *n,
                     int peer,
                     uint32_t link,
                     const struct hello *m);
void node_on_claim(struct node *n, int peer, const struct claim *m);
/* `peer`: MEMBERS_NONE for who is not let in. */
void node_on_present(struct node *n, int peer, const struct present *m);
void node_twin_advance(struct node *n);
void node_twin_gap(struct node *n);
/* What a person is to know; NULL: nothing. */
const char *node_twin_reason(const struct node *n);

/* node_data.c */
/* Get the manifest, then the shards, until data_ready. */
void node_data_advance(struct node *n);
void node_on_get_manifest(struct node *n,
                          int peer,
                          const struct get_manifest *m);
void node_on_manifest(struct node *n, int peer, const struct manifest_part *m);
void node_on_configured(struct node *n, const struct local_event *e);
void node_on_downloading(struct node *n, const struct local_event *e);
void node_on_downloaded(struct node *n, const struct local_event *e);

/* The run's terms, or those of our stage. */
void node_take_terms(struct node *n, const struct run_terms *t);

/* node_stage.c */
/* The run is not cut, or our stage is settled and its machine ready. */
bool node_is_staged(const struct node *n);
/* Whether what that peer says of commits and views is of our group. */
bool node_same_stage(const struct node *n, const struct member *p);
/* Members that a first view of a group is founded with now, and that one which
 * is proven has at least. */
uint32_t node_group_min(const struct node *n);
uint32_t node_group_least(const struct node *n);
void node_stage_advance(struct node *n);
/* Peers that hold each stage, or have chosen it. */
void node_stage_hosts(const struct node *n, uint16_t hosts[ROUTE_STAGES_MAX]);
void node_on_staged(struct node *n, const struct local_event *e);
/* Leave our group for that of another stage. */
void node_stage_move(struct node *n, uint32_t to);
/* Whether our group may be founded now, and its state begin with the seed (or
 * what we hold). */
bool node_stage_may_found(const struct node *n);
bool node_stage_may_begin(const struct node *n);
/* What choosing or the stage waits for; static text, NULL: nothing. */
const char *node_stage_wait(const struct node *n);

/* node_pipe.c */
void node_pipe_configured(struct node *n);
/* The steps of the next round, from the first to what is packed of them. */
void node_pipe_advance(struct node *n);
/* The others do without us. */
void node_pipe_leave(struct node *n);
bool node_pipe_runs(const struct node *n);
/* Why no steps are made though we could: static text; *stage: whose fault it
 * is, UINT32_MAX: nobody's alone. NULL: nothing is waited for. */
const char *node_pipe_wait(const struct node *n, uint32_t *stage);
void node_on_piped(struct node *n, const struct local_event *e);
void node_pipe_seg_done(struct node *n, const struct event *ev);
void node_on_stage_message(struct node *n,
                           int peer,
                           enum message_type type,
                           const void *msg);
void node_pipe_link_up(struct node *n, const struct peer_id *id);
void node_pipe_tick(struct node *n);
uint64_t node_pipe_deadline(const struct node *n);
/* Segments of one micro-batch; whether `out` has room for some more. */
uint32_t node_cut_pieces(const struct node *n);
bool node_has_room(const struct node *n);

/* node_eval.c */
void node_eval_advance(struct node *n);
/* The steps of this round are over since then, and what they made is not to be
 * offered yet: the parameters before it are still evaluated. */
bool node_eval_holds(const struct node *n, uint64_t since_ms);
void node_eval_forget(struct node *n);
void node_eval_piped(struct node *n, const struct local_event *e);
void node_eval_seg_done(struct node *n, const struct event *ev);
void node_on_eval_message(struct node *n,
                          int peer,
                          enum message_type type,
                          const void *msg);
uint64_t node_eval_deadline(const struct node *n);

/* node_fetch.c */
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
const struct node_past *node_past_at(const struct node *n, uint64_t round);
void node_on_fetch(struct node *n, int peer, const struct fetch *f);
void node_on_sent_failed(struct node *n, const struct event *ev);

/* node_sync.c */
void node_sync_advance(struct node *n);
void node_sync_reset(struct node *n);
void node_on_hashed(struct node *n, const struct local_event *e);
void node_on_loaded(struct node *n, const struct local_event *e);
void node_on_commit_record(struct node *n, const struct commit *c);

/* node_follow.c */
/* The way to the newest commit, which is trusted: ask for what is not known of
 * it. */
void node_follow_look(struct node *n, const struct node_point *tip);
/* Commits that are taken one by one rather than the state whole: as many as
 * have no more bytes than it. */
uint64_t node_follow_max(const struct node *n);
/* A fetch has ended well: how fast was it? */
void node_follow_fetched(struct node *n);
void node_follow_speed(const struct node *n, struct node_follow_speed *s);
/* Our state is too old, and another one would soon be: not again for a while.
 */
bool node_follow_pauses(struct node *n);
/* Fetch the commit after the one that is applied; what it waits for. */
void node_follow_next(struct node *n);
void node_follow_wait(struct node *n);
/* A record, of whatever commit. */
void node_follow_record(struct node *n, const struct commit *c);
/* Bytes of so many units of what is fetched. */
uint64_t node_fetched_bytes(const struct node *n, uint64_t units);
/* Bytes of the reduced vector of a round. */
uint64_t node_wire_bytes(const struct node *n, uint64_t round);

/* node_lease.c. CONFIGURED: what is held, with its record. */
void node_lease_restored(struct node *n, const struct local_event *e);
/* The state in place has changed. */
void node_lease_find(struct node *n);
/* Whether it is known who holds what after that commit, or no matter. */
bool node_lease_known(const struct node *n);
/* A record came, and its name. */
void node_lease_heard(struct node *n,
                      const struct commit *c,
                      const struct hash32 *hash);
/* Ask for what is missing. */
void node_lease_advance(struct node *n);
/* node_text.c. Shards, the lease or the record have changed. */
void node_text_look(struct node *n);
/* Whether enough is here to begin: all that is not train text, and the shard
 * that training has reached. */
bool node_text_suffices(const struct node *n);
/* Where training is: the shard of this position is wanted first. */
uint64_t node_text_front(const struct node *n);
/* Shards that come beside the rounds leave the line to these. */
void node_text_make_way(struct node *n);
/* A member that can train nothing of what is its. */
bool node_text_waits(const struct node *n);
/* Whether we can train now, and how many of these steps. Where nothing of our
 * lease is here we offer nothing, with the others who offer something. */
bool node_text_allows(struct node *n, uint32_t *steps);

/* node_lease.c. Into TRAIN: what is ours. */
void node_lease_name(struct node *n, struct action *a);

/* node_view.c */
void node_view_advance(struct node *n);
void node_on_adopted(struct node *n);
void node_on_lost(struct node *n, const struct members_lost *lost);
void node_on_hello(struct node *n, int peer, const struct hello *m);
void node_on_join(struct node *n, int peer, const struct join *m);
/* We hold the commit that was made from `base`: so will those who wait. */
void node_joiners_follow(struct node *n, const struct hash32 *base);
void node_on_goodbye(struct node *n, int peer, const struct goodbye *m);
/* Note the loss of a member for the status and the log. */
void node_note_lost(struct node *n,
                    const struct peer_id *id,
                    uint32_t silent_ms,
                    const char *reason);

/* node_branch.c */
void node_on_beat(struct node *n, int peer, const struct heartbeat *m);
/* It says that its last heartbeat still holds. */
void node_on_pulse(struct node *n, int peer);
void node_on_get_view(struct node *n, int peer, const struct get_view *m);
void node_on_view(struct node *n, int peer, const struct view_cert *m);
void node_on_lineage(struct node *n, int peer, const struct lineage *m);
/* Leave our view when nobody who is here holds the commit that binds it. */
void node_watch_commit(struct node *n);
/* Linked peer with the best branch (in a view, or finished); MEMBERS_NONE. */
int node_best_peer(const struct node *n);
/* Whether the first is of the better branch: more committed tokens, then the
 * lower commit hash. */
bool node_point_ahead(const struct node_point *a, const struct node_point *b);
/* Whether that branch wins over ours: more committed tokens, then the lower
 * commit hash. */
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
/* Whether a linked peer names a view, proven or not. */
bool node_sees_view(const struct node *n);

/* node_proof.c */
int node_proof_open(struct node *n);
void node_proof_close(struct node *n);
/* Nothing is known of any view: we are in another group now. */
void node_proof_forget(struct node *n);
void node_proof_configured(struct node *n);
void node_proof_adopted(struct node *n);
void node_proof_advance(struct node *n);
void node_on_get_proof(struct node *n, int peer, const struct get_proof *m);
void node_on_proof(struct node *n, int peer, const struct proof *m);
/* NULL: not proven. */
const struct node_proven *node_proven_view(const struct node *n,
                                           const struct hash32 *view);
/* The proven view that this peer (row) is a member of and names; NULL where it
 * names none, or one of a founding that is not ours. */
const struct node_proven *node_proven_of(const struct node *n, int peer);
/* Whether proofs are still waited for. */
bool node_proof_patience(const struct node *n);
/* What more than half of its members say is the newest commit, and its state;
 * without patience more than half of those linked will do. */
bool node_tip(const struct node *n,
              const struct node_proven *v,
              struct node_point *tip,
              struct hash32 *state);
/* Whether we may leave our view for that one; asks for its proof. */
bool node_proof_allows(struct node *n, const struct hash32 *view);

/* node_round.c */
void node_round_advance(struct node *n);
void node_on_committed(struct node *n);
void node_apply(struct node *n, enum buffer_kind buffer, enum node_spent spent);
void node_on_applied(struct node *n, const struct local_event *e);
void node_on_trained(struct node *n, const struct local_event *e);
void node_on_evaluated_own(struct node *n, const struct local_event *e);
void node_on_evaluated(struct node *n, int peer, const struct evaluated *m);
/* Measure the state in place, if that is our turn. */
void node_evaluate(struct node *n);
/* Another state is in place: evaluate, write it down, drain after the last. */
void node_step_taken(struct node *n);
void node_in_step(struct node *n); /* the applied state is the known one */
void node_drain(struct node *n);
bool node_run_over(const struct node *n);
/* The state that the next attempt starts from; NULL while it is not in place
 * here, and after the last round: whoever has a contribution left offers it no
 * more. */
const struct hash32 *node_base(const struct node *n);
void node_forget_contribution(struct node *n);

/* node_pair.c: runs of pairs, terms.pairs. */
void node_pair_advance(struct node *n);
/* Whose state is to be had; false: our own, or none. */
bool node_pair_target(const struct node *n, struct node_point *target);
/* From whose replica (row) the state is fetched; MEMBERS_NONE: no more. */
void node_pair_owner(struct node *n, int peer);
void node_pair_loaded(struct node *n);
/* It is here, and not finite: another one. */
void node_pair_spoiled(struct node *n);
void node_pair_trained(struct node *n, const struct local_event *e);
void node_pair_applied(struct node *n, const struct local_event *e);
bool node_pair_evaluates(const struct node *n);
bool node_pair_busy(const struct node *n);

/* node_owners.c, node_owners_move.c: runs whose members own slices of the
 * parameters, terms_owned(). */
int node_owners_open(struct node *n);
size_t node_owners_bytes(void);
void node_owners_configured(struct node *n);
void node_owners_adopted(struct node *n);
/* Another branch won: what is here of slices counts no more. */
void node_owners_reset(struct node *n);
void node_owners_advance(struct node *n);
uint64_t node_owners_deadline(const struct node *n);
void node_owners_trained(struct node *n, const struct local_event *e);
void node_on_sliced(struct node *n, const struct local_event *e);
void node_owners_seg_done(struct node *n, const struct event *ev);
void node_on_owners_message(struct node *n,
                            int peer,
                            enum message_type type,
                            const void *msg);
void node_owners_gap(struct node *n);
/* What is said towards the next view. */
void node_owners_closing(const struct node *n, struct ballot_context *c);
/* The newest round that is known of: with owners of slices the furthest that
 * anybody says it has read. */
uint64_t node_known_round(const struct node *n);
/* Tokens that this peer and those it knows have read for the run. */
uint64_t node_owners_tokens(const struct node *n);
/* Cycles that all slices have ended, as far as is known here. */
uint64_t node_owners_round(const struct node *n);
/* The result is here. */
bool node_owners_ended(const struct node *n);
/* It is with others, and does not train. */
bool node_owners_averages(const struct node *n);
/* A goodbye now would cost others what they have. */
bool node_owners_busy(const struct node *n);

/* node_quorum.c */
/* Whether another member offers work to the attempt that waits for a plan. */
bool node_quorum_offered(const struct node *n);
/* A task is finished: true when it has to wait for the next round. */
bool node_quorum_defer(struct node *n, const struct local_event *e);
/* Offer what waits, or take part without weight. */
void node_quorum_advance(struct node *n);
/* A commit in which we have no weight leaves the task alone. */
bool node_quorum_idle(const struct node *n);
/* What was offered without weight is of no use to another attempt. */
void node_quorum_withdraw(struct node *n);
uint64_t node_quorum_deadline(const struct node *n);
/* Inner steps of the next task. */
uint32_t node_quorum_steps(const struct node *n);

/* node_bandwidth.c */
int node_bandwidth_open(struct node *n);
void node_bandwidth_note(struct node *n, const struct event *ev);
void node_bandwidth_advance(struct node *n);
void node_on_bandwidth(struct node *n,
                       int peer,
                       const struct bandwidth_report *m);

/* node_stale.c: count a message of another view, round or run. */
void node_note_stale(struct node *n, enum message_type type, const void *m);

/* node_timeline.c: tells the timeline; nothing rests on it. */
int node_timeline_open(struct node *n);
/* After a step: what has changed since the last one? */
void node_timeline_note(struct node *n);
/* Before the round takes it in. */
void node_timeline_segment(struct node *n, const struct event *ev);
void node_timeline_committed(struct node *n);
void node_timeline_trouble(struct node *n, const char *why);
void node_timeline_lost(struct node *n,
                        const struct peer_id *id,
                        const char *reason);
void node_timeline_left(struct node *n, const struct peer_id *id);

/* node_reach.c */
int node_reach_open(struct node *n);
void node_reach_link_up(struct node *n, int peer, const struct event *ev);
void node_reach_advance(struct node *n);
void node_on_probe(struct node *n, int peer, const struct probe *m);
void node_on_probed_peer(struct node *n, int peer, const struct probed *m);
void node_on_probe_done(struct node *n, const struct event *ev);
void node_on_relay(struct node *n, const struct event *ev);
void node_on_relay_moved(struct node *n, const struct event *ev);
/* A peer says where it sees us. */
void node_on_observed(struct node *n, const struct msg_address *at);
void node_on_mapped(struct node *n, const struct local_event *e);

/* node_dht.c */
int node_dht_open(struct node *n);
void node_dht_link_up(struct node *n, int peer);
/* What the table knows of a linked peer may have changed. */
void node_dht_seen(struct node *n, int peer);
void node_dht_unreachable(struct node *n, int peer);
void node_dht_recv(struct node *n, int peer, const struct event *ev);
void node_dht_advance(struct node *n);
uint64_t node_dht_deadline(const struct node *n);

#endif
