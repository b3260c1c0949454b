/* portable.c - the reference set: plain C on any processor. */
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

static uint32_t larger(uint32_t max, float x)
{
    uint32_t bits = float_bits(x) & CODEC_SIGN_OFF;

    return bits > max ? bits : max;
}

static float term_at(const struct codec_term *t, size_t i)
{
    float x = t->scale * t->own[i];

    return t->residual == NULL ? x : x + t->residual[i];
}

static uint32_t measure(const float *x, float scale, size_t n)
{
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        max = larger(max, scale * x[i]);
    }
    return max;
}

static uint32_t gather(float *x, const struct codec_term *t, size_t n)
{
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        x[i] = term_at(t, i);
        max = larger(max, x[i]);
    }
    return max;
}

static void subtract(float *out, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = x[i] - y[i];
    }
}

static uint32_t add_term(float *x, const struct codec_term *t, size_t n)
{
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] + term_at(t, i);
        max = larger(max, x[i]);
    }
    return max;
}

#define LOAD_ADD(type)                                                         \
    static int type##_load_add(float *x, const uint8_t *src,                   \
                               const struct codec_term *t, size_t n,           \
                               uint32_t *max)                                  \
    {                                                                          \
        int rv = type##_load(x, src, n);                                       \
                                                                               \
        if (rv == 0) {                                                         \
            *max = add_term(x, t, n);                                          \
        }                                                                      \
        return rv;                                                             \
    }
/* clang-format off */
#define ADD_RING(type)      LOAD_ADD(type)
#define ADD_BUTTERFLY(type)
#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    ADD_##exchange(type)
#include "proto/base/codec.def"
/* clang-format on */

const struct codec_kernels codec_kernels_portable = {
    .isa = "portable",
    .measure = measure,
    .gather = gather,
    .subtract = subtract,
    .blocks =
        {
#define ROW_RING(type)      type##_load_add
#define ROW_BUTTERFLY(type) NULL
#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    [CODEC_##ID] = {type##_load, ROW_##exchange(type), type##_store},
#include "proto/base/codec.def"
        },
};
