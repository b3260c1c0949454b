/* codec.c - vectors cut into blocks, and the tables of codec.h.
 *
 * A block goes through gather or load_add, store, and load where the decoded
 * values are wanted, before the next one is touched: memory is read once and
 * written once, all else happens in a buffer in the L1 cache (see
 * sync/codec/kernels.h). The tables are one wrapper per type, set and function,
 * so that a caller needs no argument that says which.
 */
#include "train/sync/codec/codec.h"

#include <assert.h>
#include <string.h>

#include "train/sync/codec/kernels.h"
#include "train/sync/codec/mode.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the codecs move fp32 and fp16 words as they lie in memory"
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ------------------------------------------------------------------ sizes */

/* clang-format off */
#define CODEC(ID, type, block, head, bits, ...)                                \
    static size_t type##_bytes(size_t n)                                       \
    {                                                                          \
        return (head) * (n / (block) + (n % (block) != 0)) +                   \
               n / 8 * (bits) + (n % 8 * (bits) + 7) / 8;                      \
    }                                                                          \
    static_assert((block) <= CODEC_BLOCK_MAX, "buffers hold a " #type);        \
    static_assert((block) == 1 ? (head) == 0 : (block) * (bits) % 8 == 0,      \
                  "blocks of " #type " are whole bytes");
#include "proto/base/codec.def"
/* clang-format on */

/* ----------------------------------------------------------------- blocks */

#define PIECE(block) ((block) == 1 ? CODEC_PIECE : (block))

const struct codec_piece codec_pieces[CODEC_COUNT] = {
#define CODEC(ID, type, block, head, bits, ...)                                \
    [CODEC_##ID] = {PIECE(block), (head) + (size_t)PIECE(block) * (bits) / 8},
#include "proto/base/codec.def"
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
    _Alignas(64) float x[CODEC_BLOCK_MAX];
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

/* What only a ring's types have. */
#define ROW_RING(type, set)                                                    \
    .add = type##_add_##set, .add_op = type##_add_op_##set,
#define ROW_BUTTERFLY(type, set)
#define ADDERS_RING(ID, type, set) ADDERS(ID, type, set)
#define ADDERS_BUTTERFLY(ID, type, set)

#define FUNCTIONS(ID, type, exchange, set)                                     \
    ENCODERS(ID, type, set)                                                    \
    ADDERS_##exchange(ID, type, set)

#define ROW(ID, TYPE, BLOCK, EXCHANGE, set)                                    \
    [ID] = {.name = #TYPE, .isa = #set, .id = (ID), .block = (BLOCK),          \
            .bytes = TYPE##_bytes, .encode = TYPE##_encode_##set,              \
            .decode = TYPE##_decode_##set,                                     \
            .encode_op = TYPE##_encode_op_##set,                               \
            ROW_##EXCHANGE(TYPE, set) .sum = TYPE##_sum_##set},

#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    FUNCTIONS(CODEC_##ID, type, exchange, portable)
#include "proto/base/codec.def"
static const struct codec codecs_portable[CODEC_COUNT] = {
#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    ROW(CODEC_##ID, type, block, exchange, portable)
#include "proto/base/codec.def"
};

#ifdef LOCO_ISA_X86
#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    FUNCTIONS(CODEC_##ID, type, exchange, avx2)                                \
    FUNCTIONS(CODEC_##ID, type, exchange, avx512)
#include "proto/base/codec.def"
static const struct codec codecs_avx2[CODEC_COUNT] = {
#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    ROW(CODEC_##ID, type, block, exchange, avx2)
#include "proto/base/codec.def"
};
static const struct codec codecs_avx512[CODEC_COUNT] = {
#define CODEC(ID, type, block, head, bits, exchange, ...)                      \
    ROW(CODEC_##ID, type, block, exchange, avx512)
#include "proto/base/codec.def"
};
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
