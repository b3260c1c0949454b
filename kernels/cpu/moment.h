/* moment.h - the running mean that the inner optimizers keep.
 *
 * A mean below the smallest normal number is 0. Without gradient (the row of a
 * token that does not come any more) moments shrink until b u rounds to u, the
 * smallest subnormal, and there they stay; a processor takes ten times as long
 * for a step of such numbers.
 */
#ifndef LOCO_KERNELS_CPU_MOMENT_H
#define LOCO_KERNELS_CPU_MOMENT_H

#include <float.h>
#include <math.h>

#include "kernels/cpu/simd.h"

/* b m + (1 - b) x */
VF_INLINE float moment(float beta, float m, float one_minus_beta, float x)
{
    float y = beta * m + one_minus_beta * x;

    return fabsf(y) < FLT_MIN ? 0 : y;
}

#endif
