/* stray.h - whose contributions go another way than those of the others, round
 * after round.
 *
 * A robust mean sees one round and bounds what a lie does in it; a lie that is
 * as far from the others as their own noise passes. But noise has another
 * direction in each round, and a lie that is to do harm has not: what a member
 * differs from the mean adds up to its square root of the rounds times where it
 * is noise, and to all of the rounds where it is a purpose (compare
 * Karimireddy, He, Jaggi 2021, arXiv:2012.10333: robust rules need the
 * history).
 *
 * The owner of a slice sees what everybody contributed to it. It watches
 * STRAY_PIECES places of the whole vector, which nobody else knows; as slices
 * change hands in each round it sees 1 / n of them in a round of n members. For
 * each member it keeps
 *
 *   path    the sum of (v - t c) / sqrt(t) over the rounds that showed a place,
 *           in units of the typical length of that in its round; v is what the
 *           member contributed, c the mean of the round, t its tokens beside
 *           those of the others: more steps go farther and are noisier. A round
 *           counts at most STRAY_CLIP units. Older rounds fade.
 *   age     of the path at each place: what its squared length would be if all
 *           of it were noise. Paths are compared by their distance beside the
 *           sum of their ages, so that a newcomer does not stray, nor those
 *           that were here before many came; of a path that is twice as old as
 *           most nothing is told.
 *   along   <v, c> / t beside the typical one, a mean of the last rounds: how
 *           far a member goes along the way of all. -1 is against it.
 *
 * A member *strays* when its path is far from those of most others, or `along`
 * is out of bounds, in two rounds that follow each other. Typical is a median
 * over members, so less than half of them cannot move it out of what is honest.
 * What one owner says proves nothing to others: p2p/round/rests.h has what
 * follows from the words of half of them.
 *
 * Bounds (stray.c) and what was measured of honest members of equal programs,
 * in any round and by any one owner, are in tests/bench/README.md, *Members
 * that stray*; half as many steps are within them. A member whose noise is 1.5
 * times that of the others (other data, another batch) is near the bound.
 *
 * What it does not see: lies in places that less than half of the members see,
 * which a liar can choose, as who owns which slice follows from what all know;
 * with honest noise a purpose of up to 0.20 spreads a round, and of up to 0.25
 * with none (by arithmetic: 400 b^2 + 20.5 is at most 1.75 times 20.5, as a
 * path of noise is 10.3 long, squared, and one of purpose b 20 b); and the
 * first rounds of a lie, after each rest again. The mean bounds all of them.
 *
 * Not thread-safe. Memory: 256 KiB a member, and as much for what a round
 * shows. Nothing here has to be equal on two machines.
 */
#ifndef LOCO_TRAIN_SYNC_STRAY_H
#define LOCO_TRAIN_SYNC_STRAY_H

#include <stdint.h>

#include "train/sync/codec/codec.h"

#define STRAY_PIECES 256
#define STRAY_PIECE  256 /* elements of a place; no block cuts one */
#define STRAY_ID     32
#define STRAY_LEAST  3 /* members that contributed, to tell anything */

struct stray_row {
    uint8_t id[STRAY_ID];
    float *path; /* (STRAY_PIECES * STRAY_PIECE) */
    double along;
    double far; /* squared distance to most others, beside the typical */
    float age[STRAY_PIECES]; /* of the path: rounds that fade, squared */
    uint32_t shown;          /* rounds; */
    uint32_t late;           /* of them the last ones that were out of bounds */
    uint64_t last;           /* of s->n_rounds */
};

struct strays {
    uint32_t n_pieces;
    uint64_t piece[STRAY_PIECES]; /* their first elements, rising */
    uint64_t n_rounds;
    uint32_t n_rows;
    struct stray_row row[CODEC_TERMS_MAX];
    /* The attempt under way: so many pieces of `lanes` members, one behind the
     * other; the mean comes after the members. */
    uint64_t attempt;
    uint32_t lanes, n_seen, room;
    uint16_t seen[STRAY_PIECES];
    float *now;
};

/* A segment of the own slice, summed. */
struct stray_sum {
    uint64_t attempt, offset;   /* its first element */
    uint32_t n;                 /* elements */
    uint32_t lanes;             /* members of the plan */
    const uint8_t *const *lane; /* (lanes) what they contributed, encoded */
    const uint8_t *sum;         /* encoded */
};

/* A member of the plan, in its order. */
struct stray_member {
    uint8_t id[STRAY_ID];
    uint64_t tokens; /* 0: it contributed nothing */
};

/* Of a vector of so many elements; the seed draws the places. What was watched
 * before is forgotten. */
void strays_open(struct strays *s, uint64_t elements, uint64_t seed);
void strays_free(struct strays *s);

/* What the watched places of that segment show. Another attempt, or another
 * number of lanes, begins anew. LOCO_ENOMEM, and codes of the codec: nothing of
 * the place at hand counts. */
int strays_see(struct strays *s,
               const struct codec *codec,
               const struct stray_sum *sum);

/* That attempt is committed, by these members, as many as lanes. Who strays now
 * (bits); what is known of it begins anew. 0 where nothing was seen of the
 * attempt, or less than STRAY_LEAST members contributed. */
uint64_t strays_commit(struct strays *s,
                       uint64_t attempt,
                       const struct stray_member *member,
                       uint32_t n);

#endif
