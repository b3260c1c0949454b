/* run_yaml_test.c - run.yaml: written, read, altered, mistyped. */
#include "tests/unit/proto/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/settings/run_yaml.h"
#include "proto/base/err.h"
#include "tests/unit/proto/example.h"

static struct run_yaml run, back;
static char text[RUN_YAML_BYTES_MAX], other[RUN_YAML_BYTES_MAX];
static char folder[64], path[128], errmsg[LOCO_ERRMSG_MAX];
static struct identity author;

static int set_up(void **state)
{
    static const uint8_t seed[32] = {1, 2, 3};

    (void)state;
    (void)snprintf(folder, sizeof folder, "run_yaml_test.XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/run.yaml", folder);
    return identity_generate(&author, seed);
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

static void slurp(void)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    assert_int_equal(fclose(f), 0);
}

/* The example, signed and saved; its text is in `text`. */
static void save_example(void)
{
    example_manifest(&run.manifest);
    assert_int_equal(run_yaml_sign(&run, &author), 0);
    assert_int_equal(run_yaml_save(&run, path, errmsg), 0);
    slurp();
}

static int parse(const char *t)
{
    errmsg[0] = '\0';
    return run_yaml_parse(t, strlen(t), "run.yaml", RUN_YAML_SIGNED, &back,
                          errmsg);
}

/* `text` with the first `from` replaced, into `other`. */
static void edit(const char *from, const char *to)
{
    char *at = strstr(text, from);

    assert_non_null(at);
    (void)snprintf(other, sizeof other, "%.*s%s%s", (int)(at - text), text, to,
                   at + strlen(from));
}

static void a_file_is_read_back_bit_for_bit(void **state)
{
    (void)state;
    save_example();
    assert_int_equal(run_yaml_load(path, RUN_YAML_SIGNED, &back, errmsg), 0);
    assert_memory_equal(&run, &back, sizeof run);
}

static void strange_strings_survive_the_quotes(void **state)
{
    static const char strange[] = "a \"b\" \\ : # \xc3\xa4 \xe2\x82\xac ' - {";

    (void)state;
    example_manifest(&run.manifest);
    (void)snprintf(run.manifest.name, sizeof run.manifest.name, "%s", strange);
    (void)snprintf(run.manifest.data.licence, sizeof run.manifest.data.licence,
                   "%s", "12e5"); /* looks like a number */
    assert_int_equal(run_yaml_sign(&run, &author), 0);
    assert_int_equal(run_yaml_save(&run, path, errmsg), 0);
    assert_int_equal(run_yaml_load(path, RUN_YAML_SIGNED, &back, errmsg), 0);
    assert_string_equal(back.manifest.name, strange);
}

static void comments_and_order_are_free(void **state)
{
    (void)state;
    save_example();
    edit("seed: 42\n", "# once more\n\nseed:   0000000042   # the seed\n");
    assert_int_equal(parse(other), 0);
    assert_true(hash32_eq(&back.run_id, &run.run_id));
    edit("seed: 42\n", "");
    (void)snprintf(other + strlen(other), sizeof other - strlen(other),
                   "seed: 42\n");
    assert_int_equal(parse(other), 0);
}

static void an_altered_value_is_found(void **state)
{
    (void)state;
    save_example();
    edit("seed: 42\n", "seed: 43\n");
    assert_int_equal(parse(other), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "run.yaml: was altered: its values"));
    edit("blake2b: \"01", "blake2b: \"02");
    assert_int_equal(parse(other), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "was altered"));
    edit("signature: \"", "signature: \"00");
    assert_int_equal(parse(other), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "run.yaml:4: signature: is not 128"));
}

static void a_new_run_id_without_a_new_signature_is_found(void **state)
{
    char from[ID_HEX_MAX], to[ID_HEX_MAX];

    (void)state;
    save_example();
    hash32_hex(&run.run_id, from);
    edit("seed: 42\n", "seed: 43\n");
    assert_int_equal(run_yaml_parse(other, strlen(other), "run.yaml",
                                    RUN_YAML_ANY, &back, errmsg),
                     0);
    hash32_hex(&back.run_id, to);
    (void)snprintf(text, sizeof text, "%s", other);
    edit(from, to);
    assert_int_equal(parse(other), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "was altered: the signature"));
    /* Signing it again makes it a run of its own. */
    assert_int_equal(run_yaml_sign(&back, &author), 0);
    assert_int_equal(run_yaml_save(&back, path, errmsg), 0);
    assert_int_equal(run_yaml_load(path, RUN_YAML_SIGNED, &run, errmsg), 0);
    assert_int_equal(run.manifest.seed, 43);
}

static void
a_file_without_signature_is_refused_where_one_is_needed(void **state)
{
    (void)state;
    save_example();
    run.is_signed = false;
    memset(run.signature, 0, sizeof run.signature);
    assert_int_equal(run_yaml_save(&run, path, errmsg), 0);
    assert_int_equal(run_yaml_load(path, RUN_YAML_SIGNED, &back, errmsg),
                     LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "is not signed"));
    assert_int_equal(run_yaml_load(path, RUN_YAML_ANY, &back, errmsg), 0);
    assert_false(back.is_signed);
}

static void mistakes_are_named_with_their_line(void **state)
{
    static const struct {
        const char *from, *to, *reason;
    } rows[] = {
        {"seed: 42", "sed: 42",
         "unknown key 'sed'; the nearest known key "
         "is 'seed'"},
        {"  lr: ", "  lrr: ", "inner: unknown key 'lrr'"},
        {"seed: 42", "seed: 42\nseed: 42", "seed: given twice"},
        {"seed: 42", "seed: many", "seed: 'many' is not a whole number"},
        {"seed: 42", "seed: [42]", "seed: must be one value"},
        {"seed: 42", "[seed]: 42", "a key must be a word"},
        {"seed: 42", "seed: &x 42\nsites: *x", "aliases are not allowed"},
        {"seed: 42", "seed: \"4\\0\"", "seed: holds a zero byte"},
        {"dim: 128", "dim: 65537", "model.dim: 65537 is outside 0 to 65536"},
        {"adamw", "adam", "inner.optimizer: 'adam' is none of"},
        {"val: true", "val: maybe", "data.shards[2].val: 'maybe'"},
        {"transport:\n", "transport: on\nx:\n", "transport: must hold keys"},
        {"    urls: []", "    urls: no", "data.shards[1].urls: must be a "},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        unsigned line = 0;

        save_example();
        /* The file writes list elements deeper than the tables above. */
        if (strstr(text, rows[i].from) == NULL) {
            fail_msg("no '%s' in the file", rows[i].from);
        }
        edit(rows[i].from, rows[i].to);
        assert_int_not_equal(parse(other), 0);
        if (strstr(errmsg, rows[i].reason) == NULL) {
            fail_msg("%s: %s", rows[i].to, errmsg);
        }
        assert_int_equal(sscanf(errmsg, "run.yaml:%u: ", &line), 1);
        assert_true(line > 2 && line < 100);
    }
}

static void what_is_not_a_yaml_map_is_refused(void **state)
{
    static const char *const rows[] = {
        "",         "a",       "- a",          "{",
        "\t- x: [", "a: b: c", "--- 1\n--- 2", "{}\n---\n{}",
        "%YAML 9",  "\xff",    "? [a]\n: b"};
    char one[64];

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        (void)snprintf(one, sizeof one, "%s", rows[i]);
        assert_true(parse(one) < 0);
        assert_true(errmsg[0] != '\0');
    }
    memset(text, '[', 100000);
    text[100000] = '\0';
    assert_true(parse(text) < 0);
}

static void files_that_cannot_be_read_say_which(void **state)
{
    (void)state;
    assert_int_equal(run_yaml_load("no/such", RUN_YAML_ANY, &back, errmsg),
                     LOCO_ENOENT);
    assert_non_null(strstr(errmsg, "open no/such: No such file"));
    assert_int_equal(run_yaml_load(folder, RUN_YAML_ANY, &back, errmsg),
                     LOCO_EIO);
    save_example();
    assert_int_not_equal(run_yaml_save(&run, "no/such/dir", errmsg), 0);
}

static void the_largest_manifest_fits_into_a_file(void **state)
{
    (void)state;
    example_manifest(&run.manifest);
    run.manifest.data.n_shards = MANIFEST_SHARDS_MAX;
    for (uint32_t i = 0; i < MANIFEST_SHARDS_MAX; i++) {
        struct manifest_shard *s = &run.manifest.data.shards[i];

        *s = run.manifest.data.shards[0];
        (void)snprintf(s->name, sizeof s->name, "shard-%u", (unsigned)i);
        s->n_urls = MANIFEST_URLS_MAX;
        for (int j = 0; j < MANIFEST_URLS_MAX; j++) {
            memset(s->urls[j], '"', MANIFEST_URL_MAX - 1);
            memcpy(s->urls[j], "https://", 8);
        }
    }
    assert_int_equal(run_yaml_sign(&run, &author), 0);
    assert_int_equal(run_yaml_save(&run, path, errmsg), 0);
    assert_int_equal(run_yaml_load(path, RUN_YAML_SIGNED, &back, errmsg), 0);
    assert_memory_equal(&run, &back, sizeof run);
    /* One more shard than there is room for. */
    slurp();
    edit("  shards:\n", "  shards:\n    - name: one-more\n");
    assert_int_equal(parse(other), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "data.shards: more than 512"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_back_bit_for_bit),
        cmocka_unit_test(strange_strings_survive_the_quotes),
        cmocka_unit_test(comments_and_order_are_free),
        cmocka_unit_test(an_altered_value_is_found),
        cmocka_unit_test(a_new_run_id_without_a_new_signature_is_found),
        cmocka_unit_test(
            a_file_without_signature_is_refused_where_one_is_needed),
        cmocka_unit_test(mistakes_are_named_with_their_line),
        cmocka_unit_test(what_is_not_a_yaml_map_is_refused),
        cmocka_unit_test(files_that_cannot_be_read_say_which),
        cmocka_unit_test(the_largest_manifest_fits_into_a_file),
    };

    return cmocka_run_group_tests_name("daemon/run_yaml", tests, set_up,
                                       tear_down);
}
