/* Named tensors that make one flat vector: layout files, files, Llamas. */
#include "train/model/tensor_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "tests/unit/train/tmpdir.h"

#define N_OF(a) (sizeof(a) / sizeof(a)[0])

static char errmsg[ERRMSG_SIZE];

static int parse(struct tensor_list *l, const char *text)
{
    errmsg[0] = '\0';
    return tensor_list_parse(l, (const uint8_t *)text, strlen(text), errmsg);
}

static void a_layout_is_read_in_the_order_of_its_offsets(void **state)
{
    struct tensor_list l;

    (void)state;
    assert_int_equal(
        parse(&l, "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                  "\"data_offsets\":[4,28]},\"__metadata__\":{\"k\":\"v\"},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[],"
                  "\"data_offsets\":[0,4]}}"),
        0);
    assert_int_equal(l.n, 2);
    assert_int_equal(l.numel, 7);
    assert_string_equal(l.at[0].name, "a");
    assert_int_equal(l.at[0].n_dims, 0);
    assert_int_equal(l.at[0].numel, 1);
    assert_string_equal(l.at[1].name, "b");
    assert_int_equal(l.at[1].offset, 1);
    assert_int_equal(l.at[1].numel, 6);
    assert_int_equal(l.at[1].shape[1], 3);
    tensor_list_free(&l);
}

#define F32(name, shape, begin, end)                                           \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape                         \
    ",\"data_offsets\":[" #begin "," #end "]}"

static void what_a_list_cannot_have_is_refused_by_sentence(void **state)
{
    static const struct {
        const char *text, *sentence;
    } rows[] = {
        {"", "not JSON"},
        {"[]", "not JSON"},
        {"{\"a\":", "not JSON"},
        {"{}", "there are 0 tensors"},
        {"{\"__metadata__\":{}}", "there are 0 tensors"},
        {"{" F32("a", "[0]", 0, 0) "}", "tensor a is empty"},
        {"{" F32("a", "[2]", 0, 4) "}", "does not match"},
        {"{" F32("a", "[-1]", 0, 4) "}", "bad shape"},
        {"{" F32("a", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", "bad shape"},
        {"{" F32("a", "[1]", 4, 8) "}", "holes"},
        {"{" F32("a", "[2]", 0, 8) "," F32("b", "[1]", 4, 8) "}", "holes"},
        {"{" F32("a", "[1]", 0, 4) "," F32("a", "[1]", 4, 8) "}", "not JSON"},
        {"{" F32("", "[1]", 0, 4) "}", "printable"},
        {"{" F32("a\\u001b[2J", "[1]", 0, 4) "}", "printable"},
        {"{" F32("\xc3\xa4", "[1]", 0, 4) "}", "printable"},
        {"{\"a\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[0,2]}}",
         "tensor a is BF16, and F32 is needed"},
        {"{" F32("a", "[1000000000001]", 0, 4000000000004) "}", "more than"},
        {"{" F32("a", "[1000000000000]", 0, 4000000000000) "," F32(
             "b", "[1]", 4000000000000, 4000000000004) "}",
         "up to tensor b"},
        {"{" F32("a", "[4294967296,4294967296]", 0, 4) "}", "does not match"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        struct tensor_list l;

        assert_int_not_equal(parse(&l, rows[i].text), 0);
        if (strstr(errmsg, rows[i].sentence) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", rows[i].sentence, errmsg);
        }
        tensor_list_free(&l);
    }
}

static void names_are_bounded(void **state)
{
    char name[TENSOR_NAME_MAX + 1], text[TENSOR_NAME_MAX + 128];
    struct tensor_list l;

    (void)state;
    for (size_t n = TENSOR_NAME_MAX - 1; n <= TENSOR_NAME_MAX; n++) {
        memset(name, 'x', n);
        name[n] = '\0';
        (void)snprintf(text, sizeof text,
                       "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],"
                       "\"data_offsets\":[0,4]}}",
                       name);
        assert_int_equal(parse(&l, text) == 0, n < TENSOR_NAME_MAX);
        tensor_list_free(&l);
    }
}

static void a_tensor_that_is_there_twice_is_named(void **state)
{
    const struct st_tensor t[3] = {
        {.name = "a", .dtype = ST_F32, .n_dims = 1, .shape = {2}},
        {.name = "b", .dtype = ST_BF16, .n_dims = 1, .shape = {2}},
        {.name = "a", .dtype = ST_F32, .n_dims = 0},
    };
    struct tensor_list l;

    (void)state;
    assert_int_equal(tensor_list_of_tensors(&l, t, 2, errmsg), 0);
    assert_int_equal(l.numel, 4);
    tensor_list_free(&l);
    assert_int_equal(tensor_list_of_tensors(&l, t, 3, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "tensor a is there twice"));
    tensor_list_free(&l);
    assert_int_equal(tensor_list_of_tensors(&l, t, TENSOR_LIST_MAX + 1, errmsg),
                     LOCO_EINVAL);
    tensor_list_free(&l);
}

static void a_llama_has_the_tensors_of_theta(void **state)
{
    static const struct llama_config c = {8,  2,  4,     2,    6,
                                          10, 16, false, 1e4f, 1e-5f};
    struct tensor_list l, back;
    char *text;

    (void)state;
    assert_int_equal(tensor_list_of_llama(&l, &c), 0);
    assert_int_equal(l.n, llama_tensor_count(&c));
    assert_int_equal(l.numel, llama_numel(&c));
    for (size_t i = 0; i < l.n; i++) {
        struct llama_view v;

        llama_tensor(&c, (int)i, &v);
        assert_string_equal(l.at[i].name, v.name);
        assert_int_equal(l.at[i].offset, v.offset);
        assert_int_equal(l.at[i].numel, v.numel);
    }
    text = tensor_list_text(&l);
    assert_non_null(text);
    assert_int_equal(parse(&back, text), 0);
    assert_int_equal(
        tensor_list_same(&l, "the model", &back, "the layout", errmsg), 0);
    free(text);
    tensor_list_free(&l);
    tensor_list_free(&back);
}

static void the_first_difference_is_named(void **state)
{
    static const char a[] =
        "{" F32("a", "[]", 0, 4) "," F32("b", "[2,3]", 4, 28) "}";
    static const struct {
        const char *text, *sentence;
    } rows[] = {
        {"{" F32("a", "[]", 0, 4) "}", "tensor b is in ours only"},
        {"{" F32("a", "[1]", 0, 4) "," F32("b", "[2,3]", 4, 28) "}",
         "tensor a is a scalar in ours and 1 in theirs"},
        {"{" F32("a", "[]", 0, 4) "," F32("b", "[3,2]", 4, 28) "}",
         "tensor b is 2 x 3 in ours and 3 x 2 in theirs"},
        {"{" F32("a", "[]", 0, 4) "," F32("c", "[2,3]", 4, 28) "}",
         "tensor 1 is b in ours and c in theirs"},
        {"{" F32("a", "[]", 0, 4) "," F32("b", "[2,3]", 4,
                                          28) "," F32("z", "[1]", 28, 32) "}",
         "tensor z is in theirs only"},
    };
    struct tensor_list ours, theirs;

    (void)state;
    assert_int_equal(parse(&ours, a), 0);
    for (size_t i = 0; i < N_OF(rows); i++) {
        assert_int_equal(parse(&theirs, rows[i].text), 0);
        assert_int_equal(
            tensor_list_same(&ours, "ours", &theirs, "theirs", errmsg),
            LOCO_EINVAL);
        assert_string_equal(errmsg, rows[i].sentence);
        tensor_list_free(&theirs);
    }
    tensor_list_free(&ours);
}

/* A file that is written as given has the list's theta as its data. */
static void a_file_keeps_the_order_that_it_was_written_in(void **state)
{
    static const float z[2] = {1, 2}, y[1] = {3};
    const struct st_tensor t[2] = {
        {.name = "z",
         .dtype = ST_F32,
         .n_dims = 1,
         .shape = {2},
         .data = z,
         .bytes = sizeof z},
        {.name = "y", .dtype = ST_F32, .data = y, .bytes = sizeof y},
    };
    struct safetensors st;
    struct tensor_list l;
    struct tmpdir dir;
    const char *path;

    (void)state;
    tmpdir_make(&dir);
    path = tmpdir_file(&dir, "f");
    assert_int_equal(
        safetensors_stream_as_given(path, t, 2, NULL, 0, NULL, NULL, errmsg),
        0);
    assert_int_equal(safetensors_open(&st, path, errmsg), 0);
    assert_int_equal(tensor_list_of_file(&l, &st, errmsg), 0);
    assert_string_equal(l.at[0].name, "z");
    assert_string_equal(l.at[1].name, "y");
    assert_int_equal(l.at[1].offset, 2);
    assert_memory_equal(st.tensors[0].data, z, sizeof z);
    assert_memory_equal(st.tensors[1].data, y, sizeof y);
    tensor_list_free(&l);
    safetensors_close(&st);
    tmpdir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layout_is_read_in_the_order_of_its_offsets),
        cmocka_unit_test(what_a_list_cannot_have_is_refused_by_sentence),
        cmocka_unit_test(names_are_bounded),
        cmocka_unit_test(a_tensor_that_is_there_twice_is_named),
        cmocka_unit_test(a_llama_has_the_tensors_of_theta),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(a_file_keeps_the_order_that_it_was_written_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
