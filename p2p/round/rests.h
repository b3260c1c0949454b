/* rests.h - members that other members name, so that plans are made without
 * them for some rounds.
 *
 * A member names others in READY for two reasons:
 *
 * `silent`: it could not get what they contributed. A sum is repeated with the
 * contributions of all (audit.h). Whoever serves its own to nobody keeps a
 * wrong sum from being seen, its own or that of a friend, and proves nothing by
 * that: its line may be down. So it is not convicted, but named for the next
 * two rounds, and for 4, 8 .. 64 after it was seen so again. Whom more than
 * half of all full members name is left out of the plan (plan.c): it owns no
 * slice, so that its lies end, and its work stays with it, so that an honest
 * member with a bad line loses no work. It pays for each lie that is drawn: of
 * the first R rounds it lies in about log2(R), later in one of 64.
 *
 * `astray`: what they contribute goes another way than what others do, in the
 * slices that this member sums (train/sync/stray.h). That proves nothing to who
 * has not seen it, so nobody is convicted. It takes some rounds to show, so the
 * rest is long: 64 rounds, then 128 and 256. Whom at least half of all full
 * members name, two or more, is left out (astray.c): less than half of them,
 * all liars, can leave nobody out, and less than half of the honest cannot be
 * hidden from.
 *
 * `silent` also has who gave nothing to an attempt that failed, and who was
 * left out by lot where nobody knew who was to blame (idle.c): for up to 16
 * rounds.
 *
 * What one member says of another alone has no effect. Liars can name honest
 * members, too: then fewer honest ones are enough.
 *
 * Rounds of another branch may be lower: a rest has a first and a last round.
 *
 * Pure; a fixed table of ids. A full table forgets whose rest ends first.
 */
#ifndef LOCO_P2P_ROUND_RESTS_H
#define LOCO_P2P_ROUND_RESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/id.h"

#define RESTS_MAX 64 /* members of a view */
#define REST_LOG2 6  /* the longest rest: 2^6 rounds */

struct rests_row {
    struct peer_id id;
    uint64_t last;   /* round for which it is named last */
    uint32_t n_seen; /* times; one less for each longest rest without any */
};

struct rests {
    uint32_t n;
    uint64_t n_seen; /* of all */
    /* A rest is of 2^(more_log2 + n_seen) rounds, n_seen at most most_log2; 0:
     * REST_LOG2. */
    uint32_t more_log2, most_log2;
    struct rests_row row[RESTS_MAX];
};

/* It was seen so, and `round` is being made. While it rests this changes
 * nothing. */
void rests_add(struct rests *s, const struct peer_id *id, uint64_t round);

/* Which of ids[n], at most 64, are named in READY of that round (bits). */
uint64_t rests_mask(const struct rests *s,
                    const struct peer_id *ids,
                    uint32_t n,
                    uint64_t round);

#endif
