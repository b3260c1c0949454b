/* pack_test.c - text in, shards and data.json out. */
#include "train/data/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "proto/base/err.h"
#include "tests/unit/train/tmpdir.h"
#include "train/data/shard.h"

static struct tmpdir in_dir;
static struct tmpdir out_dir;
static struct pack_result result;

static int setup(void **state)
{
    (void)state;
    tmpdir_make(&in_dir);
    tmpdir_make(&out_dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tmpdir_remove(&in_dir);
    tmpdir_remove(&out_dir);
    return 0;
}

static struct pack_options options(uint64_t val_bytes, uint32_t shards)
{
    struct pack_options o = {.val_bytes = val_bytes,
                             .shards = shards,
                             .tokenizer = "byte",
                             .source = "tests",
                             .licence = "CC0-1.0"};
    return o;
}

/* Pack one text or two (b may be NULL). */
static int pack(const char *a, const char *b, const struct pack_options *o)
{
    char paths[2][600];
    const char *inputs[2] = {paths[0], paths[1]};
    size_t n = 1;

    tmpdir_put(&in_dir, "a.txt", a, strlen(a));
    memcpy(paths[0], in_dir.file, sizeof in_dir.file);
    if (b != NULL) {
        tmpdir_put(&in_dir, "b.txt", b, strlen(b));
        memcpy(paths[1], in_dir.file, sizeof in_dir.file);
        n = 2;
    }
    return pack_text(inputs, n, out_dir.path, o, &result);
}

/* The bytes of a packed file must be `want`. */
static void check_tokens(const char *name, const char *want)
{
    struct shard s;
    uint32_t ids[256];
    char errmsg[ERRMSG_SIZE];
    size_t n = strlen(want);

    assert_int_equal(shard_open(&s, tmpdir_file(&out_dir, name), errmsg), 0);
    assert_int_equal(s.info.tokens, n);
    assert_int_equal(s.info.text_bytes, n);
    assert_int_equal(s.info.vocab, 256);
    assert_string_equal(s.info.source, "tests");
    assert_string_equal(s.info.licence, "CC0-1.0");
    assert_int_equal(shard_read(&s, 0, n, ids), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(ids[i], (unsigned char)want[i]);
    }
    shard_close(&s);
}

static void
the_joined_text_is_cut_into_equal_shards_and_a_held_out_end(void **state)
{
    struct pack_options o = options(7, 3);

    (void)state;
    assert_int_equal(pack("one\ntwo\nthree\n", "four\nfive\nsix\n", &o), 0);
    /* 28 bytes: 28 - 7 = 21 lies in "five"; the next line starts at 24. */
    assert_int_equal(result.text_bytes, 28);
    assert_int_equal(result.train_tokens, 24);
    assert_int_equal(result.val_tokens, 4);
    check_tokens("train-0000.ltk", "one\ntwo\n");
    check_tokens("train-0001.ltk", "three\nfo");
    check_tokens("train-0002.ltk", "ur\nfive\n");
    check_tokens("val.ltk", "six\n");
    assert_int_equal(tmpdir_count(&out_dir), 5);
}

static void each_of_several_shards_is_a_sample_of_the_whole_text(void **state)
{
    struct pack_options o = options(0, 2);

    (void)state;
    o.stripe = 4;
    assert_int_equal(pack("one\ntwo\nsix\n", "ten\n", &o), 0);
    check_tokens("train-0000.ltk", "one\nsix\n");
    check_tokens("train-0001.ltk", "two\nten\n");
    /* Lines are longer than stripes, so that some of these are empty, and the
     * last line is cut: nothing is lost or twice. */
    o.stripe = 2;
    assert_int_equal(pack("a long line\n", "one\nsixty\n", &o), 0);
    assert_int_equal(result.train_tokens, 22);
    check_tokens("train-0000.ltk", "a long line\nix");
    check_tokens("train-0001.ltk", "one\nsty\n");
}

static void a_line_that_starts_at_the_mark_is_taken_whole(void **state)
{
    struct pack_options o = options(4, 1);

    (void)state;
    assert_int_equal(pack("one\ntwo\nsix\n", NULL, &o), 0);
    check_tokens("val.ltk", "six\n");
    o.val_bytes = 5; /* across the inputs' border */
    assert_int_equal(pack("one\ntwo\n", "three", &o), 0);
    check_tokens("train-0000.ltk", "one\ntwo\n");
    check_tokens("val.ltk", "three");
}

static void a_last_line_longer_than_asked_is_held_out_whole(void **state)
{
    struct pack_options o = options(3, 1);

    (void)state;
    assert_int_equal(pack("one\nlonger line", NULL, &o), 0);
    check_tokens("train-0000.ltk", "one\n");
    check_tokens("val.ltk", "longer line");
    assert_int_equal(pack("one\n", "longer line\n", &o), 0);
    check_tokens("val.ltk", "longer line\n");
}

static void text_without_lines_is_cut_at_the_byte(void **state)
{
    struct pack_options o = options(3, 1);

    (void)state;
    assert_int_equal(pack("abcdefgh", "ij", &o), 0);
    check_tokens("train-0000.ltk", "abcdefg");
    check_tokens("val.ltk", "hij");
}

static void no_held_out_part_means_no_file(void **state)
{
    struct pack_options o = options(0, 1);

    (void)state;
    assert_int_equal(pack("one\ntwo\n", NULL, &o), 0);
    check_tokens("train-0000.ltk", "one\ntwo\n");
    assert_int_equal(result.val_tokens, 0);
    assert_int_equal(tmpdir_count(&out_dir), 2);
}

static void by_default_a_tenth_is_held_out(void **state)
{
    struct pack_options o = options(PACK_VAL_DEFAULT, 1);
    char text[1001];

    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        text[i] = i % 20 == 19 ? '\n' : 'x';
    }
    text[1000] = '\0';
    assert_int_equal(pack(text, NULL, &o), 0);
    assert_int_equal(result.val_tokens, 100);
    assert_int_equal(result.train_tokens, 900);
}

static int fake_hash(void *data, const char *path, char hex[PACK_HEX_SIZE])
{
    unsigned *calls = data;
    FILE *f = fopen(path, "rb"); /* the file must be in place already */

    if (f == NULL) {
        return LOCO_EIO;
    }
    (void)fclose(f);
    memset(hex, 'a' + (int)(*calls)++, PACK_HEX_SIZE - 1);
    hex[PACK_HEX_SIZE - 1] = '\0';
    return 0;
}

static void data_json_names_every_file_with_its_size_and_hash(void **state)
{
    struct pack_options o = options(4, 2);
    unsigned calls = 0;
    size_t len;
    json_error_t error;
    char *text;
    json_t *root;
    const json_t *row;

    (void)state;
    o.hash = fake_hash;
    o.hash_data = &calls;
    assert_int_equal(pack("one\ntwo\nsix\n", NULL, &o), 0);
    text = tmpdir_get(&out_dir, "data.json", &len);
    root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    free(text);
    assert_non_null(root);
    assert_int_equal(json_integer_value(json_object_get(root, "version")), 1);
    assert_int_equal(json_integer_value(json_object_get(root, "vocab")), 256);
    assert_string_equal(json_string_value(json_object_get(root, "tokenizer")),
                        "byte");
    assert_string_equal(json_string_value(json_object_get(root, "source")),
                        "tests");
    assert_string_equal(json_string_value(json_object_get(root, "licence")),
                        "CC0-1.0");
    assert_int_equal(json_array_size(json_object_get(root, "train")), 2);
    row = json_array_get(json_object_get(root, "train"), 1);
    assert_string_equal(json_string_value(json_object_get(row, "name")),
                        "train-0001.ltk");
    assert_int_equal(json_integer_value(json_object_get(row, "tokens")), 4);
    assert_int_equal(json_integer_value(json_object_get(row, "bytes")), 4100);
    assert_int_equal(json_string_value(json_object_get(row, "blake2b"))[63],
                     'b');
    row = json_object_get(root, "val");
    assert_string_equal(json_string_value(json_object_get(row, "name")),
                        "val.ltk");
    assert_int_equal(calls, 3);
    json_decref(root);
}

static int failing_hash(void *data, const char *path, char hex[PACK_HEX_SIZE])
{
    (void)data;
    (void)path;
    (void)hex;
    return LOCO_EIO;
}

static void a_failed_pack_leaves_no_data_json(void **state)
{
    struct pack_options o = options(0, 1);

    (void)state;
    assert_int_equal(pack("one\ntwo\n", NULL, &o), 0);
    o.hash = failing_hash;
    assert_int_equal(pack("one\ntwo\n", NULL, &o), LOCO_EIO);
    assert_int_equal(access(tmpdir_file(&out_dir, "data.json"), F_OK), -1);
}

static void the_same_input_gives_the_same_bytes(void **state)
{
    struct pack_options o = options(4, 2);
    static const char *const names[] = {"train-0000.ltk", "train-0001.ltk",
                                        "val.ltk", "data.json"};
    char *before[4];
    size_t sizes[4];

    (void)state;
    assert_int_equal(pack("one\ntwo\nsix\n", NULL, &o), 0);
    for (unsigned i = 0; i < 4; i++) {
        before[i] = tmpdir_get(&out_dir, names[i], &sizes[i]);
    }
    assert_int_equal(pack("one\ntwo\nsix\n", NULL, &o), 0);
    for (unsigned i = 0; i < 4; i++) {
        size_t size;
        char *after = tmpdir_get(&out_dir, names[i], &size);

        assert_int_equal(size, sizes[i]);
        assert_memory_equal(after, before[i], size);
        free(after);
        free(before[i]);
    }
}

static void refuse(const struct pack_options *o,
                   const char *text,
                   int code,
                   const char *sentence)
{
    assert_int_equal(pack(text, NULL, o), code);
    if (strstr(result.errmsg, sentence) == NULL) {
        fail_msg("%s", result.errmsg);
    }
}

static void what_cannot_be_packed_is_refused_with_a_sentence(void **state)
{
    struct pack_options o = options(0, 1);
    const char *missing = "/nowhere/at/all.txt";
    char longer[SHARD_LICENCE_SIZE + 1];

    (void)state;
    assert_int_equal(pack_text(NULL, 0, out_dir.path, &o, &result),
                     LOCO_EINVAL);
    assert_non_null(strstr(result.errmsg, "no input"));
    assert_int_equal(pack_text(&missing, 1, out_dir.path, &o, &result),
                     LOCO_ENOENT);
    assert_non_null(strstr(result.errmsg, missing));
    refuse(&o, "", LOCO_EINVAL, "too few");
    refuse(&o, "ab", LOCO_EINVAL, "2 bytes of text to train on are too few");
    o = options(PACK_VAL_DEFAULT, 1);
    refuse(&o, "abc", LOCO_EINVAL, "at least 3 tokens");
    o = options(8, 1);
    refuse(&o, "one\ntwo\n", LOCO_EINVAL, "leaves nothing");
    o = options(0, 5);
    refuse(&o, "one\ntwo\n", LOCO_EINVAL, "too few for 5 shards");
    o = options(0, 0);
    refuse(&o, "one\n", LOCO_EINVAL, "0 shards");
    o = options(0, PACK_SHARDS_MAX + 1);
    refuse(&o, "one\n", LOCO_EINVAL, "shards asked for");
    o = options(0, 1);
    o.tokenizer = "gpt2";
    refuse(&o, "one\n", LOCO_ENOENT, "gpt2");
    o = options(0, 1);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    o.licence = longer;
    refuse(&o, "one\n", LOCO_EINVAL, "licence is too long");
    o = options(0, 1);
    o.source = "\xff\xfe";
    refuse(&o, "one\n", LOCO_EINVAL, "not UTF-8");
    assert_int_equal(tmpdir_count(&out_dir), 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_joined_text_is_cut_into_equal_shards_and_a_held_out_end),
        CASE(each_of_several_shards_is_a_sample_of_the_whole_text),
        CASE(a_line_that_starts_at_the_mark_is_taken_whole),
        CASE(a_last_line_longer_than_asked_is_held_out_whole),
        CASE(text_without_lines_is_cut_at_the_byte),
        CASE(no_held_out_part_means_no_file),
        CASE(by_default_a_tenth_is_held_out),
        CASE(data_json_names_every_file_with_its_size_and_hash),
        CASE(a_failed_pack_leaves_no_data_json),
        CASE(the_same_input_gives_the_same_bytes),
        CASE(what_cannot_be_packed_is_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
