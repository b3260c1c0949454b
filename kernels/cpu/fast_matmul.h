/* fast_matmul.h - block sizes of the fast matrix product, and who does what.
 *
 * Sizes are in floats; the bf16 product packs two operands into the room of
 * one float, so its slices of k are twice as deep.
 */
#ifndef LOCO_KERNELS_CPU_FAST_MATMUL_H
#define LOCO_KERNELS_CPU_FAST_MATMUL_H

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd.h"

#ifdef LOCO_AMX
#define BLOCK_M 192 /* whole tiles */
#else
#define BLOCK_M 144
#endif
/* With 16 lanes a panel of b of that depth (64 KB) is more than the first cache
 * holds, but the second is fast enough, and c is read and written half as
 * often. */
#if VF_LANES == 16 && !defined(LOCO_AMX)
#define BLOCK_K 512
#else
#define BLOCK_K 256
#endif
#define BLOCK_N       1024
#define PANEL_COLUMNS (2 * VF_LANES)

#ifdef LOCO_AMX
#define TILE_ROWS 32 /* of two registers */
#elif VF_LANES == 16
#define TILE_ROWS 12 /* 24 sums, 2 of b, 1 of a: of 32 registers */
#elif VF_LANES == 8
#define TILE_ROWS 6 /* 12 sums, 2 of b, 1 of a: of 16 registers */
#elif defined(__aarch64__)
#define TILE_ROWS 12 /* of 32 registers */
#else
#define TILE_ROWS 4
#endif

/* Floats of one slot of a packed tile: whole vectors, so that a store neither
 * crosses a cache line nor overwrites its neighbour. */
#define TILE_WIDTH (((TILE_ROWS + VF_LANES - 1) / VF_LANES) * VF_LANES)

/* The packed rows. */
#define BLOCK_A (BLOCK_M / TILE_ROWS * TILE_WIDTH * BLOCK_K)

#endif
