/* measure.c - what the kernels in use reach on this machine. */
#include "kernels/measure.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/kernels.h"
#include "kernels/pool.h"
#include "proto/base/clock.h"

#define M 96
#define N 128
#define K 128

double backend_product_seconds(const struct backend *b)
{
    float *x = calloc(N * K + M * N, sizeof *x);
    const struct matmul op = {.m = M,
                              .n = N,
                              .k = K,
                              .a = x,
                              .lda = K,
                              .b = x,
                              .ldb = N,
                              .c = x == NULL ? NULL : x + N * K,
                              .ldc = N,
                              .alpha = 1};
    double best = INFINITY;

    for (int i = 0; x != NULL && i < 4; i++) { /* the first warms up */
        double began = monotonic_s(), s;

        b->matmul(b, &op);
        s = monotonic_s() - began;
        best = i > 0 ? fmin(best, s) : best;
    }
    free(x);
    return best;
}

#define PEAK_TURNS  (1 << 18)
#define PEAK_TIMES  8
#define CACHE_FLOAT 16 /* floats of a cache line: a thread writes one */

struct peak {
    int64_t (*of)(int64_t n, float *x);
    int64_t flops[BACKEND_THREADS_MAX]; /* of each thread */
    float x[BACKEND_THREADS_MAX][CACHE_FLOAT];
};

static void peak_share(void *arg, int worker)
{
    struct peak *p = arg;
    float *x = p->x[worker];

    x[0] = 0.5F;
    x[1] = 1;
    x[2] = 0;
    p->flops[worker] = p->of(PEAK_TURNS, x);
}

static double peak_once(const struct backend *b, struct peak *p)
{
    double began = monotonic_s(), flops = 0;

    if (b->pool == NULL) {
        peak_share(p, 0);
    } else {
        pool_run(b->pool, peak_share, p);
    }
    for (int i = 0; i < b->threads; i++) {
        flops += (double)p->flops[i];
    }
    return flops / (monotonic_s() - began);
}

double backend_peak_flops(const struct backend *b)
{
    struct peak p = {.of = NULL};
    double best = 0;

    if (b->cpu != NULL && b->rounded == NULL) {
        p.of = b->bf16 ? b->cpu->peak_bf16 : b->cpu->peak;
    }
    for (int i = 0; p.of != NULL && i < PEAK_TIMES; i++) {
        best = fmax(best, peak_once(b, &p));
    }
    return best;
}
