/* node_owners.h - what node_owners.c (the life of a member) and
 * node_owners_move.c (jobs and segments) share; nobody else includes it. */
#ifndef LOCO_DAEMON_NODE_OWNERS_H
#define LOCO_DAEMON_NODE_OWNERS_H

#include "daemon/node_internal.h"
#include "p2p/owners.h"

#define NODE_GIVES_MAX 32

/* Where the own task is. */
enum owners_life {
    OWNERS_REST,   /* nothing is under way */
    OWNERS_READS,  /* slices from their owners */
    OWNERS_BEGINS, /* the machine takes what was read */
    OWNERS_TRAINS,
    OWNERS_SUBMITS,
    OWNERS_ENDED, /* the run has enough cycles */
    OWNERS_LAST,  /* all members have ended: reads the result */
    OWNERS_LAST_BEGINS,
    OWNERS_DONE
};

/* Bytes to or from another member. */
struct node_owners_move {
    bool used;
    bool ready; /* taken: the slot is free; given: the bytes are there */
    struct peer_id peer;
    uint32_t stream;
    uint64_t attempt, serial; /* serial: of the GIVE */
    enum owners_what what;
    uint32_t slice, slot;        /* slot: of a give, its own number */
    uint32_t total, named, done; /* segments */
    uint64_t moved_ms;
};

struct node_owners {
    struct owners core;
    struct owners_out out; /* of the call under way */
    enum owners_life life;
    uint64_t task, n_tasks, task_tokens;
    uint64_t serial;             /* of jobs */
    uint32_t jobs[STREAM_SLOTS]; /* under way on that slot */
    struct node_owners_move take[STREAM_SLOTS], give[NODE_GIVES_MAX];
    struct slice_version marked[OWNERS_SLICES_MAX];
    bool has_suspect;
    struct peer_id suspect;
    uint64_t bulk_ms;    /* connections are looked after again */
    bool reading;        /* READ is under way: nothing is read meanwhile */
    uint64_t read_round; /* of the last READ */
    uint64_t saved;      /* 1 + round of the last checkpoint; 0: none */
    uint64_t eval_turn;
    uint64_t n_lost; /* acknowledged and gone with their owners */
};

/* Emit a job of the machine; its number. */
uint64_t node_owners_job(struct node *n,
                         const struct slice_job *job,
                         uint64_t attempt,
                         const struct peer_id *peer,
                         uint64_t request);
void node_owners_take(struct node *n, const struct owners_action *a);
void node_owners_drop(struct node *n, const struct owners_action *a);
void node_owners_give(struct node *n, const struct owners_action *a);
/* Segments that found no place in an earlier `out`, or waited for their slot.
 */
void node_owners_name(struct node *n);
/* A job was answered: what waited for it may move. */
void node_owners_job_done(struct node *n, const struct slice_job *job, int rc);
/* What the core said in the last call, and marks of what it came to. */
void node_owners_execute(struct node *n);

#endif
