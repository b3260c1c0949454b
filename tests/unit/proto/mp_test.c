/* mp_test.c - what msgpack-c writes our reader reads; nothing longer passes. */
#include "tests/unit/proto/suite.h"

#include <math.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/mp.h"

static const uint64_t edges[] = {0,          1,
                                 127,        128,
                                 255,        256,
                                 65535,      65536,
                                 UINT32_MAX, (uint64_t)UINT32_MAX + 1,
                                 INT64_MAX,  (uint64_t)INT64_MAX + 1,
                                 UINT64_MAX};

static void integers_at_every_edge_are_read_back(void **state)
{
    uint8_t buf[16];
    struct mp_writer w;
    struct mp_reader r;
    uint64_t u;

    (void)state;
    for (size_t k = 0; k < N_OF(edges); k++) {
        mp_write_init(&w, buf, sizeof buf);
        mp_write_uint(&w, edges[k]);
        mp_read_init(&r, buf, w.len);
        assert_int_equal(mp_read_uint(&r, &u), 0);
        assert_true(u == edges[k]);
        assert_int_equal(mp_read_end(&r), 0);
    }
}

static void longer_forms_than_needed_are_refused(void **state)
{
    static const struct {
        uint8_t len, bytes[9];
    } rows[] = {
        {2, {0xcc, 127}},
        {3, {0xcd, 0, 255}},
        {5, {0xce, 0, 0, 255, 255}},
        {9, {0xcf, 0, 0, 0, 0, 255, 255, 255, 255}},
    };
    struct mp_reader r;
    uint64_t u;

    (void)state;
    for (size_t k = 0; k < N_OF(rows); k++) {
        mp_read_init(&r, rows[k].bytes, rows[k].len);
        assert_int_equal(mp_read_uint(&r, &u), LOCO_EPROTO);
    }
}

static void signed_forms_are_refused(void **state)
{
    static const struct {
        uint8_t len, bytes[9];
    } rows[] = {
        {1, {0xff}},       /* -1 */
        {2, {0xd0, 5}},    /* positive in a signed form */
        {2, {0xd0, 0xdf}}, /* -33 */
        {3, {0xd1, 0x80, 0}},
        {5, {0xd2, 0x80, 0, 0, 0}},
        {9, {0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}},
    };
    struct mp_reader r;
    uint64_t u;

    (void)state;
    for (size_t k = 0; k < N_OF(rows); k++) {
        mp_read_init(&r, rows[k].bytes, rows[k].len);
        assert_int_equal(mp_read_uint(&r, &u), LOCO_EPROTO);
    }
}

static void lengths_and_counts_are_shortest_too(void **state)
{
    static const uint8_t array[] = {0xdc, 0, 15};
    static const uint8_t array32[] = {0xdd, 0, 0, 255, 255};
    static const uint8_t map[] = {0xde, 0, 15};
    static const uint8_t str[33] = {0xd9, 31, 'x'};
    static const uint8_t bin[258] = {0xc5, 0, 255};
    static const uint8_t bomb[] = {0xdd, 255, 255, 255, 255};
    struct mp_reader r;
    const uint8_t *bytes;
    const char *text;
    uint32_t n;

    (void)state;
    mp_read_init(&r, array, sizeof array);
    assert_int_equal(mp_read_array(&r, &n), LOCO_EPROTO);
    mp_read_init(&r, array32, sizeof array32);
    assert_int_equal(mp_read_array(&r, &n), LOCO_EPROTO);
    mp_read_init(&r, map, sizeof map);
    assert_int_equal(mp_read_map(&r, &n), LOCO_EPROTO);
    mp_read_init(&r, str, sizeof str);
    assert_int_equal(mp_read_str(&r, &text, &n), LOCO_EPROTO);
    mp_read_init(&r, bin, sizeof bin);
    assert_int_equal(mp_read_bin(&r, &bytes, &n), LOCO_EPROTO);
    mp_read_init(&r, bomb, sizeof bomb); /* a count alone is only a number */
    assert_int_equal(mp_read_array(&r, &n), 0);
    assert_true(n == UINT32_MAX);
}

static void blocks_of_every_length_are_read_back(void **state)
{
    static const uint32_t lens[] = {0, 1, 31, 32, 255, 256, 65535, 65536};
    static uint8_t buf[70000], data[65536];
    struct mp_writer w;
    struct mp_reader r;
    const uint8_t *bytes;
    const char *text;
    uint32_t n;

    (void)state;
    memset(data, 'a', sizeof data);
    for (size_t k = 0; k < N_OF(lens); k++) {
        mp_write_init(&w, buf, sizeof buf);
        mp_write_array(&w, lens[k]);
        mp_write_map(&w, lens[k]);
        mp_write_bin(&w, data, lens[k]);
        assert_false(w.full);
        mp_read_init(&r, buf, w.len);
        assert_int_equal(mp_read_array(&r, &n), 0);
        assert_true(n == lens[k]);
        assert_int_equal(mp_read_map(&r, &n), 0);
        assert_true(n == lens[k]);
        assert_int_equal(mp_read_bin(&r, &bytes, &n), 0);
        assert_true(n == lens[k]);
        assert_int_equal(mp_read_end(&r), 0);
        mp_read_init(&r, buf, w.len - 1);
        (void)mp_read_array(&r, &n);
        (void)mp_read_map(&r, &n);
        assert_int_equal(mp_read_bin(&r, &bytes, &n), LOCO_EPROTO);
        mp_write_init(&w, buf, sizeof buf);
        mp_write_str(&w, (const char *)data, lens[k]);
        mp_read_init(&r, buf, w.len);
        assert_int_equal(mp_read_str(&r, &text, &n), 0);
        assert_memory_equal(text, data, lens[k]);
    }
}

static void floats_are_finite_and_zero_has_one_sign(void **state)
{
    static const uint8_t minus_zero[] = {0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t nan[] = {0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0};
    static const uint8_t inf[] = {0xcb, 0xff, 0xf0, 0, 0, 0, 0, 0, 0};
    static const uint8_t single[] = {0xca, 0x3f, 0x80, 0, 0};
    static const double values[] = {0, -0.0, 1, -1.5, 4e-4, 1e308, 5e-324};
    uint8_t buf[16];
    struct mp_writer w;
    struct mp_reader r;
    double d;

    (void)state;
    mp_read_init(&r, minus_zero, sizeof minus_zero);
    assert_int_equal(mp_read_f64(&r, &d), LOCO_EPROTO);
    mp_read_init(&r, nan, sizeof nan);
    assert_int_equal(mp_read_f64(&r, &d), LOCO_EPROTO);
    mp_read_init(&r, inf, sizeof inf);
    assert_int_equal(mp_read_f64(&r, &d), LOCO_EPROTO);
    mp_read_init(&r, single, sizeof single);
    assert_int_equal(mp_read_f64(&r, &d), LOCO_EPROTO);
    for (size_t k = 0; k < N_OF(values); k++) {
        mp_write_init(&w, buf, sizeof buf);
        mp_write_f64(&w, values[k]);
        mp_read_init(&r, buf, w.len);
        assert_int_equal(mp_read_f64(&r, &d), 0);
        assert_true(d == values[k] && !(d == 0 && signbit(d)));
    }
}

static void only_utf8_without_zero_is_text(void **state)
{
    static const char *const good[] = {"", "loco", "\xc3\xa4", "\xe2\x82\xac",
                                       "\xf0\x9f\x9a\x82"};
    static const char *const bad[] = {"\x80",
                                      "\xc0\x80",
                                      "\xc3",
                                      "\xe0\x80\x80",
                                      "\xed\xa0\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xff",
                                      "a\xe2\x82"};

    (void)state;
    for (size_t k = 0; k < N_OF(good); k++) {
        assert_true(mp_utf8_ok(good[k], strlen(good[k])));
    }
    for (size_t k = 0; k < N_OF(bad); k++) {
        assert_false(mp_utf8_ok(bad[k], strlen(bad[k])));
    }
    assert_false(mp_utf8_ok("a\0b", 3));
    /* The end counts, not what lies behind it. */
    assert_false(mp_utf8_ok("\xe2\x82\xac", 2));
    assert_false(mp_utf8_ok("\xf0\x9f\x9a\x82", 3));
}

static void a_text_leaves_room_for_its_end(void **state)
{
    static const uint8_t fits[] = {0xa3, 'a', 'b', 'c'};
    static const uint8_t full[] = {0xa4, 'a', 'b', 'c', 'd'};
    static const uint8_t zero[] = {0xa3, 'a', 0, 'c'};
    char text[4] = "";
    struct mp_reader r;

    (void)state;
    mp_read_init(&r, fits, sizeof fits);
    assert_int_equal(mp_read_text(&r, text, sizeof text), 0);
    assert_string_equal(text, "abc");
    mp_read_init(&r, full, sizeof full);
    assert_int_equal(mp_read_text(&r, text, sizeof text), LOCO_EPROTO);
    mp_read_init(&r, zero, sizeof zero);
    assert_int_equal(mp_read_text(&r, text, sizeof text), LOCO_EPROTO);
}

static void a_text_without_end_or_not_utf8_is_not_written(void **state)
{
    static const char endless[4] = {'a', 'b', 'c', 'd'};
    uint8_t buf[8];
    struct mp_writer w;

    (void)state;
    mp_write_init(&w, buf, sizeof buf);
    assert_int_equal(mp_write_text(&w, endless, sizeof endless), LOCO_EINVAL);
    assert_int_equal(mp_write_text(&w, "\xff", 2), LOCO_EINVAL);
    assert_int_equal(w.len, 0);
    assert_int_equal(mp_write_text(&w, "abc", 4), 0);
    assert_int_equal(w.len, 4);
}

static void booleans_nil_and_ext_are_told_apart(void **state)
{
    static const uint8_t firsts[] = {0x00, 0xc0, 0xc1, 0xc7, 0xd4,
                                     0xca, 0xe0, 0x90, 0x80, 0xa0};
    static const uint8_t yes = 0xc3, no = 0xc2;
    struct mp_reader r;
    bool b;

    (void)state;
    mp_read_init(&r, &yes, 1);
    assert_int_equal(mp_read_bool(&r, &b), 0);
    assert_true(b);
    mp_read_init(&r, &no, 1);
    assert_int_equal(mp_read_bool(&r, &b), 0);
    assert_false(b);
    assert_int_equal(mp_read_bool(&r, &b), LOCO_EPROTO); /* at the end */
    for (size_t k = 0; k < N_OF(firsts); k++) {
        mp_read_init(&r, &firsts[k], 1);
        assert_int_equal(mp_read_bool(&r, &b), LOCO_EPROTO);
    }
}

static void a_full_writer_says_so_and_stays_in_its_buffer(void **state)
{
    uint8_t buf[8];
    struct mp_writer w;

    (void)state;
    memset(buf, 0x55, sizeof buf);
    mp_write_init(&w, buf, 4);
    mp_write_uint(&w, 70000); /* five bytes */
    assert_true(w.full);
    mp_write_uint(&w, 1); /* nothing follows a hole */
    assert_int_equal(w.len, 0);
    assert_int_equal(buf[4], 0x55);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_at_every_edge_are_read_back),
        cmocka_unit_test(longer_forms_than_needed_are_refused),
        cmocka_unit_test(signed_forms_are_refused),
        cmocka_unit_test(lengths_and_counts_are_shortest_too),
        cmocka_unit_test(blocks_of_every_length_are_read_back),
        cmocka_unit_test(floats_are_finite_and_zero_has_one_sign),
        cmocka_unit_test(only_utf8_without_zero_is_text),
        cmocka_unit_test(a_text_leaves_room_for_its_end),
        cmocka_unit_test(a_text_without_end_or_not_utf8_is_not_written),
        cmocka_unit_test(booleans_nil_and_ext_are_told_apart),
        cmocka_unit_test(a_full_writer_says_so_and_stays_in_its_buffer),
    };

    return cmocka_run_group_tests_name("proto/mp", tests, NULL, NULL);
}
