/* sparse.h - what the reference and the fast forms of `sparse` share: see
 * sparse.c. Inline: each set is compiled with its own instructions. */
#ifndef LOCO_TRAIN_SYNC_CODEC_SPARSE_H
#define LOCO_TRAIN_SYNC_CODEC_SPARSE_H

#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/half.h"
#include "train/sync/codec/kernels.h"

#define SPARSE_GROUP  64 /* elements of a word */
#define SPARSE_KEPT   12 /* of them */
#define SPARSE_WORDS  (CODEC_SPARSE_BLOCK / SPARSE_GROUP)
#define SPARSE_Q_MOST 32512U /* 127 * 256 */

/* Levels: the upper bits of a float without its sign; from the least normal to
 * the largest number. A word has how far its level is above 63 steps below the
 * block's largest; 0: the group is zeros. */
#define SPARSE_LEVEL_SHIFT 21
#define SPARSE_LEVEL_LEAST 4U
#define SPARSE_LEVEL_MOST  0x3fbU
#define SPARSE_STEPS       63U

/* Where the parts of a word begin, and its bits; the block's head. */
#define SPARSE_RANK_AT 12
#define SPARSE_STEP_AT 54
#define SPARSE_BITS    60
#define SPARSE_HEAD    2

/* [p][j] = how many ways to choose j of p; p below 64, j from 0 to 12. */
extern const uint64_t sparse_choose[SPARSE_GROUP][SPARSE_KEPT + 1];

/* C(64, 12): ranks are below it. */
#define SPARSE_RANKS UINT64_C(3284214703056)

static inline uint64_t sparse_rank(uint64_t mask)
{
    uint64_t rank = 0;

    for (int j = 1; mask != 0; j++) {
        rank += sparse_choose[__builtin_ctzll(mask)][j];
        mask &= mask - 1;
    }
    return rank;
}

static inline uint64_t sparse_mask(uint64_t rank)
{
    uint64_t mask = 0;
    int p = SPARSE_GROUP - 1;

    for (int j = SPARSE_KEPT; j > 0; j--, p--) {
        while (sparse_choose[p][j] > rank) {
            p--;
        }
        mask |= UINT64_C(1) << p;
        rank -= sparse_choose[p][j];
    }
    return mask;
}

/* Which of 64 magnitudes are at least that; each set has its own. */
#ifndef SPARSE_AT_LEAST
static inline uint64_t sparse_at_least(const uint32_t magnitude[SPARSE_GROUP],
                                       uint32_t least)
{
    uint64_t mask = 0;

    for (int i = 0; i < SPARSE_GROUP; i++) {
        mask |= (uint64_t)(magnitude[i] >= least) << i;
    }
    return mask;
}
#define SPARSE_AT_LEAST sparse_at_least
#endif

/* The 12 largest; of equal ones those that come first. More than 12 are at
 * least `low`, fewer than 12 at least `high`; a bound between them that exactly
 * 12 reach ends the search. The first guess is an eighth of the largest. */
static inline uint64_t sparse_largest(const uint32_t magnitude[SPARSE_GROUP],
                                      uint32_t max)
{
    uint32_t low = 0, high = max + 1, bound = max - (3U << 23);
    uint64_t some = ~UINT64_C(0), few = 0;

    while (high - low > 1) {
        uint64_t mask = SPARSE_AT_LEAST(magnitude, bound);
        int n = __builtin_popcountll(mask);

        if (n == SPARSE_KEPT) {
            return mask;
        }
        if (n > SPARSE_KEPT) {
            low = bound;
            some = mask;
        } else {
            high = bound;
            few = mask;
        }
        bound = low + (high - low) / 2;
    }
    some &= ~few; /* equal ones */
    for (int n = __builtin_popcountll(few); n < SPARSE_KEPT; n++) {
        few |= some & -some;
        some &= some - 1;
    }
    return few;
}

/* The mean of those in mask, m the largest magnitude: sums of whole numbers. */
static inline uint32_t sparse_level(const uint32_t magnitude[SPARSE_GROUP],
                                    uint64_t mask,
                                    float m,
                                    uint32_t n)
{
    float inverse = 127.0F / m;
    uint32_t q = 0, bits;

    for (; mask != 0; mask &= mask - 1) {
        float x = float_from_bits(magnitude[__builtin_ctzll(mask)]);

        q += (uint32_t)(x * inverse * 256.0F + 0.5F);
    }
    bits = float_bits(m * ((float)q / (float)(n * SPARSE_Q_MOST)));
    bits = (bits + 0xfffffU + (bits >> SPARSE_LEVEL_SHIFT & 1U)) >>
           SPARSE_LEVEL_SHIFT;
    return bits > SPARSE_LEVEL_MOST ? SPARSE_LEVEL_MOST : bits;
}

/* Words k and k + 1 are 15 bytes; k is even. */
static inline void
sparse_pair_put(uint8_t *block, size_t k, const uint64_t w[2])
{
    uint8_t *to = block + SPARSE_HEAD + k * SPARSE_BITS / 8;
    uint64_t rest = w[1] >> 4;

    put_u64(to, w[0] | w[1] << SPARSE_BITS);
    for (int i = 0; i < 7; i++) {
        to[8 + i] = (uint8_t)(rest >> (8 * i));
    }
}

static inline void
sparse_pair_get(const uint8_t *block, size_t k, uint64_t w[2])
{
    const uint8_t *from = block + SPARSE_HEAD + k * SPARSE_BITS / 8;
    uint64_t first = get_u64(from), rest = 0;

    for (int i = 0; i < 7; i++) {
        rest |= (uint64_t)from[8 + i] << (8 * i);
    }
    w[0] = first & ((UINT64_C(1) << SPARSE_BITS) - 1);
    w[1] = first >> SPARSE_BITS | rest << 4;
}

/* Signs and rank of n elements, at most 64; *level is 0 where they are sent as
 * zeros. */
static inline uint64_t
sparse_word(const float *x, float scale, size_t n, uint32_t *level)
{
    uint32_t magnitude[SPARSE_GROUP] = {0}, max = 0;
    uint64_t mask, word = 0;
    float v[SPARSE_GROUP] = {0};
    int j = 0;

    *level = 0;
    for (size_t i = 0; i < n; i++) {
        v[i] = scale * x[i];
        magnitude[i] = float_bits(v[i]) & CODEC_SIGN_OFF;
        max = magnitude[i] > max ? magnitude[i] : max;
    }
    if (float_from_bits(max) < CODEC_LOW_MIN) {
        return 0;
    }
    mask = sparse_largest(magnitude, max);
    for (uint64_t left = mask; left != 0; left &= left - 1, j++) {
        word |= (uint64_t)(float_bits(v[__builtin_ctzll(left)]) >> 31) << j;
    }
    *level = sparse_level(magnitude, mask, float_from_bits(max),
                          n < SPARSE_KEPT ? (uint32_t)n : SPARSE_KEPT);
    return word | sparse_rank(mask) << SPARSE_RANK_AT;
}

/* n elements, at most 64; what lies behind them in the group is not kept. */
static inline int
sparse_elements(float *x, uint64_t word, uint32_t most, size_t n)
{
    uint64_t rank =
        (word & ((UINT64_C(1) << SPARSE_STEP_AT) - 1)) >> SPARSE_RANK_AT;
    uint32_t step = (uint32_t)(word >> SPARSE_STEP_AT), signs, level;
    uint64_t mask;

    memset(x, 0, n * sizeof *x);
    if (word == 0) {
        return 0;
    }
    if (step == 0 || most + step < SPARSE_STEPS + SPARSE_LEVEL_LEAST ||
        rank >= SPARSE_RANKS) {
        return LOCO_EPROTO;
    }
    level = most + step - SPARSE_STEPS;
    mask = sparse_mask(rank);
    signs = (uint32_t)word & ((1U << SPARSE_KEPT) - 1);
    if (n < SPARSE_GROUP && mask >> n != 0 &&
        (n >= SPARSE_KEPT || rank != 0 || signs >> n != 0)) {
        return LOCO_EPROTO;
    }
    for (; mask != 0; mask &= mask - 1, signs >>= 1) {
        size_t p = (size_t)__builtin_ctzll(mask);

        if (p < n) {
            x[p] = float_from_bits(level << SPARSE_LEVEL_SHIFT | (signs & 1U)
                                                                     << 31);
        }
    }
    return 0;
}

/* How many of the block's n elements group k has. */
static inline size_t sparse_group_size(size_t k, size_t n)
{
    size_t left = k * SPARSE_GROUP < n ? n - k * SPARSE_GROUP : 0;

    return left < SPARSE_GROUP ? left : SPARSE_GROUP;
}

static inline int sparse_block_load(float *x, const uint8_t *src, size_t n)
{
    uint32_t most = get_u16(src);
    int rv =
        most != 0 && (most < SPARSE_LEVEL_LEAST || most > SPARSE_LEVEL_MOST)
            ? LOCO_EPROTO
            : 0;

    for (size_t k = 0; k < SPARSE_WORDS && rv == 0; k += 2) {
        uint64_t w[2];

        sparse_pair_get(src, k, w);
        for (size_t i = 0; i < 2 && rv == 0; i++) {
            size_t size = sparse_group_size(k + i, n);

            rv = size > 0    ? sparse_elements(x + (k + i) * SPARSE_GROUP, w[i],
                                               most, size)
                 : w[i] == 0 ? 0
                             : LOCO_EPROTO;
        }
    }
    return rv;
}

static inline int sparse_block_store(
    uint8_t *dst, const float *x, float scale, size_t n, uint32_t max)
{
    uint64_t word[SPARSE_WORDS];
    uint32_t level[SPARSE_WORDS], most = 0;

    if (max >= CODEC_INFINITE_BITS) {
        return LOCO_ENUMERIC;
    }
    for (size_t k = 0; k < SPARSE_WORDS; k++) {
        word[k] = sparse_word(
            x + (sparse_group_size(k, n) > 0 ? k * SPARSE_GROUP : 0), scale,
            sparse_group_size(k, n), &level[k]);
        most = level[k] > most ? level[k] : most;
    }
    put_u16(dst, (uint16_t)most);
    for (size_t k = 0; k < SPARSE_WORDS; k++) {
        word[k] = level[k] == 0 || level[k] + SPARSE_STEPS <= most
                      ? 0
                      : word[k] | (uint64_t)(level[k] + SPARSE_STEPS - most)
                                      << SPARSE_STEP_AT;
    }
    for (size_t k = 0; k < SPARSE_WORDS; k += 2) {
        sparse_pair_put(dst, k, word + k);
    }
    return 0;
}

#endif
