/* tile_bfmmla.h - tile.h with Arm's BFMMLA, which adds the product of a (2, 4)
 * and a (4, 2) matrix of bf16 to a (2, 2) one of floats.
 *
 * A register holds two rows of op(a), or two columns of op(b), with four
 * neighbours along k each. So a group is two slots: of each pair of slots,
 * those of row (column) j lie at 2 j and 2 j + 1.
 *
 * How it rounds (FPCR.EBF = 0, what Linux starts programs with): products of
 * bf16 are exact, each of the four sums is rounded to odd in place of nearest,
 * subnormal operands and results are 0. So a sum is off by at most one unit in
 * the last place where it would else be half of one.
 */
#ifndef LOCO_KERNELS_CPU_TILE_BFMMLA_H
#define LOCO_KERNELS_CPU_TILE_BFMMLA_H

#include "kernels/cpu/tile.h"

#define pack_tile_rows        pack_pairs_rows
#define pack_tile_transposed  pack_pairs_transposed
#define pack_panel_rows       pack_pairs_rows
#define pack_panel_transposed pack_pairs_transposed

#define ZIP_FIRST(a, b)  LANES_OF(a, b, 0, 4, 1, 5)
#define ZIP_SECOND(a, b) LANES_OF(a, b, 2, 6, 3, 7)
#define LOW_PAIR(a, b)   LANES_OF(a, b, 0, 1, 4, 5)
#define HIGH_PAIR(a, b)  LANES_OF(a, b, 2, 3, 6, 7)

/* Of rows j to j + 3 the slots of one group: two rows in each vector. */
VF_INLINE void store_group(float *to, vf first, vf second)
{
    vf_store(to, first);
    vf_store(to + VF_LANES, second);
}

static void pack_pairs_transposed(float *to,
                                  int64_t width,
                                  const float *from,
                                  int64_t ld,
                                  int64_t rows,
                                  int64_t depth)
{
    for (int64_t k = 0; k < depth; k += 2 * GROUP_K) {
        for (int64_t j = 0; j < width; j += VF_LANES) {
            float *at = to + k / SLOT_K * width + 2 * j;
            vf x[VF_LANES];

#pragma GCC unroll 4
            for (int i = 0; i < VF_LANES; i++) {
                x[i] = j + i < rows
                           ? slots_of_row(from + (j + i) * ld + k, depth - k)
                           : vf_set(0);
            }
            store_group(at, LOW_PAIR(x[0], x[1]), LOW_PAIR(x[2], x[3]));
            if (k + GROUP_K < depth) {
                store_group(at + 2 * width, HIGH_PAIR(x[0], x[1]),
                            HIGH_PAIR(x[2], x[3]));
            }
        }
    }
}

static void pack_pairs_rows(float *to,
                            int64_t width,
                            const float *from,
                            int64_t ld,
                            int64_t columns,
                            int64_t depth)
{
    for (int64_t k = 0; k < depth; k += GROUP_K) {
        for (int64_t j = 0; j < width; j += VF_LANES) {
            const float *x = from + k * ld + j;
            int64_t n = lanes(columns - j);
            vf s0 = slots_of_columns(x, ld, n, depth - k);
            vf s1 =
                slots_of_columns(x + SLOT_K * ld, ld, n, depth - k - SLOT_K);

            store_group(to + k / SLOT_K * width + 2 * j, ZIP_FIRST(s0, s1),
                        ZIP_SECOND(s0, s1));
        }
    }
}

/* `rows` and `vectors` of columns are constants at each call. */
VF_INLINE void multiply(const struct tile *t, const int rows, const int vectors)
{
    const int pairs = (rows + 1) / 2;
    const float *a = t->a;
    const float *b = t->b;
    vf sum[TILE_ROWS / 2][PANEL_COLUMNS / 2] = {{{0}}};
    vf out[TILE_ROWS][2];

    for (int64_t s = 0; s < t->slots; s += SLOT_GROUP) {
        vf y[PANEL_COLUMNS / 2];

#pragma GCC unroll 4
        for (int q = 0; q < 2 * vectors; q++) {
            y[q] = vf_load(b + q * VF_LANES);
        }
#pragma GCC unroll 6
        for (int p = 0; p < pairs; p++) {
            vf x = vf_load(a + p * VF_LANES);

#pragma GCC unroll 4
            for (int q = 0; q < 2 * vectors; q++) {
                sum[p][q] = slot_multiply_add(sum[p][q], x, y[q]);
            }
        }
        a += SLOT_GROUP * TILE_WIDTH;
        b += SLOT_GROUP * PANEL_COLUMNS;
    }
#pragma GCC unroll 6
    for (int p = 0; p < pairs; p++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            out[2 * p][v] = LOW_PAIR(sum[p][2 * v], sum[p][2 * v + 1]);
            out[2 * p + 1][v] = HIGH_PAIR(sum[p][2 * v], sum[p][2 * v + 1]);
        }
    }
    finish(t, rows, vectors, false, out);
}

#define ROWS_CASE(n)                                                           \
    case n:                                                                    \
        if (t->columns > VF_LANES) {                                           \
            multiply(t, n, 2);                                                 \
        } else {                                                               \
            multiply(t, n, 1);                                                 \
        }                                                                      \
        break;

static void multiply_tile(const struct tile *t, int64_t rows)
{
    switch (rows) {
        ROWS_CASES
    }
}

#endif
