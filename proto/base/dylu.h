/* dylu.h - how many inner steps a machine of some speed makes in a task.
 *
 * DyLU (AsyncDiLoCo, arXiv:2401.09135; algorithms page 6.3): steps in
 * proportion to the speed, so that unequal machines finish together:
 * H_w = max(1, floor(H * v_w / max v)). The node and the laboratory both ask
 * here.
 */
#ifndef LOCO_PROTO_BASE_DYLU_H
#define LOCO_PROTO_BASE_DYLU_H

#include <stdint.h>

/* Of speed v where the fastest has v_max; `period` where v is not known (not
 * above 0), or v is the fastest. */
static inline uint32_t dylu_steps(uint32_t period, double v, double v_max)
{
    double steps;

    if (!(v > 0.0) || !(v_max > v)) {
        return period;
    }
    steps = (double)period * v / v_max;
    return steps > 1.0 ? (uint32_t)steps : 1;
}

#endif
