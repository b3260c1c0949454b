/* rounded.h - products of operands rounded to bf16, on a processor that has
 * none: what peers with bf16 products would get, for comparisons.
 *
 * A product is made block by block: the operands' blocks are rounded to bf16
 * (nearest, ties to even) into memory of the backend, and the fp32 kernel
 * multiplies them. It takes about as long again as the product where that is
 * small, a tenth more where it is large. Products inside attention keep fp32.
 *
 * The same bits for any number of threads.
 */
#ifndef LOCO_KERNELS_ROUNDED_H
#define LOCO_KERNELS_ROUNDED_H

#include "kernels/backend.h"

/* Bytes of backend.rounded. */
size_t rounded_bytes(void);

/* The product; `product` is the backend's fp32 one. */
void rounded_matmul(const struct backend *b,
                    const struct matmul *op,
                    void (*product)(const struct backend *b,
                                    const struct matmul *op));

#endif
