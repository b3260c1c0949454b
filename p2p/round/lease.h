/* lease.h - who trains which part of the text: one order for all peers.
 *
 * A *position* is one inner step's batch in the order of the run. A *lease* is
 * a queue of positions that one member trains and nobody else: its
 * contributions take them from the front, a commit fills the queue up at the
 * back, to the *quota* of the run. The *ledger* says who holds which positions,
 * which ones were returned, and from where on nothing was given out; LEASES.md
 * has the reasons.
 *
 * The ledger after a commit is a function of the one before, of the view and of
 * the plan. A plan has it in it, so that the record of a commit proves it to
 * whoever was not there; members make it themselves and refuse a plan with
 * another one (round/lease_share.c).
 *
 *   settle   a commit: slots become leases, and contributions are spent. A
 *            holder that was missed too often returns its positions, a member
 *            those whose text it does not have. Then the lease of each member
 *            is filled with positions that it can read. If a contribution is
 *            not from the front of its maker's lease (returned, or of another
 *            branch), only returned positions are spent
 *   of       the positions that a member may train now
 *   at       position number i of a lease
 *
 * A member that joins between two commits has no lease yet: the view gives it a
 * *slot*, a number that no other member gets before the next commit. Slot s
 * stands for a quota of positions after the ledger's `next`. So a view needs no
 * ledger, and its proposer need not know that of the last commit.
 *
 * Bounds: tables of limits.h. When `returned` is full, its shortest range is
 * forgotten (not trained in this epoch). When `held` is full, the holder that
 * has been missed longest is removed at once. Any ledger that the schema allows
 * is safe to work on.
 *
 * Pure functions, no failure.
 */
#ifndef LOCO_P2P_ROUND_LEASE_H
#define LOCO_P2P_ROUND_LEASE_H

#include "proto/messages.h"

/* Commits in a row that a holder may miss before its positions are returned. A
 * peer that missed fewer catches up commit by commit, or puts its work on top
 * of a new state, and its work counts (daemon/node/follow.c: WORK_MAX and one).
 */
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
    bool first; /* the plan builds on the commit that the view names */
    const struct lease_spent *spent; /* (n_spent) */
    uint32_t n_spent;
};

/* Number the members of `v` that joined with it; `old`: the view before, NULL:
 * none. Members and commit of `v` are set. */
void lease_slots(const struct view_body *old, struct view_body *v);

/* Whether no two members have one slot, and none a higher one than `slots`. */
bool lease_slots_valid(const struct view_body *v);

void lease_settle(struct ledger *l, const struct lease_commit *c);

/* The positions that `holder`, member `index` of the view, may train on top of
 * the commit of `l`. `first`: the view names that commit. False: none. */
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
