/* Hugging Face's config.json and weights: what is read, what is refused. */
#include "train/model/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/half.h"
#include "tests/unit/train/tmpdir.h"

static char errmsg[ERRMSG_SIZE];

#define SHAPE                                                                  \
    "\"model_type\": \"llama\", \"hidden_size\": 16, "                         \
    "\"intermediate_size\": 24, \"num_hidden_layers\": 2, "                    \
    "\"num_attention_heads\": 4, \"vocab_size\": 10"

static int parse(struct hf_config *c, const char *more)
{
    char text[1024];

    (void)snprintf(text, sizeof text, "{" SHAPE "%s}", more);
    errmsg[0] = '\0';
    return hf_config_parse(c, text, strlen(text), errmsg);
}

/* ---- config.json -------------------------------------------------------- */

static void absent_keys_have_the_defaults_of_transformers(void **state)
{
    struct hf_config c;

    (void)state;
    assert_int_equal(parse(&c, ""), 0);
    assert_int_equal(c.model.kv_heads, 4);
    assert_int_equal(c.model.seq, 2048);
    assert_true(c.model.norm_eps == 1e-6F);
    assert_true(c.model.rope_theta == 10000.0F);
    assert_false(c.model.tied);
    assert_true(c.tied_unsaid);
    assert_int_equal(c.eos, HF_NO_TOKEN);
    assert_int_equal(parse(&c, ", \"eos_token_id\": [7, 8], \"bos_token_id\": "
                               "1, \"tie_word_embeddings\": true, "
                               "\"num_key_value_heads\": 2"),
                     0);
    assert_int_equal(c.eos, 7);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.model.kv_heads, 2);
    assert_true(c.model.tied && !c.tied_unsaid);
}

static void rope_theta_is_read_in_both_places(void **state)
{
    struct hf_config c;

    (void)state;
    assert_int_equal(parse(&c, ", \"rope_theta\": 5e5"), 0);
    assert_true(c.model.rope_theta == 5e5F);
    assert_int_equal(parse(&c, ", \"rope_parameters\": {\"rope_type\": "
                               "\"default\", \"rope_theta\": 5e5}"),
                     0);
    assert_true(c.model.rope_theta == 5e5F);
    assert_int_equal(parse(&c, ", \"rope_theta\": 5e5, \"rope_parameters\": "
                               "{\"rope_theta\": 5e5}"),
                     0);
    assert_int_equal(parse(&c, ", \"rope_theta\": 5e5, \"rope_parameters\": "
                               "{\"rope_theta\": 1e4}"),
                     LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "another number"));
}

static void what_we_do_not_have_is_refused_by_sentence(void **state)
{
    static const struct {
        const char *more, *sentence;
    } rows[] = {
        {", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}",
         "rope_scaling"},
        {", \"rope_scaling\": {\"type\": \"linear\"}", "rope_scaling"},
        {", \"rope_parameters\": {\"rope_type\": \"yarn\"}", "rope_parameters"},
        {", \"rope_parameters\": {\"partial_rotary_factor\": 0.5}",
         "rope_parameters"},
        {", \"rope_theta\": \"big\"", "rope_theta"},
        {", \"hidden_act\": \"gelu\"", "hidden_act is \"gelu\""},
        {", \"attention_bias\": true", "attention_bias"},
        {", \"mlp_bias\": true", "mlp_bias"},
        {", \"head_dim\": 8", "head_dim is 8"},
        {", \"head_dim\": 4294967295", "head_dim"},
        {", \"quantization_config\": {}", "quantization_config"},
        {", \"num_key_value_heads\": 3", "kv_heads"},
        {", \"num_key_value_heads\": 0", "num_key_value_heads"},
        {", \"max_position_embeddings\": -1", "max_position_embeddings"},
        {", \"max_position_embeddings\": 1e3", "max_position_embeddings"},
    };
    static const char *const broken[] = {
        "",
        "[]",
        "{\"model_type\": \"llama\"",
        "{\"model_type\": \"mistral\"}",
        "{\"model_type\": \"llama\"}",
        "{\"model_type\": \"llama\", \"hidden_size\": 0}"};
    struct hf_config c;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(parse(&c, rows[i].more), LOCO_EINVAL);
        if (strstr(errmsg, rows[i].sentence) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", rows[i].sentence, errmsg);
        }
    }
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        errmsg[0] = '\0';
        assert_true(hf_config_parse(&c, broken[i], strlen(broken[i]), errmsg) <
                    0);
        assert_true(errmsg[0] != '\0');
    }
}

static void what_is_written_reads_back(void **state)
{
    struct hf_config c, back;
    char *text;

    (void)state;
    assert_int_equal(parse(&c, ", \"rope_theta\": 5e5, \"rms_norm_eps\": 1e-5, "
                               "\"num_key_value_heads\": 1, "
                               "\"tie_word_embeddings\": true, "
                               "\"eos_token_id\": 3"),
                     0);
    text = hf_config_text(&c, "float32");
    assert_int_equal(hf_config_parse(&back, text, strlen(text), errmsg), 0);
    assert_memory_equal(&back, &c, sizeof c);
    free(text);
}

/* ---- weights ------------------------------------------------------------ */

/* Tensors of a model of SHAPE, each number its place in theta / 64. */
struct files {
    struct tmpdir dir;
    struct llama_config c;
    struct llama_view views[32];
    struct st_tensor tensors[32];
    int n;
    float *theta;
    uint16_t *narrow;
};

static void put_config(struct files *f, const char *more)
{
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "{" SHAPE ", \"num_key_value_heads\": 2%s}", more);
    tmpdir_put(&f->dir, "config.json", text, strlen(text));
}

static void setup(struct files *f, enum st_dtype dtype)
{
    int64_t n;

    tmpdir_make(&f->dir);
    put_config(f, "");
    f->c = (struct llama_config){16, 2, 4, 2, 24, 10, 2048, false, 1e4F, 1e-6F};
    n = llama_numel(&f->c);
    f->theta = malloc((size_t)n * sizeof *f->theta);
    f->narrow = malloc((size_t)n * sizeof *f->narrow);
    for (int64_t i = 0; i < n; i++) {
        f->theta[i] = (float)(i % 128 - 64) / 64;
        f->narrow[i] = dtype == ST_F16
                           ? half_from_float(f->theta[i])
                           : (uint16_t)(float_bits(f->theta[i]) >> 16);
    }
    f->n = llama_tensor_count(&f->c);
    for (int i = 0; i < f->n; i++) {
        struct llama_view *v = &f->views[i];

        llama_tensor(&f->c, i, v);
        f->tensors[i] = (struct st_tensor){
            .name = v->name,
            .dtype = dtype,
            .n_dims = (unsigned)v->ndim,
            .shape = {(uint64_t)v->shape[0], (uint64_t)v->shape[1]},
            .data = dtype == ST_F32 ? (void *)(f->theta + v->offset)
                                    : (void *)(f->narrow + v->offset),
            .bytes = (uint64_t)v->numel * (dtype == ST_F32 ? 4 : 2),
        };
    }
}

static void teardown(struct files *f)
{
    tmpdir_remove(&f->dir);
    free(f->theta);
    free(f->narrow);
}

static void save(struct files *f, const char *name, int from, int to)
{
    assert_int_equal(safetensors_write(tmpdir_file(&f->dir, name),
                                       f->tensors + from, (size_t)(to - from),
                                       NULL, 0, errmsg),
                     0);
}

static void read_back(struct files *f)
{
    struct weights w;

    if (weights_open(&w, f->dir.path, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    for (int i = 0; i < f->n; i++) {
        const struct llama_view *v = &f->views[i];
        float *out = malloc((size_t)v->numel * sizeof *out);

        weights_read(&w, i, 0, v->numel, out);
        assert_memory_equal(out, f->theta + v->offset,
                            (size_t)v->numel * sizeof *out);
        weights_forget(&w, i);
        weights_read(&w, i, 3, 5, out);
        assert_memory_equal(out, f->theta + v->offset + 3, 5 * sizeof *out);
        free(out);
    }
    weights_close(&w);
}

static void all_three_widths_are_read(void **state)
{
    static const enum st_dtype dtypes[] = {ST_F32, ST_BF16, ST_F16};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct files f;

        setup(&f, dtypes[i]);
        save(&f, "model.safetensors", 0, f.n);
        read_back(&f);
        teardown(&f);
    }
}

static void put_index(struct files *f, const char *a, const char *b, int cut)
{
    json_t *map = json_object();
    json_t *o = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 0,
                          "weight_map", map);
    char *text;

    for (int i = 0; i < f->n; i++) {
        json_object_set_new(map, f->views[i].name,
                            json_string(i < cut ? a : b));
    }
    text = json_dumps(o, 0);
    tmpdir_put(&f->dir, "model.safetensors.index.json", text, strlen(text));
    free(text);
    json_decref(o);
}

static void sharded_files_are_read_by_their_index(void **state)
{
    struct files f;

    (void)state;
    setup(&f, ST_BF16);
    save(&f, "model-00001-of-00002.safetensors", 0, 7);
    save(&f, "model-00002-of-00002.safetensors", 7, f.n);
    put_index(&f, "model-00001-of-00002.safetensors",
              "model-00002-of-00002.safetensors", 7);
    read_back(&f);
    teardown(&f);
}

static void refused(struct files *f, const char *sentence)
{
    struct weights w;

    errmsg[0] = '\0';
    assert_true(weights_open(&w, f->dir.path, errmsg) < 0);
    if (strstr(errmsg, sentence) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", sentence, errmsg);
    }
    weights_close(&w);
}

static void an_index_stays_in_its_directory(void **state)
{
    static const char *const names[] = {
        "../x.safetensors", "/etc/passwd", "", "a/b", "..", ".hidden"};
    struct files f;

    (void)state;
    setup(&f, ST_F32);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        put_index(&f, names[i], names[i], 1);
        refused(&f, "plain file name");
    }
    tmpdir_put(&f.dir, "model.safetensors.index.json", "[1", 2);
    refused(&f, "weight_map");
    teardown(&f);
}

static void wrong_tensors_are_named(void **state)
{
    struct files f;
    struct st_tensor keep;

    (void)state;
    setup(&f, ST_F32);
    refused(&f, "model.safetensors");
    tmpdir_put(&f.dir, "pytorch_model.bin", "x", 1);
    refused(&f, "pytorch_model.bin");
    save(&f, "model.safetensors", 0, f.n - 1);
    put_config(&f, ", \"tie_word_embeddings\": false");
    refused(&f, "lm_head.weight is missing");

    put_config(&f, "");
    keep = f.tensors[2];
    f.tensors[2].shape[0] = keep.shape[1] / 2; /* the same bytes */
    f.tensors[2].shape[1] = keep.shape[0] * 2;
    save(&f, "model.safetensors", 0, f.n);
    refused(&f, "q_proj.weight has another shape");
    f.tensors[2] = keep;
    f.tensors[2].dtype = ST_I32;
    save(&f, "model.safetensors", 0, f.n);
    refused(&f, "q_proj.weight is I32");
    f.tensors[2] = keep;

    f.tensors[f.n] = (struct st_tensor){
        "model.layers.0.self_attn.q_proj.bias", ST_F32, 1, {1}, f.theta, 4, 0};
    f.n++;
    save(&f, "model.safetensors", 0, f.n);
    refused(&f, "q_proj.bias does not belong");
    f.tensors[f.n - 1].name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    save(&f, "model.safetensors", 0, f.n);
    f.n--;
    read_back(&f);
    teardown(&f);
}

/* Without a word in config.json, a model without a head is tied; with one, a
 * head that lies there all the same is not read. */
static void a_tied_head_may_be_there_or_not(void **state)
{
    struct weights w;
    struct files f;

    (void)state;
    setup(&f, ST_F32);
    save(&f, "model.safetensors", 0, f.n - 1);
    assert_int_equal(weights_open(&w, f.dir.path, errmsg), 0);
    assert_true(w.config.model.tied);
    weights_close(&w);
    put_config(&f, ", \"tie_word_embeddings\": true");
    save(&f, "model.safetensors", 0, f.n);
    assert_int_equal(weights_open(&w, f.dir.path, errmsg), 0);
    assert_true(w.config.model.tied);
    weights_close(&w);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_keys_have_the_defaults_of_transformers),
        cmocka_unit_test(rope_theta_is_read_in_both_places),
        cmocka_unit_test(what_we_do_not_have_is_refused_by_sentence),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(all_three_widths_are_read),
        cmocka_unit_test(sharded_files_are_read_by_their_index),
        cmocka_unit_test(an_index_stays_in_its_directory),
        cmocka_unit_test(wrong_tensors_are_named),
        cmocka_unit_test(a_tied_head_may_be_there_or_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
