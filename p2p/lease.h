/* lease.h - who trains which part of the text: one order for all peers.
 *
 * A *position* is one inner step's batch in the order of the run. A *lease* is
 * the positions that one member, and nobody else, trains, as a queue: its
 * contributions take them from the front, a commit fills it up at the back to
 * the *quota* of the run. The *ledger* says who holds what, what nobody holds
 * any more, and from where on nothing was given out; LEASES.md has the reasons.
 *
 * The ledger after a commit is a function of the one before, of the view and of
 * the plan. A plan has it in it, so that the record of a commit proves it to
 * whoever was not there; members make it themselves and refuse a plan with
 * another one (round_lease.c).
 *
 *   settle   a commit: slots become leases, contributions are spent, who was
 *            missed too often gives back, so does who has not the text of what
 *            it holds; then everybody's lease is filled, with what it can read.
 *            Of a contribution that is not from the front of its maker's lease
 *            (given back, or of another branch) only what nobody holds is spent
 *   of       what a member may train now
 *   at       position number i of a lease
 *
 * Who joins between two commits has no lease yet: the view gives it a *slot*,
 * a number that nobody else gets before the next commit. Slot s stands for a
 * quota of positions behind the ledger's `next`. So a view needs no ledger, and
 * who makes one need not know the last commit's.
 *
 * Bounds: tables of limits.h. Where `returned` is full its shortest range is
 * forgotten (not trained in this epoch); where `held` is full the one that has
 * been missed longest gives back at once. Any ledger that the schema lets
 * through is safe to work on.
 *
 * Pure functions, no failure.
 */
#ifndef LOCO_P2P_LEASE_H
#define LOCO_P2P_LEASE_H

#include "proto/messages.h"

/* Commits whose views do not have a holder before it gives back. Who is away
 * for fewer catches up commit by commit, or takes a state over what it trained,
 * and its work counts (daemon/node_follow.c: WORK_MAX and one). */
#define LEASE_MISSED_MAX 9

/* A contribution in a plan. */
struct lease_spent {
    uint64_t holder;
    uint64_t lease; /* first position + 1 */
    uint64_t steps;
};

/* What a commit does to a ledger. */
struct lease_commit {
    uint32_t quota;
    const struct view_body *view;
    const uint64_t *holders; /* (view->n_members) of its members */
    /* (view->n_members) what each can read, where that is known; NULL: all */
    const struct text_span *texts;
    bool first; /* builds on the commit that the view names */
    const struct lease_spent *spent; /* (n_spent) */
    uint32_t n_spent;
};

/* Number the members of `v` that joined with it; `old`: the view before, NULL:
 * none. Members and commit of `v` are set. */
void lease_slots(const struct view_body *old, struct view_body *v);

/* Whether no two members have one slot, and none a higher one than `slots`. */
bool lease_slots_valid(const struct view_body *v);

void lease_settle(struct ledger *l, const struct lease_commit *c);

/* What `holder`, member `index` of the view, may train on top of the commit
 * that `l` is of. `first`: the view names that commit. False: nothing. */
bool lease_of(const struct ledger *l,
              uint32_t quota,
              const struct view_body *view,
              uint32_t index,
              uint64_t holder,
              bool first,
              struct lease *out);

/* Position number `i` of a lease; false: it is not that long. */
bool lease_at(const struct lease *lease, uint64_t i, uint64_t *position);

uint64_t lease_count(const struct lease *lease);

bool ledger_eq(const struct ledger *a, const struct ledger *b);

#endif
