/* Ids that PyPI `tokenizers` made of a text in many scripts, with vocabularies
 * that it trained: golden_tokenizer/, written by
 * tests/interop/tokenizer_tests.py FOLDER. */
#include "train/data/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/base/errmsg.h"
#include "proto/base/file.h"

static void path_of(char out[512], const char *name, const char *end)
{
    (void)snprintf(out, 512, "%s/%s%s", LOCO_GOLDEN, name, end);
}

static void compare(const char *name)
{
    char path[512], errmsg[ERRMSG_SIZE] = "";
    struct file_map text, want;
    struct tokenizer *t;
    const char *p;
    uint32_t *ids;
    size_t n;

    path_of(path, name, ".json");
    if (tokenizer_open(&t, path, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
    path_of(path, "text", "");
    assert_int_equal(file_map_open(&text, path, errmsg), 0);
    path_of(path, name, ".ids");
    assert_int_equal(file_map_open(&want, path, errmsg), 0);
    assert_int_equal(
        tokenizer_encode_all(t, text.data, text.size, &ids, &n, errmsg), 0);
    p = (const char *)want.data;
    for (size_t i = 0; i < n; i++) {
        char *end;

        assert_true((size_t)(p - (const char *)want.data) < want.size);
        assert_int_equal(ids[i], strtoul(p, &end, 10));
        p = end + 1;
    }
    assert_int_equal((size_t)(p - (const char *)want.data), want.size);
    free(ids);
    file_map_close(&text);
    file_map_close(&want);
    tokenizer_close(t);
}

static void gpt2_ids_are_those_of_the_other_library(void **state)
{
    (void)state;
    compare("gpt2");
}

static void llama3_ids_are_those_of_the_other_library(void **state)
{
    (void)state;
    compare("llama3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_ids_are_those_of_the_other_library),
        cmocka_unit_test(llama3_ids_are_those_of_the_other_library),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
