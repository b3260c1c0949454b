/* pair.c - see pair.h. */
#include "train/sync/pair.h"

#include <math.h>

#include "proto/base/rng.h"

#define PAIR_TAG 0x5041495253U /* "PAIRS" */

uint32_t pair_partner(uint64_t seed,
                      uint64_t epoch,
                      uint64_t t,
                      uint32_t n,
                      uint32_t self,
                      uint32_t *scratch)
{
    const uint64_t words[4] = {seed, epoch, t, PAIR_TAG};

    rng_perm(scratch, n, rng_mix(words, 4));
    for (uint32_t i = 0; i + 1 < n; i += 2) {
        if (scratch[i] == self) {
            return scratch[i + 1];
        }
        if (scratch[i + 1] == self) {
            return scratch[i];
        }
    }
    return PAIR_BYE;
}

double pair_gamma_limit(double alpha, uint32_t n)
{
    double k = ((double)n - 1.0) / (double)n;

    return 2.0 * (1.0 - alpha * alpha) / (1.0 + alpha - 2.0 * alpha * k);
}

double pair_gamma_max(double alpha)
{
    return 1.6 * (1.0 - alpha * alpha);
}

double pair_spread(double alpha, double beta, double gamma, uint32_t n)
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
