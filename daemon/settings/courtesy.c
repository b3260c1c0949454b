/* courtesy.c - see courtesy.h. */
#include "daemon/settings/courtesy.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/err.h"

#define DAY_MIN (24 * 60)

#define LISTS_MAX 8 /* of threads */

/* From linux/ioprio.h, which user space does not get. */
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_NONE        0
#define IOPRIO_IDLE        (3 << 13)

static const char *const day_names[] = {"sun", "mon", "tue", "wed",
                                        "thu", "fri", "sat"};

/* ---- schedule ------------------------------------------------------------ */

static int day_parse(const char **at)
{
    for (int i = 0; i < 7; i++) {
        if (strncasecmp(*at, day_names[i], 3) == 0) {
            *at += 3;
            return i;
        }
    }
    return -1;
}

/* "18", "7:30"; minutes of the day, 24 is its end. Negative: neither. */
static int time_parse(const char **at)
{
    char *end;
    long hour, minute = 0;

    if (!isdigit((unsigned char)**at)) {
        return -1;
    }
    hour = strtol(*at, &end, 10);
    if (*end == ':' && isdigit((unsigned char)end[1])) {
        minute = strtol(end + 1, &end, 10);
    }
    *at = end;
    if (hour > 24 || minute > 59 || (hour == 24 && minute > 0)) {
        return -1;
    }
    return (int)(hour * 60 + minute);
}

static void skip_blanks(const char **at)
{
    while (**at == ' ' || **at == '\t') {
        (*at)++;
    }
}

static void open_minutes(struct courtesy_schedule *s, int from, int n)
{
    for (int i = from; i < from + n; i++) {
        int minute = i % COURTESY_WEEK_MIN;

        s->open[minute / 8] |= (uint8_t)(1U << (minute % 8));
    }
}

/* One entry up to a comma or the end. False: it is none. */
static bool entry_parse(struct courtesy_schedule *s, const char **at)
{
    int first = 0, last = 6, from = 0, to = DAY_MIN, day;
    bool any = false;

    skip_blanks(at);
    day = day_parse(at);
    if (day >= 0) {
        any = true;
        first = last = day;
        if (**at == '-') {
            (*at)++;
            last = day_parse(at);
            if (last < 0) {
                return false;
            }
        }
    }
    skip_blanks(at);
    if (isdigit((unsigned char)**at)) {
        any = true;
        from = time_parse(at);
        if (from < 0 || **at != '-') {
            return false;
        }
        (*at)++;
        to = time_parse(at);
        if (to < 0 || from == to || from == DAY_MIN) {
            return false;
        }
    }
    skip_blanks(at);
    if (!any || (**at != ',' && **at != '\0')) {
        return false;
    }
    for (day = first;; day = (day + 1) % 7) {
        open_minutes(s, day * DAY_MIN + from,
                     to > from ? to - from : DAY_MIN - from + to);
        if (day == last) {
            return true;
        }
    }
}

int courtesy_schedule_parse(struct courtesy_schedule *s,
                            const char *text,
                            char errmsg[COURTESY_ERRMSG_MAX])
{
    const char *at = text;

    memset(s, 0, sizeof *s);
    if (text[0] == '\0' || strcasecmp(text, "always") == 0) {
        memset(s->open, 0xff, sizeof s->open);
        return 0;
    }
    for (;;) {
        if (!entry_parse(s, &at)) {
            (void)snprintf(errmsg, COURTESY_ERRMSG_MAX,
                           "schedule: '%.40s' is not DAYS HOURS, as in "
                           "\"mon-fri 18-8, sat-sun\"",
                           at[0] == '\0' ? text : at);
            return LOCO_EINVAL;
        }
        if (*at == '\0') {
            return 0;
        }
        at++;
    }
}

static bool open_at(const struct courtesy_schedule *s, int minute)
{
    return s->open[minute / 8] >> (minute % 8) & 1;
}

static int minute_of(const struct tm *local)
{
    return (local->tm_wday * DAY_MIN + local->tm_hour * 60 + local->tm_min) %
           COURTESY_WEEK_MIN;
}

bool courtesy_schedule_open(const struct courtesy_schedule *s,
                            const struct tm *local)
{
    return open_at(s, minute_of(local));
}

/* The next change after that time, within a week; false: never. */
static bool courtesy_schedule_next(const struct courtesy_schedule *s,
                                   const struct tm *local,
                                   int *weekday,
                                   int *hour,
                                   int *minute)
{
    int now = minute_of(local);

    for (int i = 1; i < COURTESY_WEEK_MIN; i++) {
        int at = (now + i) % COURTESY_WEEK_MIN;

        if (open_at(s, at) != open_at(s, now)) {
            *weekday = at / DAY_MIN;
            *hour = at % DAY_MIN / 60;
            *minute = at % 60;
            return true;
        }
    }
    return false;
}

/* ---- traffic ------------------------------------------------------------- */

void courtesy_traffic_count(struct courtesy_traffic *t,
                            uint64_t bytes,
                            const struct tm *local)
{
    int year = local->tm_year + 1900, month = local->tm_mon + 1;

    if (t->year != year || t->month != month) {
        t->bytes = 0;
        t->year = year;
        t->month = month;
    }
    t->bytes += bytes > t->seen ? bytes - t->seen : 0;
    t->seen = bytes;
}

bool courtesy_traffic_read(struct courtesy_traffic *t, const char *text)
{
    unsigned year, month;
    unsigned long long bytes;

    if (sscanf(text, "%4u-%2u %llu", &year, &month, &bytes) != 3 || month < 1 ||
        month > 12) {
        return false;
    }
    t->year = (int)year;
    t->month = (int)month;
    t->bytes = bytes;
    return true;
}

void courtesy_traffic_print(const struct courtesy_traffic *t, char out[40])
{
    (void)snprintf(out, 40, "%04u-%02u %llu\n", (unsigned)t->year % 10000U,
                   (unsigned)t->month % 100U, (unsigned long long)t->bytes);
}

/* ---- the decision -------------------------------------------------------- */

bool courtesy_in_use(const struct courtesy_facts *f)
{
    return f->idle_minutes > 0 && f->presence.seen &&
           f->presence.ago_s < f->idle_minutes * 60;
}

bool courtesy_pauses(const struct courtesy_facts *f,
                     char reason[COURTESY_REASON_MAX])
{
    int day = 0, hour = 0, minute = 0;

    reason[0] = '\0';
    if (!courtesy_schedule_open(&f->schedule, &f->local)) {
        if (courtesy_schedule_next(&f->schedule, &f->local, &day, &hour,
                                   &minute)) {
            (void)snprintf(reason, COURTESY_REASON_MAX,
                           "outside of the schedule until %s %02d:%02d",
                           day_names[day], hour, minute);
        } else {
            (void)snprintf(reason, COURTESY_REASON_MAX,
                           "the schedule is never open");
        }
    } else if (f->battery_pauses && f->on_battery) {
        (void)snprintf(reason, COURTESY_REASON_MAX,
                       "on battery (the setting battery: train allows it)");
    } else if (courtesy_in_use(f)) {
        (void)snprintf(reason, COURTESY_REASON_MAX,
                       "somebody uses this machine (%s, %llu min ago); it goes "
                       "on after idle_minutes: %llu",
                       f->presence.what,
                       (unsigned long long)(f->presence.ago_s / 60),
                       (unsigned long long)f->idle_minutes);
    } else if (f->quota_bytes > 0 && f->traffic.bytes >= f->quota_bytes) {
        (void)snprintf(reason, COURTESY_REASON_MAX,
                       "this month's quota of %.1f GB is used up (%.1f GB "
                       "sent and received)",
                       (double)f->quota_bytes / 1e9,
                       (double)f->traffic.bytes / 1e9);
    }
    return reason[0] != '\0';
}

/* ---- this machine -------------------------------------------------------- */

/* The first word of a small file; "" where there is none. */
static void
read_word(const char *dir, const char *name, const char *file, char out[32])
{
    char path[512];
    FILE *f;

    (void)snprintf(path, sizeof path, "%.200s/class/power_supply/%.200s/%s",
                   dir, name, file);
    out[0] = '\0';
    f = fopen(path, "re");
    if (f != NULL) {
        if (fscanf(f, "%31s", out) != 1) {
            out[0] = '\0';
        }
        (void)fclose(f);
    }
}

bool courtesy_on_battery(const char *sys)
{
    char path[256], type[32], scope[32], status[32];
    const struct dirent *e;
    bool drains = false;
    DIR *d;

    (void)snprintf(path, sizeof path, "%.200s/class/power_supply", sys);
    d = opendir(path);
    while (d != NULL && (e = readdir(d)) != NULL) {
        read_word(sys, e->d_name, "type", type);
        read_word(sys, e->d_name, "scope", scope);
        read_word(sys, e->d_name, "status", status);
        /* Scope Device: of a mouse or a headset. */
        drains |= strcmp(type, "Battery") == 0 &&
                  strcmp(scope, "Device") != 0 &&
                  strcmp(status, "Discharging") == 0;
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return drains;
}

/* Whether another thread had to be told. */
static int tell_threads(int nice, bool idle_io, bool *told)
{
    DIR *d = opendir("/proc/self/task");
    const struct dirent *e;
    int rv = 0;

    *told = false;
    if (d == NULL) {
        return LOCO_EIO;
    }
    while ((e = readdir(d)) != NULL) {
        long tid = strtol(e->d_name, NULL, 10);

        if (tid <= 0) {
            continue;
        }
        *told |= getpriority(PRIO_PROCESS, (id_t)tid) != nice;
        if (setpriority(PRIO_PROCESS, (id_t)tid, nice) != 0 ||
            syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, tid,
                    idle_io ? IOPRIO_IDLE : IOPRIO_NONE) != 0) {
            rv = errno == ESRCH ? rv : LOCO_EIO;
        }
    }
    (void)closedir(d);
    return rv;
}

/* Both are per thread on Linux: those that there are already, too. A thread has
 * those of the one that began it, and a list may lack threads where one ends
 * meanwhile: so until a list has none that is to be told. */
int courtesy_be_nice(int nice, bool idle_io)
{
    bool told = true;
    int rv = 0;

    for (int k = 0; k < LISTS_MAX && told && rv == 0; k++) {
        rv = tell_threads(nice, idle_io, &told);
    }
    return rv;
}
