/* loco.c - the handle; see loco.h. */
#include "daemon/client/loco.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/client/internal.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

_Static_assert(LOCO_ERRMSG_MAX == ERRMSG_SIZE, "one size of sentences");
_Static_assert((int)LOCO_FAIL_MEMORY == (int)LOCO_ENOMEM &&
                   (int)LOCO_FAIL_PROTOCOL == (int)LOCO_EPROTO &&
                   (int)LOCO_FAIL_VALUE == (int)LOCO_EINVAL &&
                   (int)LOCO_FAIL_SYSTEM == (int)LOCO_EIO &&
                   (int)LOCO_FAIL_NO_DAEMON == (int)LOCO_ENOENT &&
                   (int)LOCO_FAIL_TIMEOUT == (int)LOCO_ETIMEOUT &&
                   (int)LOCO_FAIL_REFUSED == (int)LOCO_EBUSY &&
                   (int)LOCO_FAIL_OTHER_RUN == (int)LOCO_ERUN &&
                   (int)LOCO_FAIL_FORK == (int)LOCO_ECANCELED,
               "the codes of err.h");
_Static_assert(LOCO_NO_TARGET == TRAINER_NO_TARGET &&
                   LOCO_DIMS_MAX == TRAINER_DIMS_MAX,
               "as the daemon has them");

uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

int link_fail(struct loco *l, int failure, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(l->errmsg, sizeof l->errmsg, fmt, args);
    va_end(args);
    link_lost(l);
    l->link = LINK_FAILED;
    l->failure = failure;
    return failure;
}

int wrong_call(struct loco *l, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(l->errmsg, sizeof l->errmsg, fmt, args);
    va_end(args);
    return LOCO_FAIL_VALUE;
}

void link_log(const struct loco *l, const char *fmt, ...)
{
    char text[LOCO_ERRMSG_MAX + STATE_PATH_MAX];
    va_list args;

    if (l->options.log == NULL) {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    l->options.log(l->options.data, text);
}

int enter(struct loco *l)
{
    if (l->owner != getpid()) {
        (void)snprintf(l->errmsg, sizeof l->errmsg,
                       "this is a child of fork(): the process %ld that "
                       "called loco_open() alone may use the handle",
                       (long)l->owner);
        return LOCO_FAIL_FORK;
    }
    if (l->link == LINK_LEFT) {
        return wrong_call(l, "loco_stop() was called: only loco_close() may "
                             "follow");
    }
    return l->link == LINK_FAILED ? l->failure : 0;
}

/* ---- options ------------------------------------------------------------ */

/* What an older or a newer program knows of them. */
static int take_options(struct loco_options *out,
                        const struct loco_options *o,
                        char *errmsg)
{
    const uint8_t *bytes = (const uint8_t *)o;
    size_t least = offsetof(struct loco_options, join);

    if (o == NULL || o->size < least || o->size > 4096) {
        return errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                           "loco_options.size must be sizeof(struct "
                           "loco_options)");
    }
    for (size_t i = sizeof *out; i < o->size; i++) {
        if (bytes[i] != 0) {
            return errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                               "the program sets an option that this library "
                               "does not know: install the newer one");
        }
    }
    memset(out, 0, sizeof *out);
    memcpy(out, o, o->size < sizeof *out ? o->size : sizeof *out);
    out->start_ms = out->start_ms > 0 ? out->start_ms : PATIENCE_MS;
    out->reconnect_ms = out->reconnect_ms > 0 ? out->reconnect_ms : PATIENCE_MS;
    if (out->join != NULL && out->run != NULL) {
        return errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                           "give one of join (an invitation) and run (a "
                           "run.yaml), not both");
    }
    return 0;
}

/* As locod does it; see config_parse(). */
static int usual_state(char out[STATE_PATH_MAX], char *errmsg)
{
    const char *named = getenv("LOCO_STATE"), *base = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n = -1;

    if (named != NULL && named[0] != '\0') {
        n = snprintf(out, STATE_PATH_MAX, "%s", named);
    } else if (base != NULL && base[0] == '/') {
        n = snprintf(out, STATE_PATH_MAX, "%s/loco", base);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(out, STATE_PATH_MAX, "%s/.local/state/loco", home);
    }
    return n > 0 && n < STATE_PATH_MAX
               ? 0
               : errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                             "no state directory: set the option state, or "
                             "HOME");
}

static bool copy(char **out, const char *text)
{
    *out = text == NULL ? NULL : strdup(text);
    return text == NULL || *out != NULL;
}

static bool copy_args(struct loco *l)
{
    const char *const *from = l->options.locod_args;
    size_t n = 0;

    while (from != NULL && from[n] != NULL) {
        n++;
    }
    l->locod_args = calloc(n + 1, sizeof l->locod_args[0]);
    for (size_t i = 0; l->locod_args != NULL && i < n; i++) {
        if (!copy(&l->locod_args[i], from[i])) {
            return false;
        }
    }
    return l->locod_args != NULL;
}

static bool copy_options(struct loco *l, const char *state)
{
    const char *name = l->options.name == NULL ? "" : l->options.name;

    l->n_name = (uint8_t)strnlen(name, TRAINER_NAME_MAX);
    memcpy(l->name, name, l->n_name);
    return copy(&l->state, state) && copy(&l->join, l->options.join) &&
           copy(&l->run, l->options.run) && copy(&l->locod, l->options.locod) &&
           copy(&l->locod_log, l->options.locod_log) && copy_args(l);
}

/* ---- open, close -------------------------------------------------------- */

static void release(struct loco *l)
{
    for (size_t i = 0; l->locod_args != NULL && l->locod_args[i] != NULL; i++) {
        free(l->locod_args[i]);
    }
    free(l->locod_args);
    free(l->state);
    free(l->join);
    free(l->run);
    free(l->locod);
    free(l->locod_log);
    free(l->text_tokens);
    free(l->held_tokens);
    layout_free(&l->layout);
    shared_unmap(&l->shared);
    if (l->fd >= 0) {
        (void)close(l->fd);
    }
    free(l);
}

static int open_with(struct loco *l, const struct loco_options *o, char *errmsg)
{
    char usual[STATE_PATH_MAX];
    const char *state = usual;
    int rv = take_options(&l->options, o, errmsg);

    if (rv != 0) {
        return rv;
    }
    if (l->options.state != NULL && l->options.state[0] != '\0') {
        state = l->options.state;
    } else if ((rv = usual_state(usual, errmsg)) != 0) {
        return rv;
    }
    if (!copy_options(l, state)) {
        return errmsg_fail(errmsg, LOCO_FAIL_MEMORY, "out of memory");
    }
    rv = link_up(l, 0);
    return rv < 0 ? errmsg_fail(errmsg, rv, "%s", l->errmsg) : 0;
}

int loco_open(struct loco **out, const struct loco_options *o, char *errmsg)
{
    struct loco *l = calloc(1, sizeof *l);
    int rv;

    *out = NULL;
    if (errmsg != NULL) {
        errmsg[0] = '\0';
    }
    if (l == NULL) {
        return errmsg_fail(errmsg, LOCO_FAIL_MEMORY, "out of memory");
    }
    l->owner = getpid();
    l->fd = -1;
    l->down_since_ms = now_ms();
    rv = open_with(l, o, errmsg);
    if (rv != 0) {
        release(l);
        return rv;
    }
    *out = l;
    return 0;
}

int loco_stop(struct loco *l, uint32_t timeout_ms)
{
    if (l->owner != getpid()) {
        return enter(l);
    }
    link_lost(l);
    l->link = LINK_LEFT;
    return l->options.keep ? 1 : child_stop(l, now_ms() + timeout_ms);
}

void loco_keep(struct loco *l)
{
    l->options.keep = 1;
    if (l->child.pid != 0) {
        link_log(l, "locod (process %ld) goes on and waits for another loop",
                 (long)l->child.pid);
    }
}

void loco_close(struct loco *l)
{
    uint64_t deadline;

    if (l == NULL) {
        return;
    }
    if (l->owner == getpid()) {
        deadline = now_ms() + CLOSE_WAIT_MS;
        while (loco_stop(l, CLOSE_WAIT_MS) == 0 && now_ms() < deadline) {
            /* A signal came: wait on. */
        }
        if (l->child.pid != 0 && !l->options.keep) {
            link_log(l, "locod (process %ld) still drains; it goes on alone",
                     (long)l->child.pid);
        }
    }
    release(l);
}

/* ---- what is known ------------------------------------------------------ */

const char *loco_errmsg(const struct loco *l)
{
    return l->errmsg;
}

int loco_ready(struct loco *l, uint32_t timeout_ms)
{
    int rv = enter(l);

    if (rv != 0) {
        return rv;
    }
    if (l->was_up) {
        return 1;
    }
    rv = link_up(l, now_ms() + timeout_ms);
    if (l->link == LINK_ENDED) {
        return link_fail(l, LOCO_FAIL_NO_DAEMON, "locod ended: %.200s",
                         l->end_text);
    }
    return rv;
}

/* The run is known once there was a WELCOME, and stays so. */
static int known(struct loco *l)
{
    int rv = enter(l);

    if (rv == 0 && !l->was_up) {
        return wrong_call(l, "the run is not known yet: call loco_ready() "
                             "until it returns 1");
    }
    return rv;
}

int loco_info(struct loco *l, struct loco_info *out)
{
    const struct trainer_welcome *w = &l->welcome;
    int rv = known(l);

    memset(out, 0, sizeof *out);
    if (rv != 0) {
        return rv;
    }
    memcpy(out->run_id, w->run_id.b, sizeof out->run_id);
    memcpy(out->run_name, w->run_name, w->n_run_name);
    memcpy(out->preset, w->preset, w->n_preset);
    out->n = w->n;
    out->n_tensors = w->n_tensors;
    out->batch = w->batch;
    out->seq = w->seq;
    out->vocab = w->tokens_at != 0 ? w->vocab : 0;
    out->tokens_most = w->tokens_most;
    out->period = w->period;
    out->started_pid = (int32_t)l->child.pid;
    return 0;
}

int loco_tensor(struct loco *l, uint32_t i, struct loco_tensor *out)
{
    int rv = known(l);

    memset(out, 0, sizeof *out);
    if (rv != 0) {
        return rv;
    }
    if (i >= l->layout.n) {
        return wrong_call(l, "the run has %u tensors, and no tensor %u",
                          l->layout.n, i);
    }
    *out = l->layout.tensors[i];
    return 0;
}

int loco_check(struct loco *l, const struct loco_tensor *mine, uint32_t n)
{
    int rv = known(l);

    return rv != 0 ? rv : layout_check(&l->layout, mine, n, l->errmsg);
}

float *loco_theta(struct loco *l)
{
    return known(l) == 0 ? l->shared.theta : NULL;
}
