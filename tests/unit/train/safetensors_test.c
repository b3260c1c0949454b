/* safetensors_test.c - the format's rules, one by one. */
#include "train/model/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "tests/unit/train/tmpdir.h"

static struct tmpdir dir;
static char errmsg[ERRMSG_SIZE];
static uint8_t file_buf[4096];

static int setup(void **state)
{
    (void)state;
    tmpdir_make(&dir);
    errmsg[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tmpdir_remove(&dir);
    return 0;
}

/* A file of a header text and n_data bytes 0, 1, 2, ...; opens it. */
static int open_text(struct safetensors *st, const char *json, size_t n_data)
{
    size_t len = strlen(json);

    assert_true(8 + len + n_data <= sizeof file_buf);
    put_u64(file_buf, len);
    memcpy(file_buf + 8, json, len);
    for (size_t i = 0; i < n_data; i++) {
        file_buf[8 + len + i] = (uint8_t)i;
    }
    return safetensors_open_memory(st, file_buf, 8 + len + n_data, errmsg);
}

static const float a_data[6] = {1, 2, 3, 4, 5, 6};
static const uint16_t b_data[2] = {0x3c00, 0x4000};
static const int64_t c_data[1] = {-7};

static int write_sample(const char *name, unsigned rotation)
{
    struct st_tensor t[4] = {
        {"w.b", ST_F32, 2, {2, 3}, a_data, sizeof a_data, 0},
        {"w.a", ST_F32, 1, {1}, a_data, 4, 0},
        {"half", ST_F16, 1, {2}, b_data, sizeof b_data, 0},
        {"step", ST_I64, 0, {0}, c_data, sizeof c_data, 0},
    };
    struct st_tensor rotated[4];
    const struct st_meta meta[2] = {{"round", "12"}, {"run", "\"x\"\n"}};

    for (unsigned i = 0; i < 4; i++) {
        rotated[i] = t[(i + rotation) % 4];
    }
    return safetensors_write(tmpdir_file(&dir, name), rotated, 4, meta, 2,
                             errmsg);
}

static void what_was_written_is_read_back(void **state)
{
    struct safetensors st;
    const struct st_tensor *t;
    struct st_meta pair;

    (void)state;
    assert_int_equal(write_sample("a", 0), 0);
    assert_int_equal(safetensors_open(&st, tmpdir_file(&dir, "a"), errmsg), 0);
    assert_int_equal(st.n_tensors, 4);
    t = safetensors_find(&st, "w.b");
    assert_int_equal(t->dtype, ST_F32);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->bytes, sizeof a_data);
    assert_memory_equal(t->data, a_data, sizeof a_data);
    t = safetensors_find(&st, "step");
    assert_int_equal(t->n_dims, 0);
    assert_memory_equal(t->data, c_data, sizeof c_data);
    assert_null(safetensors_find(&st, "w"));
    assert_string_equal(safetensors_meta(&st, "format"), "pt");
    assert_string_equal(safetensors_meta(&st, "run"), "\"x\"\n");
    assert_null(safetensors_meta(&st, "rounds"));
    assert_int_equal(safetensors_meta_at(&st, 1, &pair), 1);
    assert_string_equal(pair.key, "round");
    assert_string_equal(pair.value, "12");
    assert_int_equal(safetensors_meta_at(&st, 3, &pair), 0);
    safetensors_close(&st);
    safetensors_close(&st);
}

static void
data_is_ordered_by_alignment_then_name_and_starts_at_64(void **state)
{
    static const char *const order[] = {"step", "w.a", "w.b", "half"};
    struct safetensors st;

    (void)state;
    assert_int_equal(write_sample("a", 0), 0);
    assert_int_equal(safetensors_open(&st, tmpdir_file(&dir, "a"), errmsg), 0);
    for (unsigned i = 0; i < 4; i++) {
        assert_string_equal(st.tensors[i].name, order[i]);
    }
    assert_int_equal(((const uint8_t *)st.tensors[0].data - st.map.data) % 64,
                     0);
    safetensors_close(&st);
}

static void the_bytes_do_not_depend_on_the_order_of_the_arguments(void **state)
{
    size_t len[2];
    char *bytes[2];

    (void)state;
    assert_int_equal(write_sample("a", 0), 0);
    bytes[0] = tmpdir_get(&dir, "a", &len[0]);
    for (unsigned r = 1; r < 4; r++) {
        assert_int_equal(write_sample("b", r), 0);
        bytes[1] = tmpdir_get(&dir, "b", &len[1]);
        assert_int_equal(len[0], len[1]);
        assert_memory_equal(bytes[0], bytes[1], len[0]);
        free(bytes[1]);
    }
    free(bytes[0]);
}

static void a_file_of_the_official_writer_opens(void **state)
{
    /* As safetensors 0.4 writes {"a": int64 [2], "b": float32 scalar}: the
     * header is filled with spaces to a multiple of 8. */
    struct safetensors st;

    (void)state;
    assert_int_equal(
        open_text(&st,
                  "{\"a\":{\"dtype\":\"I64\",\"shape\":[2],"
                  "\"data_offsets\":[0,16]},\"b\":{\"dtype\":\"F32\","
                  "\"shape\":[],\"data_offsets\":[16,20]}}   ",
                  20),
        0);
    assert_int_equal(st.n_tensors, 2);
    assert_int_equal(safetensors_find(&st, "b")->bytes, 4);
    assert_int_equal(((const uint8_t *)safetensors_find(&st, "b")->data)[0],
                     16);
    assert_null(safetensors_meta(&st, "format"));
    safetensors_close(&st);
}

static void empty_files_and_empty_tensors_are_legal(void **state)
{
    struct safetensors st;

    (void)state;
    assert_int_equal(open_text(&st, "{}", 0), 0);
    assert_int_equal(st.n_tensors, 0);
    safetensors_close(&st);
    assert_int_equal(
        open_text(&st,
                  "{\"e\":{\"dtype\":\"F32\",\"shape\":[0,5],"
                  "\"data_offsets\":[0,0]},\"f\":{\"dtype\":\"U8\","
                  "\"shape\":[3],\"data_offsets\":[0,3]}}",
                  3),
        0);
    safetensors_close(&st);
    assert_int_equal(open_text(&st,
                               "{\"f\":{\"dtype\":\"F4\",\"shape\":[6],"
                               "\"data_offsets\":[0,3]}}",
                               3),
                     0);
    safetensors_close(&st);
}

#define T_U8(name, shape, offsets)                                             \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":" shape                          \
    ",\"data_offsets\":" offsets "}"

static void every_breach_of_the_format_is_refused(void **state)
{
    static const struct {
        const char *json;
        size_t n_data;
    } cases[] = {
        {"", 4},                                  /* no header */
        {"[]", 0},                                /* not an object */
        {" {}", 0},                               /* '{' not first */
        {"{", 0},                                 /* not JSON */
        {"{} x", 0},                              /* text behind it */
        {"{}", 1},                                /* trailing bytes */
        {"{" T_U8("a", "[4]", "[0,4]") "}", 3},   /* beyond the end */
        {"{" T_U8("a", "[4]", "[0,4]") "}", 5},   /* trailing byte */
        {"{" T_U8("a", "[4]", "[1,5]") "}", 5},   /* first not 0 */
        {"{" T_U8("a", "[3]", "[0,4]") "}", 4},   /* size */
        {"{" T_U8("a", "[4]", "[4,0]") "}", 4},   /* reversed */
        {"{" T_U8("a", "[-4]", "[0,4]") "}", 4},  /* negative */
        {"{" T_U8("a", "[4.0]", "[0,4]") "}", 4}, /* not an integer */
        {"{" T_U8("a", "4", "[0,4]") "}", 4},     /* not a list */
        {"{" T_U8("a", "[4]", "[0,4,4]") "}", 4}, /* three offsets */
        {"{" T_U8("a", "[4]", "[0]") "}", 4},     /* one offset */
        {"{" T_U8("a", "[4]", "[-1,4]") "}", 4},  /* negative */
        {"{" T_U8("a", "[1,1,1,1,1,1,1,1,4]", "[0,4]") "}", 4}, /* 9 dims */
        /* 2^32 * 2^32 is 0 without an overflow check. */
        {"{" T_U8("a", "[4294967296,4294967296]", "[0,0]") "}", 0},
        {"{" T_U8("a", "[2]", "[0,2]") "," T_U8("b", "[1]", "[3,4]") "}", 4},
        {"{" T_U8("a", "[3]", "[0,3]") "," T_U8("b", "[2]", "[2,4]") "}", 4},
        {"{" T_U8("a", "[4]", "[0,4]") "," T_U8("a", "[4]", "[0,4]") "}", 4},
        {"{" T_U8("a", "[4]", "[0,4]") "," T_U8("b", "[4]", "[0,4]") "}", 4},
        {"{\"a\":{\"dtype\":\"F3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[5],\"data_offsets\":[0,2]}}", 2},
        {"{\"a\":7}", 0},
        {"{\"__metadata__\":{\"x\":1}}", 0},
        {"{\"__metadata__\":\"x\"}", 0},
        {"{\"a\\u0000b\":"
         "{\"dtype\":\"U8\",\"shape\":[0],"
         "\"data_offsets\":[0,0]}}",
         0},
        {"{\"\xff\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct safetensors st;
        int rv = open_text(&st, cases[i].json, cases[i].n_data);

        if (rv != LOCO_EFORMAT) {
            fail_msg("case %zu: %s gave %d", i, cases[i].json, rv);
        }
        assert_int_equal(strncmp(errmsg, "safetensors: ", 13), 0);
        safetensors_close(&st);
    }
}

static void a_header_size_beyond_the_file_or_the_limit_is_refused(void **state)
{
    static const uint64_t sizes[] = {3,          100000000,      100000001,
                                     UINT64_MAX, UINT64_MAX - 7, 1ULL << 63};
    struct safetensors st;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memcpy(file_buf + 8, "{}", 2);
        put_u64(file_buf, sizes[i]);
        assert_int_equal(safetensors_open_memory(&st, file_buf, 10, errmsg),
                         LOCO_EFORMAT);
    }
    for (size_t n = 0; n < 8; n++) {
        assert_int_equal(safetensors_open_memory(&st, file_buf, n, errmsg),
                         LOCO_EFORMAT);
    }
}

static void deep_nesting_is_refused(void **state)
{
    size_t len = 500000;
    uint8_t *file = malloc(8 + len);
    struct safetensors st;

    (void)state;
    assert_non_null(file);
    put_u64(file, len);
    memset(file + 8, '[', len);
    memcpy(file + 8, "{\"a\":", 5);
    assert_int_equal(safetensors_open_memory(&st, file, 8 + len, errmsg),
                     LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "depth"));
    free(file);
}

static void a_header_of_100_mb_is_refused_unread(void **state)
{
    size_t len = 100000000;
    uint8_t *file = calloc(1, 8 + len); /* its pages are never touched */
    struct safetensors st;

    (void)state;
    assert_non_null(file);
    put_u64(file, len);
    file[8] = '{';
    assert_int_equal(safetensors_open_memory(&st, file, 8 + len, errmsg),
                     LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "too large: 100000000 bytes"));
    free(file);
}

/* Byte k of tensor "b" is k * 7, of "a" k * 3. */
static int fill_pattern(void *data,
                        const struct st_tensor *t,
                        uint64_t offset,
                        void *out,
                        size_t bytes,
                        char *problem)
{
    uint64_t *next = data;
    uint8_t *p = out;

    (void)problem;
    assert_int_equal(offset % SAFETENSORS_CHUNK, 0);
    assert_true(bytes <= SAFETENSORS_CHUNK);
    assert_true(offset == 0 || offset == *next);
    *next = offset + bytes;
    for (size_t k = 0; k < bytes; k++) {
        p[k] = (uint8_t)((offset + k) * *(const unsigned *)t->data);
    }
    return 0;
}

static void a_streamed_file_is_the_one_from_memory(void **state)
{
    static uint8_t a[SAFETENSORS_CHUNK + 12], b[8];
    unsigned three = 3, seven = 7;
    uint64_t next = 0;
    struct st_tensor tensors[] = {
        {"b", ST_U8, 1, {sizeof b}, b, sizeof b, 0},
        {"a", ST_F32, 1, {sizeof a / 4}, a, sizeof a, 0},
    };
    char *one, *two;
    size_t n, m;

    (void)state;
    for (size_t k = 0; k < sizeof a; k++) {
        a[k] = (uint8_t)(k * three);
    }
    for (size_t k = 0; k < sizeof b; k++) {
        b[k] = (uint8_t)(k * seven);
    }
    assert_int_equal(
        safetensors_write(tmpdir_file(&dir, "1"), tensors, 2, NULL, 0, NULL),
        0);
    tensors[0].data = &seven;
    tensors[1].data = &three;
    assert_int_equal(safetensors_stream(tmpdir_file(&dir, "2"), tensors, 2,
                                        NULL, 0, fill_pattern, &next, NULL),
                     0);
    one = tmpdir_get(&dir, "1", &n);
    two = tmpdir_get(&dir, "2", &m);
    assert_int_equal(n, m);
    assert_memory_equal(one, two, n);
    free(one);
    free(two);
}

static void every_truncation_of_a_file_is_refused(void **state)
{
    size_t len;
    char *bytes;
    struct safetensors st;

    (void)state;
    assert_int_equal(write_sample("a", 0), 0);
    bytes = tmpdir_get(&dir, "a", &len);
    for (size_t n = 0; n < len; n++) {
        assert_int_equal(
            safetensors_open_memory(&st, (uint8_t *)bytes, n, errmsg),
            LOCO_EFORMAT);
    }
    free(bytes);
    tmpdir_put(&dir, "empty", "", 0);
    assert_int_equal(safetensors_open(&st, tmpdir_file(&dir, "empty"), errmsg),
                     LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "/empty: safetensors: "));
}

static void wrong_arguments_write_nothing(void **state)
{
    const struct st_tensor good = {"a", ST_F32, 1, {6}, a_data, 24, 0};
    struct st_tensor t[2] = {good, good};
    const struct st_meta twice[2] = {{"k", "1"}, {"k", "2"}};
    const char *path = tmpdir_file(&dir, "a");

    (void)state;
    assert_int_equal(safetensors_write(path, t, 2, NULL, 0, errmsg),
                     LOCO_EINVAL); /* the same name */
    t[0].bytes = 20;
    assert_int_equal(safetensors_write(path, t, 1, NULL, 0, errmsg),
                     LOCO_EINVAL);
    t[0] = good;
    t[0].name = "__metadata__";
    assert_int_equal(safetensors_write(path, t, 1, NULL, 0, errmsg),
                     LOCO_EINVAL);
    t[0].name = "\xc3(";
    assert_int_equal(safetensors_write(path, t, 1, NULL, 0, errmsg),
                     LOCO_EINVAL);
    t[0] = good;
    assert_int_equal(safetensors_write(path, t, 1, twice, 2, errmsg),
                     LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "twice"));
    assert_int_equal(tmpdir_count(&dir), 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_was_written_is_read_back),
        CASE(data_is_ordered_by_alignment_then_name_and_starts_at_64),
        CASE(the_bytes_do_not_depend_on_the_order_of_the_arguments),
        CASE(a_file_of_the_official_writer_opens),
        CASE(empty_files_and_empty_tensors_are_legal),
        CASE(every_breach_of_the_format_is_refused),
        CASE(a_header_size_beyond_the_file_or_the_limit_is_refused),
        CASE(deep_nesting_is_refused),
        CASE(a_header_of_100_mb_is_refused_unread),
        CASE(a_streamed_file_is_the_one_from_memory),
        CASE(every_truncation_of_a_file_is_refused),
        CASE(wrong_arguments_write_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
