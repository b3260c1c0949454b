/* fast_xent.c - xent.c with fp32 sums and the vector exp of simd.h. */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/softmax.h"

/* sum of exp(z - max) without writing */
static float exp_sum(const float *z, int64_t n, float max)
{
    vf acc = {0};
    int64_t i = 0;

    for (; i + VF_LANES <= n; i += VF_LANES) {
        acc += vf_exp(vf_load(z + i) - max);
    }
    for (float rest[VF_LANES]; i < n; i += VF_LANES) {
        vf e = vf_exp(vf_load_part(z + i, n - i, max) - max);

        memset(rest, 0, sizeof rest);
        vf_store_part(rest, n - i, e);
        acc += vf_load(rest);
    }
    return vf_sum(acc);
}

static void xent_row(const struct xent *op, int64_t n)
{
    float *z = op->logits + n * op->ld;
    uint32_t target = op->targets[n];
    float max = row_max(z, op->v);
    float at = z[target] - max;
    float sum;

    if (!op->grad) {
        op->loss[n] = logf(exp_sum(z, op->v, max)) - at;
        return;
    }
    sum = row_exp(z, op->v, 1, max);
    op->loss[n] = logf(sum) - at;
    row_scale(z, op->v, 1 / sum);
    z[target] -= 1;
}

void CPU_KERNEL(xent)(const struct xent *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        int64_t from = op->v; /* 0 from there on */

        if (op->targets[n] != XENT_IGNORE) {
            xent_row(op, n);
        } else {
            op->loss[n] = 0;
            from = 0;
        }
        if (op->grad) {
            memset(op->logits + n * op->ld + from, 0,
                   (size_t)(op->ld - from) * sizeof *op->logits);
        }
    }
}
