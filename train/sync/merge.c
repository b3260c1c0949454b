/* merge.c - see merge.h. */
#include "train/sync/merge.h"

#include <math.h>

#include "proto/base/err.h"

size_t merge_set(const uint64_t *request,
                 size_t n,
                 size_t w,
                 uint32_t *out,
                 uint32_t *representative)
{
    size_t found = 0;

    if (w < 2 || w > n) {
        return 0;
    }
    *representative = UINT32_MAX;
    for (size_t i = 0; i < n && found < w; i++) {
        size_t smaller = 0; /* how many come before i */

        for (size_t j = 0; j < n; j++) {
            smaller +=
                request[j] < request[i] || (request[j] == request[i] && j < i);
        }
        if (smaller >= w) {
            continue;
        }
        if (*representative == UINT32_MAX ||
            request[i] > request[*representative]) {
            *representative = (uint32_t)i;
        }
        out[found++] = (uint32_t)i;
    }
    return found;
}

void merge_mean(float *x,
                const float *const *parts,
                const uint64_t *weights,
                size_t n_parts,
                size_t n)
{
    double sum = 0.0;

    for (size_t j = 0; j < n_parts; j++) {
        sum += (double)weights[j];
    }
    for (size_t i = 0; i < n; i++) {
        double v = 0.0;

        for (size_t j = 0; j < n_parts; j++) {
            v += (double)weights[j] * (double)parts[j][i];
        }
        x[i] = (float)(v / sum);
    }
}

/* Demand per node if trainer i had one more (highest averages, D'Hondt). */
static double claim(const uint64_t *demand, const uint32_t *nodes, size_t i)
{
    return (double)demand[i] / ((double)nodes[i] + 1.0);
}

/* Nodes per demand: who has most of them gives one back. */
static double surplus(const uint64_t *demand, const uint32_t *nodes, size_t i)
{
    return demand[i] == 0 ? INFINITY : (double)nodes[i] / (double)demand[i];
}

int merge_nodes(const uint64_t *demand, size_t n, uint32_t nodes, uint32_t *out)
{
    double total = 0.0;
    uint64_t given = 0;

    if (n == 0 || nodes < n) {
        return LOCO_EINVAL;
    }
    for (size_t i = 0; i < n; i++) {
        total += (double)demand[i];
    }
    for (size_t i = 0; i < n; i++) {
        double whole =
            total > 0.0 ? floor((double)nodes * (double)demand[i] / total) : 0;

        out[i] = whole < 1.0 ? 1 : (uint32_t)whole;
        given += out[i];
    }
    for (; given < nodes; given++) {
        size_t best = 0;

        for (size_t i = 1; i < n; i++) {
            best = claim(demand, out, i) > claim(demand, out, best) ? i : best;
        }
        out[best]++;
    }
    for (; given > nodes; given--) {
        size_t most = n;

        for (size_t i = 0; i < n; i++) {
            if (out[i] > 1 && (most == n || surplus(demand, out, i) >
                                                surplus(demand, out, most))) {
                most = i;
            }
        }
        out[most]--;
    }
    return 0;
}
