/* hf_config.c - see hf_config.h. */
#include "train/model/hf_config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define JSON_STYLE                                                             \
    (JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9))

struct reading {
    const json_t *o;
    char *errmsg;
};

static int refuse(const struct reading *r, const char *key, const char *why)
{
    char *text =
        json_dumps(json_object_get(r->o, key), JSON_ENCODE_ANY | JSON_COMPACT);
    int rv = errmsg_fail(r->errmsg, LOCO_EINVAL, "%s is %.60s: %s", key,
                         text == NULL ? "missing" : text, why);

    free(text);
    return rv;
}

static bool is_null(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* ---- reading ------------------------------------------------------------- */

/* A whole number; `otherwise` when it is not there, where that is not 0. */
static int count(const struct reading *r,
                 const char *key,
                 uint32_t otherwise,
                 uint32_t *out)
{
    const json_t *value = json_object_get(r->o, key);
    json_int_t n = json_integer_value(value);

    *out = otherwise;
    if (is_null(value) && otherwise != 0) {
        return 0;
    }
    if (!json_is_integer(value) || n <= 0 || n > UINT32_MAX) {
        return refuse(r, key, "it must be a whole number above 0");
    }
    *out = (uint32_t)n;
    return 0;
}

static int
real(const struct reading *r, const char *key, double otherwise, float *out)
{
    const json_t *value = json_object_get(r->o, key);

    *out = (float)otherwise;
    if (is_null(value)) {
        return 0;
    }
    if (!json_is_number(value)) {
        return refuse(r, key, "it must be a number");
    }
    *out = (float)json_number_value(value);
    return 0;
}

/* A token's id, the first of a list, or none. */
static uint32_t token(const json_t *value)
{
    json_int_t n;

    value = json_is_array(value) ? json_array_get(value, 0) : value;
    n = json_integer_value(value);
    return json_is_integer(value) && n >= 0 && n < HF_NO_TOKEN ? (uint32_t)n
                                                               : HF_NO_TOKEN;
}

/* "rope_scaling" and "rope_parameters" may only say that nothing is scaled. */
static int rope_plain(const struct reading *r, const char *key)
{
    const json_t *o = json_object_get(r->o, key);
    const json_t *type = json_object_get(o, "rope_type");
    const json_t *part = json_object_get(o, "partial_rotary_factor");

    if (is_null(o)) {
        return 0;
    }
    type = type == NULL ? json_object_get(o, "type") : type;
    if (!json_is_object(o) ||
        (type != NULL && (!json_is_string(type) ||
                          strcmp(json_string_value(type), "default") != 0)) ||
        (part != NULL && json_number_value(part) != 1)) {
        return refuse(
            r, key,
            "this version uses plain rotary angles and cannot scale them");
    }
    return 0;
}

static int rope_theta(const struct reading *r, float *out)
{
    const json_t *rope = json_object_get(r->o, "rope_parameters");
    struct reading inner = {rope, r->errmsg};
    float top;
    int rv = rope_plain(r, "rope_scaling");

    rv = rv == 0 ? rope_plain(r, "rope_parameters") : rv;
    rv = rv == 0 ? real(r, "rope_theta", 10000, &top) : rv;
    rv = rv == 0 ? real(&inner, "rope_theta", (double)top, out) : rv;
    if (rv == 0 && *out != top &&
        !is_null(json_object_get(r->o, "rope_theta"))) {
        return refuse(r, "rope_theta",
                      "rope_parameters.rope_theta is another number");
    }
    return rv;
}

/* What a plain Llama does not have. */
static int check_plain(const struct reading *r)
{
    static const char *const flags[] = {"attention_bias", "mlp_bias"};
    const char *type = json_string_value(json_object_get(r->o, "model_type"));
    const json_t *act = json_object_get(r->o, "hidden_act");

    if (type == NULL || strcmp(type, "llama") != 0) {
        return refuse(r, "model_type", "this version knows \"llama\" only");
    }
    if (!is_null(act) &&
        (!json_is_string(act) || strcmp(json_string_value(act), "silu") != 0)) {
        return refuse(r, "hidden_act", "this version knows \"silu\" only");
    }
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        const json_t *flag = json_object_get(r->o, flags[i]);

        if (!is_null(flag) && !json_is_false(flag)) {
            return refuse(r, flags[i], "this version's layers have no biases");
        }
    }
    if (!is_null(json_object_get(r->o, "quantization_config"))) {
        return errmsg_fail(r->errmsg, LOCO_EINVAL,
                           "it has a quantization_config: this version reads "
                           "fp32, bf16 and fp16 weights");
    }
    return 0;
}

static int shape(const struct reading *r, struct hf_config *c)
{
    struct llama_config *m = &c->model;
    const json_t *tied = json_object_get(r->o, "tie_word_embeddings");
    uint32_t head_dim = 0;
    int rv = count(r, "hidden_size", 0, &m->dim);

    rv = rv != 0 ? rv : count(r, "intermediate_size", 0, &m->ffn);
    rv = rv != 0 ? rv : count(r, "num_hidden_layers", 0, &m->layers);
    rv = rv != 0 ? rv : count(r, "num_attention_heads", 0, &m->heads);
    rv = rv != 0 ? rv : count(r, "num_key_value_heads", m->heads, &m->kv_heads);
    rv = rv != 0 ? rv : count(r, "vocab_size", 0, &m->vocab);
    rv = rv != 0 ? rv : count(r, "max_position_embeddings", 2048, &m->seq);
    rv = rv != 0 ? rv : real(r, "rms_norm_eps", 1e-6, &m->norm_eps);
    rv = rv != 0 ? rv : rope_theta(r, &m->rope_theta);
    m->tied = json_is_true(tied);
    c->tied_unsaid = is_null(tied);
    if (rv == 0) {
        rv = count(r, "head_dim", m->dim / m->heads + !(m->dim / m->heads),
                   &head_dim);
    }
    if (rv == 0 && (uint64_t)head_dim * m->heads != m->dim) {
        return refuse(r, "head_dim",
                      "this version's heads are hidden_size / "
                      "num_attention_heads wide");
    }
    return rv;
}

int hf_config_parse(struct hf_config *out,
                    const void *json,
                    size_t size,
                    char *errmsg)
{
    json_error_t where = {.text = ""};
    json_t *o = json_loadb(json, size, JSON_REJECT_DUPLICATES, &where);
    struct reading r = {o, errmsg};
    const char *reason = "";
    int rv;

    memset(out, 0, sizeof *out);
    if (!json_is_object(o)) {
        json_decref(o);
        return errmsg_fail(errmsg, LOCO_EFORMAT, "not a JSON object: %.120s",
                           where.text);
    }
    rv = check_plain(&r);
    rv = rv == 0 ? shape(&r, out) : rv;
    out->bos = token(json_object_get(o, "bos_token_id"));
    out->eos = token(json_object_get(o, "eos_token_id"));
    if (rv == 0 && llama_config_check(&out->model, &reason) != 0) {
        rv = errmsg_invalid(errmsg, "%.120s", reason);
    }
    json_decref(o);
    return rv;
}

/* ---- writing ------------------------------------------------------------- */

/* The same decimal number as a double: 1e-5F would print 9.99999975e-06. */
static json_t *decimal(float v)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%.6g", (double)v);
    return json_real(strtod(text, NULL));
}

static json_t *token_json(uint32_t id)
{
    return id == HF_NO_TOKEN ? json_null() : json_integer(id);
}

static char *text_of(json_t *o)
{
    char *text = json_dumps(o, JSON_STYLE);

    json_decref(o);
    return text;
}

char *hf_config_text(const struct hf_config *config, const char *torch_dtype)
{
    const struct llama_config *c = &config->model;
    json_t *o = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:s, s:n}",
        "architectures", "LlamaForCausalLM", "model_type", "llama",
        "hidden_size", (json_int_t)c->dim, "intermediate_size",
        (json_int_t)c->ffn, "num_hidden_layers", (json_int_t)c->layers,
        "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads",
        (json_int_t)c->kv_heads, "head_dim", (json_int_t)(c->dim / c->heads),
        "vocab_size", (json_int_t)c->vocab, "max_position_embeddings",
        (json_int_t)c->seq, "hidden_act", "silu", "rope_scaling");

    json_object_set_new(o, "rms_norm_eps", decimal(c->norm_eps));
    json_object_set_new(o, "rope_theta", decimal(c->rope_theta));
    json_object_set_new(o, "rope_parameters",
                        json_pack("{s:s, s:o}", "rope_type", "default",
                                  "rope_theta", decimal(c->rope_theta)));
    json_object_set_new(o, "attention_bias", json_false());
    json_object_set_new(o, "mlp_bias", json_false());
    json_object_set_new(o, "attention_dropout", json_real(0));
    json_object_set_new(o, "initializer_range", json_real(0.02));
    json_object_set_new(o, "tie_word_embeddings", json_boolean(c->tied));
    json_object_set_new(o, "bos_token_id", token_json(config->bos));
    json_object_set_new(o, "eos_token_id", token_json(config->eos));
    json_object_set_new(o, "torch_dtype", json_string(torch_dtype));
    json_object_set_new(o, "use_cache", json_true());
    return text_of(o);
}

char *hf_generation_text(const struct hf_config *c)
{
    json_t *o = json_pack("{s:b}", "_from_model_config", 1);

    json_object_set_new(o, "bos_token_id", token_json(c->bos));
    json_object_set_new(o, "eos_token_id", token_json(c->eos));
    return text_of(o);
}
