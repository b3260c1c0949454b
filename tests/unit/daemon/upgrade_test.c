/* upgrade_test.c - what loco upgrade writes down is read again, and a damaged
 * file starts nothing; which unit of systemd a process is of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/upgrade.h"
#include "proto/base/err.h"
#include "proto/limits.h"

static char folder[] = "/tmp/loco-upgrade-XXXXXX";
static char errmsg[LOCO_ERRMSG_MAX];
static struct upgrade_memory m, again;

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int drop_folder(void **state)
{
    (void)state;
    (void)unlink(m.path);
    return rmdir(folder);
}

static void nothing_is_remembered_at_first(void **state)
{
    (void)state;
    assert_int_equal(upgrade_memory_load(&m, folder, errmsg), 0);
    assert_false(m.trial);
    assert_int_equal(m.serial, 0);
    assert_string_equal(m.failed, "");
}

static void remember_a_trial(void)
{
    static const char args[] = "locod\0--state\0/home/a b/\xc3\xa4";
    struct upgrade_process *p = &m.process;

    assert_int_equal(upgrade_memory_load(&m, folder, errmsg), 0);
    m.serial = 1795000000;
    m.trial = true;
    (void)snprintf(m.failed, sizeof m.failed, "0.2.1");
    (void)snprintf(m.from, sizeof m.from, "0.1.0");
    (void)snprintf(m.to, sizeof m.to, "0.2.0");
    (void)snprintf(m.was, sizeof m.was, "training");
    p->pid = 4711;
    p->began = 987654321;
    (void)snprintf(p->boot, sizeof p->boot, "one");
    m.peers_alive = 3;
    memcpy(p->args, args, sizeof args);
    p->arg[0] = p->args;
    p->arg[1] = p->args + 6;
    p->arg[2] = p->args + 14;
    p->n_args = 3;
    (void)snprintf(p->cwd, sizeof p->cwd, "/home");
    (void)snprintf(p->unit, sizeof p->unit, "locod.service");
    assert_int_equal(upgrade_memory_save(&m, errmsg), 0);
}

static void a_trial_is_read_as_it_was_written(void **state)
{
    (void)state;
    remember_a_trial();
    assert_int_equal(upgrade_memory_load(&again, folder, errmsg), 0);
    assert_true(again.trial);
    assert_int_equal(again.serial, 1795000000);
    assert_string_equal(again.failed, "0.2.1");
    assert_string_equal(again.from, "0.1.0");
    assert_string_equal(again.to, "0.2.0");
    assert_string_equal(again.was, "training");
    assert_int_equal(again.process.pid, 4711);
    assert_int_equal(again.process.began, 987654321);
    assert_string_equal(again.process.boot, "one");
    assert_int_equal(again.peers_alive, 3);
    assert_int_equal(again.process.n_args, 3);
    assert_string_equal(again.process.arg[2], "/home/a b/\xc3\xa4");
    assert_null(again.process.arg[3]);
    assert_string_equal(again.process.cwd, "/home");
    assert_string_equal(again.process.log, "");
    assert_string_equal(again.process.unit, "locod.service");
}

/* Cut at every place: an error or the same trial, never another one. */
static void a_file_that_was_cut_starts_nothing(void **state)
{
    char text[4096];
    size_t size;
    FILE *f;

    (void)state;
    remember_a_trial();
    f = fopen(m.path, "rb");
    assert_non_null(f);
    size = fread(text, 1, sizeof text, f);
    (void)fclose(f);
    assert_in_range(size, 100, sizeof text - 1);
    for (size_t len = 0; len < size - 1; len++) {
        f = fopen(m.path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, len, f), len);
        (void)fclose(f);
        assert_int_equal(upgrade_memory_load(&again, folder, errmsg),
                         LOCO_EFORMAT);
        assert_non_null(strstr(errmsg, "remove it"));
    }
}

static void values_out_of_range_are_refused(void **state)
{
    static const char *const bad[] = {
        "{\"serial\": -1, \"failed\": \"\"}",
        "{\"serial\": 1}",
        "[]",
        "{\"serial\": 1, \"failed\": \"0123456789012345678901234567890\"}",
        "{\"serial\": 1, \"failed\": \"\", \"trial\": 7}",
        "{\"serial\": 1, \"failed\": \"\", \"trial\": {\"from\": \"../..\", "
        "\"to\": \"0.2.0\", \"was\": \"\", \"args\": [], \"cwd\": \"\", "
        "\"log\": \"\", \"unit\": \"\"}}",
        "{\"serial\": 1, \"failed\": \"\", \"trial\": {\"from\": \"0.1.0\", "
        "\"to\": \"0.2.0\", \"was\": \"\", \"args\": [7], \"cwd\": \"\", "
        "\"log\": \"\", \"unit\": \"\"}}",
    };
    FILE *f;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        f = fopen(m.path, "wb");
        assert_non_null(f);
        (void)fputs(bad[i], f);
        (void)fclose(f);
        assert_int_equal(upgrade_memory_load(&again, folder, errmsg),
                         LOCO_EFORMAT);
    }
}

static void the_unit_is_that_of_a_users_systemd(void **state)
{
    static const struct {
        const char *cgroups, *unit;
    } cases[] = {
        {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/"
         "locod.service\n",
         "locod.service"},
        {"9:name=systemd:/user.slice/user-1000.slice/user@1000.service/"
         "mine.service\n8:pids:/x\n0::/\n",
         "mine.service"},
        {"9:name=systemd:/user.slice/user-1000.slice/user@1000.service/"
         "mine.service\n8:pids:/x\n",
         "mine.service"},
        {"0::/user.slice/user-1000.slice/user@1000.service\n", ""},
        {"0::/user.slice/user-1000.slice/session-3.scope\n", ""},
        {"0::/system.slice/locod.service\n", ""},
        {"0::/", ""},
        {"", ""},
    };
    char unit[UPGRADE_UNIT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        upgrade_unit_of(cases[i].cgroups, unit);
        assert_string_equal(unit, cases[i].unit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_remembered_at_first),
        cmocka_unit_test(a_trial_is_read_as_it_was_written),
        cmocka_unit_test(a_file_that_was_cut_starts_nothing),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(the_unit_is_that_of_a_users_systemd),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
