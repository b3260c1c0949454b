/* rmsnorm.c - y = x / rms(x) * w, per row. Zhang & Sennrich 2019, eq. 4.
 *
 *   x (N, C)  w (C)  y (N, C)  rrms (N)
 *
 * With s = sum_c(dy w x) of a row:
 *   dx[c] += rrms (dy[c] w[c] - x[c] rrms^2 s / C)
 *   dw[c] += sum_n dy[n, c] x[n, c] rrms[n]
 */
#include "kernels/cpu/kernels.h"

#include <math.h>

void ref_rmsnorm_fwd(const struct rmsnorm *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        float *x = op->x + n * op->c;
        float *y = op->y + n * op->c;
        double sum = 0;
        float rrms;

        for (int64_t c = 0; c < op->c; c++) {
            if (op->add != NULL) {
                x[c] += op->add[n * op->c + c];
            }
            sum += (double)x[c] * x[c];
        }
        rrms = (float)(1.0 / sqrt(sum / (double)op->c + (double)op->eps));
        op->rrms[n] = rrms;
        for (int64_t c = 0; c < op->c; c++) {
            y[c] = x[c] * rrms * op->w[c];
        }
    }
}

void ref_rmsnorm_bwd(const struct rmsnorm *op, struct kernel_range r)
{
    for (int64_t n = r.from; n < r.to; n++) {
        const float *x = op->x + n * op->c;
        const float *dy = op->dy + n * op->c;
        float *dx = op->dx + n * op->c;
        double rrms = op->rrms[n];
        double s = 0;

        for (int64_t c = 0; c < op->c; c++) {
            s += (double)dy[c] * op->w[c] * x[c];
        }
        s *= rrms * rrms / (double)op->c;
        for (int64_t c = 0; c < op->c; c++) {
            dx[c] += (float)(rrms * ((double)dy[c] * op->w[c] - x[c] * s));
        }
    }
}

void ref_rmsnorm_dw(const struct rmsnorm *op, struct kernel_range r)
{
    for (int64_t n = 0; n < op->n; n++) {
        const float *restrict x = op->x + n * op->c;
        const float *restrict dy = op->dy + n * op->c;
        float *restrict dw = op->dw;

        for (int64_t c = r.from; c < r.to; c++) {
            dw[c] += dy[c] * x[c] * op->rrms[n];
        }
    }
}
