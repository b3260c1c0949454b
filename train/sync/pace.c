/* pace.c - see pace.h. */
#include "train/sync/pace.h"

#include <math.h>

void pace_note(struct pace *p, double steps, double seconds)
{
    double v = steps / seconds;

    if (!(steps > 0.0) || !(seconds > 0.0) || !isfinite(v)) {
        return;
    }
    p->steps_per_s = p->steps_per_s == 0.0
                         ? v
                         : p->steps_per_s + PACE_WEIGHT * (v - p->steps_per_s);
}

uint32_t pace_steps(uint32_t period, double v, double v_max)
{
    double h;

    if (!(v > 0.0) || !(v_max > 0.0) || v >= v_max) {
        return period;
    }
    h = floor((double)period * (v / v_max));
    return h < 1.0 ? 1 : (uint32_t)h;
}

size_t
pace_windows(const double *finish_s, size_t n, double grace_s, uint32_t *window)
{
    size_t count = 0;
    double opened = 0.0;

    for (size_t i = 0; i < n; i++) {
        if (i == 0 || finish_s[i] > opened + grace_s) {
            opened = finish_s[i];
            count++;
        }
        window[i] = (uint32_t)(count - 1);
    }
    return count;
}
