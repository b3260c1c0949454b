/* xent.c - loss[n] = log(sum_v exp(z[n, v])) - z[n, target].
 *
 *   logits z (N, ld), V of them used  targets (N)  loss (N)
 *   with grad: z[n, v] becomes softmax(z)[v] - (v == target), behind V 0
 *
 * The row's largest logit is taken off first: exp cannot overflow.
 */
#include "kernels/cpu/kernels.h"

#include <math.h>
#include <string.h>

static void xent_row(const struct xent *op, int64_t n)
{
    float *z = op->logits + n * op->ld;
    uint32_t target = op->targets[n];
    double max = z[0];
    double sum = 0;

    for (int64_t v = 1; v < op->v; v++) {
        max = z[v] > max ? z[v] : max;
    }
    for (int64_t v = 0; v < op->v; v++) {
        sum += exp(z[v] - max);
    }
    op->loss[n] = (float)(log(sum) + max - z[target]);
    if (!op->grad) {
        return;
    }
    for (int64_t v = 0; v < op->v; v++) {
        z[v] = (float)(exp(z[v] - max) / sum);
    }
    z[target] -= 1;
}

void ref_xent(const struct xent *op, struct kernel_range r)
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
