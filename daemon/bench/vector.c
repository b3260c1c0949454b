/* vector.c - see bench/internal.h. */
#include <math.h>
#include <string.h>

#include "daemon/bench/internal.h"
#include "proto/base/err.h"
#include "proto/base/pages.h"

/* Element i of a rank's contribution, in [-1, 1): fractions of 16 bits, so
 * that sums of a few ranks are exact in double precision. */
static float element(uint32_t rank, uint64_t i)
{
    uint32_t x = (uint32_t)(i * 2654435761U) ^ (rank + 1) * 0x9e3779b9U;

    x ^= x >> 15;
    x *= 0x2c1b3c6dU;
    return (float)(x >> 16) / 32768.0F - 1.0F;
}

static double mean_of(uint32_t n, uint64_t i)
{
    double sum = 0;

    for (uint32_t k = 0; k < n; k++) {
        sum += (double)element(k, i);
    }
    return sum / n;
}

/* After a fault a part is the mean of all and a part that of those left. */
static double error_of(const struct rank *r, uint64_t i)
{
    double x = (double)r->result[i], error = fabs(x - mean_of(r->opt.n, i));

    if (r->opt.fault != BENCH_FAULT_NONE && r->opt.n > 2) {
        double other = fabs(x - mean_of(r->opt.n - 1, i));

        error = other < error ? other : error;
    }
    return error;
}

/* Compare, and spoil what was compared, so that the next round must write it
 * again. */
void bench_vectors_check(struct rank *r, uint64_t stride)
{
    for (uint64_t i = 0; i < r->opt.elements; i += stride) {
        double error = error_of(r, i);

        if (!(error <= r->figures->max_error)) {
            r->figures->max_error = error;
        }
        r->result[i] = NAN;
    }
}

void *bench_map(size_t bytes)
{
    void *p = pages_take(bytes);

    return p == NULL ? NULL : memset(p, 0, bytes);
}

int bench_vectors_make(struct rank *r)
{
    r->vector_bytes = r->opt.elements * sizeof(float);
    r->input = bench_map(r->vector_bytes);
    r->result = bench_map(r->vector_bytes);
    if (r->input == NULL || r->result == NULL || bench_wire_make(r) != 0) {
        bench_give_up(r, LOCO_ENOMEM,
                      "no memory for %llu elements: take fewer with --elements",
                      (unsigned long long)r->opt.elements);
        return LOCO_ENOMEM;
    }
    for (uint64_t i = 0; i < r->opt.elements; i++) {
        r->input[i] = element(r->opt.rank, i);
        r->result[i] = NAN;
    }
    return 0;
}

void bench_vectors_free(struct rank *r)
{
    bench_wire_free(r);
    if (r->input != NULL) {
        pages_give(r->input, r->vector_bytes);
    }
    if (r->result != NULL) {
        pages_give(r->result, r->vector_bytes);
    }
}
