/* pack_input_test.c - JSONL, directories, tokenizers and ready tokens. */
#include "train/data/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jansson.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "tests/unit/train/tmpdir.h"
#include "tests/unit/train/tokenizer_make.h"
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

static struct pack_options plain(void)
{
    return (struct pack_options){
        .val_bytes = 0, .shards = 1, .tokenizer = "byte"};
}

/* Pack a file of the input directory, or all of it. */
static int pack(const char *name, const struct pack_options *o)
{
    char path[512];
    const char *input = path;

    (void)snprintf(path, sizeof path, "%s",
                   name == NULL ? in_dir.path : tmpdir_file(&in_dir, name));
    return pack_text(&input, 1, out_dir.path, o, &result);
}

static void packed(const char *name, const struct pack_options *o)
{
    if (pack(name, o) != 0) {
        fail_msg("%s", result.errmsg);
    }
}

static void shard_text_is(const char *name, const char *text)
{
    struct shard s;

    assert_int_equal(shard_open(&s, tmpdir_file(&out_dir, name), NULL), 0);
    assert_int_equal(s.info.tokens, strlen(text));
    assert_memory_equal(s.data, text, strlen(text));
    shard_close(&s);
}

/* 256 bytes, "the" as 256 + 1 (by way of "th"), and <|end|> as 300. */
static char *tokenizer_file(void)
{
    json_t *o = make_bytes();
    char *text;

    make_merge(o, "t", "h");
    make_merge(o, "th", "e");
    make_added(o, "<|end|>", 300, 0);
    text = json_dumps(o, 0);
    tmpdir_put(&in_dir, ".tokenizer.json", text, strlen(text));
    free(text);
    json_decref(o);
    return strdup(tmpdir_file(&in_dir, ".tokenizer.json"));
}

static void put(const char *name, const char *text)
{
    tmpdir_put(&in_dir, name, text, strlen(text));
}

static void jsonl_gives_its_texts_and_separators(void **state)
{
    static const char lines[] = "{\"text\": \"one\\u00e9\", \"id\": 3}\n\n"
                                "{\"text\": \"two\"}\r\n{\"text\": \"\"}";
    struct pack_options o = plain();

    (void)state;
    put("a.jsonl", lines);
    packed("a.jsonl", &o);
    shard_text_is("train-0000.ltk", "one\xc3\xa9\ntwo\n\n");
    o.separator = "<|end|>";
    packed("a.jsonl", &o);
    shard_text_is("train-0000.ltk", "one\xc3\xa9<|end|>two<|end|><|end|>");
    assert_int_equal(tmpdir_count(&out_dir), 2); /* no other file is left */
    o.format = PACK_TEXT;
    packed("a.jsonl", &o);
    assert_int_equal(result.train_tokens, sizeof lines - 1);
}

static void a_bad_line_is_named(void **state)
{
    struct pack_options o = plain();

    (void)state;
    put("a.jsonl", "{\"text\": \"one\"}\n{\"txt\": \"two\"}\n");
    assert_int_equal(pack("a.jsonl", &o), LOCO_EFORMAT);
    assert_non_null(strstr(result.errmsg, "a.jsonl:2: "));
    put("a.jsonl", "{\"text\": \"one\"\n");
    assert_int_equal(pack("a.jsonl", &o), LOCO_EFORMAT);
    assert_non_null(strstr(result.errmsg, "a.jsonl:1: "));
    assert_int_equal(tmpdir_count(&out_dir), 0);
}

static void a_directory_is_its_files_in_order(void **state)
{
    struct pack_options o = plain();
    char sub[512];

    (void)state;
    put("b.txt", "second\n");
    put("a.txt", "first\n");
    put(".hidden", "never\n");
    put("c.jsonl", "{\"text\": \"third\"}\n");
    (void)snprintf(sub, sizeof sub, "%s/bb", in_dir.path);
    assert_int_equal(mkdir(sub, 0755), 0);
    put("bb/x", "between\n");
    packed(NULL, &o);
    shard_text_is("train-0000.ltk", "first\nsecond\nbetween\nthird\n");
    assert_int_equal(unlink(tmpdir_file(&in_dir, "bb/x")), 0);
    assert_int_equal(rmdir(sub), 0);
}

static void an_empty_directory_is_refused(void **state)
{
    struct pack_options o = plain();

    (void)state;
    assert_int_equal(pack(NULL, &o), LOCO_EINVAL);
    assert_non_null(strstr(result.errmsg, "no file"));
}

static int fixed_hash(void *data, const char *path, char hex[PACK_HEX_SIZE])
{
    (void)data;
    (void)path;
    memset(hex, 'a', PACK_HEX_SIZE - 1);
    hex[PACK_HEX_SIZE - 1] = '\0';
    return 0;
}

static void text_becomes_the_tokenizers_ids(void **state)
{
    static const uint32_t train[] = {257, ' ', 'o', 'x', '\n'},
                          val[] = {257, 300, 'x', '\n'};
    struct pack_options o = plain();
    char *file = tokenizer_file();
    uint32_t ids[8];
    struct shard s;
    char *index;
    json_t *root;
    size_t n;

    (void)state;
    put("a.txt", "the ox\nthe<|end|>x\n");
    o.tokenizer = file;
    o.val_bytes = 12;
    o.hash = fixed_hash;
    packed("a.txt", &o);
    assert_int_equal(result.vocab, 301);
    assert_int_equal(result.text_bytes, 19);
    assert_int_equal(
        shard_open(&s, tmpdir_file(&out_dir, "train-0000.ltk"), NULL), 0);
    assert_int_equal(s.info.token_bytes, 2);
    assert_int_equal(s.info.vocab, 301);
    assert_int_equal(s.info.text_bytes, 7);
    assert_int_equal(s.info.tokens, 5);
    assert_string_equal(s.info.tokenizer,
                        "blake2b:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    assert_int_equal(shard_read(&s, 0, 5, ids), 0);
    assert_memory_equal(ids, train, sizeof train);
    shard_close(&s);
    assert_int_equal(shard_open(&s, tmpdir_file(&out_dir, "val.ltk"), NULL), 0);
    assert_int_equal(s.info.text_bytes, 12);
    assert_int_equal(shard_read(&s, 0, 4, ids), 0);
    assert_memory_equal(ids, val, sizeof val);
    shard_close(&s);
    index = tmpdir_get(&out_dir, "data.json", &n);
    root = json_loads(index, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(root, "tokenizer")),
                        "tokenizer.json");
    assert_int_equal(
        strlen(json_string_value(json_object_get(root, "tokenizer_blake2b"))),
        64);
    assert_int_equal(json_integer_value(json_object_get(root, "vocab")), 301);
    json_decref(root);
    free(index);
    free(tmpdir_get(&out_dir, "tokenizer.json", &n));
    assert_true(n > 1000);
    free(file);
}

static void shards_of_tokens_are_cut_at_lines(void **state)
{
    struct pack_options o = plain();
    char *file = tokenizer_file();

    (void)state;
    put("a.txt", "the the\nthe the\nthe the\n");
    o.tokenizer = file;
    o.shards = 2;
    packed("a.txt", &o);
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"train-0000.ltk", "train-0001.ltk"};
        struct shard s;

        assert_int_equal(shard_open(&s, tmpdir_file(&out_dir, names[i]), NULL),
                         0);
        assert_int_equal(s.info.text_bytes, i == 0 ? 16 : 8);
        assert_int_equal(s.info.tokens, i == 0 ? 8 : 4);
        shard_close(&s);
    }
    free(file);
}

static void ready_tokens_are_taken_and_checked(void **state)
{
    struct pack_options o = plain();
    char *file = tokenizer_file();
    uint8_t bin[1024 + 8] = {0};
    struct shard s;
    uint32_t ids[4];

    (void)state;
    put_u32(bin, 20240520);
    put_u32(bin + 4, 1);
    put_u32(bin + 8, 4);
    put_u16(bin + 1024, 257);
    put_u16(bin + 1026, 'x');
    put_u16(bin + 1028, 300);
    put_u16(bin + 1030, 256);
    tmpdir_put(&in_dir, "a.bin", bin, sizeof bin);
    o.tokenizer = file;
    packed("a.bin", &o);
    assert_int_equal(result.text_bytes, 3 + 1 + 7 + 2);
    assert_int_equal(
        shard_open(&s, tmpdir_file(&out_dir, "train-0000.ltk"), NULL), 0);
    assert_int_equal(s.info.text_bytes, 13);
    assert_int_equal(shard_read(&s, 0, 4, ids), 0);
    assert_int_equal(ids[0], 257);
    assert_int_equal(ids[3], 256);
    shard_close(&s);

    put_u16(bin + 1030, 301); /* past the end */
    tmpdir_put(&in_dir, "a.bin", bin, sizeof bin);
    assert_int_equal(pack("a.bin", &o), LOCO_EFORMAT);
    assert_non_null(strstr(result.errmsg, "token 301 at place 3"));
    put_u16(bin + 1030, 299); /* a hole in the vocabulary */
    tmpdir_put(&in_dir, "a.bin", bin, sizeof bin);
    assert_int_equal(pack("a.bin", &o), LOCO_EFORMAT);
    assert_non_null(strstr(result.errmsg, "token 299 at place 3"));

    o.format = PACK_U16;
    tmpdir_put(&in_dir, "a.bin", bin + 1024, 6);
    packed("a.bin", &o);
    assert_int_equal(result.train_tokens, 3);
    o.format = PACK_U32;
    assert_int_equal(pack("a.bin", &o), LOCO_EFORMAT);
    free(file);
}

static void text_and_tokens_do_not_mix(void **state)
{
    struct pack_options o = plain();
    uint8_t bin[1024 + 2] = {0};

    (void)state;
    put_u32(bin, 20240520);
    put_u32(bin + 4, 1);
    put_u32(bin + 8, 1);
    tmpdir_put(&in_dir, "a.bin", bin, sizeof bin);
    put("b.txt", "text\n");
    assert_int_equal(pack(NULL, &o), LOCO_EINVAL);
    assert_non_null(strstr(result.errmsg, "do not mix"));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(jsonl_gives_its_texts_and_separators),
        CASE(a_bad_line_is_named),
        CASE(a_directory_is_its_files_in_order),
        CASE(an_empty_directory_is_refused),
        CASE(text_becomes_the_tokenizers_ids),
        CASE(shards_of_tokens_are_cut_at_lines),
        CASE(ready_tokens_are_taken_and_checked),
        CASE(text_and_tokens_do_not_mix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
