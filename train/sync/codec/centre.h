/* centre.h - the share of each term in a robust mean (codec.h, `centred`).
 *
 * Pure: distances in, shares out; the essay is in centre.c. Nothing fails.
 */
#ifndef LOCO_TRAIN_SYNC_CODEC_CENTRE_H
#define LOCO_TRAIN_SYNC_CODEC_CENTRE_H

#include <stddef.h>
#include <stdint.h>

#include "train/sync/codec/codec.h"

#define CENTRE_PAIRS (CODEC_TERMS_MAX * (CODEC_TERMS_MAX - 1) / 2)

/* The terms of one block. */
struct centre {
    uint32_t n;          /* terms, 1 .. CODEC_TERMS_MAX */
    const float *weight; /* (n); a term with 0 has no word in anything */
    float clip;          /* radius in typical distances; > 0 */
    double length[CODEC_TERMS_MAX]; /* |v(i)|^2 of terms with weight */
    double apart[CENTRE_PAIRS];     /* |v(i) - v(j)|^2 of terms with weight; see
                                       centre_pair() */
};

/* The place of a pair i < j in `apart`. */
static inline size_t centre_pair(uint32_t i, uint32_t j)
{
    return (size_t)j * (j - 1) / 2 + i;
}

/* |x - y|^2 of n elements, with the same bits on every machine. */
double centre_apart(const float *x, const float *y, size_t n);

/* The lower median of n numbers, which are sorted on the way; 0 of none. */
double centre_median(double *x, uint32_t n);

/* share[i] = what term i counts in the sum. They add up to 1 but for roundings
 * where no term is longer than most; all are 0 if no term has weight. */
void centre_shares(const struct centre *c, float *share);

#endif
