/* wire.cu - between parameters and the bytes that peers exchange: pack,
 * unpack, the outer rules.
 *
 * The layouts and every operation are those of train/sync/codec_TYPE.c and
 * rule.c, in the same order, each one IEEE fp32: the bits of a processor
 * (compiled with -fmad=false; the intrinsics say it once more). The bounds of
 * numbers are repeated here, because kernels knows nothing of train;
 * tests/unit/cuda compares the bytes.
 *
 * One block of threads a codec block; the largest magnitude is found as an
 * integer (infinities and NaNs are above all numbers). What cannot be encoded
 * or decoded raises a flag; all threads that raise it write the same value.
 * Bound by memory: 10 bytes a parameter for fp16 from phi and theta.
 */

#include "kernels/cuda/common.cuh"
#include "proto/base/err.h"

#define THREADS 256

#define FP16_EXP_MIN (-126)
#define FP16_EXP_MAX 113
#define LOW_MIN      0x1p-119f

#define SIGN_OFF        0x7fffffffu
#define INFINITE_BITS   0x7f800000u
#define SMALLEST_NORMAL 0x00800000u
#define FP16_TOO_LARGE  0x7f7ff000u
#define BF16_TOO_LARGE  0x7f7f8000u

enum flag { FLAG_NUMERIC, FLAG_PROTO, FLAG_COUNT };

struct wire_args {
    struct wire_op op;
    int *flags;
};

__device__ inline float power_of_two(int e)
{
    return __uint_as_float((uint32_t)(e + 127) << 23);
}

__device__ inline bool not_finite(float x)
{
    return (__float_as_uint(x) & SIGN_OFF) >= INFINITE_BITS;
}

/* scale * (phi - theta) or scale * phi */
__device__ inline float term(const struct wire_args &a, int64_t i)
{
    float x = a.op.theta == NULL ? a.op.phi[i]
                                 : __fsub_rn(a.op.phi[i], a.op.theta[i]);

    return __fmul_rn(a.op.scale, x);
}

/* The largest magnitude of the block's terms, known to all its threads. */
__device__ inline uint32_t
measure(const struct wire_args &a, int64_t at, int n, uint32_t *shared)
{
    uint32_t max = 0;

    for (int i = threadIdx.x; i < n; i += THREADS) {
        uint32_t bits = __float_as_uint(term(a, at + i)) & SIGN_OFF;

        max = bits > max ? bits : max;
    }
    for (int step = WARP / 2; step > 0; step /= 2) {
        uint32_t other = __shfl_xor_sync(ALL, max, step);

        max = other > max ? other : max;
    }
    if (threadIdx.x % WARP == 0) {
        shared[threadIdx.x / WARP] = max;
    }
    __syncthreads();
    for (int k = 0; k < THREADS / WARP; k++) {
        max = shared[k] > max ? shared[k] : max;
    }
    return max;
}

__device__ inline void put_16(uint8_t *to, uint16_t x)
{
    *(uint16_t *)to = x; /* blocks lie on even offsets */
}

__device__ inline uint16_t get_16(const uint8_t *from)
{
    return *(const uint16_t *)from;
}

/* ---- encode: one function per type, n elements from `at` into `to` ------ */

__device__ inline void
encode_fp32(const struct wire_args &a, int64_t at, int n, uint8_t *to, uint32_t)
{
    for (int i = threadIdx.x; i < n; i += THREADS) {
        ((float *)to)[i] = term(a, at + i);
    }
}

__device__ inline void
encode_bf16(const struct wire_args &a, int64_t at, int n, uint8_t *to, uint32_t)
{
    for (int i = threadIdx.x; i < n; i += THREADS) {
        uint32_t bits = __float_as_uint(term(a, at + i));

        bits += 0x7fffu + (bits >> 16 & 1u);
        put_16(to + 2 * i, (uint16_t)(bits >> 16));
    }
}

__device__ inline void encode_fp16(
    const struct wire_args &a, int64_t at, int n, uint8_t *to, uint32_t max)
{
    int e = (int)(max >> 23) - 127 - 14;
    float factor;

    e = e < FP16_EXP_MIN ? FP16_EXP_MIN : e;
    factor = power_of_two(-e);
    if (threadIdx.x == 0) {
        put_16(to, (uint16_t)(int16_t)e);
    }
    for (int i = threadIdx.x; i < n; i += THREADS) {
        put_16(to + 2 + 2 * i, half_bits(__fmul_rn(term(a, at + i), factor)));
    }
}

__device__ inline void encode_int8(
    const struct wire_args &a, int64_t at, int n, uint8_t *to, uint32_t max)
{
    float m = __uint_as_float(max);
    float s = m < LOW_MIN ? 0 : __fdiv_rn(m, 127.0f);
    float inverse = m < LOW_MIN ? 0 : __fdiv_rn(127.0f, m);

    if (threadIdx.x == 0) {
        *(float *)to = s; /* blocks are multiples of 4 bytes */
    }
    for (int i = threadIdx.x; i < n; i += THREADS) {
        float t = __fmul_rn(term(a, at + i), inverse);

        t = __fadd_rn(t, t < 0.0f ? -0.5f : 0.5f);
        to[4 + i] = (uint8_t)(int8_t)__float2int_rz(t);
    }
}

/* Bounds between codes, see sync/codec/e3m0.c. */
struct low_scale {
    float s;
    uint32_t upper, zero;
};

__device__ inline struct low_scale low_scale_of(uint32_t max)
{
    struct low_scale out = {0, INFINITE_BITS, INFINITE_BITS};
    float s = __uint_as_float(max);
    float upper = __fmul_rn(0.75f, s);

    if (s < LOW_MIN) {
        return out;
    }
    out.s = s;
    out.upper = __float_as_uint(upper);
    if ((double)upper > 0.75 * (double)s) { /* exact in double */
        out.upper--;
    }
    out.zero = max - (7u << 23);
    return out;
}

__device__ inline unsigned low_code(float x, const struct low_scale &block)
{
    uint32_t magnitude = __float_as_uint(x) & SIGN_OFF;
    uint32_t bound = block.upper;
    unsigned k = 7;

    if (magnitude <= block.zero) {
        return 0;
    }
    while (k > 1 && magnitude <= bound) {
        bound -= 1u << 23;
        k--;
    }
    return (__float_as_uint(x) >> 31) << 3 | k;
}

__device__ inline void encode_e3m0(
    const struct wire_args &a, int64_t at, int n, uint8_t *to, uint32_t max)
{
    const struct low_scale block = low_scale_of(max);

    if (threadIdx.x == 0) {
        *(float *)to = block.s;
    }
    for (int i = 2 * threadIdx.x; i < n; i += 2 * THREADS) {
        unsigned low = low_code(term(a, at + i), block);
        unsigned high = i + 1 < n ? low_code(term(a, at + i + 1), block) : 0;

        to[4 + i / 2] = (uint8_t)(low | high << 4);
    }
}

/* The sum over all threads of the block, known to all of them. */
__device__ inline uint32_t total(uint32_t mine, uint32_t *shared)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        mine += __shfl_xor_sync(ALL, mine, step);
    }
    __syncthreads(); /* what was there before has been read */
    if (threadIdx.x % WARP == 0) {
        shared[threadIdx.x / WARP] = mine;
    }
    __syncthreads();
    mine = 0;
    for (int k = 0; k < THREADS / WARP; k++) {
        mine += shared[k];
    }
    return mine;
}

#define INT2_MOST 32512u

/* See sync/codec/int2.c. */
__device__ inline uint32_t int2_whole(float x, float inverse)
{
    float t =
        __fmul_rn(__uint_as_float(__float_as_uint(x) & SIGN_OFF), inverse);

    return (uint32_t)__float2int_rz(__fadd_rn(__fmul_rn(t, 256.0f), 0.5f));
}

__device__ inline uint16_t int2_level(float m, uint32_t q, uint32_t n)
{
    float share = __fdiv_rn((float)q, (float)(n * INT2_MOST));
    uint32_t bits = __float_as_uint(__fmul_rn(m, share));

    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)(bits >= 0x7f80u ? 0x7f7fu : bits);
}

__device__ inline void encode_int2(const struct wire_args &a,
                                   int64_t at,
                                   int n,
                                   uint8_t *to,
                                   uint32_t max,
                                   uint32_t *shared)
{
    float m = __uint_as_float(max);
    bool zeros = m < LOW_MIN;
    float inverse = zeros ? 0 : __fdiv_rn(127.0f, m);
    uint32_t q = 0, q_large = 0, n_large = 0;
    uint16_t low = 0, high = 0;

    for (int i = threadIdx.x; i < n; i += THREADS) {
        q += int2_whole(term(a, at + i), inverse);
    }
    q = total(q, shared);
    for (int i = threadIdx.x; i < n; i += THREADS) {
        uint32_t own = int2_whole(term(a, at + i), inverse);

        n_large += own > q / (uint32_t)n;
        q_large += own > q / (uint32_t)n ? own : 0;
    }
    n_large = total(n_large, shared);
    q_large = total(q_large, shared);
    if (!zeros) {
        low = int2_level(m, q - q_large, (uint32_t)n - n_large);
        high = n_large == 0 ? low : int2_level(m, q_large, n_large);
    }
    if (threadIdx.x == 0) {
        put_16(to, low);
        put_16(to + 2, high);
    }
    for (int i = 4 * threadIdx.x; i < n; i += 4 * THREADS) {
        unsigned codes = 0;

        for (int k = 0; k < 4 && i + k < n; k++) {
            float x = term(a, at + i + k);
            unsigned large = int2_whole(x, inverse) > q / (uint32_t)n;
            unsigned sign = __float_as_uint(x) >> 31;

            codes |= (large || low != 0 ? sign << 1 | large : 0) << 2 * k;
        }
        to[4 + i / 4] = (uint8_t)codes;
    }
}

/* ---- sparse: see sync/codec/sparse.c. A warp for each group of 64 elements,
 * lane and lane + 32 in a lane. ----------------------------------------------
 */

#define SPARSE_GROUP 64
#define SPARSE_KEPT  12
#define SPARSE_WORDS (CODEC_SPARSE_BLOCK / SPARSE_GROUP)
#define SPARSE_STEPS 63u
#define SPARSE_LEVEL_MOST 0x3fbu
#define SPARSE_RANKS 3284214703056ull /* C(64, 12) */

struct pair {
    uint32_t at[2]; /* of elements lane, lane + 32 */
};

/* [p * 13 + j] = C(p, j), of all threads of the block. */
__device__ inline void choose_table(uint64_t *choose)
{
    for (int k = threadIdx.x; k < SPARSE_GROUP * (SPARSE_KEPT + 1);
         k += THREADS) {
        int p = k / (SPARSE_KEPT + 1), j = k % (SPARSE_KEPT + 1);
        uint64_t x = 1;

        for (int i = 0; i < j; i++) {
            x = p > i ? x * (uint64_t)(p - i) / (uint64_t)(i + 1) : 0;
        }
        choose[k] = x;
    }
    __syncthreads();
}

/* How many bits of a mask of 64 are below p. */
__device__ inline int below(uint64_t mask, int p)
{
    return __popcll(mask & ((1ull << p) - 1));
}

/* The 12 largest; of equal ones those that come first. */
__device__ inline uint64_t largest(const struct pair &magnitude)
{
    int lane = threadIdx.x % WARP;
    int before[2] = {0, 0};
    uint64_t mask;

    for (int k = 0; k < WARP; k++) { /* no index that registers do not have */
        uint32_t x = __shfl_sync(ALL, magnitude.at[0], k);
        uint32_t y = __shfl_sync(ALL, magnitude.at[1], k);

        for (int h = 0; h < 2; h++) {
            int own = lane + WARP * h;

            before[h] += x > magnitude.at[h] ||
                         (x == magnitude.at[h] && k < own);
            before[h] += y > magnitude.at[h] ||
                         (y == magnitude.at[h] && k + WARP < own);
        }
    }
    mask = before[0] < SPARSE_KEPT ? 1ull << lane : 0;
    mask |= before[1] < SPARSE_KEPT ? 1ull << (lane + WARP) : 0;
    return warp_sum(mask); /* each bit is one lane's */
}

/* Signs and rank; *level is 0 where the group is sent as zeros. */
__device__ inline uint64_t sparse_word(const struct wire_args &a,
                                       int64_t at,
                                       int n,
                                       const uint64_t *choose,
                                       uint32_t *level)
{
    int lane = threadIdx.x % WARP, kept = n < SPARSE_KEPT ? n : SPARSE_KEPT;
    struct pair x = {}, magnitude = {};
    uint32_t max = 0, bits, q = 0;
    uint64_t mask, word = 0;
    float m, inverse;

    for (int h = 0; h < 2; h++) {
        int i = lane + WARP * h;

        x.at[h] = i < n ? __float_as_uint(term(a, at + i)) : 0;
        magnitude.at[h] = x.at[h] & SIGN_OFF;
        max = magnitude.at[h] > max ? magnitude.at[h] : max;
    }
    for (int step = WARP / 2; step > 0; step /= 2) {
        uint32_t other = __shfl_xor_sync(ALL, max, step);

        max = other > max ? other : max;
    }
    m = __uint_as_float(max);
    *level = 0;
    if (m < LOW_MIN) {
        return 0;
    }
    inverse = __fdiv_rn(127.0f, m);
    mask = largest(magnitude);
    for (int h = 0; h < 2; h++) {
        int i = lane + WARP * h, j = below(mask, i);

        if ((mask >> i & 1) != 0) {
            word += (uint64_t)(x.at[h] >> 31) << j;
            word += choose[i * (SPARSE_KEPT + 1) + j + 1] << SPARSE_KEPT;
            q += int2_whole(__uint_as_float(magnitude.at[h]), inverse);
        }
    }
    word = warp_sum(word);
    q = warp_sum(q);
    bits = __float_as_uint(__fmul_rn(
        m, __fdiv_rn((float)q, (float)((uint32_t)kept * INT2_MOST))));
    bits = (bits + 0xfffffu + (bits >> 21 & 1u)) >> 21;
    *level = bits > SPARSE_LEVEL_MOST ? SPARSE_LEVEL_MOST : bits;
    return word;
}

/* What the warps of a block hand each other. */
struct sparse_block {
    uint64_t choose[SPARSE_GROUP * (SPARSE_KEPT + 1)];
    uint64_t word[SPARSE_WORDS];
    uint32_t level[SPARSE_WORDS];
};

/* Byte i of the block's words, 60 bits each. */
__device__ inline uint8_t sparse_byte(const uint64_t *word, int i)
{
    uint64_t first = word[2 * (i / 15)], second = word[2 * (i / 15) + 1];
    int at = i % 15;

    return (uint8_t)(at < 7    ? first >> 8 * at
                     : at == 7 ? first >> 56 | second << 4
                               : second >> (8 * at - 60));
}

__device__ inline void encode_sparse(const struct wire_args &a,
                                     int64_t at,
                                     int n,
                                     uint8_t *to,
                                     struct sparse_block *s)
{
    uint32_t most = 0;

    choose_table(s->choose);
    for (int k = threadIdx.x / WARP; k < SPARSE_WORDS; k += THREADS / WARP) {
        int left = n - SPARSE_GROUP * k;
        uint64_t word = 0;
        uint32_t level = 0;

        if (left > 0) {
            word = sparse_word(a, at + SPARSE_GROUP * k,
                               left < SPARSE_GROUP ? left : SPARSE_GROUP,
                               s->choose, &level);
        }
        if (threadIdx.x % WARP == 0) {
            s->word[k] = word;
            s->level[k] = level;
        }
    }
    __syncthreads();
    for (int k = 0; k < SPARSE_WORDS; k++) {
        most = s->level[k] > most ? s->level[k] : most;
    }
    __syncthreads();
    if (threadIdx.x < SPARSE_WORDS) {
        int k = threadIdx.x;
        uint32_t level = s->level[k];

        s->word[k] = level == 0 || level + SPARSE_STEPS <= most
                         ? 0
                         : s->word[k] |
                               (uint64_t)(level + SPARSE_STEPS - most) << 54;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        put_16(to, (uint16_t)most);
    }
    for (int i = threadIdx.x; i < SPARSE_WORDS * 60 / 8; i += THREADS) {
        to[2 + i] = sparse_byte(s->word, i);
    }
}

__device__ inline uint64_t mask_of(uint64_t rank, const uint64_t *choose)
{
    uint64_t mask = 0;
    int p = SPARSE_GROUP - 1;

    for (int j = SPARSE_KEPT; j > 0; j--, p--) {
        while (choose[p * (SPARSE_KEPT + 1) + j] > rank) {
            p--;
        }
        mask |= 1ull << p;
        rank -= choose[p * (SPARSE_KEPT + 1) + j];
    }
    return mask;
}

/* n elements of a group; false: no encoder writes it. */
__device__ inline bool sparse_elements(float *x,
                                       uint64_t word,
                                       uint32_t most,
                                       int n,
                                       const uint64_t *choose)
{
    uint64_t rank = (word & ((1ull << 54) - 1)) >> SPARSE_KEPT, mask = 0;
    uint32_t step = (uint32_t)(word >> 54);
    uint32_t signs = (uint32_t)word & ((1u << SPARSE_KEPT) - 1);
    int lane = threadIdx.x % WARP;
    bool good = word == 0 || (step > 0 && most + step >= SPARSE_STEPS + 4 &&
                              rank < SPARSE_RANKS);

    if (good && word != 0) {
        mask = mask_of(rank, choose);
        good = n >= SPARSE_GROUP || mask >> n == 0 ||
               (n < SPARSE_KEPT && rank == 0 && signs >> n == 0);
    }
    for (int i = lane; i < n && good; i += WARP) {
        uint32_t sign = signs >> below(mask, i) << 31;
        uint32_t level = most + step - SPARSE_STEPS;

        x[i] = (mask >> i & 1) != 0 ? __uint_as_float(level << 21 | sign)
                                    : 0.0f;
    }
    return good;
}

/* Word k of a block. */
__device__ inline uint64_t sparse_read(const uint8_t *from, int k)
{
    const uint8_t *at = from + 2 + 15 * (k / 2) + 7 * (k % 2);
    uint64_t word = 0;

    for (int i = 0; i < 8; i++) {
        word |= (uint64_t)at[i] << 8 * i;
    }
    return k % 2 == 0 ? word & ((1ull << 60) - 1) : word >> 4;
}

__device__ inline bool
decode_sparse(float *x, const uint8_t *from, int n, struct sparse_block *s)
{
    uint32_t most = get_16(from);
    bool good = most == 0 || (most >= 4 && most <= SPARSE_LEVEL_MOST);

    choose_table(s->choose);
    for (int k = threadIdx.x / WARP; k < SPARSE_WORDS; k += THREADS / WARP) {
        int left = n - SPARSE_GROUP * k;
        uint64_t word = sparse_read(from, k);

        good = good && (left > 0 ? sparse_elements(
                                       x + SPARSE_GROUP * k, word, most,
                                       left < SPARSE_GROUP ? left
                                                           : SPARSE_GROUP,
                                       s->choose)
                                 : word == 0);
    }
    return good;
}

/* Elements of a whole block, or of a piece of a type without; their bytes;
 * magnitudes that do not fit. */
template <int WIRE> __host__ __device__ constexpr int block_of();
template <int WIRE> __host__ __device__ constexpr int bytes_of();
#define CODEC(ID, type, block, head, bits, ...)                                \
    template <> __host__ __device__ constexpr int block_of<CODEC_##ID>()       \
    {                                                                          \
        return (block) == 1 ? CODEC_PIECE : (block);                           \
    }                                                                          \
    template <> __host__ __device__ constexpr int bytes_of<CODEC_##ID>()       \
    {                                                                          \
        return (head) + block_of<CODEC_##ID>() * (bits) / 8;                   \
    }
#include "proto/base/codec.def"

/* Shared memory that a type takes; measure()'s comes on top. */
template <int WIRE> constexpr size_t shared_of()
{
    return WIRE == CODEC_SPARSE ? sizeof(struct sparse_block) : 0;
}

template <int WIRE> __device__ inline bool fits(uint32_t max)
{
    if (WIRE == CODEC_FP16) {
        return max < FP16_TOO_LARGE;
    }
    if (WIRE == CODEC_BF16) {
        return max < BF16_TOO_LARGE;
    }
    if (WIRE == CODEC_INT8 && max < INFINITE_BITS) {
        float s = __fdiv_rn(__uint_as_float(max), 127.0f);

        return __float_as_uint(__fmul_rn(s, 127.0f)) < INFINITE_BITS;
    }
    return max < INFINITE_BITS;
}

template <int WIRE> __global__ void encode_kernel(struct wire_args a)
{
    SHARED(memory);
    int64_t at = (int64_t)blockIdx.x * block_of<WIRE>();
    int64_t left = a.op.n - at;
    int n = left < block_of<WIRE>() ? (int)left : block_of<WIRE>();
    uint8_t *to = a.op.bytes + (int64_t)blockIdx.x * bytes_of<WIRE>();
    uint32_t max = measure(a, at, n, (uint32_t *)memory);

    if (!fits<WIRE>(max)) {
        a.flags[FLAG_NUMERIC] = 1;
        return;
    }
    if (WIRE == CODEC_FP32) {
        encode_fp32(a, at, n, to, max);
    } else if (WIRE == CODEC_BF16) {
        encode_bf16(a, at, n, to, max);
    } else if (WIRE == CODEC_FP16) {
        encode_fp16(a, at, n, to, max);
    } else if (WIRE == CODEC_INT8) {
        encode_int8(a, at, n, to, max);
    } else if (WIRE == CODEC_E3M0) {
        encode_e3m0(a, at, n, to, max);
    } else if (WIRE == CODEC_INT2) {
        encode_int2(a, at, n, to, max, (uint32_t *)memory);
    } else {
        __syncthreads(); /* `memory` was measure()'s */
        encode_sparse(a, at, n, to, (struct sparse_block *)memory);
    }
}

/* ---- decode ------------------------------------------------------------- */

/* The block's scale where it has one; false: no encoder writes it. */
template <int WIRE>
__device__ inline bool scale_of(const uint8_t *from, float *s)
{
    uint32_t bits;

    if (WIRE == CODEC_FP16) {
        int e = (int16_t)get_16(from);
        bool good = e >= FP16_EXP_MIN && e <= FP16_EXP_MAX;

        *s = good ? power_of_two(e) : 0;
        return good;
    }
    if (WIRE == CODEC_INT2) {
        *s = 1;
        return get_16(from + 2) < 0x7f80u && get_16(from) <= get_16(from + 2);
    }
    if (WIRE != CODEC_INT8 && WIRE != CODEC_E3M0) {
        *s = 1;
        return true;
    }
    *s = *(const float *)from;
    bits = __float_as_uint(*s);
    if (bits == 0) {
        return true;
    }
    if (WIRE == CODEC_INT8) {
        return bits >= SMALLEST_NORMAL && bits < INFINITE_BITS &&
               __float_as_uint(__fmul_rn(*s, 127.0f)) < INFINITE_BITS;
    }
    return bits >= __float_as_uint(LOW_MIN) && bits < INFINITE_BITS;
}

/* Element i of a block; false: no encoder writes it. */
template <int WIRE>
__device__ inline bool decode_one(const uint8_t *from, int i, float s, float *x)
{
    if (WIRE == CODEC_FP32) {
        *x = ((const float *)from)[i];
    } else if (WIRE == CODEC_BF16) {
        *x = __uint_as_float((uint32_t)get_16(from + 2 * i) << 16);
    } else if (WIRE == CODEC_FP16) {
        *x = __fmul_rn(half_value(get_16(from + 2 + 2 * i)), s);
    } else if (WIRE == CODEC_INT8) {
        int q = (int8_t)from[4 + i];

        *x = __fmul_rn((float)q, s);
        return q != -128 && (q == 0 || s != 0.0f);
    } else if (WIRE == CODEC_INT2) {
        unsigned code = from[4 + i / 4] >> (i % 4 * 2) & 3u;
        uint32_t level = get_16(from + 2 * (code & 1u));

        *x = __uint_as_float(level << 16 | code >> 1 << 31);
        return code == 0 || level != 0;
    } else {
        unsigned code = from[4 + i / 2] >> (i % 2 * 4) & 15u;
        unsigned k = code & 7u;
        float magnitude =
            k == 0 ? 0.0f : __fmul_rn(s, power_of_two((int)k - 7));

        *x = code > 8 ? -magnitude : magnitude;
        return code != 8 && (code == 0 || s != 0.0f);
    }
    return true;
}

template <int WIRE> __global__ void decode_kernel(struct wire_args a)
{
    SHARED(memory); /* shared_of() */
    int64_t at = (int64_t)blockIdx.x * block_of<WIRE>();
    int64_t left = a.op.n - at;
    int n = left < block_of<WIRE>() ? (int)left : block_of<WIRE>();
    const uint8_t *from = a.op.bytes + (int64_t)blockIdx.x * bytes_of<WIRE>();
    float s;
    bool good = scale_of<WIRE>(from, &s);
    bool finite = true;

    if (WIRE == CODEC_SPARSE) {
        good =
            decode_sparse(a.op.x + at, from, n, (struct sparse_block *)memory);
        n = 0;
    }
    for (int i = threadIdx.x; i < n && good; i += THREADS) {
        float x;

        good = decode_one<WIRE>(from, i, s, &x);
        finite = finite && !not_finite(x);
        a.op.x[at + i] = x;
    }
    if (WIRE == CODEC_E3M0 && n % 2 != 0 && from[4 + n / 2] >> 4 != 0) {
        good = false;
    }
    if (WIRE == CODEC_INT2 && n % 4 != 0 &&
        from[4 + n / 4] >> (n % 4 * 2) != 0) {
        good = false;
    }
    if (!good) {
        a.flags[FLAG_PROTO] = 1;
    }
    if (!finite) {
        a.flags[FLAG_NUMERIC] = 1;
    }
}

/* ---- rules -------------------------------------------------------------- */

struct outer_args {
    struct outer_op op;
    bool plain, pulled;
    int *flags;
};

__device__ inline void outer_one(const struct outer_args &a, int64_t i)
{
    float g = a.op.g[i];
    float phi = a.op.phi[i];
    float m = g;
    float d;

    if (a.plain) {
        d = __fmul_rn(a.op.lr, g);
    } else if (a.op.heavy_ball) {
        m = __fadd_rn(__fmul_rn(a.op.mu, a.op.m[i]), __fmul_rn(a.op.lr, g));
        d = 0;
    } else {
        m = __fadd_rn(__fmul_rn(a.op.mu, a.op.m[i]), g);
        d = __fmul_rn(a.op.lr, __fadd_rn(g, __fmul_rn(a.op.mu, m)));
    }
    if (a.pulled) {
        float f = __fmul_rn(a.op.gamma, __fsub_rn(phi, a.op.mean_phi[i]));

        if (a.op.heavy_ball) {
            m = __fadd_rn(m, f);
        } else {
            d = __fadd_rn(d, f);
        }
    }
    phi = __fsub_rn(phi, a.op.heavy_ball ? m : d);
    if (a.op.phi_out != NULL) {
        a.op.phi_out[i] = phi;
        if (a.op.m_out != NULL) {
            a.op.m_out[i] = m;
        }
    }
    if (not_finite(phi) || (!a.plain && not_finite(m))) {
        a.flags[FLAG_NUMERIC] = 1;
    }
}

__global__ void outer_kernel(struct outer_args a)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < a.op.n) {
        outer_one(a, i);
    }
}

__global__ void shift_kernel(struct shift_op a, int *flags)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float d;

    if (i >= a.n) {
        return;
    }
    d = a.phi_new == NULL
            ? __fsub_rn(a.phi_old[i], a.theta[i])
            : __fadd_rn(a.phi_new[i], __fsub_rn(a.theta[i], a.phi_old[i]));
    a.out[i] = d;
    if (a.phi_new == NULL && not_finite(d)) {
        flags[FLAG_NUMERIC] = 1;
    }
}

__global__ void mix_kernel(struct mix_op a)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i < a.n) {
        float d = __fsub_rn(a.theta[i], a.phi[i]);

        a.theta[i] = __fadd_rn(a.phi[i], __fmul_rn(a.keep, d));
    }
}

__global__ void delayed_kernel(struct delayed_op a, int *flags)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float s, sum, step, m, h, phi;

    if (i >= a.n) {
        return;
    }
    s = __fmul_rn(a.k, a.g[i]);
    sum = __fadd_rn(a.sum[i], s);
    step = __fdiv_rn(s, a.size);
    m = a.m[i];
    h = __fmul_rn(a.early, m);
    if (a.flush) {
        m = __fadd_rn(__fmul_rn(a.mu, m), __fdiv_rn(sum, a.size));
        sum = 0;
        h = __fadd_rn(h, __fmul_rn(a.late, m));
    }
    h = __fadd_rn(h, step);
    phi = __fsub_rn(a.phi[i], __fmul_rn(a.lr, h));
    a.phi_out[i] = phi;
    a.m[i] = m;
    a.sum[i] = sum;
    if (not_finite(phi) || not_finite(m) || not_finite(sum)) {
        flags[FLAG_NUMERIC] = 1;
    }
}

__global__ void pair_kernel(struct pair_op a)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= a.n) {
        return;
    }
    a.out[i] = a.phi == NULL
                   ? __fadd_rn(__fmul_rn(0.5f, a.low[i]),
                               __fmul_rn(0.5f, a.high[i]))
                   : __fadd_rn(a.phi[i],
                               __fmul_rn(0.5f,
                                         __fsub_rn(a.high[i], a.low[i])));
}

/* ---- launchers ---------------------------------------------------------- */

static int clear_flags(struct gpu *g, int **flags)
{
    int rv = gpu_slot(g, SLOT_FLAGS, FLAG_COUNT * sizeof(int), (void **)flags);

    return rv != 0
               ? rv
               : gpu_check(g,
                           cudaMemsetAsync(*flags, 0, FLAG_COUNT * sizeof(int),
                                           g->stream),
                           "clear flags");
}

/* Bytes that no encoder writes count before numbers that are not finite. */
static int read_flags(struct gpu *g, const int *flags)
{
    int got[FLAG_COUNT];
    int rv = gpu_download(g, got, flags, sizeof got);

    return rv != 0                  ? rv
           : got[FLAG_PROTO] != 0   ? LOCO_EPROTO
           : got[FLAG_NUMERIC] != 0 ? LOCO_ENUMERIC
                                    : 0;
}

template <int WIRE>
static int run(struct gpu *g, struct wire_args a, bool encode)
{
    auto encoder = encode_kernel<WIRE>;
    auto decoder = decode_kernel<WIRE>;
    unsigned blocks = (unsigned)blocks_for(a.op.n, block_of<WIRE>());
    int rv = clear_flags(g, &a.flags);

    if (rv != 0) {
        return rv;
    }
    if (encode) {
        LAUNCH(encoder, blocks, THREADS,
               shared_of<WIRE>() + THREADS / WARP * sizeof(uint32_t), g->stream,
               a);
    } else {
        gpu_touched(g, a.op.x, (size_t)a.op.n * sizeof(float));
        LAUNCH(decoder, blocks, THREADS, shared_of<WIRE>(), g->stream, a);
    }
    rv = gpu_launched(g, encode ? "encode" : "decode");
    return rv != 0 ? rv : read_flags(g, a.flags);
}

static int run_wire(struct gpu *g, const struct wire_op *op, bool encode)
{
    struct wire_args a = {};

    a.op = *op;
    switch (op->wire) {
#define CODEC(ID, ...)                                                         \
    case CODEC_##ID:                                                           \
        return run<CODEC_##ID>(g, a, encode);
#include "proto/base/codec.def"
    case CODEC_COUNT:
        break;
    }
    return gpu_fail(g, LOCO_EINVAL, "wire", "an unknown type");
}

int cuda_encode(struct gpu *g, const struct wire_op *op)
{
    return run_wire(g, op, true);
}

int cuda_decode(struct gpu *g, const struct wire_op *op)
{
    return run_wire(g, op, false);
}

int cuda_outer(struct gpu *g, const struct outer_op *op)
{
    struct outer_args a = {};
    int rv = clear_flags(g, &a.flags);

    if (rv != 0) {
        return rv;
    }
    a.op = *op;
    a.pulled = op->mean_phi != NULL && op->gamma != 0;
    a.plain = !op->heavy_ball && op->mu == 0 && !a.pulled;
    if (op->phi_out != NULL) {
        gpu_touched(g, op->phi_out, (size_t)op->n * sizeof(float));
    }
    LAUNCH(outer_kernel, (unsigned)blocks_for(op->n, THREADS), THREADS, 0,
           g->stream, a);
    rv = gpu_launched(g, "outer rule");
    return rv != 0 ? rv : read_flags(g, a.flags);
}

int cuda_shift(struct gpu *g, const struct shift_op *op)
{
    struct shift_op a = *op;
    int *flags = NULL;
    int rv = clear_flags(g, &flags);

    if (rv != 0) {
        return rv;
    }
    gpu_touched(g, a.out, (size_t)a.n * sizeof(float));
    LAUNCH(shift_kernel, (unsigned)blocks_for(a.n, THREADS), THREADS, 0,
           g->stream, a, flags);
    rv = gpu_launched(g, "shift");
    return rv != 0 ? rv : read_flags(g, flags);
}

int cuda_mix(struct gpu *g, const struct mix_op *op)
{
    struct mix_op a = *op;

    gpu_touched(g, a.theta, (size_t)a.n * sizeof(float));
    LAUNCH(mix_kernel, (unsigned)blocks_for(a.n, THREADS), THREADS, 0,
           g->stream, a);
    return gpu_launched(g, "mix");
}

int cuda_pair(struct gpu *g, const struct pair_op *op)
{
    struct pair_op a = *op;

    gpu_touched(g, a.out, (size_t)a.n * sizeof(float));
    LAUNCH(pair_kernel, (unsigned)blocks_for(a.n, THREADS), THREADS, 0,
           g->stream, a);
    return gpu_launched(g, "pair");
}

int cuda_delayed(struct gpu *g, const struct delayed_op *op)
{
    struct delayed_op a = *op;
    int *flags = NULL;
    int rv = clear_flags(g, &flags);

    if (rv != 0) {
        return rv;
    }
    gpu_touched(g, a.phi_out, (size_t)a.n * sizeof(float));
    LAUNCH(delayed_kernel, (unsigned)blocks_for(a.n, THREADS), THREADS, 0,
           g->stream, a, flags);
    rv = gpu_launched(g, "delayed");
    return rv != 0 ? rv : read_flags(g, flags);
}
