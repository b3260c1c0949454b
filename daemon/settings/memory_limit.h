/* memory_limit.h - how much memory this process can have, and who says so.
 *
 * The least of: the machine's memory, the limits of the control group that the
 * process is in and of those above it (containers, systemd; versions 1 and 2),
 * and RLIMIT_AS (ulimit -v). It is an upper bound, not what is free: a plan
 * above it cannot ever work and is refused before anything is allocated.
 *
 * Reads /proc and /sys once per call; what is missing there limits nothing.
 */
#ifndef LOCO_DAEMON_SETTINGS_MEMORY_LIMIT_H
#define LOCO_DAEMON_SETTINGS_MEMORY_LIMIT_H

#include <stdint.h>

struct memory_limit {
    uint64_t bytes;    /* UINT64_MAX: nobody says */
    const char *whose; /* "this machine": who has that much; static text */
};

/* `root` is put before /proc/self/cgroup and /sys/fs/cgroup: "" except in
 * tests. */
void memory_limit_read(const char *root, struct memory_limit *limit);

#endif
