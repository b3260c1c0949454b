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
    int worker;    /* which slice of an operation's scratch is ours */
    bool bf16;     /* matrix products round their operands to bf16 */
    void *scratch; /* MATMUL_SCRATCH bytes of this worker; the references
                    * need none */
};

/* For the packed blocks of a matrix product, of the set with the largest. */
#define MATMUL_SCRATCH ((192 + 1024) * 512 * sizeof(float))

struct cpu_kernels {
#define X(kernel, type, units)                                                 \
    void (*kernel)(const struct type *op, struct kernel_range r);
    BACKEND_KERNELS(X)
#undef X
    /* matmul of operands rounded to bf16, sums in fp32; NULL: not there */
    void (*matmul_bf16)(const struct matmul *op, struct kernel_range r);
    /* n turns of x[2] = x[1] + x[2] x[0] in every register there is, x[2] the
     * sum of all in the end; returns the operations. NULL: not there. */
    int64_t (*peak)(int64_t n, float *x);
    int64_t (*peak_bf16)(int64_t n, float *x);
};

/* ref_matmul, ref_embed_fwd, ... */
#define X(kernel, type, units)                                                 \
    void ref_##kernel(const struct type *op, struct kernel_range r);
BACKEND_KERNELS(X)
#undef X

/* The fast sets. */
extern const struct cpu_kernels cpu_fast_baseline;
#ifdef LOCO_ISA_NEON
extern const struct cpu_kernels cpu_fast_neon;
#endif
#ifdef LOCO_ISA_X86
extern const struct cpu_kernels cpu_fast_avx2;
extern const struct cpu_kernels cpu_fast_avx512;
extern const struct cpu_kernels cpu_fast_amx; /* avx512's but for bf16 */
#endif

/* Rows i and columns j of c that one worker makes. */
struct matmul_part {
    int64_t i, i_end;
    int64_t j, j_end;
};

/* A worker gets whole units of the longer side of c. */
static inline struct matmul_part matmul_part(const struct matmul *op,
                                             struct kernel_range r)
{
    struct matmul_part p = {0, op->m, 0, op->n};
    int64_t *from = op->n > op->m ? &p.j : &p.i;
    int64_t *to = op->n > op->m ? &p.j_end : &p.i_end;
    int64_t end = r.to * MATMUL_UNIT;

    *from = r.from * MATMUL_UNIT;
    *to = end < *to ? end : *to;
    return p;
}

/* Row length of the attention kernels' scratch: not a power of two, whose
 * columns would meet in few lines of the first cache. */
static inline int64_t attention_ld(int64_t t)
{
    return (t + 31) / 16 * 16;
}

/* Floats of scratch per worker. */
static inline int64_t attention_scratch(int64_t t)
{
    return 2 * ATTENTION_TILE * attention_ld(t);
}

#endif
