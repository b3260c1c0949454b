/* finite.h - was everything that a loop wrote a number?
 *
 * x - x is NaN for NaN and infinity, else 0. One comparison and no branch: a
 * loop that gathers the answers with |= has them in vector registers.
 */
#ifndef LOCO_TRAIN_SYNC_FINITE_H
#define LOCO_TRAIN_SYNC_FINITE_H

#include <stdbool.h>

#include "proto/base/err.h"

static inline bool not_finite(float x)
{
    return x - x != 0.0F;
}

static inline int finite_or_error(unsigned bad)
{
    return bad == 0 ? 0 : LOCO_ENUMERIC;
}

#endif
