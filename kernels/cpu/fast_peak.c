/* fast_peak.c - the most multiply-adds that a core has: nothing leaves its
 * registers. A benchmark divides by it what whole steps reach; how long it
 * takes is for the caller to measure.
 *
 * 12 sums: the latency of a multiply-add times the units that make them, on
 * every processor so far at most 10. The tiles of fast_matmul.c have 12 or 24.
 */
#include "kernels/cpu/slot.h"

#define SUMS 12

#ifdef LOCO_BF16
#define PEAK_NAME(isa) CPU_JOIN(peak_bf16, isa)
#else
#define PEAK_NAME(isa) CPU_JOIN(peak, isa)
#endif

int64_t PEAK_NAME(LOCO_ISA)(int64_t n, float *x)
{
    const vf a = vf_set(x[0]), b = vf_set(x[1]);
    vf sum[SUMS];

    for (int j = 0; j < SUMS; j++) {
        sum[j] = vf_set(x[2]);
    }
    /* each sum becomes b + sum a: no part of it is the same in every turn */
    for (int64_t i = 0; i < n; i++) {
#pragma GCC unroll 12
        for (int j = 0; j < SUMS; j++) {
            sum[j] = slot_multiply_add(b, sum[j], a);
        }
    }
    for (int j = 1; j < SUMS; j++) {
        sum[0] += sum[j];
    }
    x[2] = vf_sum(sum[0]);
    return n * SUMS * VF_LANES * GROUP_K * 2;
}
