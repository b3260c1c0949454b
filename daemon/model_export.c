/* model_export.c - a model as Hugging Face transformers reads it.
 *
 * config.json names theta twice: transformers 4 reads `rope_theta`,
 * transformers 5 `rope_parameters`. The tokenizer is byte-level BPE without
 * merges: the 256 bytes are 256 tokens, id = byte value. Its alphabet writes a
 * byte as a printable character, GPT-2's table: printable Latin-1 bytes stand
 * for themselves, the others for U+0100 onwards in order.
 */
#include "daemon/model.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/err.h"
#include "train/file.h"
#include "train/safetensors.h"

/* The same decimal number as a double: 1e-5F would print 9.99999975e-06. */
static json_t *real(float v)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%.6g", (double)v);
    return json_real(strtod(text, NULL));
}

static int json_save(json_t *o, const char *dir, const char *name, char *errmsg)
{
    char path[FILE_PATH_MAX];
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_PRESERVE_ORDER |
                                   JSON_REAL_PRECISION(9));
    int rv = file_path_join(path, dir, name, errmsg);

    json_decref(o);
    if (text == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    if (rv == 0) {
        rv = file_write_whole(path, text, strlen(text), errmsg);
    }
    free(text);
    return rv;
}

static json_t *config_json(const struct llama_config *c)
{
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

    json_object_set_new(o, "rms_norm_eps", real(c->norm_eps));
    json_object_set_new(o, "rope_theta", real(c->rope_theta));
    json_object_set_new(o, "rope_parameters",
                        json_pack("{s:s, s:o}", "rope_type", "default",
                                  "rope_theta", real(c->rope_theta)));
    json_object_set_new(o, "attention_bias", json_false());
    json_object_set_new(o, "mlp_bias", json_false());
    json_object_set_new(o, "attention_dropout", json_real(0));
    json_object_set_new(o, "initializer_range", json_real(0.02));
    json_object_set_new(o, "tie_word_embeddings", json_boolean(c->tied));
    json_object_set_new(o, "bos_token_id", json_null());
    json_object_set_new(o, "eos_token_id", json_null());
    json_object_set_new(o, "torch_dtype", json_string("float32"));
    json_object_set_new(o, "use_cache", json_true());
    return o;
}

static bool prints_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           byte >= 0xae;
}

/* {"!": 33, ...}: every byte's character and its id. */
static json_t *vocabulary(void)
{
    json_t *vocab = json_object();
    unsigned next = 0x100;

    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned point = prints_itself(byte) ? byte : next++;
        char utf8[3] = {0};

        if (point < 0x80) {
            utf8[0] = (char)point;
        } else {
            utf8[0] = (char)(0xc0 | point >> 6);
            utf8[1] = (char)(0x80 | (point & 0x3f));
        }
        json_object_set_new(vocab, utf8, json_integer(byte));
    }
    return vocab;
}

static json_t *byte_level(void)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel",
                     "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0);
}

static json_t *tokenizer_json(void)
{
    json_t *o = json_pack(
        "{s:s, s:n, s:n, s:[], s:n, s:o, s:n, s:o}", "version", "1.0",
        "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
        byte_level(), "post_processor", "decoder", byte_level());

    json_object_set_new(o, "model",
                        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, "
                                  "s:o, s:[]}",
                                  "type", "BPE", "dropout", "unk_token",
                                  "continuing_subword_prefix",
                                  "end_of_word_suffix", "fuse_unk", 0,
                                  "byte_fallback", 0, "ignore_merges", 0,
                                  "vocab", vocabulary(), "merges"));
    return o;
}

static int weights_save(const struct model *m, const char *dir, char *errmsg)
{
    size_t n = (size_t)llama_tensor_count(&m->config);
    struct llama_view *views = calloc(n, sizeof *views);
    struct st_tensor *tensors = calloc(n, sizeof *tensors);
    char path[FILE_PATH_MAX];
    int rv;

    if (views == NULL || tensors == NULL) {
        free(views);
        free(tensors);
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        llama_tensor(&m->config, (int)i, &views[i]);
        tensors[i] = (struct st_tensor){
            .name = views[i].name,
            .dtype = ST_F32,
            .n_dims = (unsigned)views[i].ndim,
            .shape = {(uint64_t)views[i].shape[0], (uint64_t)views[i].shape[1]},
            .data = m->theta + views[i].offset,
            .bytes = (uint64_t)views[i].numel * sizeof *m->theta,
        };
    }
    rv = file_path_join(path, dir, "model.safetensors", errmsg);
    if (rv == 0) {
        rv = safetensors_write(path, tensors, n, NULL, 0, errmsg);
    }
    free(views);
    free(tensors);
    return rv;
}

int model_export(const struct model *m,
                 const char *dir,
                 char errmsg[ERRMSG_SIZE])
{
    int rv;

    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        return errmsg_fail(errmsg, LOCO_EIO, "make %.180s: %s", dir,
                           strerror(errno));
    }
    rv = weights_save(m, dir, errmsg);
    if (rv == 0) {
        rv = json_save(config_json(&m->config), dir, "config.json", errmsg);
    }
    /* A vocabulary of 256 is the byte tokenizer's and nobody else's. */
    if (rv == 0 && m->config.vocab == 256) {
        rv = json_save(tokenizer_json(), dir, "tokenizer.json", errmsg);
    }
    return rv;
}
