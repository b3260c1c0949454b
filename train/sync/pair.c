/* pair.c - see pair.h. */
#include "train/sync/pair.h"

#include <math.h>

#include "proto/base/pairing.h"

uint32_t pair_partner(uint64_t seed,
                      uint64_t epoch,
                      uint64_t t,
                      uint32_t n,
                      uint32_t self,
                      uint32_t *scratch)
{
    return pairing_partner(seed, epoch, t, n, self, scratch);
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
