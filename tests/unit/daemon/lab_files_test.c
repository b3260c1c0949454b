/* lab_files_test.c - tables of the laboratory: what is read, what is refused.
 */
#include "daemon/cli/lab_files.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/settings/method_manifest.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

static char path[64];
static char errmsg[ERRMSG_SIZE];

static int make_path(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof path, "/tmp/loco-lab-files-%ld",
                   (long)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    (void)unlink(path);
    return 0;
}

static void put(const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void links_are_read_line_by_line(void **state)
{
    static struct lab_machine m[LAB_PEERS_MAX];

    (void)state;
    put("# all, then one of them\n* 20000 100 50 20\n\n3 5000 8 16 0 # slow\n");
    assert_int_equal(lab_links_read(path, m, errmsg), 0);
    assert_true(m[0].tokens_per_s == 20000);
    assert_true(m[63].up_bytes_per_s == 12.5e6);
    assert_true(m[2].down_bytes_per_s == 6.25e6);
    assert_true(fabs(m[2].delay_s - 0.02) < 1e-12);
    assert_true(m[3].tokens_per_s == 5000);
    assert_true(m[3].up_bytes_per_s == 1e6);
    assert_true(m[3].delay_s == 0);
    assert_int_equal(lab_links_read(NULL, m, errmsg), 0);
    assert_true(m[3].tokens_per_s == 10000);
}

static void members_are_sorted_by_tokens(void **state)
{
    static struct lab_event e[LAB_EVENTS_MAX];
    size_t n;

    (void)state;
    put("5000 die 1\n1000 join 4\n 1000 speed 0 250.5\n9e5 leave 2\n");
    assert_int_equal(lab_members_read(path, e, &n, errmsg), 0);
    assert_int_equal(n, 4);
    assert_int_equal(e[0].at_tokens, 1000);
    assert_int_equal(e[2].kind, LAB_DIE);
    assert_int_equal(e[3].at_tokens, 900000);
    assert_int_equal(lab_members_read(NULL, e, &n, errmsg), 0);
    assert_int_equal(n, 0);
}

static void what_is_no_table_is_refused_with_its_line(void **state)
{
    static const char *const links[] = {
        "* 20000 100 50\n", "* 20000 100 50 20 1\n", "64 1 1 1 1\n",
        "-1 1 1 1 1\n",     "1.5 1 1 1 1\n",         "* 0 1 1 1\n",
        "* nan 1 1 1\n",    "* 1 inf 1 1\n",         "* 1 1 1 1x\n",
        "a 1 1 1 1\n",
    };
    static const char *const members[] = {
        "1 dies 2\n",  "1 die\n",     "1 die 2 3\n",   "x die 2\n",
        "1 join 64\n", "1 speed 2\n", "1 speed 2 0\n", "-1 join 2\n",
    };
    static struct lab_machine m[LAB_PEERS_MAX];
    static struct lab_event e[LAB_EVENTS_MAX];
    char text[64];
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        (void)snprintf(text, sizeof text, "# first\n%s", links[i]);
        put(text);
        assert_int_equal(lab_links_read(path, m, errmsg), LOCO_EFORMAT);
        assert_non_null(strstr(errmsg, ":2: "));
    }
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        put(members[i]);
        assert_int_equal(lab_members_read(path, e, &n, errmsg), LOCO_EFORMAT);
        assert_non_null(strstr(errmsg, ":1: "));
    }
    assert_int_equal(lab_links_read("/nowhere/x", m, errmsg), LOCO_ENOENT);
}

static void long_lines_and_long_tables_are_refused(void **state)
{
    static struct lab_event e[LAB_EVENTS_MAX];
    static char text[LAB_EVENTS_MAX * 16 + 64];
    size_t n, at = 0;

    (void)state;
    memset(text, '1', 600);
    text[600] = '\0';
    put(text);
    assert_int_equal(lab_members_read(path, e, &n, errmsg), LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "longer than"));
    for (int i = 0; i < LAB_EVENTS_MAX + 1; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%d die 2\n", i);
    }
    put(text);
    assert_int_equal(lab_members_read(path, e, &n, errmsg), LOCO_EFORMAT);
    assert_non_null(strstr(errmsg, "more than"));
}

static void every_preset_survives_a_manifest(void **state)
{
    static struct manifest whole;

    (void)state;
    for (size_t i = 0; preset_at(i) != NULL; i++) {
        const struct preset *p = preset_at(i);
        struct method back;

        if (doc_set(manifest_schema(), &whole, "sync.preset", p->name,
                    errmsg) != 0) {
            fail_msg("%s: %s", p->name, errmsg);
        }
        manifest_from_preset(&whole, p);
        if (method_from_manifest(&back, &whole, SCOPE_SETTINGS, errmsg) != 0) {
            fail_msg("%s: %s", p->name, errmsg);
        }
        assert_int_equal(back.period, p->method.period);
        assert_int_equal(back.wire, p->method.wire);
        assert_int_equal(back.take, p->method.take);
        assert_int_equal(back.overlap, p->method.overlap);
        assert_true(back.rule.lr == p->method.rule.lr);
        assert_true(back.rule.gamma == p->method.rule.gamma);
        assert_true(back.mix == p->method.mix);
        assert_int_equal(back.batch, p->method.batch);
        assert_int_equal(back.trainers, p->method.trainers);
        assert_int_equal(back.merge_every, p->method.merge_every);
        assert_int_equal(back.batch_most, p->method.batch_most);
    }
}

static void points_become_csv_and_a_plot(void **state)
{
    struct lab_point points[3] = {{1000, 1, 1.5, 4.0, NAN, 10, 2},
                                  {2000, 2, 3.0, 3.0, 4.2, 20, 2},
                                  {3000, 3, 4.5, 2.5, 3.9, 30, 2}};
    const struct lab_result r = {.points = points, .n_points = 3};
    char got[512] = "";
    FILE *f;

    (void)state;
    assert_int_equal(lab_csv_write(path, &r, errmsg), 0);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(got, 1, sizeof got - 1, f) > 0);
    (void)fclose(f);
    assert_string_equal(got,
                        "tokens,rounds,virtual_s,loss,bits_per_byte,bytes_sent,"
                        "peers\n1000,1,1.500,4.000000,,10,2\n"
                        "2000,2,3.000,3.000000,4.200000,20,2\n"
                        "3000,3,4.500,2.500000,3.900000,30,2\n");
    assert_int_equal(lab_plot_write(path, "diloco", &r, errmsg), 0);
    assert_int_equal(lab_plot_write("/nowhere/x.svg", "diloco", &r, errmsg),
                     LOCO_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_are_read_line_by_line),
        cmocka_unit_test(members_are_sorted_by_tokens),
        cmocka_unit_test(what_is_no_table_is_refused_with_its_line),
        cmocka_unit_test(long_lines_and_long_tables_are_refused),
        cmocka_unit_test(every_preset_survives_a_manifest),
        cmocka_unit_test(points_become_csv_and_a_plot),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
