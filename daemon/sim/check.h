/* check.h - what must hold, checked while the simulation runs.
 *
 * The *state tree*: every (round, parameters) that some anchor ever was, its
 * parent and the commit that led there. It is built from what the machines
 * really computed, not from what nodes say. Invariants (design 6):
 *
 *   A  a state has at most one successor while there was no cut; live members
 *      of one view that train hold the same parameters for the same round
 *   B  what is applied is named by a commit, and its bytes equal the replay of
 *      the exchange's roundings over the contributions that the commit names
 *   C  a contribution is in a branch at most once, and its first step is the
 *      one after the last step that its anchor contained
 *   D  between two outer steps anchor and momentum are untouched
 *   E  after the faults every live peer gets to the last round, on one branch
 *      that is no fork, in time (check_finished, asked by the owner)
 *   F  nothing fell out of an `out`, no queue is long, no rule was broken
 *   G  a fork flag appears only after a cut or the loss of a majority
 *   I  what a process trained is in a commit that it followed, or open, or
 *      counted in tokens_dropped
 *   W  with leases: no position of the text is in a branch twice (but where
 *      check_lease.c says so); each below the ledger's `next` is in it, held by
 *      one, or returned; what was returned is given out again
 *   M  what is in a bandwidth map is what the links are
 *   T  the timeline of a peer knows every commit that it saw and, where there
 *      is one victim, knows nobody else to be why an attempt failed
 *
 * The first violation is kept; the owner stops and prints. Cost: B is one
 * replay of the vector per commit; the rest is a table look-up per step.
 */
#ifndef LOCO_DAEMON_SIM_CHECK_H
#define LOCO_DAEMON_SIM_CHECK_H

#include "daemon/node/node.h"
#include "daemon/sim/machine/local.h"
#include "daemon/sim/world/world.h"

#define CHECK_TEXT_MAX  400
#define CHECK_QUEUE_MAX 256

struct check;

struct check_options {
    struct world *world;
    uint32_t n_peers, block, segment_elements;
    uint64_t n_params; /* elements of the longest vector */
    unsigned codec;
    enum exchange_kind exchange;
    const struct sim *sim; /* sites of peers */
    float norm_clip;
    bool centred;
    bool raw;            /* owners' own contributions: lanes_raw */
    bool missums;        /* somebody sums wrong: results are not replayed */
    struct node **nodes; /* by peer, NULL while dead; borrowed */
};

/* LOCO_ENOMEM. */
int check_open(struct check **check, const struct check_options *opt);
void check_close(struct check *c);

/* The machines, which are watched from now on. */
void check_set_local(struct check *c, struct local *local);

/* From now on two branches are lawful. */
void check_allow_forks(struct check *c);

void check_died(struct check *c, uint32_t peer);

/* The node of this peer is being told of a state that the machine reported to
 * us. */
void check_told(struct check *c, uint32_t peer);

/* After a step of `peer`. */
void check_step(struct check *c, uint32_t peer);

/* Report a violation found by the owner. */
void check_fail(struct check *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* NULL: everything holds so far. */
const char *check_violation(const struct check *c);

uint64_t check_count(const struct check *c);

/* Positions of the text that were in a branch before; contributions that name
 * no lease, in runs with leases. */
uint64_t check_twice(const struct check *c);
uint64_t check_unleased(const struct check *c);

/* Distinct commits applied by somebody. */
uint64_t check_commits(const struct check *c);

/* Whether every live peer has applied `round` on one branch, in one view unless
 * it has finished, without fork unless fork_fine; says in `why`
 * (CHECK_TEXT_MAX) who is not. */
bool check_finished(struct check *c, uint64_t round, bool fork_fine, char *why);

#endif
