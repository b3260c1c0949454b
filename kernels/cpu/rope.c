/* rope.c - rotate the pairs (j, j + D/2) of each head by time * theta^(-2j/D).
 *
 *   x (N, ld): `heads` heads of D floats first in a row  cos, sin (T, D/2)
 */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

void CPU_KERNEL(rope)(const struct rope *op, struct kernel_range r)
{
    int64_t half = op->d / 2;

    for (int64_t n = r.from; n < r.to; n++) {
        const float *restrict cs = op->cos + n % op->t * half;
        const float *restrict sn = op->sin + n % op->t * half;

        for (int64_t h = 0; h < op->heads; h++) {
            float *restrict lo = op->x + n * op->ld + h * op->d;
            float *restrict hi = lo + half;

            for (int64_t j = 0; j < half; j++) {
                float a = lo[j];
                float b = hi[j];
                float s = sn[j] * op->sign;

                lo[j] = a * cs[j] - b * s;
                hi[j] = b * cs[j] + a * s;
            }
        }
    }
}
