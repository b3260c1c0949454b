/* trainers.h - several models in one run: AdLoCo's trainers (arXiv:2508.18182).
 *
 * Trainers run DiLoCo apart from each other, each with the peers that work for
 * it and a batch request of its own; every merge_every rounds the two that ask
 * for least become one (merge.h; algorithms page 10.4, 10.5). Here all of them
 * share one round, one commit, one chain: the vector of a round has a *section*
 * for each trainer, and a contribution fills that of its own one.
 *
 *     section 0 .. k-1     displacements phi - theta, 0 in those of others
 *     shares  (k)          1 in the place of the own trainer; only with k > 1
 *     requests (k)         the batch that the gradient's noise asks for
 *
 * Parts are padded to whole blocks of the wire type, so that none shares an
 * exponent with another. The mean over all contributions, divided by the share
 * that came to a section, is the mean over that trainer's peers; a section to
 * which nobody contributed has share 0 and stays as it is. As fine as the wire
 * makes a share (fp16: 2^-11 of it) is the step's length, the same for all.
 *
 * What that is good for: every peer holds every trainer's anchor, the same bits
 * as all others. A merger moves no byte, a trainer outlives all of its peers,
 * and joins, checkpoints, forks and dead peers need nothing of their own. What
 * it costs: k vectors where a ring of one trainer's peers would carry one.
 * Trainers merge by the count of rounds, so that is at most
 * merge_every * k (k - 1) / 2 vectors in the whole run.
 *
 * How many trainers a round has is a function of its number alone. After a
 * merger the merged one has the lower of the two places, those behind move up.
 *
 * Who works for whom: peers in the order of the view, as many to each trainer
 * as its request at the last merger asks for. It need not be agreed on: a share
 * counts where it was made. Fewer peers than trainers: those that ask for least
 * rest.
 *
 * Same bits everywhere: fp32 and fp64 operations one by one, no libm.
 * Pure; no allocation.
 */
#ifndef LOCO_TRAIN_SYNC_TRAINERS_H
#define LOCO_TRAIN_SYNC_TRAINERS_H

#include <stdint.h>

#include "train/sync/rule.h"

#define TRAINERS_MAX    16
#define TRAINERS_MERGES 63 /* (count - 1) * merge_every at most */

struct trainers {
    uint32_t count;       /* that a run begins with; 0: it has none */
    uint32_t merge_every; /* rounds; 0: they never merge */
    uint32_t most;        /* sequences that one may ask for, below 2^24 */
    uint32_t block;       /* of the wire type */
    uint64_t n;           /* parameters of one */
};

/* What follows the anchors in the state, whole numbers: what each trainer asks
 * for, then what it asked for at the last merger. */
static inline uint64_t trainers_numbers(const struct trainers *t)
{
    return 2 * (uint64_t)t->count;
}

/* Trainers in `round` (from 1). */
uint32_t trainers_in(const struct trainers *t, uint64_t round);

/* Rounds until all that merge have merged: from the next on all are alike. */
uint64_t trainers_rounds(const struct trainers *t);

/* Elements of the vector of `round`, of the longest one; where the section of a
 * trainer begins. */
uint64_t trainers_elements(const struct trainers *t, uint64_t round);
uint64_t trainers_most(const struct trainers *t);
uint64_t trainers_section(const struct trainers *t, uint32_t trainer);

/* All ask for `request`, or for as much as the run allows. */
void trainers_begin(const struct trainers *t, float *numbers, uint32_t request);

/* For whom number `rank` of `members` works in `round`. */
uint32_t trainers_assign(const struct trainers *t,
                         const float *numbers,
                         uint64_t round,
                         uint32_t members,
                         uint32_t rank);

/* What that trainer asks for. */
uint32_t
trainers_request(const struct trainers *t, const float *numbers, uint32_t of);

/* vector (trainers_elements) = all but the displacement, which the caller then
 * writes to the section. */
void trainers_fill(const struct trainers *t,
                   uint64_t round,
                   uint32_t trainer,
                   uint32_t request,
                   float *vector);

/* The outer step of all trainers: mean (trainers_elements), as decoded, becomes
 * their new anchors and requests. LOCO_ENUMERIC: it is useless then. */
int trainers_step(const struct trainers *t,
                  const struct rule *rule,
                  uint64_t round,
                  float *mean,
                  const float *anchors,
                  const float *numbers);

/* The state, anchors (count, n) and numbers, = what trainers_step() made; then
 * the merger, if it is due. Places without a trainer are 0. Where the trainer
 * in place `own` is afterwards. */
uint32_t trainers_take(const struct trainers *t,
                       uint64_t round,
                       const float *made,
                       float *anchors,
                       float *numbers,
                       uint32_t own);

#endif
