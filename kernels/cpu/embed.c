/* embed.c - a row of the table for each token; the gradient goes back there.
 * tokens (N)  table (V, C)  x (N, C) */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

#include <string.h>

void CPU_KERNEL(embed_fwd)(const struct embed *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        memcpy(op->x + n * op->c, op->table + op->tokens[n] * op->c,
               (size_t)op->c * sizeof *op->x);
    }
}

/* Tokens in order, so that a repeated token always adds in one order. */
void CPU_KERNEL(embed_bwd)(const struct embed *op, struct kernel_range r)
{
    for (int64_t n = 0; n < op->n; n++) {
        const float *restrict dx = op->dx + n * op->c;
        float *restrict dt = op->dtable + op->tokens[n] * op->c;

        for (int64_t c = r.from; c < r.to; c++) {
            dt[c] += dx[c];
        }
    }
}
