/* sight_test.c - what is shown of a daemon's answer, whatever the answer is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/watch/sight.h"
#include "proto/base/err.h"

#define ID "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

/* The sight of an answer; NULL: it is refused, with a sentence. */
static json_t *sight_of(const char *text)
{
    char errmsg[ERRMSG_SIZE] = "";
    json_t *sight = NULL;
    int rv = sight_read(text, strlen(text), &sight, errmsg);

    assert_true(rv == 0 || (rv == LOCO_EFORMAT && strlen(errmsg) > 10));
    assert_true((rv == 0) == (sight != NULL));
    return sight;
}

static const json_t *
at(const json_t *sight, const char *object, const char *key)
{
    return json_object_get(
        object == NULL ? sight : json_object_get(sight, object), key);
}

static const char *text_at(const json_t *sight, const char *key)
{
    const char *text = json_string_value(json_object_get(sight, key));

    return text == NULL ? "null" : text;
}

static void what_a_daemon_says_is_shown(void **state)
{
    json_t *s = sight_of(
        "{\"state\":\"training\",\"run_id\":\"" ID "\",\"round\":412,"
        "\"loss\":2.5,\"fork\":false,\"run_name\":\"K\xc3\xb6ln\","
        "\"bytes_sent\":9007199254740991,\"progress\":1,\"secret\":\"x\","
        "\"probation\":{\"offered\":1,\"of\":3,\"left_s\":null,\"more\":2},"
        "\"peers_lost\":[{\"peer_id\":\"" ID "\",\"round\":3,\"reason\":\"a\"},"
        "{\"peer_id\":\"" ID "\",\"round\":7,\"reason\":\"silent\"},"
        "{\"peer_id\":\"" ID "\",\"round\":5,\"reason\":\"b\"}]}");

    (void)state;
    assert_string_equal(text_at(s, "state"), "training");
    assert_string_equal(text_at(s, "run_id"), ID);
    assert_string_equal(text_at(s, "run_name"), "K\xc3\xb6ln");
    assert_int_equal(json_integer_value(at(s, NULL, "round")), 412);
    assert_true(json_is_false(at(s, NULL, "fork")));
    assert_int_equal(json_integer_value(at(s, NULL, "bytes_sent")),
                     9007199254740991);
    assert_true(json_real_value(at(s, NULL, "progress")) == 1);
    assert_int_equal(json_integer_value(at(s, "probation", "of")), 3);
    assert_true(json_is_null(at(s, "probation", "left_s")));
    assert_null(at(s, "probation", "more"));
    assert_null(at(s, NULL, "secret"));
    assert_true(json_is_null(at(s, NULL, "fetch")));
    assert_true(json_is_null(at(s, NULL, "version")));
    assert_int_equal(json_integer_value(at(s, "lost", "round")), 7);
    assert_string_equal(json_string_value(at(s, "lost", "reason")), "silent");
    json_decref(s);
}

static void what_is_no_status_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{}",
        "null",
        "\"state\"",
        "{\"state\":7}",
        "{\"state\":\"a\",\"state\":\"b\"}",
        "{\"state\":\"\\u0000\"}",
        "{\"state\":\"a\",\"loss\":1e999}",
        "{\"state\":\"\xff\"}",
        "{\"state\":\"a\"}x",
        "{\"state\":\"a\",\"round\":99999999999999999999}",
    };
    char *deep = malloc(200001);

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_null(sight_of(bad[i]));
    }
    assert_non_null(deep);
    memset(deep, '[', 200000);
    deep[200000] = '\0';
    assert_null(sight_of(deep));
    free(deep);
}

static void a_value_of_another_kind_is_null(void **state)
{
    static const char *const keys[] = {"round",       "loss",   "progress",
                                       "run_name",    "run_id", "fork",
                                       "tokens_per_s"};
    static const char *const values[] = {
        "[1]", "{\"a\":1}", "null", "-1", "-0.5", "1e300", "9007199254740992"};

    (void)state;
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            char text[128];
            json_t *s;

            (void)snprintf(text, sizeof text, "{\"state\":\"a\",\"%s\":%s}",
                           keys[k], values[v]);
            s = sight_of(text);
            assert_non_null(s);
            assert_true(json_is_null(at(s, NULL, keys[k])));
            json_decref(s);
        }
    }
}

static void objects_that_are_none_are_null(void **state)
{
    json_t *s = sight_of("{\"state\":\"a\",\"probation\":[],\"caps\":7,"
                         "\"stage\":{},\"share\":{\"uri\":\"loco://x\"},"
                         "\"peers_lost\":[7,[],\"x\"]}");

    (void)state;
    assert_true(json_is_null(at(s, NULL, "probation")));
    assert_true(json_is_null(at(s, NULL, "caps")));
    assert_true(json_is_null(at(s, "stage", "of")));
    assert_string_equal(json_string_value(at(s, "share", "uri")), "loco://x");
    assert_true(json_is_null(at(s, NULL, "lost")));
    json_decref(s);
}

static void texts_are_cut_and_hold_nothing_that_acts(void **state)
{
    /* What comes in, and what is shown of it. */
    static const char *const pairs[][2] = {
        {"plain", "plain"},
        {"\x1b[31mred\x07\n\r\t\x7f", "?[31mred?????"},
        {"\xc2\x9b"
         "31m",
         "?31m"}, /* C1 */
        {"a\xe2\x80\xae"
         "b\xe2\x81\xa6",
         "a?b?"},                                    /* bidi */
        {"\xe2\x80\x8b\xef\xbb\xbf\xc2\xad", "???"}, /* not to be seen */
        {"e\xcc\x81\xcc\x81", "e??"},                /* marks */
        {"\xe2\x80\xa8", "?"},                       /* a line of its own */
        {"\xf3\xa0\x81\x81", "?"},                   /* tags */
        {"\xf0\x9f\x9a\x82 \xe6\x97\xa5", "\xf0\x9f\x9a\x82 \xe6\x97\xa5"},
        {"\xff\xc3", "??"},                /* no UTF-8 */
        {"\xc0\xaf\xed\xa0\x80", "?????"}, /* neither */
        {"<b>&'\"", "<b>&'\""},
    };
    char out[32], small[4];

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        assert_string_equal(
            sight_text(pairs[i][0], strlen(pairs[i][0]), out, sizeof out),
            pairs[i][1]);
    }
    /* Cut between characters, never in one. */
    assert_string_equal(sight_text("abcdef", 6, small, sizeof small), "abc");
    assert_string_equal(sight_text("ab\xc3\xb6", 4, small, sizeof small), "ab");
    assert_string_equal(sight_text("a\0b", 3, small, sizeof small), "a?b");
    assert_string_equal(sight_text("abc", 3, out, 1), "");
}

static void a_sight_is_small_however_large_the_answer_is(void **state)
{
    static const char *const keys[] = {"version", "reason", "run_name",
                                       "reachability", "reachability_reason"};
    char *text = malloc(400000), *shown;
    json_t *s;
    size_t len;

    (void)state;
    assert_non_null(text);
    len = (size_t)snprintf(text, 100, "{\"state\":\"a\"");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        len += (size_t)snprintf(text + len, 100, ",\"%s\":\"", keys[i]);
        memset(text + len, '\'', 60000);
        len += 60000;
        text[len++] = '"';
    }
    len += (size_t)snprintf(text + len, 100, ",\"share\":{\"uri\":\"");
    memset(text + len, 'u', 60000);
    len += 60000;
    (void)snprintf(text + len, 100, "\"}}");
    s = sight_of(text);
    assert_non_null(s);
    assert_int_equal(json_string_length(at(s, NULL, "reason")),
                     SIGHT_REASON_MAX - 1);
    assert_true(
        json_is_null(at(s, "share", "uri"))); /* half of it is of no use */
    shown = json_dumps(s, JSON_COMPACT);
    assert_true(strlen(shown) < SIGHT_BYTES_MAX);
    free(shown);
    json_decref(s);
    free(text);
}

static void
sums_count_the_speed_of_who_answers_and_the_bytes_of_all(void **state)
{
    json_t *a = sight_of("{\"state\":\"training\",\"run_id\":\"" ID "\","
                         "\"round\":7,\"loss\":2,\"bits_per_byte\":1.5,"
                         "\"peers_alive\":3,\"tokens_per_s\":100,"
                         "\"bytes_sent\":10,\"bytes_received\":1,"
                         "\"progress\":0.5,\"eta_s\":9}");
    json_t *b = sight_of("{\"state\":\"syncing\",\"run_id\":\"" ID "\","
                         "\"round\":5,\"loss\":4,\"bits_per_byte\":9,"
                         "\"peers_alive\":2,\"tokens_per_s\":50,"
                         "\"bytes_sent\":20,\"progress\":0.9,\"eta_s\":1}");
    json_t *c =
        sight_of("{\"state\":\"training\",\"run_id\":"
                 "\"ff112233445566778899aabbccddeeff00112233445566778899"
                 "aabbccddeeff\",\"tokens_per_s\":1000,"
                 "\"bytes_sent\":40}");
    const char *first = NULL;
    struct sight_sum s;

    (void)state;
    sight_sum_begin(&s);
    sight_sum_add(&s, NULL, false, &first);
    sight_sum_add(&s, a, true, &first);
    sight_sum_add(&s, b, true, &first);
    sight_sum_end(&s);
    assert_true(s.one_run && s.n_answer == 2);
    assert_true(s.round == 7 && s.loss == 3 && s.bits == 1.5 && s.peers == 3);
    assert_true(s.speed == 150 && s.sent == 30 && s.received == 1);
    assert_true(s.progress == 0.5 && s.eta_s == 9);
    first = NULL;
    sight_sum_begin(&s);
    sight_sum_add(&s, a, true, &first);
    sight_sum_add(&s, c, false, &first);
    sight_sum_end(&s);
    assert_true(!s.one_run && s.n_answer == 1);
    assert_true(s.speed == 100 && s.sent == 50);
    sight_sum_begin(&s);
    sight_sum_end(&s);
    assert_true(s.one_run && s.loss < 0 && s.round < 0 && s.peers < 0);
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_daemon_says_is_shown),
        cmocka_unit_test(what_is_no_status_is_refused),
        cmocka_unit_test(a_value_of_another_kind_is_null),
        cmocka_unit_test(objects_that_are_none_are_null),
        cmocka_unit_test(texts_are_cut_and_hold_nothing_that_acts),
        cmocka_unit_test(a_sight_is_small_however_large_the_answer_is),
        cmocka_unit_test(
            sums_count_the_speed_of_who_answers_and_the_bytes_of_all),
    };

    return cmocka_run_group_tests_name("sight", tests, NULL, NULL);
}
