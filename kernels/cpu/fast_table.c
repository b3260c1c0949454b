/* fast_table.c - the kernels of one instruction set (LOCO_ISA) as a table. */
#include <stddef.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

#ifdef LOCO_ISA_BF16
#define MATMUL_BF16 CPU_KERNEL(matmul_bf16)
#define PEAK_BF16   CPU_KERNEL(peak_bf16)
#else
#define MATMUL_BF16 NULL
#define PEAK_BF16   NULL
#endif

const struct cpu_kernels CPU_JOIN(cpu_fast, LOCO_ISA) = {
#define X(kernel, type, units) .kernel = CPU_KERNEL(kernel),
    BACKEND_KERNELS(X)
#undef X
        .matmul_bf16 = MATMUL_BF16,
    .peak = CPU_KERNEL(peak),
    .peak_bf16 = PEAK_BF16,
};
