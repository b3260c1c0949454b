/* A line becomes a question, or a sentence that says what is wrong with it. */
#include "train/data/question.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

static struct question_text text(const char *s)
{
    return (struct question_text){s, strlen(s)};
}

static void a_line_is_read(void **state)
{
    static const char line[] =
        "{\"id\": 7, \"context\": \"a\\u0000b\", \"choices\": [\"x\", "
        "\"\\u00e9\"], \"answer\": 1}";
    struct question q;

    (void)state;
    assert_int_equal(question_parse(&q, line, sizeof line - 1, NULL), 0);
    assert_int_equal(q.context.len, 3);
    assert_memory_equal(q.context.bytes, "a\0b", 3);
    assert_int_equal(q.n, 2);
    assert_int_equal(q.choices[1].len, 2);
    assert_int_equal(question_characters(&q.choices[1]), 1);
    assert_int_equal(q.answer, 1);
    question_close(&q);
    question_close(&q);
}

static void what_is_no_question_is_one_clear_error(void **state)
{
    static const struct {
        const char *line, *says;
    } bad[] = {
        {"{\"context\": \"a\"", "line cannot be read: "},
        {"{\"context\": \"\", \"id\": NaN}", "line cannot be read: "},
        {"{\"context\": \"\", \"id\": 9223372036854775808}",
         "line cannot be read: too big integer"},
        {"[1]", "not a JSON object"},
        {"{\"context\": \"a\", \"context\": \"b\"}", "duplicate"},
        {"{\"choices\": [\"a\", \"b\"], \"answer\": 0}",
         "there is no \"context\""},
        {"{\"context\": 1, \"choices\": [\"a\", \"b\"], \"answer\": 0}",
         "something else is \"context\""},
        {"{\"context\": \"\", \"answer\": 0}", "\"choices\" is not a list"},
        {"{\"context\": \"\", \"choices\": [\"a\"], \"answer\": 0}",
         "2 to 64 texts"},
        {"{\"context\": \"\", \"choices\": [\"a\", \"\"], \"answer\": 0}",
         "number 1, from 0, is empty"},
        {"{\"context\": \"\", \"choices\": [\"a\", 4], \"answer\": 0}",
         "number 1, from 0, is no text"},
        {"{\"context\": \"\", \"choices\": [\"a\", \"b\"]}",
         "\"answer\" is not 0 to 1"},
        {"{\"context\": \"\", \"choices\": [\"a\", \"b\"], \"answer\": 2}",
         "\"answer\" is not 0 to 1"},
        {"{\"context\": \"\", \"choices\": [\"a\", \"b\"], \"answer\": -1}",
         "\"answer\" is not 0 to 1"},
        {"{\"context\": \"\", \"choices\": [\"a\", \"b\"], \"answer\": \"B\"}",
         "\"answer\" is not 0 to 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char errmsg[ERRMSG_SIZE] = "";
        struct question q;

        assert_int_equal(
            question_parse(&q, bad[i].line, strlen(bad[i].line), errmsg),
            LOCO_EFORMAT);
        if (strstr(errmsg, bad[i].says) == NULL) {
            fail_msg("%s: %s", bad[i].line, errmsg);
        }
        question_close(&q);
    }
}

static char *append(char *to, const char *what)
{
    memcpy(to, what, strlen(what));
    return to + strlen(what);
}

/* A line of so many bytes, and one of so many choices. */
static void lines_and_lists_have_a_limit(void **state)
{
    char *line = malloc(QUESTION_BYTES_MAX + 1);
    char errmsg[ERRMSG_SIZE];
    struct question q;

    (void)state;
    assert_non_null(line);
    for (int most = 0; most < 2; most++) {
        size_t n = (size_t)QUESTION_CHOICES_MAX + (most == 0);
        char *p = append(line, "{\"context\": \"\", \"answer\": 0");

        for (size_t i = 0; i < n; i++) {
            p = append(p, i == 0 ? ", \"choices\": [\"a\"" : ", \"a\"");
        }
        p = append(p, "]}");
        memset(p, ' ', QUESTION_BYTES_MAX + 1 - (size_t)(p - line));
        assert_int_equal(question_parse(&q, line, QUESTION_BYTES_MAX, NULL),
                         most == 0 ? LOCO_EFORMAT : 0);
        question_close(&q);
        assert_int_equal(
            question_parse(&q, line, QUESTION_BYTES_MAX + 1, errmsg),
            LOCO_EFORMAT);
        assert_non_null(strstr(errmsg, "at most 1048576"));
        question_close(&q);
    }
    free(line);
}

/* str.rstrip() of Python 3.11 takes these and no others. */
static void white_space_is_that_of_python(void **state)
{
    static const char *const spaces[] = {
        "\t",           "\n",           "\v",           "\f",
        "\r",           "\x1c",         "\x1f",         " ",
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80",
        "\xe2\x80\x8a", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf",
        "\xe2\x81\x9f", "\xe3\x80\x80"};
    /* U+001B, U+200B, U+FEFF, U+20A0, U+10085, U+2000 with another head */
    static const char *const others[] = {
        "\x1b",         "\xe2\x80\x8b",     "\xef\xbb\xbf",
        "\xe2\x82\xa0", "\xf0\x90\x82\x85", "\xe3\x80\x81"};
    char joined[16];

    (void)state;
    for (size_t i = 0; i < sizeof spaces / sizeof spaces[0]; i++) {
        struct question_text t;

        (void)snprintf(joined, sizeof joined, "\xc3\xa9%s ", spaces[i]);
        t = text(joined);
        assert_int_equal(question_space(&t), strlen(spaces[i]) + 1);
        t = text(spaces[i]);
        assert_int_equal(question_space(&t), t.len);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct question_text t = text(others[i]);

        assert_int_equal(question_space(&t), 0);
    }
}

static void characters_are_code_points(void **state)
{
    struct question_text t = text("a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x8c\x8a"
                                  "e\xcc\x81");

    (void)state;
    assert_int_equal(question_characters(&t), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_read),
        cmocka_unit_test(what_is_no_question_is_one_clear_error),
        cmocka_unit_test(lines_and_lists_have_a_limit),
        cmocka_unit_test(white_space_is_that_of_python),
        cmocka_unit_test(characters_are_code_points),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
