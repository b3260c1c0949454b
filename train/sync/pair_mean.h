/* pair_mean.h - the outer step of a replica with one partner (NoLoCo,
 * arXiv:2506.10911; algorithms page 8.2), from what went over the wire.
 *
 * Each of the two sends its anchor phi and its displacement g = phi - theta.
 * Both compute the same two means from the same bytes:
 *
 *     displacements  g = g_low / 2 + g_high / 2, as decoded, in the order of
 *                    the ids: the same bits on both sides
 *     anchors        mean_phi = phi + (theirs - own) / 2, as decoded
 *
 * An anchor is not replaced by what a 16-bit wire made of it: only the
 * difference of the two goes through the codec. So equal replicas do not pull
 * each other towards the codec's grid, and what one is pulled is exactly what
 * the other one is pulled the other way: the mean of the two stays.
 *
 * Each line is one fp32 operation per element, rounded to nearest; the rule
 * (rule.h) does the rest. The laboratory, the replica and the simulator all
 * step by pair_mean_apply().
 *
 * Pure. Errors: those of the codec and the rule.
 */
#ifndef LOCO_TRAIN_SYNC_PAIR_MEAN_H
#define LOCO_TRAIN_SYNC_PAIR_MEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/sync/codec/codec.h"
#include "train/sync/rule.h"

/* mean may be one of the two. */
void pair_mean_step(float *mean, const float *low, const float *high, size_t n);

/* mean may be `own` or `theirs`. */
void pair_mean_anchor(float *mean,
                      const float *phi,
                      const float *own,
                      const float *theirs,
                      size_t n);

/* What the partner sent. */
struct pair_mean {
    const struct codec *codec;
    const uint8_t *wire; /* its anchor, then its displacement, each
                            codec->bytes(n) long; NULL: no partner */
    bool first;          /* the own id is the lower one */
};

/* out = the state after one step from `in` with the own displacement g (n). In
 * place is allowed; what is in `out` after a failure is useless. Uses 64 KiB of
 * stack beside the codec's. */
int pair_mean_apply(const struct pair_mean *p,
                    const struct rule *rule,
                    const struct outer_state *out,
                    const struct outer_state *in,
                    const float *g,
                    size_t n);

#endif
