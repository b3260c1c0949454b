/* courtesy_test.c - schedules, batteries, quotas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/settings/courtesy.h"
#include "proto/base/err.h"

enum { SUN, MON, TUE, WED, THU, FRI, SAT };

static struct tm at(int day, int hour, int minute)
{
    struct tm t = {0};

    t.tm_wday = day;
    t.tm_hour = hour;
    t.tm_min = minute;
    return t;
}

static bool open_at(const char *text, int day, int hour, int minute)
{
    struct courtesy_schedule s;
    char errmsg[COURTESY_ERRMSG_MAX] = "";
    struct tm t = at(day, hour, minute);

    if (courtesy_schedule_parse(&s, text, errmsg) != 0) {
        fail_msg("%s: %s", text, errmsg);
    }
    return courtesy_schedule_open(&s, &t);
}

static void hours_of_the_week_are_open_as_written(void **state)
{
    static const char nights[] = "mon-fri 18-8, sat-sun";

    (void)state;
    assert_true(open_at("", WED, 12, 0));
    assert_true(open_at("always", SUN, 0, 0));
    assert_true(open_at(nights, MON, 18, 0));
    assert_false(open_at(nights, MON, 17, 59));
    assert_true(open_at(nights, TUE, 7, 59));
    assert_false(open_at(nights, TUE, 8, 0));
    assert_true(open_at(nights, SUN, 23, 59));
    assert_false(open_at(nights, MON, 7, 0)); /* Sunday night is not in it */
    assert_true(open_at(nights, SAT, 3, 0));
    assert_true(open_at("22:30-7:15", THU, 22, 30));
    assert_false(open_at("22:30-7:15", THU, 7, 15));
    assert_true(open_at("sat 20-4", SUN, 3, 0)); /* over the week's end */
    assert_true(open_at("fri-mon 0-24", SUN, 12, 0));
    assert_false(open_at("fri-mon 0-24", TUE, 0, 0));
    assert_true(open_at("Wed", WED, 0, 0));
}

static void what_is_no_schedule_is_refused_with_an_example(void **state)
{
    static const char *const bad[] = {
        "noon",      "mon-",     "mon 25-3", "18",     "18-18", "mon tue",
        "mon 18-8;", "mon 8-9,", "24-3",     "8:60-9", ", mon", "mon 8–9"};
    struct courtesy_schedule s;
    char errmsg[COURTESY_ERRMSG_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (courtesy_schedule_parse(&s, bad[i], errmsg) != LOCO_EINVAL) {
            fail_msg("'%s' was taken", bad[i]);
        }
        assert_non_null(strstr(errmsg, "mon-fri 18-8"));
    }
}

static struct courtesy_facts facts(const char *schedule)
{
    struct courtesy_facts f = {.battery_pauses = true, .local = at(MON, 9, 0)};
    char errmsg[COURTESY_ERRMSG_MAX];

    assert_int_equal(courtesy_schedule_parse(&f.schedule, schedule, errmsg), 0);
    return f;
}

static void each_reason_to_pause_says_what_ends_it(void **state)
{
    struct courtesy_facts f = facts("always");
    char reason[COURTESY_REASON_MAX];

    (void)state;
    assert_false(courtesy_pauses(&f, reason));
    f.on_battery = true;
    assert_true(courtesy_pauses(&f, reason));
    assert_non_null(strstr(reason, "battery"));
    f.battery_pauses = false;
    assert_false(courtesy_pauses(&f, reason));
    f.quota_bytes = 2000000000;
    f.traffic.bytes = 1999999999;
    assert_false(courtesy_pauses(&f, reason));
    f.traffic.bytes++;
    assert_true(courtesy_pauses(&f, reason));
    assert_non_null(strstr(reason, "quota of 2.0 GB"));
    f = facts("always");
    f.presence = (struct presence){true, 14 * 60 + 59, "/dev/pts/3"};
    assert_false(courtesy_pauses(&f, reason)); /* it does not matter */
    f.idle_minutes = 15;
    assert_true(courtesy_pauses(&f, reason));
    assert_non_null(strstr(reason, "/dev/pts/3, 14 min ago"));
    assert_non_null(strstr(reason, "idle_minutes: 15"));
    f.presence.ago_s++;
    assert_false(courtesy_pauses(&f, reason));
    f = facts("mon-fri 18-8");
    assert_true(courtesy_pauses(&f, reason));
    assert_non_null(strstr(reason, "until mon 18:00"));
}

static void traffic_is_counted_by_month_over_restarts(void **state)
{
    struct courtesy_traffic t = {0}, next = {0};
    struct tm november = at(MON, 0, 0), december = at(TUE, 0, 0);
    char text[40];

    (void)state;
    november.tm_year = december.tm_year = 126;
    november.tm_mon = 10;
    december.tm_mon = 11;
    courtesy_traffic_count(&t, 100, &november);
    courtesy_traffic_count(&t, 250, &november);
    courtesy_traffic_print(&t, text);
    assert_string_equal(text, "2026-11 250\n");
    assert_true(courtesy_traffic_read(&next, text)); /* another process */
    courtesy_traffic_count(&next, 50, &november);
    assert_int_equal(next.bytes, 300);
    courtesy_traffic_count(&next, 70, &december);
    assert_int_equal(next.bytes, 20);
    assert_false(courtesy_traffic_read(&next, "nonsense"));
    assert_false(courtesy_traffic_read(&next, "2026-13 5"));
    assert_int_equal(next.bytes, 20);
}

static void write_at(const char *dir, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void only_a_draining_battery_of_the_machine_counts(void **state)
{
    char root[] = "/tmp/loco-sys-XXXXXX", dir[128], command[256];

    (void)state;
    assert_non_null(mkdtemp(root));
    assert_false(courtesy_on_battery(root)); /* a desktop */
    (void)snprintf(dir, sizeof dir, "%s/class", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    (void)snprintf(dir, sizeof dir, "%s/class/power_supply", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    (void)snprintf(dir, sizeof dir, "%s/class/power_supply/BAT0", root);
    assert_int_equal(mkdir(dir, 0700), 0);
    write_at(dir, "type", "Battery\n");
    write_at(dir, "status", "Charging\n");
    assert_false(courtesy_on_battery(root));
    write_at(dir, "status", "Discharging\n");
    assert_true(courtesy_on_battery(root));
    write_at(dir, "scope", "Device\n"); /* of a mouse */
    assert_false(courtesy_on_battery(root));
    for (size_t i = 0; i < 3; i++) {
        static const char *const names[] = {"type", "status", "scope"};

        (void)snprintf(command, sizeof command, "%s/%s", dir, names[i]);
        assert_int_equal(unlink(command), 0);
    }
    assert_int_equal(rmdir(dir), 0);
    (void)snprintf(dir, sizeof dir, "%s/class/power_supply", root);
    assert_int_equal(rmdir(dir), 0);
    (void)snprintf(dir, sizeof dir, "%s/class", root);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rmdir(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hours_of_the_week_are_open_as_written),
        cmocka_unit_test(what_is_no_schedule_is_refused_with_an_example),
        cmocka_unit_test(each_reason_to_pause_says_what_ends_it),
        cmocka_unit_test(traffic_is_counted_by_month_over_restarts),
        cmocka_unit_test(only_a_draining_battery_of_the_machine_counts),
    };

    return cmocka_run_group_tests_name("courtesy", tests, NULL, NULL);
}
