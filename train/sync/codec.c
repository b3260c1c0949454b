/* codec.c - see codec.h.
 *
 * Each body is written once, always inlined into a plain wrapper and into one
 * compiled for AVX2 and F16C; `fast` is a constant in both. fp16 works block
 * by block through a buffer that stays in the L1 cache (16 KiB): scale and
 * add, find the largest magnitude, choose the exponent, convert.
 *
 * The largest magnitude is an integer maximum over the bits without sign:
 * that order is the order of magnitudes, and infinities and NaNs are above
 * all numbers, so one scan finds the exponent and the non-finite.
 */
#include "train/sync/codec.h"

#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "train/sync/half.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "codec.c moves fp32 and fp16 words as they lie in memory"
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define HAVE_FAST   1
#define TARGET_FAST __attribute__((target("avx2,f16c")))
#else
#define HAVE_FAST 0
#define TARGET_FAST
#endif

#define BODY static inline __attribute__((always_inline))

#define SIGN_OFF      0x7fffffffU
#define INFINITE_BITS 0x7f800000U
/* From here on eleven significant bits round up to 2^128. */
#define HALF_TOO_LARGE_BITS 0x7f7ff000U
/* The same for the eight bits of bf16. */
#define BF16_TOO_LARGE_BITS 0x7f7f8000U

/* One block of the fp16 codec: exponent and elements. */
#define FP16_BLOCK_BYTES (2 + 2 * (size_t)CODEC_FP16_BLOCK)

/* fp32 and bf16 add by way of a small local buffer: in place, source and
 * destination are the same bytes, and a compiler that only sees that they
 * overlap would not vectorise. */
#define ADD_PIECE 512

/* ------------------------------------------------ pieces shared by bodies */

BODY uint32_t max_bits(const float *x, size_t n)
{
    uint32_t max = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(x[i]) & SIGN_OFF;
        max = bits > max ? bits : max;
    }
    return max;
}

/* 2^e for the exponents of normal floats. */
BODY float power_of_two(int e)
{
    return float_from_bits((uint32_t)(e + 127) << 23);
}

BODY void
halves_from_floats_plain(uint8_t *dst, const float *src, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) {
        put_u16(dst + 2 * i, half_from_float(src[i] * factor));
    }
}

BODY void
halves_to_floats_plain(float *dst, const uint8_t *src, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = half_to_float(get_u16(src + 2 * i)) * factor;
    }
}

#if HAVE_FAST
TARGET_FAST static void
halves_from_floats_fast(uint8_t *dst, const float *src, size_t n, float factor)
{
    size_t i = 0;
    __m256 f = _mm256_set1_ps(factor);

    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_mul_ps(_mm256_loadu_ps(src + i), f);
        __m128i h = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i_u *)(void *)(dst + 2 * i), h);
    }
    halves_from_floats_plain(dst + 2 * i, src + i, n - i, factor);
}

TARGET_FAST static void
halves_to_floats_fast(float *dst, const uint8_t *src, size_t n, float factor)
{
    size_t i = 0;
    __m256 f = _mm256_set1_ps(factor);

    for (; i + 8 <= n; i += 8) {
        __m128i h =
            _mm_loadu_si128((const __m128i_u *)(const void *)(src + 2 * i));
        _mm256_storeu_ps(dst + i, _mm256_mul_ps(_mm256_cvtph_ps(h), f));
    }
    halves_to_floats_plain(dst + i, src + 2 * i, n - i, factor);
}
#endif

BODY void halves_from_floats(
    uint8_t *dst, const float *src, size_t n, float factor, int fast)
{
#if HAVE_FAST
    if (fast) {
        halves_from_floats_fast(dst, src, n, factor);
        return;
    }
#endif
    (void)fast;
    halves_from_floats_plain(dst, src, n, factor);
}

BODY void halves_to_floats(
    float *dst, const uint8_t *src, size_t n, float factor, int fast)
{
#if HAVE_FAST
    if (fast) {
        halves_to_floats_fast(dst, src, n, factor);
        return;
    }
#endif
    (void)fast;
    halves_to_floats_plain(dst, src, n, factor);
}

/* ------------------------------------------------------------------- fp32 */

static size_t fp32_bytes(size_t n)
{
    return n * 4;
}

BODY int fp32_encode_body(
    uint8_t *dst, const float *src, size_t n, float scale, int fast)
{
    uint32_t max = 0;

    (void)fast;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(scale * src[i]);
        memcpy(dst + 4 * i, &bits, 4);
        bits &= SIGN_OFF;
        max = bits > max ? bits : max;
    }
    return max < INFINITE_BITS ? 0 : LOCO_ENUMERIC;
}

BODY int fp32_decode_body(float *dst, const uint8_t *src, size_t n, int fast)
{
    (void)fast;
    memcpy(dst, src, n * 4);
    return max_bits(dst, n) < INFINITE_BITS ? 0 : LOCO_ENUMERIC;
}

BODY int fp32_add_body(uint8_t *dst,
                       const uint8_t *src,
                       const float *contrib,
                       size_t n,
                       float scale,
                       int fast)
{
    uint32_t max = 0;

    (void)fast;
    for (size_t at = 0, m; at < n; at += m) {
        float x[ADD_PIECE];
        uint32_t piece_max;

        m = n - at < ADD_PIECE ? n - at : ADD_PIECE;
        memcpy(x, src + 4 * at, 4 * m);
        for (size_t i = 0; i < m; i++) {
            x[i] += scale * contrib[at + i];
        }
        piece_max = max_bits(x, m);
        memcpy(dst + 4 * at, x, 4 * m);
        max = piece_max > max ? piece_max : max;
    }
    return max < INFINITE_BITS ? 0 : LOCO_ENUMERIC;
}

/* ------------------------------------------------------------------- bf16 */

static size_t bf16_bytes(size_t n)
{
    return n * 2;
}

/* Nearest even; finite in, but a value above the largest bf16 gives inf. */
BODY uint16_t bf16_from_bits(uint32_t bits)
{
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

BODY float bf16_load(const uint8_t *src)
{
    return float_from_bits((uint32_t)get_u16(src) << 16);
}

BODY int bf16_encode_body(
    uint8_t *dst, const float *src, size_t n, float scale, int fast)
{
    uint32_t max = 0;

    (void)fast;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(scale * src[i]);
        put_u16(dst + 2 * i, bf16_from_bits(bits));
        bits &= SIGN_OFF;
        max = bits > max ? bits : max;
    }
    return max < BF16_TOO_LARGE_BITS ? 0 : LOCO_ENUMERIC;
}

BODY int bf16_decode_body(float *dst, const uint8_t *src, size_t n, int fast)
{
    (void)fast;
    for (size_t i = 0; i < n; i++) {
        dst[i] = bf16_load(src + 2 * i);
    }
    return max_bits(dst, n) < INFINITE_BITS ? 0 : LOCO_ENUMERIC;
}

BODY int bf16_add_body(uint8_t *dst,
                       const uint8_t *src,
                       const float *contrib,
                       size_t n,
                       float scale,
                       int fast)
{
    uint32_t max = 0;

    (void)fast;
    for (size_t at = 0, m; at < n; at += m) {
        float x[ADD_PIECE];
        uint32_t piece_max;

        m = n - at < ADD_PIECE ? n - at : ADD_PIECE;
        for (size_t i = 0; i < m; i++) {
            x[i] = bf16_load(src + 2 * (at + i));
        }
        for (size_t i = 0; i < m; i++) {
            x[i] += scale * contrib[at + i];
        }
        piece_max = max_bits(x, m);
        for (size_t i = 0; i < m; i++) {
            put_u16(dst + 2 * (at + i), bf16_from_bits(float_bits(x[i])));
        }
        max = piece_max > max ? piece_max : max;
    }
    return max < BF16_TOO_LARGE_BITS ? 0 : LOCO_ENUMERIC;
}

/* ------------------------------------------------- fp16 + block exponents */

static size_t fp16_bytes(size_t n)
{
    size_t blocks = n / CODEC_FP16_BLOCK + (n % CODEC_FP16_BLOCK != 0);

    return 2 * n + 2 * blocks;
}

/* Encode up to a block of finished fp32 values. */
BODY int fp16_store_block(uint8_t *dst, const float *x, size_t n, int fast)
{
    uint32_t max = max_bits(x, n);
    int e = (int)(max >> 23) - 127 - 14;

    if (max >= HALF_TOO_LARGE_BITS) {
        return LOCO_ENUMERIC;
    }
    if (e < CODEC_FP16_EXP_MIN) { /* tiny, sub-normal or all zero */
        e = CODEC_FP16_EXP_MIN;
    }
    put_u16(dst, (uint16_t)(int16_t)e);
    halves_from_floats(dst + 2, x, n, power_of_two(-e), fast);
    return 0;
}

/* Decode up to a block; the values may still be non-finite. */
BODY int fp16_load_block(float *x, const uint8_t *src, size_t n, int fast)
{
    int e = (int16_t)get_u16(src);

    if (e < CODEC_FP16_EXP_MIN || e > CODEC_FP16_EXP_MAX) {
        return LOCO_EPROTO;
    }
    halves_to_floats(x, src + 2, n, power_of_two(e), fast);
    return 0;
}

BODY size_t block_size(size_t left)
{
    return left < CODEC_FP16_BLOCK ? left : CODEC_FP16_BLOCK;
}

BODY int fp16_encode_body(
    uint8_t *dst, const float *src, size_t n, float scale, int fast)
{
    float x[CODEC_FP16_BLOCK];

    while (n > 0) {
        size_t m = block_size(n);

        for (size_t i = 0; i < m; i++) {
            x[i] = scale * src[i];
        }
        int rv = fp16_store_block(dst, x, m, fast);
        if (rv != 0) {
            return rv;
        }
        dst += FP16_BLOCK_BYTES;
        src += m;
        n -= m;
    }
    return 0;
}

BODY int fp16_decode_body(float *dst, const uint8_t *src, size_t n, int fast)
{
    while (n > 0) {
        size_t m = block_size(n);
        int rv = fp16_load_block(dst, src, m, fast);

        if (rv != 0) {
            return rv;
        }
        if (max_bits(dst, m) >= INFINITE_BITS) {
            return LOCO_ENUMERIC;
        }
        src += FP16_BLOCK_BYTES;
        dst += m;
        n -= m;
    }
    return 0;
}

BODY int fp16_add_body(uint8_t *dst,
                       const uint8_t *src,
                       const float *contrib,
                       size_t n,
                       float scale,
                       int fast)
{
    float x[CODEC_FP16_BLOCK];

    while (n > 0) {
        size_t m = block_size(n);
        int rv = fp16_load_block(x, src, m, fast);

        if (rv != 0) {
            return rv;
        }
        /* A non-finite x stays so: the store finds it in the sum. */
        for (size_t i = 0; i < m; i++) {
            x[i] += scale * contrib[i];
        }
        rv = fp16_store_block(dst, x, m, fast);
        if (rv != 0) {
            return rv;
        }
        src += FP16_BLOCK_BYTES;
        dst += FP16_BLOCK_BYTES;
        contrib += m;
        n -= m;
    }
    return 0;
}

/* ----------------------------------------------------------------- tables */

/* The functions of one codec for one instruction set. */
#define WRAPPERS(type, set, attribute, fast)                                   \
    attribute static int type##_encode_##set(uint8_t *dst, const float *src,   \
                                             size_t n, float scale)            \
    {                                                                          \
        return type##_encode_body(dst, src, n, scale, fast);                   \
    }                                                                          \
    attribute static int type##_decode_##set(float *dst, const uint8_t *src,   \
                                             size_t n)                         \
    {                                                                          \
        return type##_decode_body(dst, src, n, fast);                          \
    }                                                                          \
    attribute static int type##_add_##set(uint8_t *dst, const uint8_t *src,    \
                                          const float *contrib, size_t n,      \
                                          float scale)                         \
    {                                                                          \
        return type##_add_body(dst, src, contrib, n, scale, fast);             \
    }

#define ROW(ID, type, elements, set)                                           \
    [ID] = {.name = #type,                                                     \
            .id = (ID),                                                        \
            .block = (elements),                                               \
            .bytes = type##_bytes,                                             \
            .encode = type##_encode_##set,                                     \
            .decode = type##_decode_##set,                                     \
            .add = type##_add_##set}

/* clang-format off */
#define TARGET_PLAIN
WRAPPERS(fp32, portable, TARGET_PLAIN, 0)
WRAPPERS(bf16, portable, TARGET_PLAIN, 0)
WRAPPERS(fp16, portable, TARGET_PLAIN, 0)

static const struct codec codecs_portable[CODEC_COUNT] = {
    ROW(CODEC_FP32, fp32, 1, portable),
    ROW(CODEC_BF16, bf16, 1, portable),
    ROW(CODEC_FP16, fp16, CODEC_FP16_BLOCK, portable),
};

#if HAVE_FAST
WRAPPERS(fp32, avx2, TARGET_FAST, 1)
WRAPPERS(bf16, avx2, TARGET_FAST, 1)
WRAPPERS(fp16, avx2, TARGET_FAST, 1)

static const struct codec codecs_avx2[CODEC_COUNT] = {
    ROW(CODEC_FP32, fp32, 1, avx2),
    ROW(CODEC_BF16, bf16, 1, avx2),
    ROW(CODEC_FP16, fp16, CODEC_FP16_BLOCK, avx2),
};
#endif
/* clang-format on */

#if HAVE_FAST
static int cpu_is_fast(void)
{
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;

    /* The built-in asks the operating system's side too (YMM state). */
    return __builtin_cpu_supports("avx2") &&
           __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

const struct codec *codec_get_portable(unsigned id)
{
    return id < CODEC_COUNT ? &codecs_portable[id] : NULL;
}

const struct codec *codec_get(unsigned id)
{
#if HAVE_FAST
    if (id < CODEC_COUNT && cpu_is_fast()) {
        return &codecs_avx2[id];
    }
#endif
    return codec_get_portable(id);
}

const struct codec *codec_find(const char *name)
{
    for (unsigned id = 0; id < CODEC_COUNT; id++) {
        if (strcmp(codecs_portable[id].name, name) == 0) {
            return codec_get(id);
        }
    }
    return NULL;
}
