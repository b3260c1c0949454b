/* amx_model.h - the AMX instructions that kernels/cpu/tile_amx.h uses, in C.
 *
 * Put before kernels/cpu/fast_matmul.c with -include, it takes the place of the
 * compiler's intrinsics, so that packing and loops run on any processor. It
 * does what Intel's Software Developer's Manual says of each instruction, and
 * ends the program where a processor would raise a fault: registers without a
 * shape, or shapes that do not fit each other.
 */
#ifndef LOCO_TESTS_UNIT_KERNELS_AMX_MODEL_H
#define LOCO_TESTS_UNIT_KERNELS_AMX_MODEL_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#endif

#define _tile_loadconfig amx_loadconfig
#define _tile_release    amx_release
#define _tile_zero       amx_zero
#define _tile_loadd      amx_loadd
#define _tile_stored     amx_stored
#define _tile_dpbf16ps   amx_dpbf16ps

static _Thread_local struct {
    bool open;
    int rows[8], bytes[8]; /* of a row */
    unsigned char data[8][16][64];
} amx;

static inline void amx_need(bool holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "AMX model: %s\n", what);
        abort();
    }
}

/* LDTILECFG: palette, start row, 14 reserved bytes, 16 sizes, 16 counts. */
static inline void amx_loadconfig(const void *config)
{
    const unsigned char *c = config;
    uint16_t bytes[16];

    memcpy(bytes, c + 16, sizeof bytes);
    memset(&amx, 0, sizeof amx);
    amx_need(c[0] == 1, "only palette 1 has registers");
    for (int i = 1; i < 16; i++) {
        amx_need(c[i] == 0, "start row and reserved bytes are 0");
    }
    for (int i = 0; i < 16; i++) {
        amx_need(i < 8 || (bytes[i] == 0 && c[48 + i] == 0),
                 "eight registers have a shape");
        amx_need(bytes[i] <= 64 && c[48 + i] <= 16,
                 "a register has at most 16 rows of 64 bytes");
        if (i < 8) {
            amx.rows[i] = c[48 + i];
            amx.bytes[i] = bytes[i];
        }
    }
    amx.open = true;
}

static inline void amx_release(void)
{
    memset(&amx, 0, sizeof amx);
}

static inline void amx_check(int tile)
{
    amx_need(amx.open && amx.rows[tile] > 0 && amx.bytes[tile] > 0,
             "a register is used that has no shape");
}

static inline void amx_zero(int tile)
{
    amx_check(tile);
    memset(amx.data[tile], 0, sizeof amx.data[tile]);
}

static inline void amx_loadd(int tile, const void *from, int64_t stride)
{
    amx_zero(tile);
    for (int i = 0; i < amx.rows[tile]; i++) {
        memcpy(amx.data[tile][i], (const char *)from + i * stride,
               (size_t)amx.bytes[tile]);
    }
}

static inline void amx_stored(int tile, void *to, int64_t stride)
{
    amx_check(tile);
    for (int i = 0; i < amx.rows[tile]; i++) {
        memcpy((char *)to + i * stride, amx.data[tile][i],
               (size_t)amx.bytes[tile]);
    }
}

/* Denormals are zero. */
static inline float amx_flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* Element j of row i as bf16. */
static inline float amx_bf16(int tile, int i, int j)
{
    uint16_t half;
    uint32_t bits;
    float x;

    memcpy(&half, amx.data[tile][i] + 2 * j, sizeof half);
    bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return amx_flushed(x);
}

/* c += a b; sums of even and odd elements are kept apart until the end. */
static inline void amx_dpbf16ps(int c, int a, int b)
{
    amx_check(a);
    amx_check(b);
    amx_check(c);
    amx_need(a != b && a != c && b != c, "three registers");
    amx_need(amx.rows[a] == amx.rows[c] && amx.bytes[b] == amx.bytes[c] &&
                 amx.bytes[a] == 4 * amx.rows[b],
             "shapes fit each other");
    for (int m = 0; m < amx.rows[c]; m++) {
        for (int n = 0; n < amx.bytes[c] / 4; n++) {
            float sum[2] = {0, 0}, x;

            for (int k = 0; k < amx.bytes[a] / 2; k++) {
                /* the product of two bf16 is a float: one rounding, as FMA */
                float product =
                    amx_bf16(a, m, k) * amx_bf16(b, k / 2, 2 * n + k % 2);

                sum[k % 2] = amx_flushed(sum[k % 2] + product);
            }
            memcpy(&x, amx.data[c][m] + 4 * n, sizeof x);
            x = amx_flushed(amx_flushed(x) + amx_flushed(sum[0] + sum[1]));
            memcpy(amx.data[c][m] + 4 * n, &x, sizeof x);
        }
    }
}

#endif
