/* rounds.h - the regime of rounds: all members of a view average.
 *
 * TRAIN -> TRAINED -> round_contribute .. committed -> APPLY -> APPLIED -> the
 * next round (rounds.c). In rounds of those who are ready a peer that is in the
 * middle of a task takes part without weight (AsyncDiLoCo, arXiv:2401.09135;
 * quorum.c).
 */
#ifndef LOCO_DAEMON_NODE_ROUNDS_H
#define LOCO_DAEMON_NODE_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/held.h"
#include "daemon/node/node.h"
#include "p2p/core.h"

struct node;

struct node_rounds {
    uint64_t commit_ms, round_ms; /* of the last commit; its duration */
    uint64_t n_committed;
    struct node_commit last;
    bool has_last;
};

/* A turn of a pair counts as a round if it had a partner. */
void node_rounds_count(struct node *n, bool counts, uint64_t took_ms);
/* Of the group that is left. */
void node_rounds_forget(struct node *n);
void node_on_committed(struct node *n);
void node_apply(struct node *n, enum buffer_kind buffer, enum node_spent spent);
/* Another state is in place: evaluate, write it down, drain after the last. */
void node_step_taken(struct node *n);
bool node_run_over(const struct node *n);
/* The state that the next attempt starts from; NULL while it is not in place
 * here, and after the last round: whoever has a contribution left offers it no
 * more. */
const struct hash32 *node_base(const struct node *n);
/* The round after the newest commit begins. */
void node_next_round(struct node *n);

/* ---- quorum.c: rounds of those who are ready ---------------------------- */

/* The contribution of a task that was finished while a round was under way in
 * which this peer had no weight. */
struct node_task {
    bool waits;
    uint64_t tokens, last_step;
};

struct node_quorum {
    struct node_task task; /* packed, and not offered yet */
    uint64_t arrival_ms;   /* since when somebody is ready; 0: nobody is */
};

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
/* What waits is offered no more. */
void node_quorum_forget(struct node *n);
uint64_t node_quorum_deadline(const struct node *n);
/* Inner steps of the next task. */
uint32_t node_quorum_steps(const struct node *n);

#endif
