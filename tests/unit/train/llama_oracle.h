/* llama_oracle.h - the model once more, naively and in double: the oracle of
 * the gradient test.
 *
 * Shares only the table of tensor names and offsets with train/model/llama.c.
 * One position at a time, full loops, nothing kept but the keys and values of
 * the positions before.
 */
#ifndef LOCO_TESTS_UNIT_TRAIN_LLAMA_ORACLE_H
#define LOCO_TESTS_UNIT_TRAIN_LLAMA_ORACLE_H

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/model/llama.h"

#define ORACLE_T      16
#define ORACLE_C      32
#define ORACLE_F      64
#define ORACLE_V      32
#define ORACLE_LAYERS 3

/* One sequence. */
struct oracle {
    const struct llama_config *c;
    const double *theta;
    double k[ORACLE_LAYERS][ORACLE_T][ORACLE_C];
    double v[ORACLE_LAYERS][ORACLE_T][ORACLE_C];
    double logits[ORACLE_V];
};

static const double *
oracle_tensor(const struct oracle *o, int layer, const char *name)
{
    int n = llama_tensor_count(o->c);
    char want[LLAMA_NAME_MAX];

    if (layer < 0) {
        snprintf(want, sizeof want, "%s", name);
    } else {
        snprintf(want, sizeof want, "model.layers.%d.%s", layer, name);
    }
    for (int i = 0; i < n; i++) {
        struct llama_view v;

        llama_tensor(o->c, i, &v);
        if (strcmp(v.name, want) == 0) {
            return o->theta + v.offset;
        }
    }
    return NULL;
}

/* y[out] = sum_in w[out][in] x[in] */
static void
oracle_linear(double *y, const double *w, const double *x, int in, int out)
{
    for (int i = 0; i < out; i++) {
        y[i] = 0;
        for (int j = 0; j < in; j++) {
            y[i] += w[i * in + j] * x[j];
        }
    }
}

static void
oracle_norm(const struct oracle *o, double *y, const double *x, const double *w)
{
    int n = (int)o->c->dim;
    double mean = 0;

    for (int i = 0; i < n; i++) {
        mean += x[i] * x[i] / n;
    }
    for (int i = 0; i < n; i++) {
        y[i] = w[i] * x[i] / sqrt(mean + (double)o->c->norm_eps);
    }
}

/* Angle t * theta^(-2j/D); channel j pairs with j + D/2. */
static void oracle_rope(const struct oracle *o, double *x, int heads, int t)
{
    int d = (int)(o->c->dim / o->c->heads);

    for (int h = 0; h < heads; h++) {
        for (int j = 0; j < d / 2; j++) {
            double angle = t / pow((double)o->c->rope_theta, 2.0 * j / d);
            double a = x[h * d + j];
            double b = x[h * d + j + d / 2];

            x[h * d + j] = a * cos(angle) - b * sin(angle);
            x[h * d + j + d / 2] = b * cos(angle) + a * sin(angle);
        }
    }
}

static void oracle_head(const struct oracle *o,
                        double *out,
                        const double *q,
                        int layer,
                        int kv,
                        int t)
{
    int d = (int)(o->c->dim / o->c->heads);
    double p[ORACLE_T];
    double sum = 0;

    for (int s = 0; s <= t; s++) {
        p[s] = 0;
        for (int j = 0; j < d; j++) {
            p[s] += q[j] * o->k[layer][s][kv * d + j];
        }
        p[s] = exp(p[s] / sqrt(d));
        sum += p[s];
    }
    for (int j = 0; j < d; j++) {
        out[j] = 0;
        for (int s = 0; s <= t; s++) {
            out[j] += p[s] / sum * o->v[layer][s][kv * d + j];
        }
    }
}

static void oracle_attention(struct oracle *o, double *x, int layer, int t)
{
    int dim = (int)o->c->dim;
    int heads = (int)o->c->heads;
    int kv_heads = (int)o->c->kv_heads;
    int d = dim / heads;
    double y[ORACLE_C], q[ORACLE_C], a[ORACLE_C];
    double *k = o->k[layer][t];
    double *v = o->v[layer][t];

    oracle_norm(o, y, x, oracle_tensor(o, layer, "input_layernorm.weight"));
    oracle_linear(q, oracle_tensor(o, layer, "self_attn.q_proj.weight"), y, dim,
                  dim);
    oracle_linear(k, oracle_tensor(o, layer, "self_attn.k_proj.weight"), y, dim,
                  kv_heads * d);
    oracle_linear(v, oracle_tensor(o, layer, "self_attn.v_proj.weight"), y, dim,
                  kv_heads * d);
    oracle_rope(o, q, heads, t);
    oracle_rope(o, k, kv_heads, t);
    for (int h = 0; h < heads; h++) {
        oracle_head(o, a + h * d, q + h * d, layer, h * kv_heads / heads, t);
    }
    oracle_linear(y, oracle_tensor(o, layer, "self_attn.o_proj.weight"), a, dim,
                  dim);
    for (int i = 0; i < dim; i++) {
        x[i] += y[i];
    }
}

static void oracle_ffn(struct oracle *o, double *x, int layer)
{
    int dim = (int)o->c->dim;
    int ffn = (int)o->c->ffn;
    double y[ORACLE_C], g[ORACLE_F], u[ORACLE_F];

    oracle_norm(o, y, x,
                oracle_tensor(o, layer, "post_attention_layernorm.weight"));
    oracle_linear(g, oracle_tensor(o, layer, "mlp.gate_proj.weight"), y, dim,
                  ffn);
    oracle_linear(u, oracle_tensor(o, layer, "mlp.up_proj.weight"), y, dim,
                  ffn);
    for (int i = 0; i < ffn; i++) {
        u[i] *= g[i] / (1 + exp(-g[i]));
    }
    oracle_linear(y, oracle_tensor(o, layer, "mlp.down_proj.weight"), u, ffn,
                  dim);
    for (int i = 0; i < dim; i++) {
        x[i] += y[i];
    }
}

/* Fill o->logits with the scores after `token` at position t. */
static void oracle_step(struct oracle *o, uint32_t token, int t)
{
    const double *embed = oracle_tensor(o, -1, "model.embed_tokens.weight");
    int dim = (int)o->c->dim;
    double x[ORACLE_C], y[ORACLE_C];

    for (int i = 0; i < dim; i++) {
        x[i] = embed[(int)token * dim + i];
    }
    for (int l = 0; l < (int)o->c->layers; l++) {
        oracle_attention(o, x, l, t);
        oracle_ffn(o, x, l);
    }
    oracle_norm(o, y, x, oracle_tensor(o, -1, "model.norm.weight"));
    oracle_linear(o->logits,
                  o->c->tied ? embed : oracle_tensor(o, -1, "lm_head.weight"),
                  y, dim, (int)o->c->vocab);
}

static double oracle_loss(const struct llama_config *c,
                          const double *theta,
                          const struct llama_batch *batch)
{
    static struct oracle o;
    double loss = 0;

    assert(c->dim <= ORACLE_C && c->ffn <= ORACLE_F && c->vocab <= ORACLE_V);
    assert(c->layers <= ORACLE_LAYERS && batch->t <= ORACLE_T);
    o.c = c;
    o.theta = theta;
    for (int64_t n = 0; n < batch->b * batch->t; n++) {
        double sum = 0;

        oracle_step(&o, batch->tokens[n], (int)(n % batch->t));
        if (batch->targets[n] == LLAMA_IGNORE) {
            continue;
        }
        for (uint32_t v = 0; v < c->vocab; v++) {
            sum += exp(o.logits[v]);
        }
        loss += log(sum) - o.logits[batch->targets[n]];
    }
    return loss;
}

#endif
