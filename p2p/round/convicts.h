/* convicts.h - peers of which this member holds a proof that they lied.
 *
 * Who holds a proof says so in each of its promises (`convicted`), and a view
 * in which more than half of all full members say it of one leaves that one out
 * (ballot_value.c). A convict whose JOIN comes is not let in by who holds the
 * proof. A conviction is one of a key: who makes a new key is a newcomer, and
 * what that costs is probation (probation.h).
 *
 * The list is not on disk: who keeps the proofs tells it again after a restart.
 * With more than CONVICTS_MAX the oldest is forgotten: each of them was a full
 * member once, so that many keys cost as many probations.
 *
 * Pure; a fixed table of ids, the oldest first.
 */
#ifndef LOCO_P2P_ROUND_CONVICTS_H
#define LOCO_P2P_ROUND_CONVICTS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"

#define CONVICTS_MAX 16

struct convict {
    struct peer_id id;
    /* Of asking for a view without it (ballot_convicts.c). */
    bool heard;          /* a view was made with our word, and it stayed */
    uint64_t due_ms;     /* not before that time; 0: not set yet.. */
    uint32_t n_asked;    /* ..and, after so many times, */
    uint64_t next_round; /* ..not before that commit */
};

struct convicts {
    uint32_t n;
    struct convict row[CONVICTS_MAX];
};

/* A proof against that peer is held. False: one was before. */
bool convicts_add(struct convicts *c, const struct peer_id *id);

bool convicts_has(const struct convicts *c, const struct peer_id *id);

/* Which of ids[n], at most 64, are in the list (bits). */
uint64_t
convicts_mask(const struct convicts *c, const struct peer_id *ids, uint32_t n);

#endif
