/* notify.h - what systemd is told of the daemon (sd_notify(3)).
 *
 * A datagram to the socket that NOTIFY_SOCKET names: READY=1 once it listens,
 * STATUS= a line that `systemctl status` shows, STOPPING=1 when it drains,
 * WATCHDOG=1 while all is well. A restart keeps the process: RELOADING=1 with
 * MONOTONIC_USEC, and READY=1 by the program that follows; SIGHUP is told by
 * the same two. No library: the protocol is six words.
 *
 * The watchdog is fed by *progress*: by the loop, and while it trains only as
 * long as inner steps are taken (one in NOTIFY_STALL_MS at least). A loop that
 * hangs or a trainer that stands still is restarted by systemd.
 *
 * Without NOTIFY_SOCKET nothing happens. Nothing here fails: a service manager
 * that does not listen is its own problem. Reads the environment: open it
 * before threads start. Loop thread.
 */
#ifndef LOCO_DAEMON_CONTROL_NOTIFY_H
#define LOCO_DAEMON_CONTROL_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/node.h"

#define NOTIFY_STALL_MS  1800000 /* a single step takes less on any machine */
#define NOTIFY_STATUS_MS 5000    /* between two STATUS= lines */

struct notify {
    int fd;               /* -1: nobody wants to know */
    uint64_t watchdog_ms; /* to feed within; 0: none */
    bool ready, stopping;
    uint64_t fed_ms, told_ms;
    uint64_t step, step_ms; /* the last inner step that was new, and when */
};

void notify_open(struct notify *n);

/* Now and then, some times a second: says what is due. False: the trainer
 * stands still. */
bool notify_update(struct notify *n,
                   const struct node_status *s,
                   uint64_t now_ms);

/* There is nothing to train with, so no step is missed. */
void notify_idle(struct notify *n, uint64_t now_ms);

/* It ends; said once. */
void notify_stopping(struct notify *n);

/* It drains to be another program in this process: in the place of that. */
void notify_restarting(struct notify *n);

/* It reads its settings once more; and has read them. */
void notify_reloading(const struct notify *n);
void notify_reloaded(const struct notify *n);

/* The watchdog has its whole time again: around the change of programs. */
void notify_alive(struct notify *n);

void notify_close(struct notify *n);

#endif
