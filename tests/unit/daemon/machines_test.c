/* machines_test.c - the daemons that words and a machines file name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/cli/machines.h"
#include "tests/unit/train/tmpdir.h"

static struct machines m;

/* What machines_read() returns for a file of these bytes and mode. */
static int reads(const char *text, size_t len, mode_t mode)
{
    struct tmpdir dir;
    const char *path;
    int rv;

    memset(&m, 0, sizeof m);
    tmpdir_make(&dir);
    tmpdir_put(&dir, "machines", text, len);
    path = tmpdir_file(&dir, "machines");
    assert_int_equal(chmod(path, mode), 0);
    rv = machines_read(&m, path);
    tmpdir_remove(&dir);
    return rv;
}

static void
check_item(size_t i, const char *address, const char *token, const char *name)
{
    assert_null(m.item[i].state_dir);
    assert_string_equal(m.item[i].daemon.address, address);
    assert_string_equal(m.item[i].daemon.token, token);
    assert_string_equal(m.item[i].name, name);
}

static void a_file_names_addresses_with_tokens_and_names(void **state)
{
    static const char text[] = "# mine\n\n"
                               " 192.168.1.20:7710\t5f0c\tattic \r\n"
                               "127.0.0.1:7711 - cellar\n"
                               "unix:/run/loco\n"
                               "[::1]:7712 9a"; /* no end of line */

    (void)state;
    assert_int_equal(reads(text, strlen(text), 0600), CLI_GO);
    assert_int_equal(m.n, 4);
    check_item(0, "192.168.1.20:7710", "5f0c", "attic");
    check_item(1, "127.0.0.1:7711", "", "cellar");
    check_item(2, "unix:/run/loco", "", "");
    check_item(3, "[::1]:7712", "9a", "");
}

static void a_file_with_tokens_is_for_its_owner(void **state)
{
    (void)state;
    assert_int_not_equal(reads("a:1 token\n", 10, 0644), CLI_GO);
    assert_int_not_equal(reads("a:1 token\n", 10, 0620), CLI_GO);
    assert_int_equal(reads("a:1 -\n", 6, 0644), CLI_GO);
    assert_int_equal(reads("a:1\n", 4, 0644), CLI_GO);
}

static void what_is_no_such_line_is_refused(void **state)
{
    static const char *const bad[] = {"a\n", "a b:1\n", "a:1 b c d\n",
                                      "a:1 b c # d\n"};
    char line[2 * HTTP_ADDRESS_MAX], *many = malloc(65 * 4 + 1);

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_not_equal(reads(bad[i], strlen(bad[i]), 0600), CLI_GO);
    }
    assert_int_not_equal(reads("a:1\0b\n", 6, 0600), CLI_GO);
    memset(line, 'a', sizeof line);
    line[1] = ':';
    assert_int_equal(reads(line, HTTP_ADDRESS_MAX - 1, 0600), CLI_GO);
    assert_int_not_equal(reads(line, HTTP_ADDRESS_MAX, 0600), CLI_GO);
    line[3] = ' '; /* a long token */
    assert_int_not_equal(reads(line, 4 + HTTP_TOKEN_MAX, 0600), CLI_GO);
    line[5] = ' '; /* a long name */
    assert_int_not_equal(reads(line, 6 + WATCH_NAME_MAX, 0600), CLI_GO);
    assert_int_equal(reads(line, 5 + WATCH_NAME_MAX, 0600), CLI_GO);
    assert_non_null(many);
    for (size_t i = 0; i < 65; i++) {
        memcpy(many + 4 * i, "a:1\n", 4);
    }
    assert_int_equal(reads(many, 64 * 4, 0600), CLI_GO);
    assert_int_not_equal(reads(many, 65 * 4, 0600), CLI_GO);
    free(many);
}

static void a_word_is_an_address_or_a_state_directory(void **state)
{
    struct tmpdir dir;

    (void)state;
    memset(&m, 0, sizeof m);
    tmpdir_make(&dir);
    assert_int_equal(setenv("LOCO_TOKEN", "ttt", 1), 0);
    assert_int_equal(machines_add(&m, "host:1"), CLI_GO);
    assert_int_equal(machines_add(&m, dir.path), CLI_GO);
    assert_int_equal(machines_add(&m, "will-be"), CLI_GO);
    check_item(0, "host:1", "ttt", "");
    assert_string_equal(m.item[1].state_dir, dir.path);
    assert_string_equal(m.item[2].state_dir, "will-be");
    tmpdir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_names_addresses_with_tokens_and_names),
        cmocka_unit_test(a_file_with_tokens_is_for_its_owner),
        cmocka_unit_test(what_is_no_such_line_is_refused),
        cmocka_unit_test(a_word_is_an_address_or_a_state_directory),
    };

    return cmocka_run_group_tests_name("machines", tests, NULL, NULL);
}
