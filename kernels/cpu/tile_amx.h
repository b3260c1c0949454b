/* tile_amx.h - tile.h with Intel's AMX: eight tile registers of 16 rows of 64
 * bytes. TDPBF16PS adds the product of (16, 32) and (32, 16) bf16 to a (16, 16)
 * register of floats.
 *
 * A tile of c is (32, 32): four registers; two more hold op(a), two op(b). Of
 * op(a) a row's slots of one group lie together, (group, row, slot): a register
 * is 1 KB. op(b) lies as for vectors, (slot, column): there a slot of 16
 * columns is a row of a register. Rows, columns and slots past the end are 0.
 *
 * How it rounds: within a group even and odd k have sums of their own, both are
 * added, then that to c; each to nearest, subnormals are 0.
 *
 * No test ran this on a processor that has AMX: tests/unit/kernels/amx_model.h
 * stands for its instructions. The kernel gives the registers to a program that
 * asks for them (sets.c).
 */
#ifndef LOCO_KERNELS_CPU_TILE_AMX_H
#define LOCO_KERNELS_CPU_TILE_AMX_H

#include "kernels/cpu/tile.h"

#define pack_panel_rows       pack_rows
#define pack_panel_transposed pack_transposed

#define REGISTER_ROWS   16
#define REGISTER_FLOATS (REGISTER_ROWS * VF_LANES)
#define VECTOR_BYTES    (VF_LANES * 4)

/* What the registers are: all of them 16 rows of 64 bytes. */
struct amx_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

_Static_assert(sizeof(struct amx_shapes) == 64, "what LDTILECFG reads");

VF_INLINE void tiles_open(void)
{
    static const struct amx_shapes shapes = {
        .palette = 1,
        .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };

    _tile_loadconfig(&shapes);
}

/* The kernel then need not save the registers of this thread. */
VF_INLINE void tiles_close(void)
{
    _tile_release();
}

/* Slots past `depth` and rows past `rows` are 0. */
static void pack_tile_transposed(float *to,
                                 int64_t width,
                                 const float *from,
                                 int64_t ld,
                                 int64_t rows,
                                 int64_t depth)
{
    for (int64_t k = 0; k < depth; k += GROUP_K) {
        for (int64_t i = 0; i < width; i++) {
            vf_store(to + i * VF_LANES,
                     i < rows ? slots_of_row(from + i * ld + k, depth - k)
                              : vf_set(0));
        }
        to += width * VF_LANES;
    }
}

static void pack_tile_rows(float *to,
                           int64_t width,
                           const float *from,
                           int64_t ld,
                           int64_t columns,
                           int64_t depth)
{
    for (int64_t k = 0; k < depth; k += GROUP_K) {
        for (int64_t i = 0; i < width; i += VF_LANES) {
            vf x[VF_LANES];

            for (int s = 0; s < SLOT_GROUP; s++) {
                int64_t at = k + s * SLOT_K;

                x[s] = slots_of_columns(from + at * ld + i, ld,
                                        lanes(columns - i), depth - at);
            }
            transpose_square(x);
            for (int r = 0; r < VF_LANES; r++) {
                vf_store(to + (i + r) * VF_LANES, x[r]);
            }
        }
        to += width * VF_LANES;
    }
}

/* gcc does not know that a tile load reads memory. */
#define STORES_ARE_DONE() __asm__ volatile("" ::: "memory")

static void multiply_tile(const struct tile *t, int64_t rows)
{
    const bool low = rows > REGISTER_ROWS, right = t->columns > VF_LANES;
    const float *a = t->a;
    const float *b = t->b;
    vf sum[TILE_ROWS][2];
    const int64_t sum_bytes = sizeof sum[0];

    STORES_ARE_DONE();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t s = 0; s < t->slots; s += SLOT_GROUP) {
        _tile_loadd(4, a, VECTOR_BYTES);
        _tile_loadd(6, b, 2 * VECTOR_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, b + VF_LANES, 2 * VECTOR_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (low) {
            _tile_loadd(5, a + REGISTER_FLOATS, VECTOR_BYTES);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (low && right) {
            _tile_dpbf16ps(3, 5, 7);
        }
        a += SLOT_GROUP * TILE_WIDTH;
        b += SLOT_GROUP * PANEL_COLUMNS;
    }
    _tile_stored(0, sum, sum_bytes);
    _tile_stored(1, &sum[0][1], sum_bytes);
    _tile_stored(2, sum + REGISTER_ROWS, sum_bytes);
    _tile_stored(3, &sum[REGISTER_ROWS][1], sum_bytes);
    if (right) {
        finish(t, (int)rows, 2, false, sum);
    } else {
        finish(t, (int)rows, 1, false, sum);
    }
}

#endif
