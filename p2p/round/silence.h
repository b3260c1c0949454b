/* silence.h - members that do not give out what they contributed.
 *
 * A sum is repeated with the contributions of all (audit.h). Whoever serves its
 * own to nobody keeps a wrong sum from being seen, its own or that of a friend,
 * and proves nothing by that: its line may be down. So it is not convicted. But
 * who could not get its contribution names it in READY (`silent`) for the next
 * two rounds, and for 4, 8 .. 64 after it was seen so again. Whom more than
 * half of all full members name is left out of the plan (plan.c): it owns no
 * slice, so that its lies end, and its work stays with it, so that an honest
 * member with a bad line loses no work.
 *
 * Rounds of another branch may be lower: a rest has a first and a last round.
 *
 * A member that lies and is silent pays for each lie that is drawn: of the
 * first R rounds it lies in about log2(R), later in one of 64. What one member
 * says of another alone has no effect, but liars can say it, too: then fewer
 * honest ones are more than half.
 *
 * Pure; a fixed table of ids. A full table forgets whose rest ends first.
 */
#ifndef LOCO_P2P_ROUND_SILENCE_H
#define LOCO_P2P_ROUND_SILENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"

#define SILENCE_MAX       64 /* members of a view */
#define SILENCE_REST_LOG2 6  /* the longest rest: 2^6 rounds */

struct silence_row {
    struct peer_id id;
    uint64_t last;   /* round for which it is named last */
    uint32_t n_seen; /* times; one less for each longest rest without any */
};

struct silence {
    uint32_t n;
    uint64_t n_seen; /* of all */
    struct silence_row row[SILENCE_MAX];
};

/* Its contribution could not be had, and `round` is being made. While it rests
 * this changes nothing. */
void silence_add(struct silence *s, const struct peer_id *id, uint64_t round);

/* Which of ids[n], at most 64, are named in READY of that round (bits). */
uint64_t silence_mask(const struct silence *s,
                      const struct peer_id *ids,
                      uint32_t n,
                      uint64_t round);

#endif
