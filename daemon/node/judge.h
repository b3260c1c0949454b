/* judge.h - whether a commit made the model worse, and the way back. See
 * judge.c.
 */
#ifndef LOCO_DAEMON_NODE_JUDGE_H
#define LOCO_DAEMON_NODE_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "proto/messages.h"

struct node;

struct node_judge {
    bool measuring; /* the state in place */
    uint64_t draw;  /* names its windows */
    bool has_good;
    struct rollback good; /* the newest state that measured well here */
    double bits;          /* per byte: mean of those that did, weighing less
                             the longer ago; 0: of none */
    bool asks;            /* to go back to `good`, since then */
    uint64_t asks_ms;
    uint32_t n_failed; /* tasks of the trainer in a row */
    bool going_back;   /* a LOAD of an earlier state is under way */
    bool fetches; /* it is gone here: others have it, under the new round */
    uint64_t n_rollback; /* rounds taken back */
};

/* Another state is in place: measure it. */
void node_judge_look(struct node *n);

/* What the machine measured, where this was asked for here. */
bool node_judge_measured(struct node *n, const struct local_event *e);

/* No step is to be made now. */
bool node_judge_holds(const struct node *n);

/* Each new state is measured, before anything is trained from it. */
bool node_judge_is_on(const struct node *n);

void node_judge_tick(struct node *n);
uint64_t node_judge_deadline(const struct node *n);

/* This commit, whose record is held, takes back an earlier one. */
void node_judge_back(struct node *n, const struct commit *c);

/* Of the group that is left. */
void node_judge_forget(struct node *n);

/* The LOAD of an earlier state ended; false: that was none. */
bool node_judge_loaded(struct node *n, const struct local_event *e);

/* The trainer made no numbers of a state that has some. False: it has failed
 * too often. */
bool node_judge_again(struct node *n);
void node_judge_trained(struct node *n);

#endif
