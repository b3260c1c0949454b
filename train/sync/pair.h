/* pair.h - how hard random pairs may pull (NoLoCo, arXiv:2506.10911).
 *
 * Who averages with whom: proto/base/pairing.h; how two average: pair_mean.h.
 *
 * Whether replicas stay together depends on alpha (momentum) and gamma (pull):
 * the mean square of their spread contracts for random partners when 0 < gamma
 * < 2 (1 - alpha^2). The page derives it (8.5) and corrects the paper's bound.
 */
#ifndef LOCO_TRAIN_SYNC_PAIR_H
#define LOCO_TRAIN_SYNC_PAIR_H

/* Largest gamma that a manifest may name: 0.8 of that bound, far enough from
 * it that the spread halves in a few steps. */
static inline double pair_gamma_max(double alpha)
{
    return 1.6 * (1.0 - alpha * alpha);
}

#endif
