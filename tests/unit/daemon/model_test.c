/* model_test.c - model files, and exports that read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/model/model.h"
#include "daemon/settings/model_file.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "tests/unit/train/tokenizer_make.h"

static char errmsg[ERRMSG_SIZE];

static int parse(const char *text, struct llama_config *c)
{
    char copy[1024];

    (void)snprintf(copy, sizeof copy, "%s", text);
    errmsg[0] = '\0';
    return model_parse(copy, "m.yaml", c, errmsg);
}

#define WHOLE "dim: 32\nlayers: 2\nheads: 4\nffn: 64\nvocab: 256\nseq: 64\n"

static void a_model_file_fills_in_what_is_missing(void **state)
{
    struct llama_config c;

    (void)state;
    assert_int_equal(parse("---\n# tiny\n" WHOLE, &c), 0);
    assert_int_equal(c.dim, 32);
    assert_int_equal(c.kv_heads, 4);
    assert_true(c.tied);
    assert_true(c.rope_theta == 10000.0F);
    assert_int_equal(
        parse(WHOLE "kv_heads: 2 # grouped\ntied: false\nnorm_eps: 1e-6\n", &c),
        0);
    assert_int_equal(c.kv_heads, 2);
    assert_false(c.tied);
    assert_true(c.norm_eps == 1e-6F);
}

static void mistakes_in_a_model_file_name_the_line(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {WHOLE "kv_haeds: 2\n", "m.yaml:7: unknown key 'kv_haeds'; did you "
                                "mean 'kv_heads'"},
        {WHOLE "dim: 64\n", "m.yaml:7: 'dim' is set twice"},
        {"dim: many\n", "m.yaml:1: 'dim' cannot have this value"},
        {"dim: -1\n", "m.yaml:1:"},
        {"dim: 99999999999\n", "m.yaml:1:"},
        {"tied: maybe\n", "m.yaml:1:"},
        {"dim 32\n", "m.yaml:1: not a 'key: value' line"},
        {"dim: 32\n", "'layers' is missing"},
        {"", "'dim' is missing"},
        {"dim: 32\nlayers: 2\nheads: 5\nffn: 64\nvocab: 256\nseq: 64\n",
         "m.yaml: "},
    };
    struct llama_config c;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(parse(bad[i].text, &c), LOCO_EINVAL);
        if (strstr(errmsg, bad[i].says) == NULL) {
            fail_msg("'%s' does not say '%s'", errmsg, bad[i].says);
        }
    }
}

static void names_are_found_and_others_listed(void **state)
{
    struct llama_config c;

    (void)state;
    assert_int_equal(model_find("quickstart-1m", &c, errmsg), 0);
    assert_int_equal(llama_numel(&c), 1022336);
    assert_int_equal(model_find("no-such-model", &c, errmsg), LOCO_ENOENT);
    assert_non_null(strstr(errmsg, "quickstart-1m"));
}

static void small_model(struct model *m)
{
    memset(m, 0, sizeof *m);
    assert_int_equal(parse(WHOLE "kv_heads: 2\n", &m->config), 0);
    m->theta = malloc((size_t)llama_numel(&m->config) * sizeof *m->theta);
    assert_non_null(m->theta);
    llama_init_params(&m->config, m->theta, 7);
}

/* The file's bytes equal those of the same name in the other directory. */
static void assert_same_file(const char *a, const char *b, const char *name)
{
    char path[FILE_PATH_MAX];
    struct file_map x, y;

    assert_int_equal(file_path_join(path, a, name, errmsg), 0);
    assert_int_equal(file_map_open(&x, path, errmsg), 0);
    assert_int_equal(file_path_join(path, b, name, errmsg), 0);
    assert_int_equal(file_map_open(&y, path, errmsg), 0);
    assert_int_equal(x.size, y.size);
    assert_true(x.size > 0);
    assert_memory_equal(x.data, y.data, x.size);
    file_map_close(&x);
    file_map_close(&y);
}

static const struct model_export_options fp32 = {.dtype = ST_F32};

static void export_as(const struct model *m,
                      const char *dir,
                      const struct model_export_options *opt)
{
    struct model_source s;

    model_source_memory(&s, &m->config, m->theta);
    if (model_export(&s, dir, opt, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    model_source_close(&s);
}

static void remove_export(const char *dir)
{
    static const char *const names[] = {
        "config.json", "model.safetensors",      "tokenizer.json",
        "README.md",   "generation_config.json", "tokenizer_config.json"};
    char path[FILE_PATH_MAX];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(file_path_join(path, dir, names[i], errmsg), 0);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

static void an_export_reads_back_bit_for_bit_and_repeats(void **state)
{
    char a[] = "/tmp/loco-model-XXXXXX", b[] = "/tmp/loco-model-XXXXXX";
    struct model m, back;
    size_t bytes;

    (void)state;
    assert_non_null(mkdtemp(a));
    assert_non_null(mkdtemp(b));
    small_model(&m);
    bytes = (size_t)llama_numel(&m.config) * sizeof *m.theta;
    export_as(&m, a, &fp32);
    assert_int_equal(model_open_files(&back, a, errmsg), 0);
    assert_memory_equal(&back.config, &m.config, sizeof m.config);
    assert_memory_equal(back.theta, m.theta, bytes);
    export_as(&back, b, &fp32);
    assert_same_file(a, b, "config.json");
    assert_same_file(a, b, "model.safetensors");
    assert_same_file(a, b, "tokenizer.json");
    assert_same_file(a, b, "README.md");
    assert_same_file(a, b, "generation_config.json");
    assert_same_file(a, b, "tokenizer_config.json");
    assert_string_equal(back.tokenizer + strlen(back.tokenizer) - 15,
                        "/tokenizer.json");
    model_close(&back);
    model_close(&m);
    remove_export(a);
    remove_export(b);
}

static void config_json_has_both_rope_schemas(void **state)
{
    char dir[] = "/tmp/loco-model-XXXXXX", path[FILE_PATH_MAX];
    struct model m;
    const json_t *rope;
    json_t *o, *t;

    (void)state;
    assert_non_null(mkdtemp(dir));
    small_model(&m);
    export_as(&m, dir, &fp32);
    assert_int_equal(file_path_join(path, dir, "config.json", errmsg), 0);
    o = json_load_file(path, 0, NULL);
    rope = json_object_get(o, "rope_parameters");
    assert_true(json_number_value(json_object_get(o, "rope_theta")) == 10000);
    assert_true(json_number_value(json_object_get(rope, "rope_theta")) ==
                10000);
    assert_true(json_number_value(json_object_get(o, "rms_norm_eps")) == 1e-5);
    assert_int_equal(json_integer_value(json_object_get(o, "head_dim")), 8);
    assert_int_equal(file_path_join(path, dir, "tokenizer.json", errmsg), 0);
    t = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(
        json_object_size(json_object_get(json_object_get(t, "model"), "vocab")),
        256);
    json_decref(o);
    json_decref(t);
    model_close(&m);
    remove_export(dir);
}

/* <s> is cut out of texts, id 65 is a letter. */
static void
an_export_names_its_bos_and_eos_where_they_are_added_tokens(void **state)
{
    char dir[] = "/tmp/loco-model-XXXXXX", path[FILE_PATH_MAX];
    char file[FILE_PATH_MAX];
    struct model m;
    struct model_source s;
    json_t *o = make_bytes();

    (void)state;
    assert_non_null(mkdtemp(dir));
    small_model(&m);
    (void)make_token(o, "<s>");
    make_added(o, "<s>", 256, 0);
    (void)snprintf(file, sizeof file, "%s.json", dir);
    assert_int_equal(json_dump_file(o, file, 0), 0);
    json_decref(o);
    model_source_memory(&s, &m.config, m.theta);
    (void)snprintf(s.tokenizer, sizeof s.tokenizer, "%s", file);
    s.config.bos = 256;
    s.config.eos = 65;
    assert_int_equal(model_export(&s, dir, &fp32, errmsg), 0);
    model_source_close(&s);
    assert_int_equal(file_path_join(path, dir, "tokenizer_config.json", errmsg),
                     0);
    o = json_load_file(path, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(o, "bos_token")),
                        "<s>");
    assert_null(json_object_get(o, "eos_token"));
    json_decref(o);
    assert_int_equal(unlink(file), 0);
    model_close(&m);
    remove_export(dir);
}

static bool is_there(const char *dir, const char *name)
{
    char path[FILE_PATH_MAX];

    assert_int_equal(file_path_join(path, dir, name, errmsg), 0);
    return access(path, F_OK) == 0;
}

/* In parts of 20,000 bytes, read back, and once more in one file: nothing of
 * the parts' index is left to be taken for it. */
static void a_large_model_is_cut_into_files_with_an_index(void **state)
{
    static const struct model_export_options parts = {.dtype = ST_F32,
                                                      .shard_bytes = 20000};
    char dir[] = "/tmp/loco-model-XXXXXX", path[FILE_PATH_MAX];
    struct model m, back;
    json_t *index;
    const char *name;
    size_t bytes;
    int n = 0;

    (void)state;
    assert_non_null(mkdtemp(dir));
    small_model(&m);
    bytes = (size_t)llama_numel(&m.config) * sizeof *m.theta;
    export_as(&m, dir, &parts);
    assert_false(is_there(dir, "model.safetensors"));
    assert_int_equal(
        file_path_join(path, dir, "model.safetensors.index.json", errmsg), 0);
    index = json_load_file(path, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(index, "metadata"), "total_size")),
                     bytes);
    name = json_string_value(json_object_get(
        json_object_get(index, "weight_map"), "model.norm.weight"));
    assert_int_equal(sscanf(name, "model-%*d-of-%d.safetensors", &n), 1);
    assert_true(n > 2);
    assert_int_equal(model_open_files(&back, dir, errmsg), 0);
    assert_memory_equal(back.theta, m.theta, bytes);
    model_close(&back);
    json_decref(index);

    export_as(&m, dir, &fp32);
    assert_false(is_there(dir, "model.safetensors.index.json"));
    for (int i = 1; i <= n; i++) {
        (void)snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors",
                       dir, i, n);
        assert_int_equal(unlink(path), 0);
    }
    model_close(&m);
    remove_export(dir);
}

static void narrow_weights_are_rounded_to_nearest(void **state)
{
    char dir[] = "/tmp/loco-model-XXXXXX";
    struct model m, back;

    (void)state;
    assert_non_null(mkdtemp(dir));
    small_model(&m);
    for (int half = 0; half < 2; half++) {
        struct model_export_options opt = {.dtype = half ? ST_F16 : ST_BF16};

        export_as(&m, dir, &opt);
        assert_int_equal(model_open_files(&back, dir, errmsg), 0);
        for (int64_t i = 0; i < llama_numel(&m.config); i++) {
            float unit = half ? 0x1p-11F : 0x1p-8F;
            float a = m.theta[i], b = back.theta[i];

            assert_true(fabsf(a - b) <= unit * fabsf(a) + 0x1p-25F);
        }
        model_close(&back);
    }
    model_close(&m);
    remove_export(dir);
}

static void an_import_is_one_file_that_reads_back(void **state)
{
    char dir[] = "/tmp/loco-model-XXXXXX", file[64];
    struct model_source s;
    struct model m, back;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(file, sizeof file, "%s.safetensors", dir);
    small_model(&m);
    export_as(&m, dir, &fp32);
    assert_int_equal(model_source_files(&s, dir, errmsg), 0);
    assert_int_equal(model_import(&s, file, errmsg), 0);
    model_source_close(&s);
    assert_int_equal(model_open_files(&back, file, errmsg), 0);
    assert_memory_equal(&back.config, &m.config, sizeof m.config);
    assert_memory_equal(back.theta, m.theta,
                        (size_t)llama_numel(&m.config) * sizeof *m.theta);
    assert_non_null(strstr(back.tokenizer, ".safetensors.tokenizer.json"));
    assert_int_equal(unlink(back.tokenizer), 0);
    assert_int_equal(unlink(file), 0);
    model_close(&back);
    model_close(&m);
    remove_export(dir);
}

static void a_directory_without_a_model_says_so(void **state)
{
    const char *none = "/nonexistent";
    struct model m;

    (void)state;
    assert_int_equal(model_open_files(&m, "/nonexistent", errmsg), LOCO_ENOENT);
    assert_non_null(strstr(errmsg, "/nonexistent"));
    model_close(&m);
    assert_true(model_open_state(&m, &none, 1, errmsg) != 0);
    assert_non_null(strstr(errmsg, "/nonexistent"));
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_file_fills_in_what_is_missing),
        cmocka_unit_test(mistakes_in_a_model_file_name_the_line),
        cmocka_unit_test(names_are_found_and_others_listed),
        cmocka_unit_test(an_export_reads_back_bit_for_bit_and_repeats),
        cmocka_unit_test(
            an_export_names_its_bos_and_eos_where_they_are_added_tokens),
        cmocka_unit_test(config_json_has_both_rope_schemas),
        cmocka_unit_test(a_large_model_is_cut_into_files_with_an_index),
        cmocka_unit_test(narrow_weights_are_rounded_to_nearest),
        cmocka_unit_test(an_import_is_one_file_that_reads_back),
        cmocka_unit_test(a_directory_without_a_model_says_so),
    };

    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
