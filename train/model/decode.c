/* decode.c - see decode.h.
 *
 * The layer is that of llama_pass.c; only attention differs: its keys and
 * values lie in the cache, (layer, position, KV heads, D), and a query reads
 * all positions up to its own.
 */
#include "train/model/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "train/model/llama_pass.h"

struct decoder {
    struct llama_config c;
    const struct backend *be;
    const float *theta;
    int64_t dim, qkv_dim, kv_dim, head, ffn, vocab;
    int64_t position;
    float *keys, *values; /* (L, seq, KV D) */
    float *cos, *sin;     /* (seq, D/2) */
    float *x, *y;         /* (DECODE_ROWS, C) the stream; normed */
    float *rrms;          /* (DECODE_ROWS) */
    float *qkv;           /* (DECODE_ROWS, qkv_dim) */
    float *att, *branch;  /* (DECODE_ROWS, C) */
    float *gu, *h;        /* (DECODE_ROWS, 2F), (DECODE_ROWS, F) */
    float *scores;        /* (seq) of one query */
    float *memory;        /* all of the above */
};

/* With base NULL it only counts. */
static float *take(float *base, size_t *used, int64_t n)
{
    float *at = base == NULL ? NULL : base + *used;

    *used += ((size_t)n + 15) / 16 * 16;
    return at;
}

static size_t plan(struct decoder *d, float *base)
{
    int64_t cache = (int64_t)d->c.layers * d->c.seq * d->kv_dim;
    int64_t rope = (int64_t)d->c.seq * d->head / 2;
    int64_t rows = DECODE_ROWS;
    size_t used = 0;

    d->keys = take(base, &used, cache);
    d->values = take(base, &used, cache);
    d->cos = take(base, &used, rope);
    d->sin = take(base, &used, rope);
    d->x = take(base, &used, rows * d->dim);
    d->y = take(base, &used, rows * d->dim);
    d->rrms = take(base, &used, rows);
    d->qkv = take(base, &used, rows * d->qkv_dim);
    d->att = take(base, &used, rows * d->dim);
    d->branch = take(base, &used, rows * d->dim);
    d->gu = take(base, &used, rows * 2 * d->ffn);
    d->h = take(base, &used, rows * d->ffn);
    d->scores = take(base, &used, d->c.seq);
    return used;
}

int decoder_open(struct decoder **out,
                 const struct llama_config *c,
                 const struct backend *backend,
                 const float *theta)
{
    struct decoder *d;

    *out = NULL;
    if (llama_config_check(c, NULL) != 0) {
        return LOCO_EINVAL;
    }
    d = calloc(1, sizeof *d);
    if (d == NULL) {
        return LOCO_ENOMEM;
    }
    d->c = *c;
    d->be = backend;
    d->theta = theta;
    d->dim = c->dim;
    d->head = c->dim / c->heads;
    d->kv_dim = d->head * c->kv_heads;
    d->qkv_dim = d->dim + 2 * d->kv_dim;
    d->ffn = c->ffn;
    d->vocab = c->vocab;
    d->memory = aligned_alloc(64, plan(d, NULL) * sizeof *d->memory);
    if (d->memory == NULL) {
        free(d);
        return LOCO_ENOMEM;
    }
    (void)plan(d, d->memory);
    llama_rope_tables(c, d->cos, d->sin);
    *out = d;
    return 0;
}

void decoder_close(struct decoder *d)
{
    if (d != NULL) {
        free(d->memory);
        free(d);
    }
}

void decoder_reset(struct decoder *d)
{
    d->position = 0;
}

/* ---- one layer ---------------------------------------------------------- */

static const float *
weight(const struct decoder *d, enum llama_param id, int64_t layer)
{
    return d->theta + llama_offset(&d->c, id, layer);
}

/* x += add, then y = norm(x) */
static void
norm(const struct decoder *d, const float *add, const float *w, int64_t n)
{
    d->be->rmsnorm_fwd(d->be, &(struct rmsnorm){.x = d->x,
                                                .add = add,
                                                .w = w,
                                                .y = d->y,
                                                .rrms = d->rrms,
                                                .n = n,
                                                .c = d->dim,
                                                .eps = d->c.norm_eps});
}

static float dot(const float *a, const float *b, int64_t n)
{
    float part[8] = {0};
    int64_t i = 0;

    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) {
            part[k] += a[i + k] * b[i + k];
        }
    }
    for (; i < n; i++) {
        part[0] += a[i] * b[i];
    }
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

/* out (D) = one query head over positions 0 .. t. */
static void attend(const struct decoder *d,
                   const float *q,
                   const float *keys,
                   const float *values,
                   int64_t t,
                   float *out)
{
    float scale = 1.0F / sqrtf((float)d->head);
    float max = -INFINITY;
    float sum = 0;

    for (int64_t i = 0; i <= t; i++) {
        d->scores[i] = dot(q, keys + i * d->kv_dim, d->head) * scale;
        max = d->scores[i] > max ? d->scores[i] : max;
    }
    memset(out, 0, (size_t)d->head * sizeof *out);
    for (int64_t i = 0; i <= t; i++) {
        const float *v = values + i * d->kv_dim;
        float w = expf(d->scores[i] - max);

        sum += w;
        for (int64_t k = 0; k < d->head; k++) {
            out[k] += w * v[k];
        }
    }
    for (int64_t k = 0; k < d->head; k++) {
        out[k] /= sum;
    }
}

/* Rotate, remember keys and values, attend: n rows from d->position on. */
static void attention(const struct decoder *d, int64_t layer, int64_t n)
{
    int64_t at = (layer * d->c.seq + d->position) * d->kv_dim;
    int64_t first = layer * d->c.seq * d->kv_dim;
    int64_t group = d->c.heads / d->c.kv_heads;

    d->be->rope(d->be,
                &(struct rope){.x = d->qkv,
                               .cos = d->cos + d->position * (d->head / 2),
                               .sin = d->sin + d->position * (d->head / 2),
                               .n = n,
                               .t = n,
                               .ld = d->qkv_dim,
                               .heads = d->c.heads + d->c.kv_heads,
                               .d = d->head,
                               .sign = 1});
    for (int64_t r = 0; r < n; r++) {
        const float *row = d->qkv + r * d->qkv_dim;
        size_t bytes = (size_t)d->kv_dim * sizeof *row;

        memcpy(d->keys + at + r * d->kv_dim, row + d->dim, bytes);
        memcpy(d->values + at + r * d->kv_dim, row + d->dim + d->kv_dim, bytes);
        for (int64_t h = 0; h < d->c.heads; h++) {
            int64_t kv = first + h / group * d->head;

            attend(d, row + h * d->head, d->keys + kv, d->values + kv,
                   d->position + r, d->att + r * d->dim + h * d->head);
        }
    }
}

/* What the layer adds to the stream is left in d->branch. */
static void layer(const struct decoder *d, int64_t i, bool first, int64_t n)
{
    norm(d, first ? NULL : d->branch, weight(d, LLAMA_ATTN_NORM, i), n);
    pass_project(d->be, d->qkv, d->y, weight(d, LLAMA_Q, i), n, d->dim,
                 d->qkv_dim);
    attention(d, i, n);
    pass_project(d->be, d->branch, d->att, weight(d, LLAMA_O, i), n, d->dim,
                 d->dim);
    norm(d, d->branch, weight(d, LLAMA_FFN_NORM, i), n);
    pass_project(d->be, d->gu, d->y, weight(d, LLAMA_GATE, i), n, d->dim,
                 2 * d->ffn);
    d->be->swiglu_fwd(
        d->be, &(struct swiglu){.gu = d->gu, .h = d->h, .n = n, .f = d->ffn});
    pass_project(d->be, d->branch, d->h, weight(d, LLAMA_DOWN, i), n, d->ffn,
                 d->dim);
}

/* ---- tokens ------------------------------------------------------------- */

static void read_rows(struct decoder *d, const uint32_t *tokens, int64_t n)
{
    d->be->embed_fwd(d->be, &(struct embed){.tokens = tokens,
                                            .table = weight(d, LLAMA_EMBED, 0),
                                            .x = d->x,
                                            .n = n,
                                            .c = d->dim});
    for (uint32_t i = 0; i < d->c.layers; i++) {
        layer(d, i, i == 0, n);
    }
    d->position += n;
}

int decoder_read(struct decoder *d,
                 const uint32_t *tokens,
                 int64_t n,
                 float *logits)
{
    int64_t rows = 0;

    if (n < 1 || n > d->c.seq - d->position) {
        return LOCO_ERANGE;
    }
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] >= d->c.vocab) {
            return LOCO_ERANGE;
        }
    }
    for (int64_t i = 0; i < n; i += rows) {
        rows = n - i < DECODE_ROWS ? n - i : DECODE_ROWS;
        read_rows(d, tokens + i, rows);
    }
    norm(d, d->branch, weight(d, LLAMA_NORM, 0), rows);
    pass_project(d->be, logits, d->y + (rows - 1) * d->dim,
                 weight(d, LLAMA_HEAD, 0), 1, d->dim, d->vocab);
    for (int64_t v = 0; v < d->vocab; v++) {
        if (!isfinite(logits[v])) {
            return LOCO_ENUMERIC;
        }
    }
    return 0;
}
