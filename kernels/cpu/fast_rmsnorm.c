/* fast_rmsnorm.c - rmsnorm.c with fp32 sums in vector lanes. */
#include <math.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

/* x += add; returns sum of x^2. */
static float add_and_square(float *x, const float *add, int64_t c)
{
    vf acc = {0};
    float sum = 0;
    int64_t i = 0;

    for (; i + VF_LANES <= c; i += VF_LANES) {
        vf v = vf_load(x + i);

        if (add != NULL) {
            v += vf_load(add + i);
            vf_store(x + i, v);
        }
        acc += v * v;
    }
    for (; i < c; i++) {
        if (add != NULL) {
            x[i] += add[i];
        }
        sum += x[i] * x[i];
    }
    return sum + vf_sum(acc);
}

void CPU_KERNEL(rmsnorm_fwd)(const struct rmsnorm *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        const float *add = op->add == NULL ? NULL : op->add + n * op->c;
        float *restrict x = op->x + n * op->c;
        float *restrict y = op->y + n * op->c;
        const float *restrict w = op->w;
        float mean = add_and_square(x, add, op->c) / (float)op->c;
        float rrms = 1.0f / sqrtf(mean + op->eps);

        op->rrms[n] = rrms;
        for (int64_t c = 0; c < op->c; c++) {
            y[c] = x[c] * rrms * w[c];
        }
    }
}

static float dot3(const float *a, const float *b, const float *c, int64_t n)
{
    vf acc = {0};
    float sum = 0;
    int64_t i = 0;

    for (; i + VF_LANES <= n; i += VF_LANES) {
        acc += vf_load(a + i) * vf_load(b + i) * vf_load(c + i);
    }
    for (; i < n; i++) {
        sum += a[i] * b[i] * c[i];
    }
    return sum + vf_sum(acc);
}

void CPU_KERNEL(rmsnorm_bwd)(const struct rmsnorm *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        const float *restrict x = op->x + n * op->c;
        const float *restrict dy = op->dy + n * op->c;
        const float *restrict w = op->w;
        float *restrict dx = op->dx + n * op->c;
        float rrms = op->rrms[n];
        float s = dot3(dy, w, x, op->c) * rrms * rrms / (float)op->c;

        for (int64_t c = 0; c < op->c; c++) {
            dx[c] += rrms * (dy[c] * w[c] - x[c] * s);
        }
    }
}

void CPU_KERNEL(rmsnorm_dw)(const struct rmsnorm *op, struct kernel_range r)
{
    for (int64_t n = 0; n < op->n; n++) {
        const float *restrict x = op->x + n * op->c;
        const float *restrict dy = op->dy + n * op->c;
        float *restrict dw = op->dw;
        float rrms = op->rrms[n];

        for (int64_t c = r.from; c < r.to; c++) {
            dw[c] += dy[c] * x[c] * rrms;
        }
    }
}
