/* kernels.h - the CPU kernels behind backend.h, each over a range of units.
 *
 * A kernel gets its operation and the half-open range of units (rows,
 * channels, heads or elements: the table in backend.h) that one worker does.
 * Three sets exist: the references of this folder's plain files, and the
 * fast_*.c files compiled once per instruction set.
 */
#ifndef LOCO_KERNELS_CPU_KERNELS_H
#define LOCO_KERNELS_CPU_KERNELS_H

#include "kernels/backend.h"

struct kernel_range {
    int64_t from;
    int64_t to;
    int worker; /* which slice of the scratch is ours */
};

struct cpu_kernels {
#define X(kernel, type, units)                                                 \
    void (*kernel)(const struct type *op, struct kernel_range r);
    BACKEND_KERNELS(X)
#undef X
};

/* ref_matmul, ref_embed_fwd, ... */
#define X(kernel, type, units)                                                 \
    void ref_##kernel(const struct type *op, struct kernel_range r);
BACKEND_KERNELS(X)
#undef X

/* The fast sets. */
extern const struct cpu_kernels cpu_fast_baseline;
#ifdef LOCO_ISA_X86
extern const struct cpu_kernels cpu_fast_avx2;
extern const struct cpu_kernels cpu_fast_avx512;
#endif

#ifdef LOCO_HAVE_ONEDNN
/* matmul by oneDNN, on the calling thread alone. */
void onednn_matmul(const struct matmul *op, struct kernel_range r);
#endif

/* Floats of scratch per worker. */
static inline int64_t attention_scratch(int64_t t)
{
    return 2 * ATTENTION_TILE * t;
}

#endif
