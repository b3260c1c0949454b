/* pair.h - who averages with whom when nobody waits for all: random pairs.
 *
 * NoLoCo (arXiv:2506.10911) averages with one random partner per outer step.
 * The pairs of step t are drawn from the run's seed, the epoch of the member
 * list and t, the same everywhere (proto/base/pairing.h).
 *
 * Whether replicas stay together depends on alpha (momentum) and gamma (pull):
 * the mean square of their spread contracts for random partners in groups of n
 * when 0 < gamma < pair_gamma_limit(alpha, n). The page derives it (8.5) and
 * corrects the paper's bound.
 *
 * Pure; no allocation.
 */
#ifndef LOCO_TRAIN_SYNC_PAIR_H
#define LOCO_TRAIN_SYNC_PAIR_H

#include <stdint.h>

#include "proto/base/pairing.h"

#define PAIR_BYE PAIRING_BYE

/* The partner's index in the list of n members sorted by id, or PAIR_BYE.
 * self < n; scratch (n). O(n). */
uint32_t pair_partner(uint64_t seed,
                      uint64_t epoch,
                      uint64_t t,
                      uint32_t n,
                      uint32_t self,
                      uint32_t *scratch);

/* Upper bound of gamma for momentum alpha in [0, 1) and random groups of n of
 * many members. */
double pair_gamma_limit(double alpha, uint32_t n);

/* Largest gamma that a manifest may name: 0.8 of that bound for pairs, far
 * enough from it that the spread halves in a few steps. */
double pair_gamma_max(double alpha);

/* Stationary variance of the replicas, in units of the variance of one
 * replica's own outer gradient, without curvature; infinite where unstable. */
double pair_spread(double alpha, double beta, double gamma, uint32_t n);

#endif
