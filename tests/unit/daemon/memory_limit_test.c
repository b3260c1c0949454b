/* memory_limit_test.c - limits of control groups in a made-up /proc and /sys,
 * and ulimit -v. */
#include "daemon/settings/memory_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/train/tmpdir.h"

/* All folders on the way to `name`, then the file. */
static void put(struct tmpdir *t, const char *name, const char *text)
{
    char path[512];

    for (const char *at = strchr(name, '/'); at != NULL;
         at = strchr(at + 1, '/')) {
        snprintf(path, sizeof path, "%s/%.*s", t->path, (int)(at - name), name);
        (void)mkdir(path, 0755);
    }
    tmpdir_put(t, name, text, strlen(text));
}

/* The file and the folders it left empty. */
static void take_away(const struct tmpdir *t, const char *name)
{
    char path[512];
    char *slash;

    snprintf(path, sizeof path, "%s/%s", t->path, name);
    (void)remove(path);
    while ((slash = strrchr(path, '/')) > path + strlen(t->path) - 1) {
        *slash = '\0';
        (void)rmdir(path);
    }
}

/* The limit with one memory file and one line of /proc/self/cgroup. */
static uint64_t
limit_of(const char *line, const char *file, const char *text, bool *group)
{
    struct memory_limit limit;
    struct tmpdir t;

    tmpdir_make(&t);
    put(&t, "proc/self/cgroup", line);
    put(&t, file, text);
    memory_limit_read(t.path, &limit);
    *group = strstr(limit.whose, "control group") != NULL;
    take_away(&t, "proc/self/cgroup");
    take_away(&t, file);
    assert_true(access(t.path, F_OK) != 0);
    return limit.bytes;
}

static void the_least_limit_of_a_group_and_those_above_it_counts(void **state)
{
    static const struct {
        const char *line, *file, *text;
        uint64_t bytes; /* 0: no limit */
    } rows[] = {
        {"0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "1048576\n", 1048576},
        {"0::/a/b\n", "sys/fs/cgroup/a/memory.max", "4096\n", 4096},
        {"0::/a/b\n", "sys/fs/cgroup/memory.max", "65536\n", 65536},
        {"0::/\n", "sys/fs/cgroup/memory.max", "65536\n", 65536},
        {"0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "max\n", 0},
        {"0::/a/b\n", "sys/fs/cgroup/c/memory.max", "4096\n", 0},
        {"5:cpu,memory:/d\n", "sys/fs/cgroup/memory/d/memory.limit_in_bytes",
         "8192\n", 8192},
        {"5:cpu:/d\n", "sys/fs/cgroup/memory/d/memory.limit_in_bytes", "8192\n",
         0},
        {"nonsense\n", "sys/fs/cgroup/memory.max", "4096\n", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool group;
        uint64_t bytes =
            limit_of(rows[i].line, rows[i].file, rows[i].text, &group);

        assert_true(group == (rows[i].bytes != 0));
        assert_true(rows[i].bytes == 0 ? bytes > 1 << 20
                                       : bytes == rows[i].bytes);
    }
}

static void a_limit_of_the_address_space_counts(void **state)
{
    const struct rlimit small = {(rlim_t)3 << 30, RLIM_INFINITY};
    struct rlimit before;
    struct memory_limit limit;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    memory_limit_read("/nowhere", &limit);
    assert_true(limit.bytes > 0);
    if (limit.bytes < small.rlim_cur || before.rlim_max != RLIM_INFINITY) {
        skip(); /* a smaller machine, or one that forbids it */
    }
    assert_string_equal(limit.whose, "this machine");
    if (setrlimit(RLIMIT_AS, &small) != 0) {
        skip(); /* AddressSanitizer needs more than that */
    }
    memory_limit_read("/nowhere", &limit);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_true(limit.bytes == small.rlim_cur);
    assert_non_null(strstr(limit.whose, "ulimit -v"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_limit_of_a_group_and_those_above_it_counts),
        cmocka_unit_test(a_limit_of_the_address_space_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
