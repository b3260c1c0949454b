/* wallclock.c - see wallclock.h. */
#include "train/lab/wallclock.h"

#include <math.h>
#include <stdlib.h>

#include "proto/base/rng.h"

#define TREE_SAMPLES 8000
#define TWO_PI       6.283185307179586

double wallclock_compute_s(const struct wallclock *w)
{
    return 6.0 * w->params * w->tokens / (w->workers * w->flops_per_s * w->mfu);
}

double wallclock_sync_s(const struct wallclock *w)
{
    double bytes = w->params * w->bytes_per_value;

    return 2.0 * bytes * (1.0 - 1.0 / w->workers) / w->bytes_per_s +
           w->latency_s;
}

double wallclock_run_s(const struct wallclock *w, const struct method *m)
{
    double steps = w->tokens / w->batch_tokens;
    double sync_s = wallclock_sync_s(w);

    if (m->group == METHOD_PAIR) {
        sync_s = 2.0 * w->params * w->bytes_per_value / w->bytes_per_s +
                 w->latency_s;
    }
    return wallclock_compute_s(w) +
           w->exposed * steps * method_rate(m) * sync_s;
}

double wallclock_pair_factor(double sigma)
{
    return 1.0 + erf(sigma / 2.0);
}

/* One normal number (Box and Muller). */
static double normal(uint64_t *rng)
{
    double u = ((double)(rng_next(rng) >> 11) + 0.5) * 0x1p-53;
    double v = ((double)(rng_next(rng) >> 11) + 0.5) * 0x1p-53;

    return sqrt(-2.0 * log(u)) * cos(TWO_PI * v);
}

static double log_normal(double mu, double sigma, uint64_t *rng)
{
    return sigma > 0.0 ? exp(mu + sigma * normal(rng)) : exp(mu);
}

/* D_L = max of two (message + D_{L-1}), as a pool of samples per level. */
double wallclock_tree_ratio(double spread, unsigned levels, uint64_t seed)
{
    double sigma = sqrt(log(1.0 + spread * spread));
    double mu = -sigma * sigma / 2.0; /* mean 1 */
    double *pool = calloc(2 * TREE_SAMPLES, sizeof *pool);
    double *next, *last, sum = 0.0;

    if (pool == NULL) {
        return NAN;
    }
    last = pool;
    next = pool + TREE_SAMPLES;
    for (unsigned level = 0; level < levels; level++) {
        double *swap = last;

        for (size_t i = 0; i < TREE_SAMPLES; i++) {
            double a = last[rng_below(&seed, TREE_SAMPLES)] +
                       log_normal(mu, sigma, &seed);
            double b = last[rng_below(&seed, TREE_SAMPLES)] +
                       log_normal(mu, sigma, &seed);

            next[i] = a > b ? a : b;
        }
        last = next;
        next = swap;
    }
    for (size_t i = 0; i < TREE_SAMPLES; i++) {
        sum += last[i] / TREE_SAMPLES;
    }
    free(pool);
    return sum / wallclock_pair_factor(sigma);
}

double wallclock_blocking_ratio(uint32_t n,
                                uint32_t m,
                                uint32_t outer,
                                double mu,
                                double variance,
                                uint64_t seed)
{
    double *clock = calloc(n, sizeof *clock);
    uint32_t *order = calloc(n, sizeof *order);
    double all = 0.0, pairs = 0.0, sigma = sqrt(variance);

    if (clock == NULL || order == NULL) {
        free(clock);
        free(order);
        return NAN;
    }
    for (uint32_t t = 0; t < outer; t++) {
        double slowest = 0.0;

        for (uint32_t i = 0; i < n; i++) {
            double sum = 0.0;

            for (uint32_t k = 0; k < m; k++) {
                sum += log_normal(mu, sigma, &seed);
            }
            clock[i] += sum;
            slowest = sum > slowest ? sum : slowest;
        }
        all += slowest;
        rng_perm(order, n, rng_next(&seed));
        for (uint32_t i = 0; i + 1 < n; i += 2) {
            double *a = &clock[order[i]], *b = &clock[order[i + 1]];

            *a = *b = *a > *b ? *a : *b;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        pairs = clock[i] > pairs ? clock[i] : pairs;
    }
    free(clock);
    free(order);
    return all / pairs;
}
