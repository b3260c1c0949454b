/* tile.h - one tile of fast_matmul.c: what it is made of, how it is stored, and
 * the way to pack that most instruction sets share.
 *
 * A tile header (tile_vector.h; LOCO_BFMMLA: tile_bfmmla.h; LOCO_AMX:
 * tile_amx.h) says how operands lie in their blocks and makes one tile:
 *   pack_tile_rows, pack_tile_transposed     a tile of op(a)
 *   pack_panel_rows, pack_panel_transposed   a panel of op(b)
 *   multiply_tile
 *   tiles_open, tiles_close                  around all of them
 * Rows: k goes down the rows of what is read; transposed: along them. Each
 * packs whole groups of SLOT_GROUP slots; what is past `depth` or `columns` is
 * 0.
 */
#ifndef LOCO_KERNELS_CPU_TILE_H
#define LOCO_KERNELS_CPU_TILE_H

#include "kernels/cpu/fast_matmul.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/transpose.h"

#define PACK static __attribute__((unused))

/* One tile: a's element (i, k) is a[i * row + k * step]. Where an instruction
 * set has its own way to pack, a and b lie as its header says. */
struct tile {
    const float *a;
    int64_t row, step;
    const float *b;
    int64_t slots;
    float *c;
    int64_t ldc;
    int64_t columns;
    float alpha, beta;
    bool fetch; /* c is too large to be in a near cache */
};

/* to[s][j] = slot s of row j, j < rows; 0 up to width, whole vectors. */
PACK void pack_transposed(float *to,
                          int64_t width,
                          const float *from,
                          int64_t ld,
                          int64_t rows,
                          int64_t depth)
{
    for (int64_t j = 0; j < width; j += VF_LANES) {
        transpose(to + j, width, from + j * ld, ld, lanes(rows - j), depth);
    }
}

/* to[s][j] = slot s of column j, j < columns; 0 up to width. */
PACK void pack_rows(float *to,
                    int64_t width,
                    const float *from,
                    int64_t ld,
                    int64_t columns,
                    int64_t depth)
{
    int64_t whole = (depth + GROUP_K - 1) / GROUP_K * GROUP_K;

    for (int64_t k = 0; k < whole; k += SLOT_K) {
        for (int64_t j = 0; j < width; j += VF_LANES) {
            vf_store(to + k / SLOT_K * width + j,
                     slots_of_columns(from + k * ld + j, ld, lanes(columns - j),
                                      depth - k));
        }
    }
}

/* The tile of c becomes alpha sum + beta c. `whole`: all its vectors are. */
VF_INLINE void finish(const struct tile *t,
                      const int rows,
                      const int vectors,
                      const bool whole,
                      vf sum[TILE_ROWS][2])
{
    int64_t n = whole ? VF_LANES : t->columns - (vectors - 1) * VF_LANES;
    const bool add = t->beta != 0;

#pragma GCC unroll 14
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *c = t->c + r * t->ldc + v * VF_LANES;
            vf x = sum[r][v] * t->alpha;

            if (whole || v < vectors - 1) {
                vf_store(c, add ? x + t->beta * vf_load(c) : x);
            } else {
                vf_store_part(c, n,
                              add ? x + t->beta * vf_load_part(c, n, 0) : x);
            }
        }
    }
}

/* ROWS_CASE(rows) for each height of a tile: constants, so that sums live in
 * registers. */
/* clang-format off */
#define ROWS_TO_4 ROWS_CASE(1) ROWS_CASE(2) ROWS_CASE(3) ROWS_CASE(4)
#define ROWS_TO_6 ROWS_TO_4 ROWS_CASE(5) ROWS_CASE(6)
#define ROWS_TO_12 ROWS_TO_6 ROWS_CASE(7) ROWS_CASE(8) ROWS_CASE(9) \
    ROWS_CASE(10) ROWS_CASE(11) ROWS_CASE(12)
/* clang-format on */
#if TILE_ROWS > 6
#define ROWS_CASES ROWS_TO_12
#elif TILE_ROWS > 4
#define ROWS_CASES ROWS_TO_6
#else
#define ROWS_CASES ROWS_TO_4
#endif

#ifndef LOCO_AMX
VF_INLINE void tiles_open(void)
{
}

VF_INLINE void tiles_close(void)
{
}
#endif

#endif
