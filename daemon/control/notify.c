/* notify.c - see notify.h. */
#include "daemon/control/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* Microseconds in the environment for this process; 0: none. */
static uint64_t watchdog_us(void)
{
    const char *us = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

    if (us == NULL ||
        (pid != NULL && strtoll(pid, NULL, 10) != (long long)getpid())) {
        return 0;
    }
    return strtoull(us, NULL, 10);
}

static void tell(const struct notify *n, const char *text)
{
    (void)send(n->fd, text, strlen(text), MSG_NOSIGNAL);
}

void notify_alive(struct notify *n)
{
    if (n->watchdog_ms > 0) {
        tell(n, "WATCHDOG=1");
    }
}

void notify_open(struct notify *n)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path == NULL ? 0 : strlen(path);

    *n = (struct notify){.fd = -1};
    if ((len == 0) || (path[0] != '/' && path[0] != '@') ||
        len >= sizeof at.sun_path) {
        return;
    }
    memcpy(at.sun_path, path, len);
    if (path[0] == '@') {
        at.sun_path[0] = '\0'; /* abstract */
    }
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n->fd >= 0 &&
        connect(n->fd, (struct sockaddr *)&at,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) !=
            0) {
        (void)close(n->fd);
        n->fd = -1;
    }
    n->watchdog_ms = n->fd < 0 ? 0 : watchdog_us() / 1000;
}

/* With the time, by which Type=notify-reload knows that we heard its signal. */
static void tell_reloading(const struct notify *n)
{
    struct timespec t = {0};
    char text[64];

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    (void)snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu",
                   (unsigned long long)t.tv_sec * 1000000 +
                       (unsigned long long)t.tv_nsec / 1000);
    tell(n, text);
}

void notify_stopping(struct notify *n)
{
    if (n->fd >= 0 && !n->stopping) {
        n->stopping = true;
        tell(n, "STOPPING=1");
    }
}

void notify_restarting(struct notify *n)
{
    if (n->fd >= 0 && !n->stopping) {
        n->stopping = true;
        tell_reloading(n);
    }
}

/* Neither before READY=1, which is a word for more than that, nor at the end.
 */
static bool may_reload(const struct notify *n)
{
    return n->fd >= 0 && n->ready && !n->stopping;
}

void notify_reloading(const struct notify *n)
{
    if (may_reload(n)) {
        tell_reloading(n);
    }
}

void notify_reloaded(const struct notify *n)
{
    if (may_reload(n)) {
        tell(n, "READY=1");
    }
}

/* Whether the watchdog may be fed. Pure but for `n`. */
static bool
notify_lives(struct notify *n, const struct node_status *s, uint64_t now_ms)
{
    if (s->state != NODE_TRAINING || s->inner_step != n->step) {
        n->step = s->inner_step;
        n->step_ms = now_ms;
    }
    return now_ms < n->step_ms + NOTIFY_STALL_MS;
}

void notify_idle(struct notify *n, uint64_t now_ms)
{
    n->step_ms = now_ms;
}

bool notify_update(struct notify *n,
                   const struct node_status *s,
                   uint64_t now_ms)
{
    char text[320];
    bool lives = notify_lives(n, s, now_ms);

    if (n->fd < 0) {
        return lives;
    }
    if (!n->ready) {
        n->ready = true;
        tell(n, "READY=1");
    }
    if (s->state == NODE_DRAINING) {
        notify_stopping(n);
    }
    /* Twice as often as asked for, as sd_watchdog_enabled(3) advises. */
    if (n->watchdog_ms > 0 && lives &&
        now_ms >= n->fed_ms + n->watchdog_ms / 2) {
        n->fed_ms = now_ms;
        tell(n, "WATCHDOG=1");
    }
    if (n->told_ms == 0 || now_ms >= n->told_ms + NOTIFY_STATUS_MS) {
        n->told_ms = now_ms;
        (void)snprintf(text, sizeof text,
                       "STATUS=%s, round %llu, %u peers, %.0f tokens/s%s%.120s",
                       node_state_name(s->state), (unsigned long long)s->round,
                       s->peers_alive, (double)s->tokens_per_s,
                       s->reason[0] == '\0' ? "" : ": ", s->reason);
        tell(n, text);
    }
    return lives;
}

void notify_close(struct notify *n)
{
    if (n->fd >= 0) {
        (void)close(n->fd);
        n->fd = -1;
    }
}
