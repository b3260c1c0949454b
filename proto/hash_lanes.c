/* hash_lanes.c - see hash_lanes.h; BLAKE2b as in RFC 7693, section 3.
 *
 * In lane i of each vector is the word of piece i. What is hashed is "leaf" and
 * then the piece, so block k of 128 bytes begins 4 bytes before byte 128 k of
 * it: the first one has the four letters, the last one four bytes of the piece
 * and zeros.
 */
#include "proto/hash_lanes.h"

#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "proto/base/bytes.h"
#include "proto/hash.h"

#if defined(__AVX512F__)
#define LANES 8
#define ISA   avx512
#else
#define LANES 4
#define ISA   avx2
#endif

#define BLOCK   128U
#define WORDS   16
#define PREFIX  4U /* "leaf" */
#define TEXT    (PREFIX + HASH_PIECE_BYTES)
#define N_FULL  (TEXT / BLOCK) /* blocks before the last, short one */
#define OUT_LEN 32U

#define JOIN2(a, b) a##b
#define JOIN(a, b)  JOIN2(a, b)

typedef uint64_t lanes __attribute__((vector_size(8 * LANES)));

static const uint64_t iv[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
    0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
    0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static inline lanes all(uint64_t x)
{
    return x - (lanes){0};
}

/* ---- a block ------------------------------------------------------------ */

#if defined(__AVX512F__)
#define ROTATE(x, bits) ((lanes)_mm512_ror_epi64((__m512i)(x), bits))
#define ROTATE_32(x)    ROTATE(x, 32)
#define ROTATE_24(x)    ROTATE(x, 24)
#define ROTATE_16(x)    ROTATE(x, 16)
#define ROTATE_63(x)    ROTATE(x, 63)
#else
/* By whole bytes a shuffle is cheaper than two shifts. */
#define BYTES_24                                                               \
    _mm256_setr_epi8(3, 4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10, 3,  \
                     4, 5, 6, 7, 0, 1, 2, 11, 12, 13, 14, 15, 8, 9, 10)
#define BYTES_16                                                               \
    _mm256_setr_epi8(2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9, 2,  \
                     3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9)
#define ROTATE_32(x) ((lanes)_mm256_shuffle_epi32((__m256i)(x), 0xb1))
#define ROTATE_24(x) ((lanes)_mm256_shuffle_epi8((__m256i)(x), BYTES_24))
#define ROTATE_16(x) ((lanes)_mm256_shuffle_epi8((__m256i)(x), BYTES_16))
#define ROTATE_63(x) ((x) >> 63 | ((x) + (x)))
#endif

#define MIX(a, b, c, d, x, y)                                                  \
    do {                                                                       \
        a = a + b + (x);                                                       \
        d = ROTATE_32(d ^ a);                                                  \
        c = c + d;                                                             \
        b = ROTATE_24(b ^ c);                                                  \
        a = a + b + (y);                                                       \
        d = ROTATE_16(d ^ a);                                                  \
        c = c + d;                                                             \
        b = ROTATE_63(b ^ c);                                                  \
    } while (0)

/* The columns, then the diagonals; the words in a round's order. */
#define ROUND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)                  \
    do {                                                                       \
        MIX(v0, v4, v8, v12, w[a], w[b]);                                      \
        MIX(v1, v5, v9, v13, w[c], w[d]);                                      \
        MIX(v2, v6, v10, v14, w[e], w[f]);                                     \
        MIX(v3, v7, v11, v15, w[g], w[h]);                                     \
        MIX(v0, v5, v10, v15, w[i], w[j]);                                     \
        MIX(v1, v6, v11, v12, w[k], w[l]);                                     \
        MIX(v2, v7, v8, v13, w[m], w[n]);                                      \
        MIX(v3, v4, v9, v14, w[o], w[p]);                                      \
    } while (0)

/* Of all lanes: h (8), words (16), bytes up to and with this block. */
static void compress(lanes *h, const lanes *w, uint64_t bytes, bool last)
{
    lanes v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3];
    lanes v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
    lanes v8 = all(iv[0]), v9 = all(iv[1]), v10 = all(iv[2]), v11 = all(iv[3]);
    lanes v12 = all(iv[4] ^ bytes), v13 = all(iv[5]);
    lanes v14 = all(last ? ~iv[6] : iv[6]), v15 = all(iv[7]);

    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
    ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
    ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
    ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
    ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
    ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
    ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
    ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    h[0] ^= v0 ^ v8;
    h[1] ^= v1 ^ v9;
    h[2] ^= v2 ^ v10;
    h[3] ^= v3 ^ v11;
    h[4] ^= v4 ^ v12;
    h[5] ^= v5 ^ v13;
    h[6] ^= v6 ^ v14;
    h[7] ^= v7 ^ v15;
}

/* ---- pieces ------------------------------------------------------------- */

/* w (LANES): the words at `from` of each lane; rows become columns. */
#if defined(__AVX512F__)
static void load(lanes *w, const uint8_t *from)
{
    __m512i r[8], s[8], t[8];

    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_loadu_si512(from + (size_t)i * HASH_PIECE_BYTES);
    }
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm512_unpacklo_epi64(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        t[i] = _mm512_shuffle_i64x2(s[i], s[i + 2], 0x88);
        t[i + 2] = _mm512_shuffle_i64x2(s[i], s[i + 2], 0xdd);
        t[i + 4] = _mm512_shuffle_i64x2(s[i + 4], s[i + 6], 0x88);
        t[i + 6] = _mm512_shuffle_i64x2(s[i + 4], s[i + 6], 0xdd);
    }
    for (int i = 0; i < 2; i++) {
        w[i] = (lanes)_mm512_shuffle_i64x2(t[i], t[i + 4], 0x88);
        w[i + 4] = (lanes)_mm512_shuffle_i64x2(t[i], t[i + 4], 0xdd);
        w[i + 2] = (lanes)_mm512_shuffle_i64x2(t[i + 2], t[i + 6], 0x88);
        w[i + 6] = (lanes)_mm512_shuffle_i64x2(t[i + 2], t[i + 6], 0xdd);
    }
}
#else
static void load(lanes *w, const uint8_t *from)
{
    __m256i r[4], s[4];

    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_loadu_si256(
            (const void *)(from + (size_t)i * HASH_PIECE_BYTES));
    }
    for (int i = 0; i < 4; i += 2) {
        s[i] = _mm256_unpacklo_epi64(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_epi64(r[i], r[i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        w[i] = (lanes)_mm256_permute2x128_si256(s[i], s[i + 2], 0x20);
        w[i + 2] = (lanes)_mm256_permute2x128_si256(s[i], s[i + 2], 0x31);
    }
}
#endif

/* The block that begins 4 bytes before `at`, of each lane. */
static void load_block(lanes *w, const uint8_t *at)
{
    for (size_t i = 0; i < WORDS; i += LANES) {
        load(w + i, at - PREFIX + i * 8);
    }
}

/* The first block: nothing before the pieces is read. */
static void load_first(lanes *w, const uint8_t *pieces)
{
    for (size_t i = 0; i < LANES; i++) {
        const uint8_t *piece = pieces + i * HASH_PIECE_BYTES;
        uint8_t block[BLOCK] = {'l', 'e', 'a', 'f'};

        memcpy(block + PREFIX, piece, BLOCK - PREFIX);
        for (int k = 0; k < WORDS; k++) {
            w[k][i] = get_u64(block + (size_t)k * 8);
        }
    }
}

/* The last one: the last 4 bytes. */
static void load_last(lanes *w, const uint8_t *pieces)
{
    memset(w, 0, WORDS * sizeof *w);
    for (size_t i = 0; i < LANES; i++) {
        uint8_t word[8] = {0};

        memcpy(word, pieces + (i + 1) * HASH_PIECE_BYTES - PREFIX, PREFIX);
        w[0][i] = get_u64(word);
    }
}

void JOIN(hash_leaves_, ISA)(const uint8_t *pieces, struct hash32 *leaves);

void JOIN(hash_leaves_, ISA)(const uint8_t *pieces, struct hash32 *leaves)
{
    lanes h[8], w[WORDS];

    for (int i = 0; i < 8; i++) {
        h[i] = all(iv[i]);
    }
    h[0] ^= all(0x01010000 ^ OUT_LEN); /* no key, fan-out and depth 1 */
    load_first(w, pieces);
    compress(h, w, BLOCK, false);
    for (size_t k = 1; k < N_FULL; k++) {
        load_block(w, pieces + k * BLOCK);
        compress(h, w, (k + 1) * BLOCK, false);
    }
    load_last(w, pieces);
    compress(h, w, TEXT, true);
    for (size_t i = 0; i < LANES; i++) {
        for (size_t k = 0; k < OUT_LEN / 8; k++) {
            put_u64(leaves[i].b + 8 * k, h[k][i]);
        }
    }
}
