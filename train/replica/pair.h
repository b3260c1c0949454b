/* pair.h - the outer step of a replica that averages in random pairs
 * (NoLoCo, arXiv:2506.10911; algorithms page 8.2), and the mean at the end.
 *
 * Two wire vectors go to the partner: the anchor phi as it was since the last
 * step, and the contribution phi - theta. From its two and our own, encoded the
 * same way, follow the mean displacement and the mean anchor (pair_mean.h);
 * the rule with its pull does the rest:
 *
 *     m = mu m + lr g + gamma (phi - mean_phi), phi = phi - m, theta = phi
 *
 * Alone (a bye) it is the same with the own displacement, not encoded, and no
 * pull. The inner optimizer's moments stay.
 *
 * With the parameters on a GPU that has room for it the step is made there
 * (replica/outer_pass.h), with the same bits.
 *
 * Errors: those of the codec and the rule, and of the GPU; the state and the
 * contribution are then as they were.
 */
#ifndef LOCO_TRAIN_REPLICA_PAIR_H
#define LOCO_TRAIN_REPLICA_PAIR_H

#include "train/replica/replica.h"

/* `wire`: the partner's anchor, then its displacement, each codec->bytes(n)
 * long; NULL: alone. `first`: our id is the lower one. */
int replica_apply_pair(struct replica *r,
                       uint64_t round,
                       const uint8_t *wire,
                       bool first);

/* phi, m = own + share * (other - own); theta = phi. state (2n): phi, m.
 * LOCO_ENUMERIC: that would not be finite. */
int replica_mix(struct replica *r, const float *state, double share);

#endif
