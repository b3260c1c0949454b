/* pace.h - who does how much before it reports: unequal machines, equal waits.
 *
 * DyLU (AsyncDiLoCo, arXiv:2401.09135; algorithms page 6.3): a worker makes
 * inner steps in proportion to its speed, so that all finish together:
 * H_w = max(1, floor(H * v_w / max v)). Speeds are measured, change with time
 * and are smoothed. The *grace period* gathers those that nearly finish
 * together: the first to finish opens a window; who finishes within it goes
 * into the same round.
 *
 * Unequal steps need weights by tokens in a synchronous mean.
 *
 * Pure.
 */
#ifndef LOCO_TRAIN_SYNC_PACE_H
#define LOCO_TRAIN_SYNC_PACE_H

#include <stddef.h>
#include <stdint.h>

/* Smoothed inner steps per second. */
struct pace {
    double steps_per_s; /* 0: nothing measured yet */
};

/* Weight of a new measurement: the last ten decide. */
#define PACE_WEIGHT 0.1

/* Take in `steps` that took `seconds`; nothing for values that are not above
 * 0 or not finite. */
void pace_note(struct pace *p, double steps, double seconds);

/* Steps of a worker with speed v, where the fastest has v_max; both above 0,
 * else `period`. */
uint32_t pace_steps(uint32_t period, double v, double v_max);

/* Window of each arrival: finish_s sorted ascending, window[i] = number of the
 * window that arrival i is in, from 0. A window is [first, first + grace_s].
 * Returns the number of windows. */
size_t pace_windows(const double *finish_s,
                    size_t n,
                    double grace_s,
                    uint32_t *window);

#endif
