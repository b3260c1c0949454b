/* wallclock.h - hours of a run from arithmetic, before any is spent.
 *
 * Two models that the papers use:
 *
 *   a run's time (DES-LOC, arXiv:2505.22549, appendix H; algorithms page 9.7)
 *       compute   6 P D / (M S mfu)
 *       one sync  2 bytes (1 - 1/M) / B + l         ring all-reduce
 *       total     compute + overlap factor * sum over streams of T/K syncs
 *   groups under uneven messages (NoLoCo, arXiv:2506.10911, figure 5; page 8.8)
 *       a tree over n peers waits for the slower of two subtrees at every
 *       level, a pair for the slower of two messages; times are log-normal.
 *       Blocking: with m inner steps of log-normal length between two outer
 *       ones, all wait for the slowest of n, or for one partner.
 *
 * P parameters, D tokens, M workers, S flop/s of one, mfu the share of it that
 * is reached, B bytes/s, l seconds, T = D / batch steps, K a stream's period.
 *
 * Pure; double precision. The log-normal ones are simulated from a seed.
 */
#ifndef LOCO_TRAIN_LAB_WALLCLOCK_H
#define LOCO_TRAIN_LAB_WALLCLOCK_H

#include <stdint.h>

#include "train/sync/method.h"

struct wallclock {
    double params, tokens, workers;
    double flops_per_s, mfu;
    double bytes_per_value, bytes_per_s, latency_s;
    double batch_tokens; /* of all workers in one inner step */
    double exposed;      /* share of a sync that compute does not hide, 0..1 */
};

double wallclock_compute_s(const struct wallclock *w);

/* One all-reduce of all parameters. */
double wallclock_sync_s(const struct wallclock *w);

/* The whole run; every stream of the method moves all parameters. Of pairs each
 * sends its anchor and its displacement to the other one. Of trainers one is
 * counted, which is so once all have merged. */
double wallclock_run_s(const struct wallclock *w, const struct method *m);

/* E[max(t1, t2)] / E[t] of two log-normal times with shape sigma. */
double wallclock_pair_factor(double sigma);

/* E[time of a tree all-reduce over n = 2^levels peers] / E[pair averaging],
 * messages log-normal with standard deviation `spread` times their mean. */
double wallclock_tree_ratio(double spread, unsigned levels, uint64_t seed);

/* Total time of `outer` outer steps with m inner steps each, all n waiting for
 * all, over the same with pairs. Inner steps log-normal(mu, variance). */
double wallclock_blocking_ratio(uint32_t n,
                                uint32_t m,
                                uint32_t outer,
                                double mu,
                                double variance,
                                uint64_t seed);

#endif
