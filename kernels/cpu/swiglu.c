/* swiglu.c - h = silu(g) u with silu(g) = g sig(g). Shazeer 2020, eq. 6.
 *
 *   gu (N, 2F): g then u in each row  h (N, F)
 *   dg = dh u sig (1 + g (1 - sig))  du = dh g sig
 */
#include "kernels/cpu/kernels.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

void ref_swiglu_fwd(const struct swiglu *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        const float *g = op->gu + n * 2 * op->f;
        const float *u = g + op->f;

        for (int64_t f = 0; f < op->f; f++) {
            op->h[n * op->f + f] = (float)(g[f] * sigmoid(g[f]) * u[f]);
        }
    }
}

void ref_swiglu_bwd(const struct swiglu *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        const float *g = op->gu + n * 2 * op->f;
        const float *u = g + op->f;
        const float *dh = op->dh + n * op->f;
        float *dg = op->dgu + n * 2 * op->f;
        float *du = dg + op->f;

        for (int64_t f = 0; f < op->f; f++) {
            double sig = sigmoid(g[f]);

            dg[f] = (float)(dh[f] * u[f] * sig * (1 + g[f] * (1 - sig)));
            du[f] = (float)(dh[f] * g[f] * sig);
        }
    }
}
