/* finite.h - was everything that a loop wrote a number?
 *
 * A comparison instead of isfinite(): it vectorises, and a loop can gather the
 * answers with |=. NaN fails both comparisons.
 */
#ifndef LOCO_TRAIN_SYNC_FINITE_H
#define LOCO_TRAIN_SYNC_FINITE_H

#include <float.h>
#include <stdbool.h>

#include "proto/base/err.h"

static inline bool not_finite(float x)
{
    return !(x <= FLT_MAX && x >= -FLT_MAX);
}

static inline int finite_or_error(unsigned bad)
{
    return bad == 0 ? 0 : LOCO_ENUMERIC;
}

#endif
