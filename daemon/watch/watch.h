/* watch.h - several daemons, on this machine and on others, asked for their
 * status again and again: for `loco top` and `loco page`.
 *
 * A daemon is named by its state directory, or by its control address
 * ("HOST:PORT", "unix:PATH") with a token where it asks for one. Each is asked
 * every `period_ms`, one question at a time, all of them at once: one that
 * hangs holds up nobody. After HTTP_TIMEOUT_MS a question has failed.
 *
 * What daemons say is bounded: an answer has at most WATCH_BODY_MAX bytes, and
 * what is kept of it is a sight (sight.h).
 *
 * One thread: that of watch_step().
 */
#ifndef LOCO_DAEMON_WATCH_WATCH_H
#define LOCO_DAEMON_WATCH_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/visit/http.h"

#define WATCH_MAX      64
#define WATCH_NAME_MAX 48
#define WATCH_BODY_MAX ((size_t)256 << 10)

struct watch_name {
    const char *state_dir; /* NULL: `daemon` is the address */
    struct http_daemon daemon;
    char name[WATCH_NAME_MAX]; /* that people call it; "": by the above */
};

struct watched {
    const char *label; /* for people: name, state directory or address */
    struct http_daemon daemon; /* where it answered or was sought last */
    json_t *status;            /* its last sight; NULL: none came yet */
    bool answers;              /* to the last question */
    uint64_t heard_ms;         /* monotonic: the last sight, or the begin */
    int64_t since_ms;          /* wall: it answers, or does not, since then */
    char
        trouble[HTTP_ERRMSG_MAX]; /* why it did not, the last time; "": never */
    int64_t trouble_ms;           /* wall: when that was */
};

struct watch;

/* `names` is borrowed. `public`: what is learnt will be shown to every account
 * of this machine; a daemon that is not for all of them (watch_is_private()) is
 * not asked then, and its row says why. NULL: no memory. */
struct watch *watch_open(const struct watch_name *names,
                         size_t n,
                         uint64_t period_ms,
                         bool public);

/* Whether not every account of this machine may ask that daemon. A state
 * directory that names no daemon now counts as one that is for its owner. */
bool watch_is_private(const struct watch_name *name);

/* Ask who is due, and take an answer if there is one within so many
 * milliseconds. Whether a row changed. */
bool watch_step(struct watch *w, int wait_ms);

/* Whether each was asked and has answered or failed. */
bool watch_settled(const struct watch *w);

size_t watch_n(const struct watch *w);
const struct watched *watch_row(const struct watch *w, size_t i);

/* All of it as JSON (daemon/API.md, "Several machines"), from malloc; NULL: no
 * memory. */
char *watch_json(const struct watch *w);

void watch_close(struct watch *w);

#endif
