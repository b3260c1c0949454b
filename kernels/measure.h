/* measure.h - what the kernels in use reach on this machine, by the clock. */
#ifndef LOCO_KERNELS_MEASURE_H
#define LOCO_KERNELS_MEASURE_H

#include "kernels/backend.h"

/* Seconds of a product of one and a half million multiplications, the best of
 * three. Infinity: no memory. */
double backend_product_seconds(const struct backend *b);

/* Multiply-adds in registers alone, as fast as all threads make them with the
 * instructions of the set and dtype in use: the bound of every product, in
 * operations per second; the best of some turns of about 10 ms. 0: of a GPU,
 * of the references, of products that are rounded. */
double backend_peak_flops(const struct backend *b);

#endif
