/* regime.h - who averages with whom: the two regimes of a run.
 *
 *   rounds   all members of a view average, or those of them who are ready;
 *            views and a chain of commits say what is true (rounds.c)
 *   pairs    two replicas average, drawn anew each turn; every replica is
 *            another one, and its owner alone says what it is (pairs.c)
 *
 * The terms of a run name its regime (terms.pairs). Whatever the two do
 * differently is a row here, so that nothing else of a node asks which of them
 * it is in. Who makes the inner steps of a run of rounds, this machine or all
 * stages, is no regime, but struct inner (training.h).
 */
#ifndef LOCO_DAEMON_NODE_REGIME_H
#define LOCO_DAEMON_NODE_REGIME_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/held.h"
#include "daemon/node/node.h"
#include "p2p/core.h"
#include "p2p/swarm/members.h"

struct regime {
    /* Views, ballots and a chain of commits. Without them a state is fetched
     * whole, from its owner or a copy. */
    bool has_views;

    /* Start what is missing, once the terms are here. */
    void (*advance)(struct node *n);
    uint64_t (*deadline)(const struct node *n);

    /* The machine's answers, when they are good. LOADED: the state of
     * held.target is in place. PLACED (may be NULL: APPLIED is enough): so it
     * is, before its hashes are known. */
    void (*trained)(struct node *n, const struct local_event *e);
    void (*placed)(struct node *n, const struct local_event *e);
    void (*applied)(struct node *n, const struct local_event *e);
    void (*loaded)(struct node *n);

    /* The state that this peer should hold. False: there is nothing to go by;
     * it begins with its own, if nobody is ahead. */
    bool (*target)(const struct node *n, struct node_point *target);
    /* The hash of that state into sync.expect. False: not known yet. */
    bool (*name_state)(struct node *n);
    /* Who has that state, or may. */
    bool (*may_have)(const struct node *n, const struct member *p);

    /* It is this peer's turn to measure the state of that point. */
    bool (*evaluates)(const struct node *n, const struct node_point *p);
    /* A goodbye now would cost others what is under way. */
    bool (*busy)(const struct node *n);

    /* For heartbeats and people: whether this peer takes part, among how many,
     * and what it does once it holds a state. */
    bool (*takes_part)(const struct node *n);
    uint32_t (*n_members)(const struct node *n);
    enum node_state (*state)(const struct node *n);
};

extern const struct regime regime_rounds, regime_pairs;

#endif
