/* presence.h - whether somebody uses this machine, without a desktop's library.
 *
 * Two signs, each a look at files that every account may see:
 *
 *   a key     on a console, in a terminal window or over SSH: the kernel keeps
 *             the time of the last read of each terminal (/dev/ttyN,
 * /dev/pts/N; what w(1) shows as idle), to 8 s a screen  that is on, and a
 * desktop session at this machine that is in front (/run/systemd/sessions,
 * /sys/class/drm): desktops turn the screen off when nobody has touched
 * anything for some minutes. A desktop that never does counts as used while it
 * is in front
 *
 * What it cannot see: a desktop without systemd-logind; somebody at a game
 * console's pad. After a start of the machine its consoles look used for a
 * moment, for their files are new.
 *
 * Reads files, keeps nothing; any thread.
 */
#ifndef LOCO_DAEMON_SETTINGS_PRESENCE_H
#define LOCO_DAEMON_SETTINGS_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define PRESENCE_WHAT_MAX 48

struct presence {
    bool seen;
    uint64_t ago_s;               /* since the last sign; 0: now */
    char what[PRESENCE_WHAT_MAX]; /* "/dev/pts/3", "a desktop session" */
};

/* The newest sign at `now`. `root` is put before /dev, /run and /sys: "" except
 * in tests. */
void presence_look(const char *root, time_t now, struct presence *p);

#endif
