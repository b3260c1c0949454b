/* codec_portable.c - the reference set: plain C on any processor. */
#include "train/sync/codec_kernels.h"
#include "train/sync/half.h"

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
LOAD_ADD(fp32)
LOAD_ADD(bf16)
LOAD_ADD(fp16)
/* clang-format on */

const struct codec_kernels codec_kernels_portable = {
    .isa = "portable",
    .measure = measure,
    .gather = gather,
    .subtract = subtract,
    .blocks =
        {
            [CODEC_FP32] = {fp32_load, fp32_load_add, fp32_store},
            [CODEC_BF16] = {bf16_load, bf16_load_add, bf16_store},
            [CODEC_FP16] = {fp16_load, fp16_load_add, fp16_store},
            [CODEC_INT8] = {.load = int8_load, .store = int8_store},
            [CODEC_E3M0] = {.load = e3m0_load, .store = e3m0_store},
        },
};
