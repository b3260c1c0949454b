/* pipe.h - the inner steps that all stages make together.
 *
 * Drives p2p/pipeline/pipeline.h: whom it runs with (crew.c), when (pipe.c),
 * and what it wants done (pipe_actions.c).
 */
#ifndef LOCO_DAEMON_NODE_PIPE_H
#define LOCO_DAEMON_NODE_PIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/pipeline/pipeline.h"
#include "p2p/swarm/members.h"
#include "proto/messages.h"

struct node;

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

/* Micro-batches at this machine: now, since when, times how long. */
struct node_queue {
    uint64_t now, at_ms, sum, ms;
    uint32_t mean; /* of the round before, for others */
};

/* Hosts of other stages with whom steps were made (crew.c). */
#define NODE_HOSTS_KNOWN 128
struct node_known {
    struct peer_id id[NODE_HOSTS_KNOWN];
    uint32_t n;         /* ever; the oldest makes room */
    uint64_t drawn_for; /* round for which the last one was tried */
    struct peer_id drawn;
    uint32_t vain; /* in a row that were tried and made no step */
};

struct node_pipe {
    bool open;
    struct node_known known;
    struct pipeline core;
    struct pipeline_out out;
    struct node_pipe_move moves[NODE_PIPE_MOVES];
    bool unnamed; /* segments of some wait for room in `out` */
    uint64_t life[PIPELINE_HOSTS_MAX];   /* by host: of its process */
    uint64_t bad_ms[PIPELINE_HOSTS_MAX]; /* since when bytes to it fail */
    uint64_t void_tag;                   /* tags up to this one are cancelled */
    uint64_t wait_ms;       /* all stages have a host that is level since; 0 */
    uint64_t idle_ms;       /* the last steps ended */
    uint64_t bulk_ms;       /* connections are looked after again */
    uint64_t pack_round;    /* what is being packed is for it */
    uint64_t steps_over_ms; /* all steps of the round are made; 0: not yet */
    bool busy;              /* the machine works, since queue.at_ms or before */
    uint64_t busy_ms;       /* of these steps that the machine worked */
    uint32_t idle_permille; /* of the last round's steps */
    struct node_queue queue;
};

/* What is seen of the swarm before a round (crew.c). */
struct node_crew {
    /* By id: those who are level with us, and the micro-batches at each. */
    struct pipeline_host host[PIPELINE_HOSTS_MAX];
    uint32_t queue[PIPELINE_HOSTS_MAX];
    uint32_t n;
    bool late;              /* somebody is not level yet */
    bool anybody;           /* who says so is a host */
    bool tries;             /* somebody of another stage for the first time, */
    struct peer_id tried;   /* this one */
    uint64_t ahead;         /* bit s: stage s holds a later commit */
    uint64_t served, level; /* bit s: it has hosts; that are level */
};

void node_crew_gather(const struct node *n, struct node_crew *c);
/* A member of our view, or a host of another stage with whom steps were made.
 */
bool node_crew_trusts(const struct node *n, const struct member *p);
/* Those serve not all stages: who says that it is a host counts as one. */
bool node_crew_is_open(const struct node *n);
/* The steps of the round begin with it; are over. */
void node_crew_begins(struct node *n, const struct node_crew *c);
void node_crew_is_done(struct node *n);
void node_crew_add(struct node_crew *c,
                   const struct peer_id *id,
                   uint32_t stage,
                   uint32_t queue);
/* Another stage has committed this round: its steps are over. */
bool node_crew_behind(const struct node *n, const struct node_crew *c);
/* Who goes to another stage before this round leaves the crew. True: it is us,
 * and we go. */
bool node_crew_rebalance(struct node *n, struct node_crew *c);
/* A bit for each stage of the run. */
uint64_t node_all_stages(const struct node *n);
/* Would be left out of the steps at once, or is: who is counted before a round
 * must be one that is not, or rounds begin and end with every message. */
bool node_is_silent(const struct node *n, const struct member *p);

void node_pipe_configured(struct node *n);
/* The steps of the next round, from the first to what is packed of them. */
void node_pipe_advance(struct node *n);
/* The others do without us. */
void node_pipe_leave(struct node *n);
/* Why no steps are made though we could: static text; *stage: whose fault it
 * is, UINT32_MAX: nobody's alone. NULL: nothing is waited for. */
const char *node_pipe_wait(const struct node *n, uint32_t *stage);
void node_on_piped(struct node *n, const struct local_event *e);
/* Other work broke the GPU, which had this attempt's micro-batches and what
 * the steps since the commit made. */
void node_pipe_broken(struct node *n);
/* LOCO_EDEVICE of any work, of a stage or a whole model: this peer stops. */
void node_device_lost(struct node *n);
void node_pipe_seg_done(struct node *n, const struct event_seg_done *ev);
void node_pipe_link_up(struct node *n, const struct peer_id *id);
void node_pipe_tick(struct node *n);
uint64_t node_pipe_deadline(const struct node *n);
/* pipe_actions.c: do what the pipeline wants now. */
void node_pipe_execute(struct node *n);
/* Segments for which the last `out` had no room. */
void node_pipe_name_rest(struct node *n);
/* The step runs again without that host; `why`: the end of the sentence. */
void node_pipe_drop(struct node *n, uint32_t host, const char *why);
/* Its row among the members; MEMBERS_NONE. */
int node_pipe_row(const struct node *n, uint32_t host);
/* Segments of one micro-batch. */
uint32_t node_cut_pieces(const struct node *n);
/* Send or post those from *named on, as far as `out` has room for them: what
 * they share, with the number of the first. True: all are named. */
bool node_name_segments(struct node *n,
                        enum action_type type,
                        const struct segment *shared,
                        uint32_t *named);

#endif
