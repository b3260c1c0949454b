/* lies.h - what the liars of one average send in place of what they packed.
 *
 * Pure: vectors in, vectors changed; lab.h has the list of lies, lies.c says
 * why each should do damage. Nothing fails, nothing is allocated.
 */
#ifndef LOCO_TRAIN_LAB_LIES_H
#define LOCO_TRAIN_LAB_LIES_H

#include "train/lab/lab.h"

struct lies_group {
    enum lab_lie lie;
    float clip;     /* the defence's radius, which liars know; 0: none */
    uint32_t block; /* elements that are clipped together */
    uint64_t seed, turn;
    uint64_t len;
    uint32_t n;
    float *x[LAB_PEERS_MAX];        /* (n) of `len`: what each one packed */
    uint32_t number[LAB_PEERS_MAX]; /* (n) of the peer */
    bool liar[LAB_PEERS_MAX];       /* (n) */
};

/* The vectors of liars become their lie; those of the others stay. */
void lies_tell(const struct lies_group *g);

#endif
