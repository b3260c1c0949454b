/* transpose.h - turn rows into columns in registers.
 *
 * A square of VF_LANES by VF_LANES floats is transposed in log2(VF_LANES)
 * steps: in step s, lanes whose number has bit s change places between rows
 * whose numbers differ in bit s.
 */
#ifndef LOCO_KERNELS_CPU_TRANSPOSE_H
#define LOCO_KERNELS_CPU_TRANSPOSE_H

#include "kernels/cpu/slot.h"

#if VF_LANES == 16
#define LOW_1  0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define LOW_2  0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_4  0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_8  0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#elif VF_LANES == 8
#define LOW_1  0, 8, 2, 10, 4, 12, 6, 14
#define HIGH_1 1, 9, 3, 11, 5, 13, 7, 15
#define LOW_2  0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_2 2, 3, 10, 11, 6, 7, 14, 15
#define LOW_4  0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_4 4, 5, 6, 7, 12, 13, 14, 15
#else
#define LOW_1  0, 4, 2, 6
#define HIGH_1 1, 5, 3, 7
#define LOW_2  0, 1, 4, 5
#define HIGH_2 2, 3, 6, 7
#endif

#if defined(__clang__) || __GNUC__ >= 12
#define LANES_OF(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else /* gcc 10, Debian 11's */
#define LANES_OF(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

#define TRANSPOSE_STEP(x, s)                                                   \
    _Pragma("GCC unroll 16") for (int i = 0; i < VF_LANES; i++)                \
    {                                                                          \
        if ((i & (s)) == 0) {                                                  \
            vf low = LANES_OF(x[i], x[i + (s)], LOW_##s);                      \
            vf high = LANES_OF(x[i], x[i + (s)], HIGH_##s);                    \
                                                                               \
            x[i] = low;                                                        \
            x[i + (s)] = high;                                                 \
        }                                                                      \
    }

/* x[i][j] and x[j][i] change places. */
VF_INLINE void transpose_square(vf x[VF_LANES])
{
#if VF_LANES == 16
    TRANSPOSE_STEP(x, 8)
#endif
#if VF_LANES >= 8
    TRANSPOSE_STEP(x, 4)
#endif
    TRANSPOSE_STEP(x, 2)
    TRANSPOSE_STEP(x, 1)
}

/* to[s * to_ld + j] = slot s of row j, for j < rows <= VF_LANES and a depth of
 * `depth` floats; 0 for rows <= j < VF_LANES <= to_ld, and past the depth in
 * the last group. */
static inline void transpose(float *to,
                             int64_t to_ld,
                             const float *from,
                             int64_t from_ld,
                             int64_t rows,
                             int64_t depth)
{
    for (int64_t k = 0; k < depth; k += VF_LANES * SLOT_K) {
        int64_t n = lanes((depth - k + GROUP_K - 1) / GROUP_K * SLOT_GROUP);
        vf x[VF_LANES];

#pragma GCC unroll 16
        for (int j = 0; j < VF_LANES; j++) {
            x[j] = vf_set(0);
            if (j < rows) {
                x[j] = slots_of_row(from + j * from_ld + k, depth - k);
            }
        }
        transpose_square(x);
#pragma GCC unroll 16
        for (int j = 0; j < VF_LANES; j++) {
            if (j < n) {
                vf_store(to + (k / SLOT_K + j) * to_ld, x[j]);
            }
        }
    }
}

#endif
