/* work.h - this peer makes leases of others again, and says what it read. See
 * work.c, and p2p/round/work.h.
 */
#ifndef LOCO_DAEMON_NODE_WORK_H
#define LOCO_DAEMON_NODE_WORK_H

#include "p2p/round/conviction.h"
#include "p2p/round/work.h"

struct node;
struct node_status;

#define WORK_OWN  8 /* rounds whose moments others may ask for, or more */
#define WORK_SAID 4 /* verdicts of ours that are said again */

/* Moments with which one of our leases began, or the one before ended. */
struct work_own {
    uint64_t round;       /* 0: none */
    struct hash32 blocks; /* the root of their blocks.. */
    struct hash32 root;   /* ..as an offer */
};

/* Elements: no run has larger blocks (machine/work.c compares). */
#define WORK_BLOCK_MAX 4096

enum work_own_kind { WORK_BEGAN, WORK_ENDED, WORK_OWN_KINDS };

struct work_said {
    struct verdict said;
    uint32_t tells;   /* it will be said so often again.. */
    uint64_t tell_ms; /* ..from then on */
};

struct node_work {
    struct work core;
    struct work_commit next;  /* until its result is in place here; round 0 */
    struct work_commit heard; /* the last one that was without us */
    struct work_own own[WORK_OWN_KINDS][WORK_OWN]; /* by round */
    struct work_said words[WORK_SAID];
    uint32_t n_words; /* ever */
    /* Bytes that a member had of us for audits of work since that round. */
    struct {
        struct peer_id id;
        uint64_t round, bytes;
    } served[VIEW_MEMBERS_MAX];
    /* What this peer offers now is nothing, as it makes a lease of somebody
     * else again; but it is an offer like any. */
    bool left_out;
    uint64_t needed; /* the round that nobody else trains for; 0: none */
    uint64_t n_back; /* rounds that were left out, and trained for after all */
    uint64_t n_convicted;     /* by more than half, as this peer counted */
    struct peer_id convicted; /* the last one */
    struct conviction_notes notes;
    struct convicts written; /* whose conviction is on disk, or on its way */
};

void node_work_open(struct node *n);

/* The last round was committed: `decided` here, or heard of. */
void node_work_committed(struct node *n, bool decided);

/* Its result is in place. */
void node_work_applied(struct node *n);

/* The state in place is another one, or the view is left. */
void node_work_stop(struct node *n);

/* Work that is in no commit is undone: the round of its lease, as JOB_APPLY and
 * JOB_LOAD have it; 0: of no audits. */
uint64_t node_work_undo(const struct node *n);

/* A lease is trained, and ended with these moments. */
void node_work_trained(struct node *n, const struct hash32 *ends);

/* A state is in place, and with it the moments that the next lease begins with.
 * `goes_on`: it began before that state. */
struct report_state;
void node_work_announce(struct node *n,
                        const struct report_state *state,
                        bool goes_on);

/* The trainer is free for the next round. True: it is not trained for, as a
 * lease of somebody else is made again. */
bool node_work_leaves_out(struct node *n);

void node_on_repeated(struct node *n, const struct local_event *e);
void node_work_tick(struct node *n);
uint64_t node_work_deadline(const struct node *n);
void node_work_seg_done(struct node *n, const struct event_seg_done *ev);

/* Whether that member may have a piece of a vector for an audit of work, and
 * count it; `width`: bytes of an element at most. Only full members may. */
bool node_work_affords(struct node *n,
                       int peer,
                       const struct fetch *f,
                       uint64_t elements,
                       uint32_t width);

/* A FETCH of moments for an audit of work. False: it is refused. */
bool node_work_serve(struct node *n, int peer, const struct fetch *f);

void node_work_status(const struct node *n, struct node_status *s);

#endif
