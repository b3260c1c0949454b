/* llama_config.c - see llama_config.h. */
#include "train/model/llama_config.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

static const struct {
    const char *name;
    struct llama_config config;
} models[] = {
    /* name: dim, layers, heads, kv_heads, ffn, vocab, seq, tied, theta, eps */
    {"quickstart-1m", {128, 5, 4, 4, 344, 256, 256, true, 10000, 1e-5f}},
    {"stories15m", {288, 6, 6, 6, 768, 32000, 256, true, 10000, 1e-5f}},
    /* OpenDiLoCo (Jaghouar et al. 2024), its configuration files */
    {"llama-60m", {1024, 3, 16, 16, 2688, 32000, 1024, false, 10000, 1e-5f}},
    {"llama-150m", {1024, 12, 16, 16, 2688, 32000, 1024, false, 10000, 1e-5f}},
    {"llama-1b", {2048, 22, 32, 4, 5632, 32000, 1024, false, 10000, 1e-5f}},
};

#define MODEL_COUNT ((int)(sizeof models / sizeof models[0]))

/* Rows of LLAMA_PARAMS with the shapes of one config. */
struct row {
    bool layered;
    int64_t rows;
    int64_t columns;
    const char *name;
};

static void rows_of(const struct llama_config *c, struct row *row)
{
    int64_t kv_dim = (int64_t)c->dim / c->heads * c->kv_heads;
    int64_t head_rows = c->tied ? 0 : c->vocab;

#define X(id, layered, rows, columns, name)                                    \
    row[LLAMA_##id] = (struct row){layered, rows, columns, name};
    LLAMA_PARAMS(X)
#undef X
}

static int64_t row_numel(const struct row *r)
{
    return r->rows * (r->columns == 0 ? 1 : r->columns);
}

static int64_t layer_numel(const struct row *row)
{
    int64_t n = 0;

    for (int i = 0; i < LLAMA_PARAM_COUNT; i++) {
        n += row[i].layered ? row_numel(&row[i]) : 0;
    }
    return n;
}

int llama_config_named(const char *name, struct llama_config *c)
{
    for (int i = 0; i < MODEL_COUNT; i++) {
        if (strcmp(models[i].name, name) == 0) {
            *c = models[i].config;
            return 0;
        }
    }
    return LOCO_ENOENT;
}

const char *llama_config_name(int i)
{
    return i >= 0 && i < MODEL_COUNT ? models[i].name : NULL;
}

static const char *fault_of(const struct llama_config *c)
{
    if (c->dim == 0 || c->dim > LLAMA_DIM_MAX) {
        return "model.dim must be 1 to 32768";
    }
    if (c->layers == 0 || c->layers > LLAMA_LAYERS_MAX) {
        return "model.layers must be 1 to 512";
    }
    if (c->heads == 0 || c->dim % c->heads != 0) {
        return "model.heads must divide model.dim";
    }
    if (c->dim / c->heads % 2 != 0) {
        return "model.dim / model.heads must be even: positions rotate pairs";
    }
    if (c->kv_heads == 0 || c->heads % c->kv_heads != 0) {
        return "model.kv_heads must divide model.heads";
    }
    if (c->ffn == 0 || c->ffn > LLAMA_FFN_MAX) {
        return "model.ffn must be 1 to 131072";
    }
    if (c->vocab < 2 || c->vocab > LLAMA_VOCAB_MAX) {
        return "model.vocab must be 2 to 1048576";
    }
    if (c->seq == 0 || c->seq > LLAMA_SEQ_MAX) {
        return "model.seq must be 1 to 131072";
    }
    if (!(c->rope_theta >= 1 && c->rope_theta <= 1e9f)) {
        return "model.rope_theta must be 1 to 1e9";
    }
    if (!(c->norm_eps >= 0 && c->norm_eps <= 1)) {
        return "model.norm_eps must be 0 to 1";
    }
    return NULL;
}

int llama_config_check(const struct llama_config *c, const char **reason)
{
    const char *fault = fault_of(c);

    if (reason != NULL) {
        *reason = fault;
    }
    return fault == NULL ? 0 : LOCO_EINVAL;
}

int64_t llama_numel(const struct llama_config *c)
{
    struct row row[LLAMA_PARAM_COUNT];
    int64_t n;

    rows_of(c, row);
    n = layer_numel(row) * c->layers;
    for (int i = 0; i < LLAMA_PARAM_COUNT; i++) {
        n += row[i].layered ? 0 : row_numel(&row[i]);
    }
    return n;
}

/* Tensors of one layer stand together from the first layered row on. */
static int layered_rows(const struct row *row, int *first)
{
    int n = 0;

    *first = 0;
    for (int i = LLAMA_PARAM_COUNT - 1; i >= 0; i--) {
        if (row[i].layered) {
            *first = i;
            n++;
        }
    }
    return n;
}

int llama_tensor_count(const struct llama_config *c)
{
    struct row row[LLAMA_PARAM_COUNT];
    int first;
    int in_layer;

    rows_of(c, row);
    in_layer = layered_rows(row, &first);
    return LLAMA_PARAM_COUNT - in_layer + in_layer * (int)c->layers -
           (c->tied ? 1 : 0);
}

int64_t
llama_offset(const struct llama_config *c, enum llama_param id, int64_t layer)
{
    struct row row[LLAMA_PARAM_COUNT];
    int64_t at = 0;

    if (id == LLAMA_HEAD && c->tied) {
        id = LLAMA_EMBED;
    }
    rows_of(c, row);
    for (int i = 0; i < (int)id; i++) {
        if (row[id].layered || !row[i].layered) {
            at += row_numel(&row[i]);
        }
    }
    return at + layer_numel(row) * (row[id].layered ? layer : c->layers) *
                    (id == LLAMA_EMBED ? 0 : 1);
}

/* Which row tensor i is, and of which layer. */
static enum llama_param
row_of_tensor(const struct llama_config *c, int i, int *layer)
{
    struct row row[LLAMA_PARAM_COUNT];
    int first;
    int in_layer;

    rows_of(c, row);
    in_layer = layered_rows(row, &first);
    *layer = 0;
    if (i < first) {
        return (enum llama_param)i;
    }
    if (i < first + in_layer * (int)c->layers) {
        *layer = (i - first) / in_layer;
        return (enum llama_param)(first + (i - first) % in_layer);
    }
    return (enum llama_param)(i - in_layer * ((int)c->layers - 1));
}

void llama_tensor(const struct llama_config *c, int i, struct llama_view *v)
{
    struct row row[LLAMA_PARAM_COUNT];
    const struct row *r;
    enum llama_param id;
    int layer;

    assert(i >= 0 && i < llama_tensor_count(c));
    rows_of(c, row);
    id = row_of_tensor(c, i, &layer);
    r = &row[id];
    if (r->layered) {
        snprintf(v->name, sizeof v->name, "model.layers.%d.%s", layer, r->name);
    } else {
        snprintf(v->name, sizeof v->name, "%s", r->name);
    }
    v->offset = llama_offset(c, id, layer);
    v->numel = row_numel(r);
    v->shape[0] = r->rows;
    v->shape[1] = r->columns == 0 ? 1 : r->columns;
    v->ndim = r->columns == 0 ? 1 : 2;
    v->decay = v->ndim == 2;
    v->layered = r->layered;
}

/* The sum of 12 uniforms on 0..65535 has mean 393210 and variance 2^32 - 1:
 * minus the mean and over 2^16 it is N(0, 1) cut at 6 sigma (Irwin-Hall). */
static float next_normal(uint64_t *rng)
{
    int32_t sum = -393210;

    for (int i = 0; i < 3; i++) {
        uint64_t w = rng_next(rng);

        sum += (int32_t)(w & 0xFFFF) + (int32_t)(w >> 16 & 0xFFFF) +
               (int32_t)(w >> 32 & 0xFFFF) + (int32_t)(w >> 48);
    }
    return (float)sum * (0.02f / 65536.0f);
}

void llama_init_tensor(const struct llama_config *c,
                       int i,
                       float *x,
                       uint64_t seed)
{
    uint64_t words[2] = {seed, (uint64_t)i};
    uint64_t rng = rng_mix(words, 2);
    struct llama_view v;

    llama_tensor(c, i, &v);
    for (int64_t j = 0; j < v.numel; j++) {
        x[j] = v.decay ? next_normal(&rng) : 1.0f;
    }
}

void llama_init_params(const struct llama_config *c,
                       float *theta,
                       uint64_t seed)
{
    int n = llama_tensor_count(c);

    for (int i = 0; i < n; i++) {
        struct llama_view v;

        llama_tensor(c, i, &v);
        llama_init_tensor(c, i, theta + v.offset, seed);
    }
}
