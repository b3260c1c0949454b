/* courtesy.h - when a guest on this machine keeps still.
 *
 * Four reasons to pause, each a setting of this machine: outside of the
 * *schedule* (hours of the week, local time), on *battery*, while somebody
 * *uses* the machine (presence.h), and when the month's *quota* of traffic is
 * used up. What a person said by hand (`loco
 * pause`) comes first and is never undone here.
 *
 * The schedule is text: entries with a comma between, each days, hours, or
 * both: "mon-fri 18-8, sat-sun" is every night after a working day and the
 * weekend; 18-8 goes on until 8 on the day after. "always" or nothing: always.
 *
 * Traffic of a calendar month is kept in the state directory ("2026-11
 * 123456789"), written now and then: a crash loses a minute of it at most.
 *
 * Pure but for courtesy_on_battery() and courtesy_be_nice(); one thread.
 */
#ifndef LOCO_DAEMON_SETTINGS_COURTESY_H
#define LOCO_DAEMON_SETTINGS_COURTESY_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "daemon/settings/presence.h"

#define COURTESY_ERRMSG_MAX 160
#define COURTESY_REASON_MAX 160
#define COURTESY_WEEK_MIN   (7 * 24 * 60)

struct courtesy_schedule {
    uint8_t open[COURTESY_WEEK_MIN / 8]; /* bit by minute since Sunday 0:00 */
};

/* LOCO_EINVAL with a sentence: not a schedule. */
int courtesy_schedule_parse(struct courtesy_schedule *s,
                            const char *text,
                            char errmsg[COURTESY_ERRMSG_MAX]);

/* Whether it is open at that local time. */
bool courtesy_schedule_open(const struct courtesy_schedule *s,
                            const struct tm *local);

/* Traffic of this month. */
struct courtesy_traffic {
    int year, month; /* 2026, 11; 0: nothing counted yet */
    uint64_t bytes;  /* until `seen` */
    uint64_t seen;   /* of the process's own counter */
};

/* Take in the process's counter of bytes, which begins at 0 with it. */
void courtesy_traffic_count(struct courtesy_traffic *t,
                            uint64_t bytes,
                            const struct tm *local);

/* As in the file: "2026-11 123". False: other bytes, `t` stays. */
bool courtesy_traffic_read(struct courtesy_traffic *t, const char *text);
void courtesy_traffic_print(const struct courtesy_traffic *t, char out[40]);

/* What is set, and what is. */
struct courtesy_facts {
    struct courtesy_schedule schedule;
    bool battery_pauses, on_battery;
    uint64_t idle_minutes; /* that nobody used it; 0: does not matter */
    struct presence presence;
    uint64_t quota_bytes; /* a month; 0: no quota */
    struct courtesy_traffic traffic;
    struct tm local;
};

/* Whether somebody uses the machine, as far as that matters. */
bool courtesy_in_use(const struct courtesy_facts *f);

/* Whether to pause; `reason` is then a sentence with what would change it. */
bool courtesy_pauses(const struct courtesy_facts *f,
                     char reason[COURTESY_REASON_MAX]);

/* Whether a battery of this machine drains; `sys` is "/sys". */
bool courtesy_on_battery(const char *sys);

/* Lower this process's share: nice 0 to 19, idle I/O. Raising it again needs
 * privileges: LOCO_EIO. */
int courtesy_be_nice(int nice, bool idle_io);

#endif
