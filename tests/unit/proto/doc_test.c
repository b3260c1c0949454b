/* doc_test.c - keyed documents: bytes, paths, ranges, suggestions. */
#include "tests/unit/proto/suite.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/doc.h"

struct part {
    char name[8];
    uint32_t n_tags;
    char tags[2][8];
};

struct whole {
    uint8_t key[4];
    double lr;
    uint32_t n_parts;
    struct part parts[3];
    uint64_t seed;
    struct part self;
    uint32_t small;
    bool tied;
    char word[8];
};

static const char *const words[] = {"red", "green", NULL};

/* clang-format off */
static const struct doc_field part_fields[] = {
    DOC_FIELD_STR(struct part, name, NULL, ""),
    DOC_LIST_STR(struct part, tags, n_tags, ""),
};
static const struct doc_schema part_schema =
    DOC_SCHEMA(struct part, part_fields);
static const struct doc_field whole_fields[] = {
    DOC_FIELD_HEX(struct whole, key, ""),
    DOC_FIELD_F64(struct whole, lr, 0, 1, ""),
    DOC_LIST_MAP(struct whole, parts, n_parts, part_schema, ""),
    DOC_FIELD_U64(struct whole, seed, 0, 0, ""),
    DOC_FIELD_MAP(struct whole, self, part_schema, ""),
    DOC_FIELD_U32(struct whole, small, 2, 9, ""),
    DOC_FIELD_BOOL(struct whole, tied, ""),
    DOC_FIELD_STR(struct whole, word, words, ""),
};
static const struct doc_schema schema = DOC_SCHEMA(struct whole, whole_fields);
/* clang-format on */

static char errmsg[LOCO_ERRMSG_MAX];

/* Set what must be settable. */
static void set(struct whole *w, const char *path, const char *text)
{
    if (doc_set(&schema, w, path, text, errmsg) != 0) {
        fail_msg("%s", errmsg);
    }
}

static void refuse(const char *path, const char *text, const char *reason)
{
    struct whole w = {.n_parts = 1};

    errmsg[0] = '\0';
    assert_int_equal(doc_set(&schema, &w, path, text, errmsg), LOCO_EINVAL);
    if (strstr(errmsg, reason) == NULL) {
        fail_msg("%s = %s: %s", path, text, errmsg);
    }
}

static void make(struct whole *w)
{
    memset(w, 0, sizeof *w);
    set(w, "key", "00ff1234");
    set(w, "lr", "4e-4");
    set(w, "seed", "18446744073709551615");
    set(w, "small", "9");
    set(w, "tied", "true");
    set(w, "word", "green");
    set(w, "self.name", "it");
    set(w, "parts[0].name", "one");
    set(w, "parts[1].tags[0]", "x");
    set(w, "parts[1].tags[1]", "y");
}

static void every_path_that_is_set_is_read_back(void **state)
{
    static const struct {
        const char *path, *text;
    } rows[] = {
        {"key", "00ff1234"},
        {"lr", "0.0004"},
        {"seed", "18446744073709551615"},
        {"small", "9"},
        {"tied", "true"},
        {"word", "green"},
        {"self.name", "it"},
        {"parts[0].name", "one"},
        {"parts[1].name", ""},
        {"parts[1].tags[1]", "y"},
    };
    char text[DOC_TEXT_MAX];
    struct whole w;

    (void)state;
    make(&w);
    assert_int_equal(w.n_parts, 2);
    assert_int_equal(w.parts[1].n_tags, 2);
    for (size_t i = 0; i < N_OF(rows); i++) {
        assert_int_equal(doc_get(&schema, &w, rows[i].path, text, errmsg), 0);
        assert_string_equal(text, rows[i].text);
    }
    assert_int_equal(doc_get(&schema, &w, "parts[2].name", text, errmsg),
                     LOCO_EINVAL);
    assert_int_equal(doc_get(&schema, &w, "self", text, errmsg), LOCO_EINVAL);
    assert_int_equal(doc_get(&schema, &w, "parts", text, errmsg), LOCO_EINVAL);
    set(&w, "word", "red"); /* the rest of the longer word is gone */
    assert_memory_equal(w.word, "red\0\0\0\0", 8);
}

static void wrong_values_are_refused_with_path_and_reason(void **state)
{
    (void)state;
    refuse("key", "00ff12", "key: is not 8 lowercase hex digits");
    refuse("lr", "1.5", "lr: 1.5 is outside 0 to 1");
    refuse("lr", "-0.1", "outside");
    refuse("lr", "nan", "not a number");
    refuse("lr", "inf", "not a number");
    refuse("lr", "0x1p-3", "not a number");
    refuse("lr", "1e", "not a number");
    refuse("lr", "", "not a number");
    refuse("seed", "18446744073709551616", "too large");
    refuse("seed", "-1", "not a whole number");
    refuse("seed", "1.0", "not a whole number");
    refuse("seed", " 1", "not a whole number");
    refuse("small", "4294967296", "too large");
    refuse("small", "1", "small: 1 is outside 2 to 9");
    refuse("tied", "yes", "neither true nor false");
    refuse("word", "blue", "word: 'blue' is none of red, green");
    refuse("self.name", "12345678", "longer than 7 bytes");
    refuse("self.name", "\xff", "UTF-8");
}

static void wrong_paths_are_refused_and_the_nearest_key_named(void **state)
{
    (void)state;
    refuse("smal", "3", "unknown key 'smal'; the nearest known key is 'sm");
    refuse("self.nam", "3", "nearest known key is 'name'");
    refuse("sed", "3", "nearest known key is 'seed'");
    refuse("xyzzy", "3", "unknown key 'xyzzy'; the keys here are ");
    refuse("self.xyzzy", "3", "the keys here are name");
    refuse("", "3", "is not a path");
    refuse("self.", "3", "is not a path");
    refuse(".self", "3", "is not a path");
    refuse("parts[0]name", "3", "is not a path");
    refuse("parts[-1].name", "3", "is not a path");
    refuse("parts[0", "3", "is not a path");
    refuse("parts[99999999999].name", "3", "is not a path");
    refuse("parts[2].name", "3", "no such element"); /* leaves a hole */
    refuse("parts", "3", "is a list");
    refuse("seed[0]", "3", "is not a list");
    refuse("self", "3", "several keys");
    refuse("seed.x", "3", "has no keys");
}

static void bytes_are_read_back_and_only_one_form_is_accepted(void **state)
{
    static uint8_t buf[1024], again[1024];
    struct whole w, back;
    unsigned n_other = 0;
    int n;

    (void)state;
    make(&w);
    n = doc_encode(&schema, &w, buf, sizeof buf);
    assert_true(n > 0 && (size_t)n <= doc_bytes_max(&schema));
    assert_int_equal(doc_decode(&schema, buf, (size_t)n, &back), 0);
    assert_memory_equal(&w, &back, sizeof w);
    for (int len = 0; len < n; len++) {
        assert_int_equal(doc_decode(&schema, buf, (size_t)len, &back),
                         LOCO_EPROTO);
        assert_int_equal(doc_encode(&schema, &w, again, (size_t)len),
                         LOCO_ERANGE);
    }
    for (int i = 0; i < n * 8; i++) {
        buf[i / 8] ^= (uint8_t)(1U << i % 8);
        if (doc_decode(&schema, buf, (size_t)n, &back) == 0) {
            assert_int_equal(doc_encode(&schema, &back, again, sizeof again),
                             n);
            assert_memory_equal(again, buf, (size_t)n);
            n_other++;
        }
        buf[i / 8] ^= (uint8_t)(1U << i % 8);
    }
    assert_true(n_other > 50); /* value bits, not keys or headers */
}

static void keys_in_another_order_are_refused(void **state)
{
    /* {"name": "a", "tags": []} and the same with its keys swapped. */
    static const uint8_t good[] = "\x82\xa4name\xa1"
                                  "a\xa4tags\x90";
    static const uint8_t swapped[] = "\x82\xa4tags\x90\xa4name\xa1"
                                     "a";
    static const uint8_t twice[] = "\x82\xa4name\xa1"
                                   "a\xa4name\xa1"
                                   "a";
    static const uint8_t unknown[] = "\x82\xa4name\xa1"
                                     "a\xa4tagz\x90";
    struct part p;

    (void)state;
    assert_int_equal(doc_decode(&part_schema, good, sizeof good - 1, &p), 0);
    assert_string_equal(p.name, "a");
    assert_int_equal(doc_decode(&part_schema, swapped, sizeof swapped - 1, &p),
                     LOCO_EPROTO);
    assert_int_equal(doc_decode(&part_schema, twice, sizeof twice - 1, &p),
                     LOCO_EPROTO);
    assert_int_equal(doc_decode(&part_schema, unknown, sizeof unknown - 1, &p),
                     LOCO_EPROTO);
}

static void floats_as_text_keep_every_bit(void **state)
{
    const struct doc_field *f = doc_find(&schema, "lr", errmsg);
    struct doc_field any;
    char text[DOC_TEXT_MAX];
    uint64_t rng = 1;
    unsigned n = 0;

    (void)state;
    assert_non_null(f);
    any = *f;
    any.least = any.most = 0;
    while (n < 2000) {
        uint64_t bits = rng_next(&rng);
        double d, back;

        memcpy(&d, &bits, sizeof d);
        if (!isfinite(d)) {
            continue;
        }
        doc_format_value(&any, &d, text);
        assert_int_equal(doc_parse_value(&any, text, "x", &back, errmsg), 0);
        assert_memory_equal(&d, &back, sizeof d);
        n++;
    }
}

static void a_check_finds_values_that_no_setter_would_write(void **state)
{
    struct whole w;

    (void)state;
    make(&w);
    assert_int_equal(doc_check(&schema, &w, errmsg), 0);
    w.lr = (double)NAN;
    assert_int_equal(doc_check(&schema, &w, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "lr: "));
    make(&w);
    w.small = 10;
    assert_int_equal(doc_check(&schema, &w, errmsg), LOCO_EINVAL);
    make(&w);
    memset(w.parts[1].tags[1], 'x', 8);
    assert_int_equal(doc_check(&schema, &w, errmsg), LOCO_EINVAL);
    assert_non_null(strstr(errmsg, "parts[1].tags[1]: "));
    make(&w);
    w.n_parts = 4;
    assert_int_equal(doc_check(&schema, &w, errmsg), LOCO_EINVAL);
    assert_int_equal(doc_encode(&schema, &w, (uint8_t[512]){0}, 512),
                     LOCO_ERANGE);
}

static void tables_that_are_not_sorted_are_found(void **state)
{
    struct doc_field f[2] = {part_fields[1], part_fields[0]};
    struct doc_schema s = {.fields = f, .n_fields = 2, .size = 100};

    (void)state;
    assert_true(doc_schema_ok(&schema));
    assert_false(doc_schema_ok(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_that_is_set_is_read_back),
        cmocka_unit_test(wrong_values_are_refused_with_path_and_reason),
        cmocka_unit_test(wrong_paths_are_refused_and_the_nearest_key_named),
        cmocka_unit_test(bytes_are_read_back_and_only_one_form_is_accepted),
        cmocka_unit_test(keys_in_another_order_are_refused),
        cmocka_unit_test(floats_as_text_keep_every_bit),
        cmocka_unit_test(a_check_finds_values_that_no_setter_would_write),
        cmocka_unit_test(tables_that_are_not_sorted_are_found),
    };

    return cmocka_run_group_tests_name("proto/doc", tests, NULL, NULL);
}
