/* http_many.h - one question at a time to each of many daemons, to all of them
 * at once: a daemon that hangs holds up nobody.
 *
 * A *slot* is a daemon. http_many_ask() begins its question, http_many_next()
 * hands over an answer when it is there. As http.h, but an answer has at most
 * the bytes that http_many_open() was told: that times the slots is all the
 * memory that daemons can make us take. One thread.
 */
#ifndef LOCO_DAEMON_VISIT_HTTP_MANY_H
#define LOCO_DAEMON_VISIT_HTTP_MANY_H

#include "daemon/visit/http.h"

struct http_many;

struct http_answer {
    size_t slot;
    int rv;     /* as http_get() */
    char *body; /* the caller's, free(); NUL-ended; NULL: there is none */
    size_t len;
    char errmsg[HTTP_ERRMSG_MAX]; /* unless rv is 0 */
};

/* NULL: no memory. */
struct http_many *http_many_open(size_t n_slots, size_t body_max);

/* GET path; `daemon` is copied. Nothing while the slot's last question has no
 * answer yet. LOCO_ENOMEM. */
int http_many_ask(struct http_many *m,
                  size_t slot,
                  const struct http_daemon *daemon,
                  const char *path);

/* The next answer; waits for it up to so many milliseconds. 0: none yet. */
int http_many_next(struct http_many *m,
                   int wait_ms,
                   struct http_answer *answer);

void http_many_close(struct http_many *m);

#endif
