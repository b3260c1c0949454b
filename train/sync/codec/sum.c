/* sum.c - the weighted sum of encoded vectors (codec.h), block by block.
 *
 * For each block: decode a term into one buffer in the L1 cache, add it times
 * its weight to another, the last one leaves the largest magnitude; encode. One
 * term may be floats that were never encoded.
 * With a clip all terms are decoded once before, for their norms; with a centre
 * every two of them, for their distances (centre.c). A term that does not
 * decode ends it, with its number in `bad`.
 */
#include <math.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/sync/codec/centre.h"
#include "train/sync/codec/kernels.h"
#include "train/sync/codec/mode.h"

struct sum_block {
    const struct codec_kernels *kernels;
    const struct codec_blocks *blocks;
    size_t at, bytes_at, n; /* this block: elements before it, its own */
    float scale[CODEC_TERMS_MAX];
};

/* y = term i of this block. */
static int
load_term(const struct sum_block *b, struct codec_sum *s, uint32_t i, float *y)
{
    int rv = 0;

    if (s->own != NULL && i == s->own_term) {
        memcpy(y, s->own + b->at, b->n * sizeof *y);
    } else {
        rv = b->blocks->load(y, s->terms[i] + b->bytes_at, b->n);
    }
    if (rv != 0) {
        s->bad = i;
    }
    return rv;
}

static double squares(const float *y, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)y[i] * (double)y[i];
    }
    return sum;
}

/* Weights such that no term is longer than `clip` medians; a median of 0 clips
 * nothing. y is room. */
static int clip_terms(struct sum_block *b, struct codec_sum *s, float *y)
{
    double far[CODEC_TERMS_MAX], sorted[CODEC_TERMS_MAX], limit;
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_terms; i++) {
        int rv = load_term(b, s, i, y);

        if (rv != 0) {
            return rv;
        }
        far[i] = squares(y, b->n);
        if (s->scale[i] > 0) {
            sorted[n++] = far[i];
        }
    }
    limit = centre_median(sorted, n) * (double)s->clip * (double)s->clip;
    for (uint32_t i = 0; i < s->n_terms; i++) {
        if (far[i] > limit && limit > 0) {
            b->scale[i] = (float)((double)s->scale[i] * sqrt(limit / far[i]));
        }
    }
    return 0;
}

/* Weights such that the sum is the centre; x and y are room. */
static int
centre_terms(struct sum_block *b, struct codec_sum *s, float *x, float *y)
{
    struct centre c = {.n = s->n_terms, .weight = s->scale, .clip = s->clip};
    int rv = 0;

    for (uint32_t j = 0; j < s->n_terms && rv == 0; j++) {
        rv = load_term(b, s, j, x);
        c.length[j] = rv == 0 ? squares(x, b->n) : 0;
        for (uint32_t i = 0; i < j && rv == 0; i++) {
            if (s->scale[i] > 0 && s->scale[j] > 0) {
                rv = load_term(b, s, i, y);
                c.apart[centre_pair(i, j)] =
                    rv == 0 ? centre_apart(x, y, b->n) : 0;
            }
        }
    }
    if (rv == 0) {
        centre_shares(&c, b->scale);
    }
    return rv;
}

/* x = the sum; *max = its largest magnitude. */
static int add_terms(
    struct sum_block *b, struct codec_sum *s, float *x, float *y, uint32_t *max)
{
    for (uint32_t i = 0; i < s->n_terms; i++) {
        struct codec_term t = {
            .own = y,
            .residual = i == 0 ? NULL : x,
            .scale = b->scale[i],
        };
        int rv = load_term(b, s, i, y);

        if (rv != 0) {
            return rv;
        }
        *max = b->kernels->gather(x, &t, b->n);
    }
    return 0;
}

/* The decoded result, and what the encoding took away. */
static int keep(const struct sum_block *b,
                const struct codec_sum *s,
                const uint8_t *dst,
                const float *x,
                float *y)
{
    float *next = s->next == NULL ? NULL : s->next + b->at;
    int rv = b->blocks->load(y, dst, b->n);

    for (size_t i = 0; i < b->n && rv == 0 && next != NULL; i++) {
        float error = x[i] - y[i];

        next[i] = next[i] + error * s->next_scale;
    }
    for (size_t i = 0; i < b->n && rv == 0 && s->result != NULL; i++) {
        s->result[b->at + i] = y[i];
    }
    return rv;
}

int codec_sum_run(const struct codec_kernels *kernels,
                  enum codec_id id,
                  uint8_t *dst,
                  struct codec_sum *s)
{
    _Alignas(64) float x[CODEC_BLOCK_MAX], y[CODEC_BLOCK_MAX];
    const struct codec_piece *piece = &codec_pieces[id];
    struct sum_block b = {.kernels = kernels, .blocks = &kernels->blocks[id]};
    unsigned mode = codec_mode_enter();
    uint32_t max = 0;
    int rv = s->n_terms == 0 || s->n_terms > CODEC_TERMS_MAX ? LOCO_EINVAL : 0;

    s->bad = s->n_terms;
    for (; b.at < s->n && rv == 0; b.at += b.n, b.bytes_at += piece->bytes) {
        b.n = s->n - b.at < piece->n ? s->n - b.at : piece->n;
        for (uint32_t i = 0; i < s->n_terms; i++) {
            b.scale[i] = s->scale[i];
        }
        if (s->clip > 0) {
            rv = s->centred ? centre_terms(&b, s, x, y) : clip_terms(&b, s, y);
        }
        rv = rv == 0 ? add_terms(&b, s, x, y, &max) : rv;
        rv =
            rv == 0 ? b.blocks->store(dst + b.bytes_at, x, 1.0F, b.n, max) : rv;
        if (rv == 0 && (s->next != NULL || s->result != NULL)) {
            rv = keep(&b, s, dst + b.bytes_at, x, y);
        }
    }
    codec_mode_leave(mode);
    return rv;
}
