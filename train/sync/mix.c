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

void mix_rebase(float *theta,
                const float *phi_new,
                const float *phi_old,
                const float *g,
                size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sent = phi_old[i] - g[i];
        float since = theta[i] - sent;

        theta[i] = phi_new[i] + since;
    }
}
