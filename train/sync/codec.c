/* codec.c - vectors cut into blocks, and the tables of codec.h.
 *
 * A block goes through gather or load_add, store, and load where the decoded
 * values are wanted, before the next one is touched: memory is read once and
 * written once, all else happens in a buffer in the L1 cache (see
 * codec_kernels.h). The tables are one wrapper per type, set and function, so
 * that a caller needs no argument that says which.
 */
#include "train/sync/codec.h"

#include <string.h>

#include "proto/base/err.h"
#include "train/sync/codec_kernels.h"
#include "train/sync/codec_mode.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the codecs move fp32 and fp16 words as they lie in memory"
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ------------------------------------------------------------------ sizes */

static size_t fp32_bytes(size_t n)
{
    return n * 4;
}

static size_t bf16_bytes(size_t n)
{
    return n * 2;
}

static size_t blocks_of(size_t n, size_t block)
{
    return n / block + (n % block != 0);
}

static size_t fp16_bytes(size_t n)
{
    return 2 * n + 2 * blocks_of(n, CODEC_FP16_BLOCK);
}

static size_t int8_bytes(size_t n)
{
    return n + 4 * blocks_of(n, CODEC_LOW_BLOCK);
}

static size_t e3m0_bytes(size_t n)
{
    return n / 2 + n % 2 + 4 * blocks_of(n, CODEC_LOW_BLOCK);
}

/* ----------------------------------------------------------------- blocks */

const struct codec_piece codec_pieces[CODEC_COUNT] = {
    [CODEC_FP32] = {CODEC_PIECE, 4 * (size_t)CODEC_PIECE},
    [CODEC_BF16] = {CODEC_PIECE, 2 * (size_t)CODEC_PIECE},
    [CODEC_FP16] = {CODEC_FP16_BLOCK, 2 + 2 * (size_t)CODEC_FP16_BLOCK},
    [CODEC_INT8] = {CODEC_LOW_BLOCK, 4 + (size_t)CODEC_LOW_BLOCK},
    [CODEC_E3M0] = {CODEC_LOW_BLOCK, 4 + (size_t)CODEC_LOW_BLOCK / 2},
};

/* One type of one instruction set. */
struct form {
    const struct codec_kernels *kernels;
    enum codec_id id;
};

/* The block of one call at `at`, n elements. */
struct block {
    uint8_t *dst;
    const uint8_t *src; /* NULL: encode */
    size_t at;
    size_t n;
};

static const float *from(const float *v, size_t at)
{
    return v == NULL ? NULL : v + at;
}

/* x becomes the sum where there is one to make, then dst = enc(it). */
static int encode_block(const struct form *f,
                        const struct block *k,
                        const struct codec_op *op,
                        float *x)
{
    const struct codec_blocks *b = &f->kernels->blocks[f->id];
    struct codec_term t = {
        .own = op->own + k->at,
        .residual = from(op->residual, k->at),
        .scale = op->scale,
    };
    uint32_t max = 0;
    int rv = 0;

    if (k->src == NULL && op->residual == NULL && op->next == NULL) {
        max = f->kernels->measure(t.own, t.scale, k->n);
        return b->store(k->dst, t.own, t.scale, k->n, max);
    }
    if (k->src == NULL) {
        max = f->kernels->gather(x, &t, k->n);
    } else {
        rv = b->load_add(x, k->src, &t, k->n, &max);
    }
    return rv != 0 ? rv : b->store(k->dst, x, 1.0F, k->n, max);
}

/* result = dec(dst), next = x - dec(dst) */
static int keep_block(const struct form *f,
                      const struct block *k,
                      const struct codec_op *op,
                      const float *x)
{
    float *y = (op->result != NULL ? op->result : op->next) + k->at;
    int rv = f->kernels->blocks[f->id].load(y, k->dst, k->n);

    if (rv == 0 && op->next != NULL) {
        f->kernels->subtract(op->next + k->at, x, y, k->n);
    }
    return rv;
}

static int
run(struct form f, uint8_t *dst, const uint8_t *src, struct codec_op op)
{
    _Alignas(64) float x[CODEC_FP16_BLOCK];
    struct block k = {.dst = dst, .src = src};
    unsigned mode = codec_mode_enter();
    int rv = 0;

    for (; k.at < op.n && rv == 0; k.at += k.n) {
        k.n = op.n - k.at < codec_pieces[f.id].n ? op.n - k.at
                                                 : codec_pieces[f.id].n;
        rv = encode_block(&f, &k, &op, x);
        if (rv == 0 && (op.result != NULL || op.next != NULL)) {
            rv = keep_block(&f, &k, &op, x);
        }
        k.dst += codec_pieces[f.id].bytes;
        if (src != NULL) {
            k.src += codec_pieces[f.id].bytes;
        }
    }
    codec_mode_leave(mode);
    return rv;
}

static int run_decode(struct form f, float *dst, const uint8_t *src, size_t n)
{
    const struct codec_blocks *b = &f.kernels->blocks[f.id];
    unsigned mode = codec_mode_enter();
    int rv = 0;

    for (size_t at = 0, m; at < n && rv == 0; at += m) {
        m = n - at < codec_pieces[f.id].n ? n - at : codec_pieces[f.id].n;
        rv = b->load(dst + at, src, m);
        src += codec_pieces[f.id].bytes;
    }
    codec_mode_leave(mode);
    return rv;
}

/* ----------------------------------------------------------------- tables */

/* clang-format off */
#define FORM(ID, set)                                                          \
    (struct form){.kernels = &codec_kernels_##set, .id = (ID)}

#define ENCODERS(ID, type, set)                                                \
    static int type##_encode_##set(uint8_t *dst, const float *src, size_t n,   \
                                   float scale)                                \
    {                                                                          \
        return run(FORM(ID, set), dst, NULL,                                   \
                   (struct codec_op){.own = src, .n = n, .scale = scale});     \
    }                                                                          \
    static int type##_encode_op_##set(uint8_t *dst, const struct codec_op *op) \
    {                                                                          \
        return run(FORM(ID, set), dst, NULL, *op);                             \
    }                                                                          \
    static int type##_decode_##set(float *dst, const uint8_t *src, size_t n)   \
    {                                                                          \
        return run_decode(FORM(ID, set), dst, src, n);                         \
    }                                                                          \
    static int type##_sum_##set(uint8_t *dst, struct codec_sum *s)             \
    {                                                                          \
        return codec_sum_run(&codec_kernels_##set, (ID), dst, s);              \
    }

#define ADDERS(ID, type, set)                                                  \
    static int type##_add_##set(uint8_t *dst, const uint8_t *src,              \
                                const float *contrib, size_t n, float scale)   \
    {                                                                          \
        return run(FORM(ID, set), dst, src,                                    \
                   (struct codec_op){.own = contrib, .n = n, .scale = scale}); \
    }                                                                          \
    static int type##_add_op_##set(uint8_t *dst, const uint8_t *src,           \
                                   const struct codec_op *op)                  \
    {                                                                          \
        return run(FORM(ID, set), dst, src, *op);                              \
    }

#define ROW(ID, type, set, elements)                                           \
    .name = #type, .isa = #set, .id = (ID), .block = (elements),               \
    .bytes = type##_bytes, .encode = type##_encode_##set,                      \
    .decode = type##_decode_##set, .encode_op = type##_encode_op_##set,        \
    .sum = type##_sum_##set
#define ROW_ADD(type, set)                                                     \
    .add = type##_add_##set, .add_op = type##_add_op_##set

#define TABLE(set)                                                             \
    ENCODERS(CODEC_FP32, fp32, set)                                            \
    ENCODERS(CODEC_BF16, bf16, set)                                            \
    ENCODERS(CODEC_FP16, fp16, set)                                            \
    ENCODERS(CODEC_INT8, int8, set)                                            \
    ENCODERS(CODEC_E3M0, e3m0, set)                                            \
    ADDERS(CODEC_FP32, fp32, set)                                              \
    ADDERS(CODEC_BF16, bf16, set)                                              \
    ADDERS(CODEC_FP16, fp16, set)                                              \
    static const struct codec codecs_##set[CODEC_COUNT] = {                    \
        [CODEC_FP32] = {ROW(CODEC_FP32, fp32, set, 1), ROW_ADD(fp32, set)},    \
        [CODEC_BF16] = {ROW(CODEC_BF16, bf16, set, 1), ROW_ADD(bf16, set)},    \
        [CODEC_FP16] = {ROW(CODEC_FP16, fp16, set, CODEC_FP16_BLOCK),          \
                        ROW_ADD(fp16, set)},                                   \
        [CODEC_INT8] = {ROW(CODEC_INT8, int8, set, CODEC_LOW_BLOCK)},          \
        [CODEC_E3M0] = {ROW(CODEC_E3M0, e3m0, set, CODEC_LOW_BLOCK)},          \
    };

TABLE(portable)
#ifdef LOCO_ISA_X86
TABLE(avx2)
TABLE(avx512)
#endif
/* clang-format on */

static bool has_portable(void)
{
    return true;
}

#ifdef LOCO_ISA_X86
/* The built-in asks the operating system's side too (YMM and ZMM state). */
static bool has_avx2(void)
{
    unsigned a;
    unsigned b;
    unsigned c;
    unsigned d;

    return __builtin_cpu_supports("avx2") &&
           __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

/* From the fastest to the one that always works. */
static const struct {
    const struct codec *table;
    bool (*supported)(void);
} sets[] = {
#ifdef LOCO_ISA_X86
    {codecs_avx512, has_avx512},
    {codecs_avx2, has_avx2},
#endif
    {codecs_portable, has_portable},
};

#define SET_COUNT (sizeof sets / sizeof sets[0])

const struct codec *codec_get_portable(unsigned id)
{
    return id < CODEC_COUNT ? &codecs_portable[id] : NULL;
}

const struct codec *codec_get(unsigned id)
{
    size_t i = 0;

    while (!sets[i].supported()) {
        i++;
    }
    return id < CODEC_COUNT ? &sets[i].table[id] : NULL;
}

const struct codec *codec_get_isa(unsigned id, const char *isa)
{
    for (size_t i = 0; i < SET_COUNT && id < CODEC_COUNT; i++) {
        if (strcmp(sets[i].table[id].isa, isa) == 0 && sets[i].supported()) {
            return &sets[i].table[id];
        }
    }
    return NULL;
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
