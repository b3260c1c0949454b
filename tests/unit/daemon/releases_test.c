/* releases_test.c - lists of releases: what is read, refused and chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "daemon/release/releases.h"
#include "proto/base/err.h"
#include "proto/limits.h"

#define SUM "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define FILE_OF(arch, glibc, name)                                             \
    "{\"arch\": \"" arch "\", \"glibc\": \"" glibc "\", \"name\": \"" name     \
    "\", \"bytes\": 1000, \"sha256\": \"" SUM "\"}"
#define RELEASE(version, files)                                                \
    "{\"version\": \"" version "\", \"protocols\": [7, 8], \"files\": [" files \
    "]}"
#define LIST(releases)                                                         \
    "{\"loco_releases\": 1, \"serial\": 17, \"later\": {}, \"releases\": "     \
    "[" releases "]}"

static struct releases r;
static char errmsg[LOCO_ERRMSG_MAX];

static int reads(const char *text)
{
    return releases_read(&r, text, strlen(text), errmsg);
}

static void versions_compare_as_numbers(void **state)
{
    static const char *const rising[] = {
        "0.0.0",  "0.0.9",   "0.0.10", "0.1.0",
        "0.10.0", "0.10.11", "1.0.0",  "65535.65535.65535"};
    static const char *const bad[] = {
        "",     "1",     "1.2",       "1.2.3.4",   "1.2.3 ",     "1.2.-3",
        "1..3", "a.b.c", "65536.0.0", "1.2.3-rc1", "0000001.0.0"};
    struct version a, b;

    (void)state;
    for (size_t i = 0; i < sizeof rising / sizeof rising[0]; i++) {
        for (size_t k = 0; k < sizeof rising / sizeof rising[0]; k++) {
            assert_int_equal(version_parse(&a, rising[i]), 0);
            assert_int_equal(version_parse(&b, rising[k]), 0);
            assert_int_equal(version_compare(&a, &b) > 0, i > k);
            assert_int_equal(version_compare(&a, &b) < 0, i < k);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(version_parse(&a, bad[i]), LOCO_EFORMAT);
    }
}

/* clang-format off */
static const char three[] = LIST(
    RELEASE("0.9.0", FILE_OF("x86_64", "2.31", "nine.tar.gz")) ","
    RELEASE("0.10.0", FILE_OF("x86_64", "2.31", "ten.tar.gz") ","
                      FILE_OF("aarch64", "2.31", "arm.tar.gz")) ","
    RELEASE("0.11.0", FILE_OF("x86_64", "2.40", "new.tar.gz")));
/* clang-format on */

static void the_newest_that_runs_here_is_chosen(void **state)
{
    const struct release_file *file = NULL;
    const struct release *x;

    (void)state;
    assert_int_equal(reads(three), 0);
    assert_int_equal(r.serial, 17);
    x = releases_choose(&r, "x86_64", "2.36", &file, errmsg);
    assert_non_null(x);
    assert_string_equal(x->text, "0.10.0");
    assert_string_equal(file->name, "ten.tar.gz");
    assert_int_equal(file->bytes, 1000);
    assert_int_equal(file->sha256[31], 0xff);
    assert_int_equal(x->oldest, 7);
    assert_int_equal(x->newest, 8);
    x = releases_choose(&r, "x86_64", "2.40", &file, errmsg);
    assert_string_equal(x->text, "0.11.0");
    x = releases_choose(&r, "aarch64", "3.0", &file, errmsg);
    assert_string_equal(file->name, "arm.tar.gz");
}

static void a_machine_for_which_there_is_nothing_hears_why(void **state)
{
    const struct release_file *file = NULL;

    (void)state;
    assert_int_equal(
        reads(LIST(RELEASE("0.9.0", FILE_OF("x86_64", "2.31", "a.tar.gz")))),
        0);
    assert_null(releases_choose(&r, "riscv64", "2.36", &file, errmsg));
    assert_string_equal(errmsg, "the list has nothing for riscv64");
    assert_null(releases_choose(&r, "x86_64", "2.30", &file, errmsg));
    assert_string_equal(errmsg,
                        "the list has nothing for x86_64 with glibc 2.30");
    assert_null(releases_choose(&r, "x86_64", "?", &file, errmsg));
    assert_int_equal(reads(LIST("")), 0);
    assert_null(releases_choose(&r, "x86_64", "2.36", &file, errmsg));
}

static void what_is_no_list_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"loco_releases\": 1, \"serial\": 17}",
        "{\"loco_releases\": 1, \"serial\": 0, \"releases\": []}",
        "{\"loco_releases\": 1, \"serial\": -1, \"releases\": []}",
        "{\"loco_releases\": 1, \"serial\": 1.5, \"releases\": []}",
        "{\"loco_releases\": 1, \"serial\": 1, \"serial\": 2, \"releases\": "
        "[]}",
        LIST("7"),
        LIST(RELEASE("0.9", FILE_OF("x86_64", "2.31", "a"))),
        LIST(RELEASE("0.9.0", "")),
        LIST(RELEASE("0.9.0", FILE_OF("x86_64", "2", "a"))),
        LIST(RELEASE("0.9.0", FILE_OF("x86_64", "2.31", "../a"))),
        LIST(RELEASE("0.9.0", FILE_OF("x86_64", "2.31", ".a"))),
        LIST(RELEASE("0.9.0", FILE_OF("x86_64", "2.31", "-a"))),
        LIST(RELEASE("0.9.0", FILE_OF("x86_64", "2.31", "a?b"))),
        LIST(RELEASE("0.9.0", FILE_OF("x86_64", "2.31", "a\\u0000b"))),
        LIST(
            RELEASE("0.9.0", FILE_OF("a long name of a machine", "2.31", "a"))),
        LIST("{\"version\": \"0.9.0\", \"protocols\": [8, 7], \"files\": "
             "[" FILE_OF("x86_64", "2.31", "a") "]}"),
        LIST("{\"version\": \"0.9.0\", \"protocols\": [7, 8], \"files\": [{"
             "\"arch\": \"x86_64\", \"glibc\": \"2.31\", \"name\": \"a\", "
             "\"bytes\": 0, \"sha256\": \"" SUM "\"}]}"),
        LIST("{\"version\": \"0.9.0\", \"protocols\": [7, 8], \"files\": [{"
             "\"arch\": \"x86_64\", \"glibc\": \"2.31\", \"name\": \"a\", "
             "\"bytes\": 1, \"sha256\": \"0011\"}]}"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(reads(bad[i]), LOCO_EFORMAT);
        assert_true(strlen(errmsg) > 10);
    }
}

static void a_list_of_another_form_asks_for_a_newer_loco(void **state)
{
    (void)state;
    assert_int_equal(
        reads("{\"loco_releases\": 2, \"serial\": 1, \"releases\": []}"),
        LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "install a newer loco by hand"));
}

static void more_than_the_limits_is_refused(void **state)
{
    static char text[RELEASES_BYTES_MAX + 1];
    size_t n = (size_t)snprintf(
        text, sizeof text,
        "{\"loco_releases\": 1, \"serial\": 1, \"releases\": [");

    (void)state;
    for (int i = 0; i <= RELEASES_MAX; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%s" RELEASE("1.0.0", "%s"), i == 0 ? "" : ",",
                              FILE_OF("x86_64", "2.31", "a"));
    }
    (void)snprintf(text + n, sizeof text - n, "]}");
    assert_int_equal(reads(text), LOCO_EFORMAT);
    memset(text, ' ', sizeof text);
    assert_int_equal(releases_read(&r, text, sizeof text, errmsg),
                     LOCO_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_compare_as_numbers),
        cmocka_unit_test(the_newest_that_runs_here_is_chosen),
        cmocka_unit_test(a_machine_for_which_there_is_nothing_hears_why),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(a_list_of_another_form_asks_for_a_newer_loco),
        cmocka_unit_test(more_than_the_limits_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
