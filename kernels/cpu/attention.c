/* attention.c - causal attention with grouped heads, one query row at a time.
 *
 *   qkv (N, (H + 2 KV) D)  out (N, H D)  lse (B, H, T)
 *
 *   s[i, j] = q[i] . k[j] / sqrt(D), j <= i     p = softmax(s) = exp(s - lse)
 *   out[i] = sum_j p[i, j] v[j]
 *   dp[i, j] = dout[i] . v[j]                   ds = p (dp - dout[i] . out[i])
 *   dq[i] = sum_j ds k[j] / sqrt(D)  dk[j] = sum_i ds q[i] / sqrt(D)
 *   dv[j] = sum_i p[i, j] dout[i]
 *
 * The unit of work is one key/value head of one sequence: dk and dv of a group
 * are then summed by one worker.
 */
#include "kernels/cpu/kernels.h"

#include <math.h>
#include <string.h>

/* Where one query head and its key/value head lie. */
struct head {
    int64_t ld, ldo, d;
    int64_t q, k, v; /* offsets of time 0 in qkv and dqkv */
    int64_t o;       /* offset of time 0 in out and dout */
    int64_t lse;
    double scale;
};

static struct head head_at(const struct attention *op, int64_t b, int64_t h)
{
    int64_t kv = h / (op->heads / op->kv_heads);
    int64_t ld = (op->heads + 2 * op->kv_heads) * op->d;
    int64_t row = b * op->t * ld;

    return (struct head){
        .ld = ld,
        .ldo = op->heads * op->d,
        .d = op->d,
        .q = row + h * op->d,
        .k = row + (op->heads + kv) * op->d,
        .v = row + (op->heads + op->kv_heads + kv) * op->d,
        .o = (b * op->t * op->heads + h) * op->d,
        .lse = (b * op->heads + h) * op->t,
        .scale = 1.0 / sqrt((double)op->d),
    };
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += (double)a[i] * b[i];
    }
    return sum;
}

static void axpy(float *y, double a, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] += (float)(a * x[i]);
    }
}

static void
row_fwd(const struct attention *op, const struct head *h, int64_t i, float *s)
{
    float *out = op->out + h->o + i * h->ldo;
    double max = -INFINITY;
    double sum = 0;

    for (int64_t j = 0; j <= i; j++) {
        s[j] = (float)(h->scale * dot(op->qkv + h->q + i * h->ld,
                                      op->qkv + h->k + j * h->ld, h->d));
        max = s[j] > max ? s[j] : max;
    }
    for (int64_t j = 0; j <= i; j++) {
        sum += exp(s[j] - max);
    }
    op->lse[h->lse + i] = (float)(max + log(sum));
    memset(out, 0, (size_t)h->d * sizeof *out);
    for (int64_t j = 0; j <= i; j++) {
        axpy(out, exp(s[j] - max) / sum, op->qkv + h->v + j * h->ld, h->d);
    }
}

static void row_bwd(const struct attention *op, const struct head *h, int64_t i)
{
    const float *q = op->qkv + h->q + i * h->ld;
    const float *dout = op->dout + h->o + i * h->ldo;
    double delta = dot(dout, op->out + h->o + i * h->ldo, h->d);

    for (int64_t j = 0; j <= i; j++) {
        const float *k = op->qkv + h->k + j * h->ld;
        const float *v = op->qkv + h->v + j * h->ld;
        double s = h->scale * dot(q, k, h->d);
        double p = exp(s - op->lse[h->lse + i]);
        double ds = p * (dot(dout, v, h->d) - delta) * h->scale;

        axpy(op->dqkv + h->q + i * h->ld, ds, k, h->d);
        axpy(op->dqkv + h->k + j * h->ld, ds, q, h->d);
        axpy(op->dqkv + h->v + j * h->ld, p, dout, h->d);
    }
}

static void zero_head(float *x, const struct head *h, int64_t t)
{
    for (int64_t i = 0; i < t; i++) {
        memset(x + i * h->ld, 0, (size_t)h->d * sizeof *x);
    }
}

void ref_attention_fwd(const struct attention *op, struct kernel_range r)
{
    int64_t group = op->heads / op->kv_heads;
    float *scratch = op->scratch + r.worker * attention_scratch(op->t);

    for (int64_t u = r.from * group; u < r.to * group; u++) {
        struct head h = head_at(op, u / op->heads, u % op->heads);

        for (int64_t i = 0; i < op->t; i++) {
            row_fwd(op, &h, i, scratch);
        }
    }
}

void ref_attention_bwd(const struct attention *op, struct kernel_range r)
{
    int64_t group = op->heads / op->kv_heads;

    for (int64_t u = r.from * group; u < r.to * group; u++) {
        struct head h = head_at(op, u / op->heads, u % op->heads);

        zero_head(op->dqkv + h.q, &h, op->t);
        if (u % group == 0) {
            zero_head(op->dqkv + h.k, &h, op->t);
            zero_head(op->dqkv + h.v, &h, op->t);
        }
        for (int64_t i = 0; i < op->t; i++) {
            row_bwd(op, &h, i);
        }
    }
}
