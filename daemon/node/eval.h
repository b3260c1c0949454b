/* eval.h - the loss on the held-out text.
 *
 * Without stages the machine measures it in one job (eval.c). With stages the
 * windows pass through a host of each stage, while they train (eval_pass.c).
 */
#ifndef LOCO_DAEMON_NODE_EVAL_H
#define LOCO_DAEMON_NODE_EVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/held.h"
#include "p2p/core.h"
#include "p2p/pipeline/route.h"
#include "proto/messages.h"

struct node;

/* Held-out windows in a place of a stage. */
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

/* The evaluation that passes through this stage, or did so last. */
struct node_eval_pass {
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

struct node_eval {
    bool active; /* the machine's own, without stages */
    struct node_point point;
    struct node_eval_pass pass; /* of a model cut into stages */
    double bits, bits_before;
    uint64_t bits_round;
    bool has_bits, has_before;
};

/* Measure the state in place, if that is our turn. */
void node_evaluate(struct node *n);
void node_on_evaluated_own(struct node *n, const struct local_event *e);

/* eval_pass.c: through the stages. */
void node_eval_advance(struct node *n);
/* The steps of this round are over since then, and what they made is not to be
 * offered yet: the parameters before it are still evaluated. */
bool node_eval_holds(const struct node *n, uint64_t since_ms);
void node_eval_forget(struct node *n);
void node_eval_piped(struct node *n, const struct local_event *e);
void node_eval_seg_done(struct node *n, const struct event_seg_done *ev);
uint64_t node_eval_deadline(const struct node *n);

#endif
