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

#define X(kernel, type, units) .kernel = CPU_KERNEL(kernel),
#define ALL_BUT_BF16           BACKEND_KERNELS(X).peak = CPU_KERNEL(peak)

const struct cpu_kernels CPU_JOIN(cpu_fast, LOCO_ISA) = {
    ALL_BUT_BF16,
    .matmul_bf16 = MATMUL_BF16,
    .peak_bf16 = PEAK_BF16,
};

#ifdef LOCO_ISA_AMX
/* The same with other products in bf16. */
void matmul_bf16_amx(const struct matmul *op, struct kernel_range r);

const struct cpu_kernels cpu_fast_amx = {
    ALL_BUT_BF16,
    .matmul_bf16 = matmul_bf16_amx,
};
#endif
