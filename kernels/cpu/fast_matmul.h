/* fast_matmul.h - block sizes of the fast matrix product, and who does what.
 *
 * Sizes are in floats; the bf16 product packs two operands into the room of
 * one float, so its slices of k are twice as deep.
 */
#ifndef LOCO_KERNELS_CPU_FAST_MATMUL_H
#define LOCO_KERNELS_CPU_FAST_MATMUL_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

#define BLOCK_M       384
#define BLOCK_K       256
#define BLOCK_N       1024
#define PANEL_COLUMNS (2 * VF_LANES)

/* Packed rows, and a vector of room after each tile of them. TILE_ROWS divides
 * BLOCK_M, so whole tiles are the most there can be. */
#define BLOCK_A (BLOCK_M * BLOCK_K + BLOCK_M * 2)

#if VF_LANES == 16
#define TILE_ROWS 12 /* 24 sums, 2 of b, 1 of a: of 32 registers */
#elif VF_LANES == 8
#define TILE_ROWS 6 /* 12 sums, 2 of b, 1 of a: of 16 registers */
#elif defined(__aarch64__)
#define TILE_ROWS 12 /* of 32 registers */
#else
#define TILE_ROWS 4
#endif

/* Rows of a packed tile: whole vectors where it has more than one, since
 * transpose() stores whole vectors and would overwrite its own work. */
#define TILE_WIDTH(rows)                                                       \
    (TILE_ROWS <= VF_LANES ? (rows)                                            \
                           : ((rows) + VF_LANES - 1) / VF_LANES * VF_LANES)

#endif
