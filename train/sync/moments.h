/* moments.h - how far apart two optimizers are, by their moments.
 *
 * What the next step is made of, u / (sqrt v + eps), says more than u and v
 * alone: a v that is nothing where it should be something makes that step long,
 * and has nearly the same cosine with what it should be. *Apart* are two
 * vectors x and r of n elements by
 *     |x - r|^2 / (|x| |r| + n t^2)
 * which is s + 1/s - 2 cos for a cosine cos and a length s times as long, where
 * both are longer than t an element; what is shorter is nothing. Steps of Adam
 * are about 1 an element, and a hundredth of that is nothing; of v what eps
 * outweighs is nothing (kernels round that to 0, or do not).
 *
 * Pure.
 */
#ifndef LOCO_TRAIN_SYNC_MOMENTS_H
#define LOCO_TRAIN_SYNC_MOMENTS_H

#include <stdint.h>

/* Moments of the same n elements. */
struct moments_part {
    const float *u, *v;
};

/* The worst of: how far apart the next steps are, and v; and u of elements
 * whose v is 0 on both sides (Muon's matrices have none). No number where `r`
 * is none; infinite where x alone is. */
double moments_apart(const struct moments_part *x,
                     const struct moments_part *r,
                     uint64_t n,
                     double eps);

#endif
