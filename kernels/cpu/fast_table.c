/* fast_table.c - the kernels of one instruction set (LOCO_ISA) as a table. */
#include <stddef.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

#ifdef LOCO_ISA_BF16
#define MATMUL_BF16 CPU_KERNEL(matmul_bf16)
#else
#define MATMUL_BF16 NULL
#endif

const struct cpu_kernels CPU_JOIN(cpu_fast, LOCO_ISA) = {
    .matmul = CPU_KERNEL(matmul),
    .embed_fwd = CPU_KERNEL(embed_fwd),
    .embed_bwd = CPU_KERNEL(embed_bwd),
    .rmsnorm_fwd = CPU_KERNEL(rmsnorm_fwd),
    .rmsnorm_bwd = CPU_KERNEL(rmsnorm_bwd),
    .rmsnorm_dw = CPU_KERNEL(rmsnorm_dw),
    .rope = CPU_KERNEL(rope),
    .attention_fwd = CPU_KERNEL(attention_fwd),
    .attention_bwd = CPU_KERNEL(attention_bwd),
    .swiglu_fwd = CPU_KERNEL(swiglu_fwd),
    .swiglu_bwd = CPU_KERNEL(swiglu_bwd),
    .xent = CPU_KERNEL(xent),
    .adamw = CPU_KERNEL(adamw),
    .adopt = CPU_KERNEL(adopt),
    .sgdm = CPU_KERNEL(sgdm),
    .sumsq = CPU_KERNEL(sumsq),
    .matmul_bf16 = MATMUL_BF16,
};
