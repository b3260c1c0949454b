/* probation.h - whom we have seen taking part, and so vouch for.
 *
 * Who joins a run that anybody may join is *on probation*: it is in the view
 * and trains, but is in no plan and counts in no majority (view.h). Each full
 * member counts the rounds for which such a peer offered work (READY), and
 * *vouches* for it after `probation_rounds` of them. A view in which more than
 * half of the full members vouch for a peer makes it full (ballot_value.c).
 * Who was full once is vouched for at once when it comes back.
 *
 * It costs a liar time, not work: nobody looks at what was offered.
 *
 * Pure; a fixed table of keys. Who is full stays in it longest.
 */
#ifndef LOCO_P2P_ROUND_PROBATION_H
#define LOCO_P2P_ROUND_PROBATION_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"

#define PROBATION_KEYS_MAX 256

struct probation_row {
    uint64_t id;         /* id_u64(); 0: free */
    uint64_t last_round; /* that it offered work for, or was full in */
    uint32_t n_rounds;   /* that it offered work for */
    uint32_t tried;      /* n_rounds when a view was asked for last */
    bool full;           /* it was, in a view of ours */
};

struct probation {
    struct probation_row row[PROBATION_KEYS_MAX];
};

/* It offered work for that round. */
void probation_worked(struct probation *p,
                      const struct peer_id *id,
                      uint64_t round);

/* It is full in a view of ours, in which that round is the newest. */
void probation_full(struct probation *p,
                    const struct peer_id *id,
                    uint64_t round);

/* The rounds counted for it. */
uint32_t probation_rounds(const struct probation *p, const struct peer_id *id);

/* Whether it was full. */
bool probation_was_full(const struct probation *p, const struct peer_id *id);

/* Whether it was full, or offered work for `least` rounds. */
bool probation_vouches(const struct probation *p,
                       const struct peer_id *id,
                       uint32_t least);

/* Whether a view should be made that makes it full: the others may have counted
 * one round less. When that did not help, next after twice as many rounds. */
bool probation_is_due(const struct probation *p,
                      const struct peer_id *id,
                      uint32_t least);
void probation_tried(struct probation *p, const struct peer_id *id);

#endif
