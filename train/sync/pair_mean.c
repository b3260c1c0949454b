/* pair_mean.c - see pair_mean.h. */
#include "train/sync/pair_mean.h"

void pair_mean_step(float *mean, const float *low, const float *high, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float a = 0.5F * low[i];
        float b = 0.5F * high[i];

        mean[i] = a + b;
    }
}

void pair_mean_anchor(float *mean,
                      const float *phi,
                      const float *own,
                      const float *theirs,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float d = theirs[i] - own[i];
        float half = 0.5F * d;

        mean[i] = phi[i] + half;
    }
}
