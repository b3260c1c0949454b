/* shard_test.c - token files: every field is checked. */
#include "train/data/shard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "tests/unit/train/tmpdir.h"

#define N_TOKENS 10

static char errmsg[ERRMSG_SIZE];

static struct shard_info sample(uint32_t token_bytes, uint32_t vocab)
{
    struct shard_info info = {.tokens = N_TOKENS,
                              .text_bytes = 33,
                              .vocab = vocab,
                              .token_bytes = token_bytes,
                              .tokenizer = "byte",
                              .licence = "CC0-1.0",
                              .source = "a book"};
    return info;
}

/* A file of ids 10, 11, ... in `file`; returns its size. */
static size_t make(uint8_t *file, uint32_t token_bytes, uint32_t vocab)
{
    struct shard_info info = sample(token_bytes, vocab);
    uint8_t *p = file + SHARD_HEADER_BYTES;

    assert_int_equal(shard_header_encode(file, &info, errmsg), 0);
    for (uint32_t i = 0; i < N_TOKENS; i++, p += token_bytes) {
        uint8_t word[4];

        put_u32(word, 10 + i);
        memcpy(p, word, token_bytes);
    }
    return SHARD_HEADER_BYTES + (size_t)N_TOKENS * token_bytes;
}

static void tokens_of_each_width_are_read_back(void **state)
{
    static const uint32_t widths[] = {1, 2, 4};
    uint8_t file[SHARD_HEADER_BYTES + 4 * N_TOKENS];

    (void)state;
    for (size_t w = 0; w < 3; w++) {
        struct shard s;
        uint32_t out[N_TOKENS];
        size_t size = make(file, widths[w], 256);

        assert_int_equal(shard_open_memory(&s, file, size, errmsg), 0);
        assert_int_equal(s.info.tokens, N_TOKENS);
        assert_int_equal(s.info.text_bytes, 33);
        assert_string_equal(s.info.licence, "CC0-1.0");
        assert_string_equal(s.info.source, "a book");
        assert_string_equal(s.info.tokenizer, "byte");
        assert_int_equal(shard_read(&s, 0, N_TOKENS, out), 0);
        for (uint32_t i = 0; i < N_TOKENS; i++) {
            assert_int_equal(out[i], 10 + i);
        }
        assert_int_equal(shard_read(&s, 9, 1, out), 0);
        assert_int_equal(out[0], 19);
        shard_close(&s);
    }
}

static void a_read_past_the_end_is_refused(void **state)
{
    uint8_t file[SHARD_HEADER_BYTES + 4 * N_TOKENS];
    struct shard s;
    uint32_t out[N_TOKENS + 1];
    size_t size = make(file, 2, 256);

    (void)state;
    assert_int_equal(shard_open_memory(&s, file, size, errmsg), 0);
    assert_int_equal(shard_read(&s, 0, N_TOKENS + 1, out), LOCO_ERANGE);
    assert_int_equal(shard_read(&s, N_TOKENS, 1, out), LOCO_ERANGE);
    assert_int_equal(shard_read(&s, N_TOKENS, 0, out), 0);
    assert_int_equal(shard_read(&s, UINT64_MAX, 2, out), LOCO_ERANGE);
    assert_int_equal(shard_read(&s, 1, SIZE_MAX, out), LOCO_ERANGE);
    shard_close(&s);
}

static void an_id_outside_the_vocabulary_is_found_when_read(void **state)
{
    uint8_t file[SHARD_HEADER_BYTES + 4 * N_TOKENS];
    struct shard s;
    uint32_t out[N_TOKENS];
    size_t size = make(file, 4, 19); /* the last id is 19 */

    (void)state;
    assert_int_equal(shard_open_memory(&s, file, size, errmsg), 0);
    assert_int_equal(shard_read(&s, 0, N_TOKENS - 1, out), 0);
    assert_int_equal(shard_read(&s, 0, N_TOKENS, out), LOCO_EFORMAT);
    put_u32(file + SHARD_HEADER_BYTES, 0xffffffffU); /* no negative ids */
    assert_int_equal(shard_read(&s, 0, 1, out), LOCO_EFORMAT);
    shard_close(&s);
}

static void every_truncation_and_extension_is_refused(void **state)
{
    uint8_t file[SHARD_HEADER_BYTES + 4 * N_TOKENS];
    struct shard s;
    size_t size = make(file, 2, 256);

    (void)state;
    for (size_t n = 0; n < size; n++) {
        assert_int_equal(shard_open_memory(&s, file, n, errmsg), LOCO_EFORMAT);
    }
    assert_int_equal(shard_open_memory(&s, file, size + 1, errmsg),
                     LOCO_EFORMAT);
    assert_int_equal(shard_open_memory(&s, file, size, errmsg), 0);
}

static void every_wrong_field_is_refused_with_its_sentence(void **state)
{
    static const struct {
        size_t at;
        uint32_t value;
        const char *sentence;
    } cases[] = {
        {0, 0x20202020, "not an .ltk file"},
        {8, 2, "version"},
        {12, 1024, "version"},
        {16, 11, "number of tokens"},
        {20, 1, "number of tokens"},
        {20, 0xffffffffU, "tokens is impossible"},
        {32, 0, "vocabulary"},
        {32, 65537, "vocabulary"},
        {36, 3, "bytes per token"},
        {36, 0, "bytes per token"},
        {36, 1, "vocabulary does not fit"},
        {40, 0x0a0a0a0a, "tokenizer"},
        {40, 0, "tokenizer"},
        {100, 0x01010101, "tokenizer"},
        {104, 0x07070707, "licence"},
        {200, 0x7f7f7f7f, "source"},
        {708, 0x41414141, "source"},
        {712, 1, "reserved"},
        {4092, 1, "reserved"},
    };
    uint8_t file[SHARD_HEADER_BYTES + 4 * N_TOKENS];
    struct shard s;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = make(file, 2, 257);

        put_u32(file + cases[i].at, cases[i].value);
        assert_int_equal(shard_open_memory(&s, file, size, errmsg),
                         LOCO_EFORMAT);
        if (strstr(errmsg, cases[i].sentence) == NULL) {
            fail_msg("case %zu: %s", i, errmsg);
        }
    }
}

static void a_header_that_readers_refuse_is_not_written(void **state)
{
    uint8_t header[SHARD_HEADER_BYTES];
    struct shard_info info = sample(1, 257);

    (void)state;
    assert_int_equal(shard_header_encode(header, &info, errmsg), LOCO_EINVAL);
    info = sample(2, 257);
    memset(info.source, 'x', sizeof info.source); /* no NUL */
    assert_int_equal(shard_header_encode(header, &info, errmsg), LOCO_EINVAL);
}

static void a_file_on_disk_opens_and_its_name_is_in_the_errors(void **state)
{
    uint8_t file[SHARD_HEADER_BYTES + 4 * N_TOKENS];
    size_t size = make(file, 2, 256);
    struct tmpdir dir;
    struct shard s;
    uint32_t id;

    (void)state;
    tmpdir_make(&dir);
    tmpdir_put(&dir, "a.ltk", file, size);
    tmpdir_put(&dir, "b.ltk", file, size - 1);
    assert_int_equal(shard_open(&s, tmpdir_file(&dir, "a.ltk"), errmsg), 0);
    assert_int_equal(shard_read(&s, 3, 1, &id), 0);
    assert_int_equal(id, 13);
    shard_close(&s);
    shard_close(&s);
    assert_int_equal(shard_read(&s, 0, 1, &id), LOCO_ERANGE);
    assert_int_equal(shard_open(&s, tmpdir_file(&dir, "b.ltk"), errmsg),
                     LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "b.ltk: shard: its size"));
    shard_close(&s);
    assert_int_equal(shard_open(&s, tmpdir_file(&dir, "c.ltk"), errmsg),
                     LOCO_ENOENT);
    tmpdir_remove(&dir);
}

static void text_is_a_shard_of_its_bytes(void **state)
{
    struct shard s;
    uint32_t out[3];

    (void)state;
    shard_from_text(&s, "a\xff\n", 3);
    assert_int_equal(s.info.tokens, 3);
    assert_int_equal(s.info.vocab, 256);
    assert_int_equal(shard_read(&s, 0, 3, out), 0);
    assert_int_equal(out[0], 'a');
    assert_int_equal(out[1], 255);
    assert_int_equal(out[2], '\n');
    shard_close(&s);
}

static int open_as(const uint8_t *file, size_t size, enum shard_format format)
{
    struct shard s;
    int rv = shard_open_memory_as(&s, file, size, format, 300, errmsg);

    if (rv != 0) {
        assert_int_equal(s.info.tokens, 0);
    }
    shard_close(&s);
    return rv;
}

static void other_peoples_token_files_are_read_or_refused(void **state)
{
    static uint8_t file[1024 + 8];
    uint32_t ids[4];
    struct shard s;

    (void)state;
    put_u32(file, 20240801);
    put_u32(file + 4, 7);
    put_u32(file + 8, 2);
    put_u32(file + 1024, 299);
    put_u32(file + 1028, 300);
    assert_int_equal(
        shard_open_memory_as(&s, file, sizeof file, SHARD_LLMC, 300, errmsg),
        0);
    assert_int_equal(s.info.tokens, 2);
    assert_int_equal(shard_read(&s, 0, 1, ids), 0);
    assert_int_equal(ids[0], 299);
    assert_int_equal(shard_read(&s, 1, 1, ids), LOCO_EFORMAT);
    for (size_t n = 0; n < sizeof file; n++) {
        assert_int_equal(open_as(file, n, SHARD_LLMC), LOCO_EFORMAT);
    }
    put_u32(file + 4, 8);
    assert_int_equal(open_as(file, sizeof file, SHARD_LLMC), LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "version"));
    put_u32(file, 20240520); /* two bytes a token: four of them fit */
    put_u32(file + 4, 1);
    put_u32(file + 8, 4);
    assert_int_equal(open_as(file, sizeof file, SHARD_LLMC), 0);
    put_u32(file + 8, 0x80000004);
    assert_int_equal(open_as(file, sizeof file, SHARD_LLMC), LOCO_EFORMAT);
    assert_int_equal(open_as(file, 7, SHARD_U16), LOCO_EFORMAT);
    assert_int_equal(open_as(file, 8, SHARD_U32), 0);
    assert_int_equal(shard_open_memory_as(&s, file, 8, SHARD_U32, 0, errmsg),
                     LOCO_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_each_width_are_read_back),
        cmocka_unit_test(a_read_past_the_end_is_refused),
        cmocka_unit_test(an_id_outside_the_vocabulary_is_found_when_read),
        cmocka_unit_test(every_truncation_and_extension_is_refused),
        cmocka_unit_test(every_wrong_field_is_refused_with_its_sentence),
        cmocka_unit_test(a_header_that_readers_refuse_is_not_written),
        cmocka_unit_test(other_peoples_token_files_are_read_or_refused),
        cmocka_unit_test(a_file_on_disk_opens_and_its_name_is_in_the_errors),
        cmocka_unit_test(text_is_a_shard_of_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
