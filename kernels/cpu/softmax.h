/* softmax.h - the two passes over a row that attention and the loss share. */
#ifndef LOCO_KERNELS_CPU_SOFTMAX_H
#define LOCO_KERNELS_CPU_SOFTMAX_H

#include <math.h>

#include "kernels/cpu/simd.h"

VF_INLINE float row_max(const float *x, int64_t n)
{
    vf acc = vf_set(-INFINITY);
    int64_t i = 0;

    for (; i + VF_LANES <= n; i += VF_LANES) {
        acc = vf_max(vf_load(x + i), acc);
    }
    if (i < n) {
        acc = vf_max(vf_load_part(x + i, n - i, -INFINITY), acc);
    }
    return vf_top(acc);
}

/* Below it e^x is 0, 2e-22: nothing beside a sum of 1 or more in fp32. What a
 * gradient takes to it would be subnormal soon, and a processor multiplies
 * such numbers many times more slowly. */
#define ROW_EXP_LEAST (-50.0f)

VF_INLINE vf vf_exp_row(vf x)
{
    return vf_pick(x < vf_set(ROW_EXP_LEAST), vf_set(0), vf_exp(x));
}

/* x = exp(x * scale - shift); returns the sum. */
VF_INLINE float row_exp(float *x, int64_t n, float scale, float shift)
{
    vf acc = {0};
    int64_t i = 0;

    for (; i + VF_LANES <= n; i += VF_LANES) {
        vf e = vf_exp_row(vf_load(x + i) * scale - shift);

        vf_store(x + i, e);
        acc += e;
    }
    if (i < n) {
        float part[VF_LANES] = {0};

        vf_store_part(
            x + i, n - i,
            vf_exp_row(vf_load_part(x + i, n - i, 0) * scale - shift));
        memcpy(part, x + i, (size_t)(n - i) * sizeof *x);
        acc += vf_load(part);
    }
    return vf_sum(acc);
}

VF_INLINE void row_scale(float *x, int64_t n, float a)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] *= a;
    }
}

#endif
