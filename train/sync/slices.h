/* slices.h - parameters in slices, each moved by arrivals one by one.
 *
 * AsyncDiLoCo (arXiv:2401.09135) has a server that keeps phi, m and D and takes
 * pseudo-gradients in the order in which they come. Its step is element-wise,
 * so no server is needed, only an order for each *slice* of the parameters
 * (algorithms page, 6.4 A): each peer owns some slices and keeps their phi, m
 * and D. A worker that ends its task sends each slice of it to its owner, and
 * reads all slices again for the next one. Slices may see the arrivals in
 * different orders, and a worker may read slices some arrivals apart.
 *
 * The laboratory (train/lab/owners.c) decides who owns what, in which order
 * arrivals count and what happens when an owner dies; this is what arrivals do
 * to numbers. Owner and backup make the same calls in the same order and hold
 * the same bits. A quorum of a run moves all parameters as one such slice.
 *
 * A slice is a whole number of blocks of the wire type, so that the pieces of a
 * task have the bits that its whole vector would have. What is read is a state,
 * which 4 or 8 bits would ruin: slices_reading() says in which type it goes.
 *
 * Pure; how steps fail is in delayed.h and rule.h.
 */
#ifndef LOCO_TRAIN_SYNC_SLICES_H
#define LOCO_TRAIN_SYNC_SLICES_H

#include <stdint.h>

#include "train/sync/delayed.h"
#include "train/sync/method.h"

#define SLICES_MAX 64

/* How n > 0 elements are cut: at most SLICES_MAX slices of equal length, the
 * last one perhaps shorter, none empty. */
struct slices {
    uint64_t n;
    uint64_t each; /* elements of all but the last */
    uint32_t count;
};

struct slices slices_cut(uint64_t n, uint32_t block);

uint64_t slices_offset(const struct slices *s, uint32_t i);
uint64_t slices_len(const struct slices *s, uint32_t i);

/* The step of q > 0 arrivals of which g (n) is the mean, by the method's rule:
 * delayed Nesterov, or rule N for each (the naive baseline, which has no D:
 * `sum` is not read). Both count cycles. */
int slices_arrive(const struct method *m,
                  struct delayed_state *s,
                  const float *g,
                  uint32_t q,
                  uint64_t n);

/* The wire type in which the slices of a run go to who reads them. */
enum codec_id slices_reading(enum codec_id wire);

#endif
