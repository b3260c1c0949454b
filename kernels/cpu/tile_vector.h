/* tile_vector.h - tile.h with one multiply-add of a vector for each row and
 * vector of columns: a broadcast slot of a times the slots of b.
 */
#ifndef LOCO_KERNELS_CPU_TILE_VECTOR_H
#define LOCO_KERNELS_CPU_TILE_VECTOR_H

#include "kernels/cpu/tile.h"

#define pack_tile_rows        pack_rows
#define pack_tile_transposed  pack_transposed
#define pack_panel_rows       pack_rows
#define pack_panel_transposed pack_transposed

/* `rows`, `vectors` and `row` are constants at each call (row 0: variable),
 * so the sums live in registers. */
VF_INLINE void
multiply(const struct tile *t, const int rows, const int vectors, int64_t row)
{
    const float *a = t->a;
    const float *b = t->b;
    vf sum[TILE_ROWS][2] = {{{0}}};

    row = row == 0 ? t->row : row;
    if (t->fetch) { /* there when the sums are */
#pragma GCC unroll 14
        for (int r = 0; r < rows; r++) {
            __builtin_prefetch(t->c + r * t->ldc, 1);
            __builtin_prefetch(t->c + r * t->ldc + t->columns - 1, 1);
        }
    }
#pragma GCC unroll 4
    for (int64_t k = 0; k < t->slots; k++) {
        vf b0 = vf_load(b);
        vf b1 = vectors == 2 ? vf_load(b + VF_LANES) : b0;

#pragma GCC unroll 14
        for (int r = 0; r < rows; r++) {
            vf x = vf_set(a[r * row]);

            sum[r][0] = slot_multiply_add(sum[r][0], x, b0);
            if (vectors == 2) {
                sum[r][1] = slot_multiply_add(sum[r][1], x, b1);
            }
        }
        a += t->step;
        b += PANEL_COLUMNS;
    }
    if (t->columns == vectors * VF_LANES) {
        finish(t, rows, vectors, true, sum);
    } else {
        finish(t, rows, vectors, false, sum);
    }
}

#define ROWS_CASE(n)                                                           \
    case n:                                                                    \
        if (t->row == 1 && t->columns > VF_LANES) {                            \
            multiply(t, n, 2, 1);                                              \
        } else if (t->row == 1) {                                              \
            multiply(t, n, 1, 1);                                              \
        } else if (t->columns > VF_LANES) {                                    \
            multiply(t, n, 2, 0);                                              \
        } else {                                                               \
            multiply(t, n, 1, 0);                                              \
        }                                                                      \
        break;

static void multiply_tile(const struct tile *t, int64_t rows)
{
    switch (rows) {
        ROWS_CASES
    }
}

#endif
