/* stages.h - which stage of the model this peer holds.
 *
 * A run of S stages has S averaging groups, each with views, rounds and a chain
 * of its own (stages.c).
 */
#ifndef LOCO_DAEMON_NODE_STAGES_H
#define LOCO_DAEMON_NODE_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/core.h"
#include "p2p/pipeline/route.h"
#include "p2p/swarm/members.h"

struct node;

/* Whether this peer's stage is chosen, and its machine ready for it. */
enum node_staging { STAGING_NONE, STAGING_ASKED, STAGING_DONE };

struct node_stages {
    enum node_staging staging;
    uint32_t own;       /* from 0 */
    uint64_t chosen_ms; /* when it was chosen, or could be at the earliest */
    uint64_t look_ms;   /* at the swarm, the last time */
    bool moved;         /* chosen by rebalancing: it stays */
    /* Chosen without a host in a view of it, when others had theirs. */
    bool late;
    uint32_t n_moves;
    uint64_t balanced_round; /* who moves was looked at after it */
};

/* The run is not cut, or our stage is settled and its machine ready. */
bool node_is_staged(const struct node *n);
/* Whether what that peer says of commits and views is of our group. */
bool node_same_stage(const struct node *n, const struct member *p);
/* Members that a first view of a group is founded with now, and that one which
 * is proven has at least. */
uint32_t node_group_min(const struct node *n);
uint32_t node_group_least(const struct node *n);
/* Once a round: whether it is looked at who moves. */
bool node_stages_balance(struct node *n);
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

#endif
