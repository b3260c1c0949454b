/* stages.h - whole nodes in a run whose model is cut into stages.
 *
 * What must hold:
 *   A  of one stage and round there are only the same parameters: each stage
 *      has one chain
 *   B  a step is counted by all hosts that stay to the end of its round, or by
 *      none: who finishes a round has made the same number of steps of it
 *   C  no two hosts of a stage offer the same micro-batch of a step for a
 *      round, nor one host twice; a sum holds what its STEP says, and every
 *      input and gradient is that of its micro-batch
 *   D  who stands still says why
 *   E  when the faults are over every live peer finishes in time, all of one
 *      stage with the same parameters
 *   G  a figure of a round is that of all held-out windows, each once, through
 *      the parameters of that round on every stage, and no sum has any of them;
 *      the last round has one where all are in views
 *   F  no `out` overflowed, no rule of the shell was broken, no deadline span
 *   H  while the trainer of one host hangs for minutes the others make rounds
 *   R  at most one host moves to another stage after a round
 *   T  over all commits of a branch a stage's sums have every micro-batch of a
 *      step once at most, whichever round it was offered for
 */
#ifndef LOCO_DAEMON_SIM_STAGES_H
#define LOCO_DAEMON_SIM_STAGES_H

#include "daemon/node/node.h"
#include "daemon/sim/crew.h"
#include "p2p/pipeline/route.h"

/* An optimizer step that somebody made. */
struct stages_count {
    uint32_t peer, life, stage, step, origin;
    uint64_t round;
    uint64_t inner; /* that machine's own number of the step */
    bool final;     /* that peer offered it for the round */
};

/* What a process packed: its own steps [first, last). */
struct stages_work {
    uint32_t peer, life;
    uint64_t first, last;
};

/* A commit of some stage, with the work that it sums up. */
struct stages_commit {
    struct hash32 hash, base;
    uint32_t stage;
    uint64_t round;
    uint32_t n;
    struct stages_work in[2 * VIEW_MEMBERS_MAX];
};

/* A state that some host held; lost: all who held it, or could make it from the
 * bytes of its round, died before it was sure to be on disk. */
struct stages_state {
    bool lost;
    uint32_t stage;
    uint64_t round;
    struct hash32 params;
};

struct stages_peer {
    /* What it was like after its last step, and when it last changed or said
     * what it waits for. */
    struct node_status seen;
    uint64_t seen_ms;
    uint32_t moves;  /* in this life */
    uint64_t packed; /* newest round that it offered work for, in this life */
};

struct stages {
    struct crew c;
    struct stages_peer *peers;
    uint32_t stages;

    struct stages_count *counts;
    uint32_t n_counts, cap_counts;
    struct stages_work *work;
    uint32_t n_work, cap_work;
    struct stages_commit *commits;
    uint32_t n_commits, cap_commits;
    uint32_t n_carried; /* micro-batches in commits of later rounds */
    struct stages_state *states;
    uint32_t n_states, cap_states;
    uint64_t *move_rounds; /* (n * 64) of each move */
    uint32_t n_moves;
    uint32_t lost_stage; /* the one whose hosts all died, from 1; 0: none */
    bool starved;        /* some other host has said so */
    uint64_t hung_at;    /* the newest round when a trainer began to hang */
    uint32_t hung_peer;  /* whose it is, from 1 */
    uint32_t eval_every;
    uint64_t evaluated; /* bit r: round r was (up to 63) */
};

/* After a step of that peer. */
void stages_check_step(struct crew *c,
                       uint32_t peer,
                       const struct event *event);

/* The last live host of that stage (from 1) with its newest round has died:
 * others go on from the newest that they hold, or that one of those who come
 * back wrote. So what was newer may be made once more, with other
 * contributions. */
void stages_newest_died(struct stages *s, uint32_t stage);

/* Room for one more element. */
void *stages_grow(void *p, uint32_t n, uint32_t *cap, size_t size);

/* T (stages_work.c): look on at what machines pack; a node may have seen a
 * commit. */
void stages_watch_work(struct stages *s);
void stages_note_commit(struct stages *s, uint32_t peer);

/* calls.stepped: counts. */
void stages_stepped(void *self, uint32_t peer, const struct local_step *step);

/* Now and then. */
void stages_check_all(void *self);

/* E; says in `why` who is not done. */
bool stages_finished(void *self, char *why, size_t size);

/* ---- for the faults (stages_faults.c) ------------------------------------ */

enum stages_fault {
    STAGES_PLAIN,
    STAGES_KILL,
    STAGES_RESTART,
    STAGES_FREEZE,
    STAGES_DROPS,
    STAGES_JOIN,
    STAGES_UNEQUAL,
    STAGES_LOST,
    STAGES_STARVED,
    STAGES_AT_ONCE,
    STAGES_ALL,
    STAGES_HANG,
    STAGES_STRANDED,
    STAGES_FAULTS
};

/* Live hosts of that stage (from 1), as they say. */
uint32_t stages_n_hosts(const struct stages *s, uint32_t stage);
uint64_t stages_newest_round(const struct stages *s);
/* Whether a live host of the same stage other than `peer` holds what that peer
 * does: the same round or a newer one, or the bytes of that round because it
 * took part in it. Who has only chosen the stage holds nothing yet. */
bool stages_held_without(const struct stages *s, uint32_t peer);
void stages_schedule(struct crew *c);

#endif
