/* cycle.h - which round of a swarm synchronises what.
 *
 * A method counts inner steps (stream.h); a swarm counts rounds: what is due
 * after the same step leaves together, as one vector in one round. Round r
 * (from 1) packs after inner step cycle_step(r) of the run, whoever makes that
 * step. Streams with periods of their own repeat after the least common
 * multiple of these: the *cycle*, a table of at most CYCLE_TURNS_MAX rounds.
 *
 *     DES-LOC, periods 2, 3, 6:  round 1 at step 2 (x), 2 at 3 (u), 3 at 4 (x),
 *                                4 at 6 (x, u, v), 5 at 8 (x), ...
 *     streaming, period 6, two fragments, overlap 1: rounds at 2, 5, 8, 11, ...
 *
 * So all members know what round r holds from its number alone: no message
 * says it, and nobody who comes late can be wrong about it.
 *
 * A round that overlaps with compute carries parameters only: with moments in
 * between, two rounds would be under way at once.
 *
 * Plain data, pure functions.
 */
#ifndef LOCO_TRAIN_SYNC_CYCLE_H
#define LOCO_TRAIN_SYNC_CYCLE_H

#include "train/sync/method.h"

#define CYCLE_TURNS_MAX 64

struct cycle {
    struct stream streams[METHOD_STREAMS_MAX];
    size_t n_streams;
    uint64_t steps;               /* inner steps of one cycle */
    uint32_t n;                   /* rounds of one cycle */
    uint64_t at[CYCLE_TURNS_MAX]; /* the step after which each one packs */
};

/* The method must have passed method_check(). 0, or LOCO_EINVAL with a
 * sentence in errmsg: too many rounds before the periods meet, or an overlap
 * beside moments. */
int cycle_init(struct cycle *c, const struct method *m, char *errmsg);

/* The run's inner step after which round `round` packs; 0 for round 0. */
uint64_t cycle_step(const struct cycle *c, uint64_t round);

/* Whether stream s takes part in `round` (from 1), with which turn. */
bool cycle_due(const struct cycle *c,
               uint64_t round,
               size_t s,
               struct stream_turn *turn);

#endif
