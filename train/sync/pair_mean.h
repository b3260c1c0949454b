/* pair_mean.h - the average of two replicas, from what went over the wire.
 *
 * Both partners compute it from the same bytes (algorithms page 8.2):
 *
 *     displacements  g = g_low / 2 + g_high / 2, as decoded, in the order of
 *                    the ids: the same bits on both sides
 *     anchors        mean_phi = phi + (theirs - own) / 2, as decoded
 *
 * An anchor is not replaced by what a 16-bit wire made of it: only the
 * difference of the two goes through the codec. So equal replicas do not pull
 * each other towards the codec's grid, and what one is pulled is exactly what
 * the other one is pulled the other way: the mean of the two stays.
 *
 * Each line is one fp32 operation per element, rounded to nearest. Pure.
 */
#ifndef LOCO_TRAIN_SYNC_PAIR_MEAN_H
#define LOCO_TRAIN_SYNC_PAIR_MEAN_H

#include <stddef.h>

/* mean may be one of the two. */
void pair_mean_step(float *mean, const float *low, const float *high, size_t n);

/* mean may be `own` or `theirs`. */
void pair_mean_anchor(float *mean,
                      const float *phi,
                      const float *own,
                      const float *theirs,
                      size_t n);

#endif
