/* theory.h - closed forms of the algorithms page that the code has no use for:
 * tests compare what the code does with them.
 */
#ifndef LOCO_TESTS_UNIT_TRAIN_THEORY_H
#define LOCO_TESTS_UNIT_TRAIN_THEORY_H

#include <math.h>
#include <stdint.h>

#include "train/sync/batch_size.h"

/* Pairs (8.5). Upper bound of gamma for momentum alpha in [0, 1) and random
 * groups of n of many members. */
static inline double theory_gamma_limit(double alpha, uint32_t n)
{
    double k = ((double)n - 1.0) / (double)n;

    return 2.0 * (1.0 - alpha * alpha) / (1.0 + alpha - 2.0 * alpha * k);
}

/* Stationary variance of the replicas, in units of the variance of one
 * replica's own outer gradient, without curvature; infinite where unstable. */
static inline double
theory_spread(double alpha, double beta, double gamma, uint32_t n)
{
    double k = ((double)n - 1.0) / (double)n;
    double sum = 1.0 + alpha;
    double rest = sum - gamma * k;
    double g = sum / ((1.0 - alpha) * (sum * sum - rest * rest));
    double loop = 1.0 - gamma * gamma * k * (1.0 - k) * g;

    if (gamma <= 0.0 || alpha < 0.0 || alpha >= 1.0 || g <= 0.0 ||
        loop <= 0.0) {
        return INFINITY;
    }
    return beta * beta / (double)n * g / loop;
}

/* Batches (10.2). |G|^2 of the true gradient without the noise in |g|^2; at
 * least 0. */
static inline double theory_signal(const struct batch_sample *b)
{
    double all = (double)b->n * (double)b->s;

    return all > 0.0 ? fmax(0.0, b->norm2 - batch_variance(b) / all) : 0.0;
}

/* Variance and |G|^2 from mean squared norms of batches of two sizes. */
static inline void theory_two_sizes(double size_small,
                                    double mean_norm2_small,
                                    double size_large,
                                    double norm2_large,
                                    double *variance,
                                    double *signal)
{
    *variance = (mean_norm2_small - norm2_large) /
                (1.0 / size_small - 1.0 / size_large);
    *signal = (size_large * norm2_large - size_small * mean_norm2_small) /
              (size_large - size_small);
}

/* DES-LOC (9.6): how often parameters (px = 1/Kx) and first moments (pu = 1/Ku)
 * are averaged enters the rate through psi. */
static inline double theory_psi(double px, double pu, double beta)
{
    return 4.0 * (1.0 - px) / (px * px) * (1.0 - beta) * (1.0 - pu) /
           (1.0 - (1.0 - pu) * beta);
}

/* Steps after which half of a moment's memory is gone. */
static inline double theory_half_life(double beta)
{
    return log(0.5) / log(beta);
}

#endif
