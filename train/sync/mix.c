/* mix.c - see mix.h. */
#include "train/sync/mix.h"

#include <string.h>

void mix_toward(float *theta, const float *phi, float a, size_t n)
{
    if (a == 0.0F) {
        memcpy(theta, phi, n * sizeof *theta);
        return;
    }
    if (a == 1.0F) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float d = theta[i] - phi[i];
        float e = a * d;

        theta[i] = phi[i] + e;
    }
}
