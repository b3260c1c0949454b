/* fast_attention.c - attention.c in tiles of ATTENTION_TILE query rows.
 *
 * A tile multiplies its queries with all keys up to its last row, so that the
 * matrix product does the work and future tiles are skipped; the corner above
 * the diagonal is set to 0. Scratch per worker: two tiles (TILE, T), the
 * probabilities and their gradient.
 */
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/softmax.h"

struct tile {
    const struct attention *op;
    const struct kernel_range *r;
    int64_t ld, ldo;     /* row lengths of qkv and out */
    int64_t q, k, v, o;  /* offsets of time 0 */
    float *lse;          /* (T) of this head */
    int64_t first, rows; /* query rows of this tile */
    int64_t keys;        /* keys that the last of them sees */
    bool first_write;    /* dk and dv are written, not added to */
    float scale;
    int64_t ldp; /* row length of p and dp, at least T */
    float *p;    /* (rows, T) */
    float *dp;   /* (rows, T) */
};

static void multiply(const struct kernel_range *r, struct matmul op)
{
    struct kernel_range all = *r;

    all.from = 0;
    all.to = matmul_units(&op);
#ifdef LOCO_ISA_BF16
    if (all.bf16) {
        CPU_KERNEL(matmul_bf16)(&op, all);
        return;
    }
#endif
    CPU_KERNEL(matmul)(&op, all);
}

static void tile_head(struct tile *s, int64_t b, int64_t h)
{
    const struct attention *op = s->op;
    int64_t kv = h / (op->heads / op->kv_heads);
    int64_t row;

    s->ld = (op->heads + 2 * op->kv_heads) * op->d;
    s->ldo = op->heads * op->d;
    row = b * op->t * s->ld;
    s->q = row + h * op->d;
    s->k = row + (op->heads + kv) * op->d;
    s->v = row + (op->heads + op->kv_heads + kv) * op->d;
    s->o = (b * op->t * op->heads + h) * op->d;
    s->lse = op->lse + (b * op->heads + h) * op->t;
    s->scale = 1 / sqrtf((float)op->d);
}

static void tile_rows(struct tile *s, int64_t first)
{
    int64_t left = s->op->t - first;

    s->first = first;
    s->rows = left < ATTENTION_TILE ? left : ATTENTION_TILE;
    s->keys = first + s->rows;
}

/* c (rows, keys) = rows (rows, D; ldr apart) times the head's k or v, which
 * begins at `keys` */
static void by_keys(const struct tile *s,
                    const float *rows,
                    int64_t ldr,
                    int64_t keys,
                    float *c)
{
    multiply(s->r, (struct matmul){
                       .m = s->rows,
                       .n = s->keys,
                       .k = s->op->d,
                       .a = rows,
                       .lda = ldr,
                       .b = s->op->qkv + keys,
                       .ldb = s->ld,
                       .tb = true,
                       .c = c,
                       .ldc = s->ldp,
                       .alpha = 1,
                   });
}

/* p = q k^T, not yet scaled */
static void tile_scores(const struct tile *s)
{
    by_keys(s, s->op->qkv + s->q + s->first * s->ld, s->ld, s->k, s->p);
}

/* c (rows, D; ldc apart) = a (rows, keys) times the head's k or v */
static void of_keys(
    const struct tile *s, const float *a, int64_t keys, float *c, int64_t ldc)
{
    multiply(s->r, (struct matmul){
                       .m = s->rows,
                       .n = s->op->d,
                       .k = s->keys,
                       .a = a,
                       .lda = s->ldp,
                       .b = s->op->qkv + keys,
                       .ldb = s->ld,
                       .c = c,
                       .ldc = ldc,
                       .alpha = 1,
                   });
}

/* The gradient of the head's k or v, which begins at `keys`, += a^T (keys,
 * rows) times rows (rows, D; ldr apart) */
static void to_keys(const struct tile *s,
                    const float *a,
                    const float *rows,
                    int64_t ldr,
                    int64_t keys)
{
    multiply(s->r, (struct matmul){
                       .m = s->keys,
                       .n = s->op->d,
                       .k = s->rows,
                       .a = a,
                       .lda = s->ldp,
                       .ta = true,
                       .b = rows,
                       .ldb = ldr,
                       .c = s->op->dqkv + keys,
                       .ldc = s->ld,
                       .alpha = 1,
                       .beta = s->first_write ? 0 : 1,
                   });
}

static void tile_fwd(const struct tile *s)
{
    const struct attention *op = s->op;
    float *out = op->out + s->o + s->first * s->ldo;
    float inverse[ATTENTION_TILE];

    tile_scores(s);
    for (int64_t i = 0; i < s->rows; i++) {
        int64_t n = s->first + i + 1;
        float *p = s->p + i * s->ldp;
        float max = row_max(p, n) * s->scale;
        float sum = row_exp(p, n, s->scale, max);

        memset(p + n, 0, (size_t)(s->keys - n) * sizeof *p);
        s->lse[s->first + i] = max + logf(sum);
        inverse[i] = 1 / sum;
    }
    of_keys(s, s->p, s->v, out, s->ldo);
    for (int64_t i = 0; i < s->rows; i++) {
        row_scale(out + i * s->ldo, op->d, inverse[i]);
    }
}

/* dout[i] . out[i] */
static float row_delta(const struct tile *s, int64_t i)
{
    const float *a = s->op->dout + s->o + (s->first + i) * s->ldo;
    const float *b = s->op->out + s->o + (s->first + i) * s->ldo;
    vf acc = {0};
    float sum = 0;
    int64_t d = 0;

    for (; d + VF_LANES <= s->op->d; d += VF_LANES) {
        acc += vf_load(a + d) * vf_load(b + d);
    }
    for (; d < s->op->d; d++) {
        sum += a[d] * b[d];
    }
    return sum + vf_sum(acc);
}

/* p becomes probabilities, dp becomes ds */
static void tile_softmax_bwd(const struct tile *s)
{
    for (int64_t i = 0; i < s->rows; i++) {
        int64_t n = s->first + i + 1;
        size_t rest = (size_t)(s->keys - n) * sizeof *s->p;
        float *restrict p = s->p + i * s->ldp;
        float *restrict dp = s->dp + i * s->ldp;
        float delta = row_delta(s, i);

        row_exp(p, n, s->scale, s->lse[s->first + i]);
        for (int64_t j = 0; j < n; j++) {
            dp[j] = p[j] * (dp[j] - delta) * s->scale;
        }
        memset(p + n, 0, rest);
        memset(dp + n, 0, rest);
    }
}

static void tile_bwd(const struct tile *s)
{
    const struct attention *op = s->op;
    const float *q = op->qkv + s->q + s->first * s->ld;
    const float *dout = op->dout + s->o + s->first * s->ldo;

    tile_scores(s);
    by_keys(s, dout, s->ldo, s->v, s->dp);
    tile_softmax_bwd(s);
    of_keys(s, s->dp, s->k, op->dqkv + s->q + s->first * s->ld, s->ld);
    to_keys(s, s->dp, q, s->ld, s->k);
    to_keys(s, s->p, dout, s->ldo, s->v);
}

static struct tile tile_start(const struct attention *op,
                              const struct kernel_range *r)
{
    float *scratch = op->scratch + r->worker * attention_scratch(op->t);

    return (struct tile){
        .op = op,
        .r = r,
        .ldp = attention_ld(op->t),
        .p = scratch,
        .dp = scratch + ATTENTION_TILE * attention_ld(op->t),
    };
}

void CPU_KERNEL(attention_fwd)(const struct attention *op,
                               struct kernel_range r)
{
    int64_t group = op->heads / op->kv_heads;
    struct tile s = tile_start(op, &r);

    for (int64_t u = r.from * group; u < r.to * group; u++) {
        tile_head(&s, u / op->heads, u % op->heads);
        for (int64_t first = 0; first < op->t; first += ATTENTION_TILE) {
            tile_rows(&s, first);
            tile_fwd(&s);
        }
    }
}

/* From the last tile to the first: the last reaches every key, so its product
 * can overwrite dk and dv instead of adding to zeros. */
void CPU_KERNEL(attention_bwd)(const struct attention *op,
                               struct kernel_range r)
{
    int64_t group = op->heads / op->kv_heads;
    int64_t last = (op->t - 1) / ATTENTION_TILE * ATTENTION_TILE;
    struct tile s = tile_start(op, &r);

    for (int64_t u = r.from * group; u < r.to * group; u++) {
        tile_head(&s, u / op->heads, u % op->heads);
        for (int64_t first = last; first >= 0; first -= ATTENTION_TILE) {
            s.first_write = u % group == 0 && first == last;
            tile_rows(&s, first);
            tile_bwd(&s);
        }
    }
}
