/* rollback.h - a round that takes back an earlier one. See rollback.c. */
#ifndef LOCO_P2P_ROUND_ROLLBACK_H
#define LOCO_P2P_ROUND_ROLLBACK_H

#include "p2p/round/round.h"

bool rollback_eq(const struct rollback *a, const struct rollback *b);

/* Who asks offers no work, and names a state before the one in place. */
bool rollback_fair(const struct ready_body *m);

/* Members (bits) whose READY of this attempt asks. */
uint64_t rollback_asks(const struct round *r);

/* The members that ask for one and the same state, where they are a Byzantine
 * quorum; else 0. */
uint64_t rollback_wanted(const struct round *r, struct rollback *to);

/* A plan of these members, complete but for its ledger. */
void rollback_plan(const struct round *r,
                   uint64_t mask,
                   const struct rollback *to,
                   struct plan_body *p);

/* Whether a plan with a rollback, of the members in `mask`, may be followed. */
bool rollback_plan_valid(const struct round *r,
                         const struct plan_body *p,
                         uint64_t mask);

#endif
