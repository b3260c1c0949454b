/* control.c - see control.h.
 *
 * A snapshot is one MHD_Response, which libmicrohttpd counts references to:
 * publishing swaps the pointer, and a slow reader keeps the old bytes alive.
 */
#include "daemon/control/internal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/qr.h"
#include "daemon/control/status_json.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

/* ---- answers ------------------------------------------------------------ */

static enum MHD_Result get_status(struct control *c,
                                  struct MHD_Connection *connection)
{
    enum MHD_Result result = MHD_NO;

    (void)pthread_mutex_lock(&c->lock);
    if (c->status != NULL) {
        result = MHD_queue_response(connection, MHD_HTTP_OK, c->status);
    }
    (void)pthread_mutex_unlock(&c->lock);
    if (result == MHD_NO) {
        return web_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                               "starting\n");
    }
    return result;
}

static struct shown *shown_of(struct control *c)
{
    struct shown *shown;

    (void)pthread_mutex_lock(&c->lock);
    shown = c->shown;
    (void)pthread_mutex_unlock(&c->lock);
    return shown;
}

/* ?name=N with N from 1; 0 where it is not given. False: something else. */
static bool
argument(struct MHD_Connection *connection, const char *name, uint64_t *number)
{
    const char *text =
        MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);
    char *end;

    *number = 0;
    if (text == NULL) {
        return true;
    }
    *number = strtoull(text, &end, 10);
    return *end == '\0' && *number > 0 && text[0] >= '0' && text[0] <= '9';
}

static enum MHD_Result get_rounds(struct control *c,
                                  struct MHD_Connection *connection)
{
    struct shown *shown = shown_of(c);
    uint64_t round, last;

    if (!argument(connection, "round", &round) ||
        !argument(connection, "last", &last)) {
        return web_answer_text(connection, MHD_HTTP_BAD_REQUEST,
                               "round and last are numbers, at least 1\n");
    }
    return web_answer_json(
        connection, shown == NULL ? NULL : shown_rounds(shown, round, last));
}

/* The line for others as in the status, and its QR code. */
static enum MHD_Result get_share(struct control *c,
                                 struct MHD_Connection *connection)
{
    json_t *status, *share, *rows = NULL;
    const char *uri;
    char *copy, *text = NULL;

    (void)pthread_mutex_lock(&c->lock);
    copy = c->json == NULL ? NULL : strdup(c->json);
    (void)pthread_mutex_unlock(&c->lock);
    status = copy == NULL ? NULL : json_loads(copy, 0, NULL);
    free(copy);
    share = json_object_get(status, "share");
    uri = json_string_value(json_object_get(share, "uri"));
    if (share != NULL) {
        rows = uri == NULL ? NULL : qr_rows(uri);
        json_object_set_new(share, "qr", rows == NULL ? json_null() : rows);
        text = json_dumps(share, JSON_COMPACT);
    }
    json_decref(status);
    return web_answer_json(connection, text);
}

static enum MHD_Result get_health(struct control *c,
                                  struct MHD_Connection *connection)
{
    uint64_t now_ms = monotonic_ms();
    bool fresh, stalled;

    (void)pthread_mutex_lock(&c->lock);
    fresh = c->status != NULL && now_ms < c->published_ms + CONTROL_STALE_MS;
    stalled = c->stalled;
    (void)pthread_mutex_unlock(&c->lock);
    return fresh && !stalled
               ? web_answer_text(connection, MHD_HTTP_OK, "ok\n")
               : web_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                 fresh ? "the trainer stands still\n"
                                       : "the event loop does not "
                                         "respond\n");
}

static enum MHD_Result get_metrics(struct control *c,
                                   struct MHD_Connection *connection)
{
    struct shown *shown = shown_of(c);
    char *json, *text, *more, *all = NULL;
    int len = -1;

    (void)pthread_mutex_lock(&c->lock);
    json = c->json == NULL ? NULL : strdup(c->json);
    (void)pthread_mutex_unlock(&c->lock);
    text = json == NULL ? NULL : status_metrics(json);
    free(json);
    if (text == NULL) {
        return web_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                               "starting\n");
    }
    more = shown == NULL ? NULL : shown_metrics(shown);
    len = asprintf(&all, "%s%s", text, more == NULL ? "" : more);
    free(text);
    free(more);
    if (len < 0) {
        return MHD_NO;
    }
    return web_answer(connection, MHD_HTTP_OK,
                      web_response("text/plain; version=0.0.4", all,
                                   (size_t)len, MHD_RESPMEM_MUST_FREE));
}

static enum MHD_Result post_set(struct control *c,
                                struct MHD_Connection *connection)
{
    const char *name =
        MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "name");
    const char *value =
        MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "value");
    char sentence[ERRMSG_SIZE + 1] = "name and value are needed";
    struct MHD_Response *r;
    control_set_cb on_set;
    int rv = LOCO_EINVAL;

    (void)pthread_mutex_lock(&c->lock);
    on_set = c->on_set;
    (void)pthread_mutex_unlock(&c->lock);
    if (name != NULL && value != NULL && on_set != NULL) {
        rv = on_set(c->data, name, value, sentence);
    }
    if (rv == 0) {
        return web_answer_text(connection, MHD_HTTP_ACCEPTED, "accepted\n");
    }
    (void)snprintf(sentence + strlen(sentence), 2, "\n");
    r = web_response("text/plain; charset=utf-8", sentence, strlen(sentence),
                     MHD_RESPMEM_MUST_COPY);
    return web_answer(connection, MHD_HTTP_BAD_REQUEST, r);
}

/* ---- requests ----------------------------------------------------------- */

/* One of the three is there: a function, the text that it shows, a command. */
static const struct {
    const char *method, *path;
    enum MHD_Result (*handle)(struct control *, struct MHD_Connection *);
    char *(*show)(struct shown *);
    enum control_command command;
} routes[] = {
    {"GET", "/api/v1/status", .handle = get_status},
    {"GET", "/api/v1/rounds", .handle = get_rounds},
    {"GET", "/api/v1/peers", .show = shown_peers},
    {"GET", "/api/v1/history", .show = shown_history},
    {"GET", "/api/v1/events", .handle = control_get_events},
    {"GET", "/api/v1/share", .handle = get_share},
    {"GET", "/healthz", .handle = get_health},
    {"GET", "/metrics", .handle = get_metrics},
    {"POST", "/api/v1/pause", .command = CONTROL_PAUSE},
    {"POST", "/api/v1/resume", .command = CONTROL_RESUME},
    {"POST", "/api/v1/drain", .command = CONTROL_DRAIN},
    {"POST", "/api/v1/restart", .command = CONTROL_RESTART},
    {"POST", "/api/v1/reload", .command = CONTROL_RELOAD},
    {"POST", "/api/v1/set", .handle = post_set},
};

/* What row i answers. */
static enum MHD_Result
serve(struct control *c, struct MHD_Connection *connection, size_t i)
{
    struct shown *shown;

    if (routes[i].handle != NULL) {
        return routes[i].handle(c, connection);
    }
    if (routes[i].show != NULL) {
        shown = shown_of(c);
        return web_answer_json(connection,
                               shown == NULL ? NULL : routes[i].show(shown));
    }
    c->on_command(c->data, routes[i].command);
    return web_answer_text(connection, MHD_HTTP_ACCEPTED, "accepted\n");
}

static enum MHD_Result on_ask(void *data,
                              struct MHD_Connection *connection,
                              const char *path,
                              const char *method)
{
    const struct web_file *file = control_file(path);
    bool known = false;

    if (file != NULL) {
        return web_answer_file(connection, file, method);
    }
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, path) != 0) {
            continue;
        }
        known = true;
        if (strcmp(routes[i].method, method) == 0) {
            return serve(data, connection, i);
        }
    }
    return known ? web_answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                                   "wrong method for this path\n")
                 : web_answer_text(connection, MHD_HTTP_NOT_FOUND,
                                   "no such path\n");
}

/* ---- life --------------------------------------------------------------- */

int control_open(struct control **control,
                 const char *address,
                 const struct control_access *access,
                 control_command_cb on_command,
                 void *data,
                 char errmsg[ERRMSG_SIZE])
{
    static const struct control_access nobody = {NULL, NULL, false};
    const struct control_access *a = access == NULL ? &nobody : access;
    const struct web_terms terms = {
        .name = "locod",
        .setting = "control",
        .advice = "loco access shows it on the daemon's machine",
        .anywhere = a->tokens_path != NULL,
        .always = a->always,
        .tokens_path = a->tokens_path,
        .hosts = a->hosts == NULL ? "" : a->hosts,
    };
    struct control *c = calloc(1, sizeof *c);
    int rv;

    if (c == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "control: out of memory");
    }
    c->on_command = on_command;
    c->data = data;
    (void)pthread_mutex_init(&c->lock, NULL);
    rv = web_open(&c->web, address, &terms, on_ask, c, errmsg);
    if (rv != 0) {
        (void)pthread_mutex_destroy(&c->lock);
        free(c);
        return rv;
    }
    *control = c;
    return 0;
}

int control_access_renew(struct control *control,
                         const char *hosts,
                         char errmsg[ERRMSG_SIZE])
{
    bool others;
    int rv = web_renew(control->web, hosts, &others, errmsg);

    if (others) {
        control_news(control); /* streams of the old tokens end */
    }
    return rv;
}

const char *control_address(const struct control *control)
{
    return web_address(control->web);
}

void control_publish(struct control *control, char *json)
{
    struct MHD_Response *next, *last;
    bool due;

    if (json == NULL) {
        return; /* out of memory where it was made: keep the old snapshot */
    }
    next = web_response("application/json", json, strlen(json),
                        MHD_RESPMEM_MUST_FREE);
    if (next == NULL) {
        free(json);
        return;
    }
    (void)pthread_mutex_lock(&control->lock);
    last = control->status;
    control->status = next;
    control->json = json;
    control->published_ms = monotonic_ms();
    control->serial++;
    due = control->published_ms >= control->woken_ms + CONTROL_STREAM_MS;
    control->woken_ms = due ? control->published_ms : control->woken_ms;
    (void)pthread_mutex_unlock(&control->lock);
    if (last != NULL) {
        MHD_destroy_response(last); /* readers hold references of their own */
    }
    if (due) {
        control_news(control);
    }
}

void control_trains(struct control *control, bool trains)
{
    (void)pthread_mutex_lock(&control->lock);
    control->stalled = !trains;
    (void)pthread_mutex_unlock(&control->lock);
}

void control_serve(struct control *control, struct shown *shown)
{
    (void)pthread_mutex_lock(&control->lock);
    control->shown = shown;
    (void)pthread_mutex_unlock(&control->lock);
}

void control_settings(struct control *control, control_set_cb on_set)
{
    (void)pthread_mutex_lock(&control->lock);
    control->on_set = on_set;
    (void)pthread_mutex_unlock(&control->lock);
}

void control_close(struct control *control)
{
    if (control == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&control->lock);
    control->closing = true;
    (void)pthread_mutex_unlock(&control->lock);
    control_news(control); /* none may be suspended from here on */
    web_close(control->web);
    if (control->status != NULL) {
        MHD_destroy_response(control->status);
    }
    (void)pthread_mutex_destroy(&control->lock);
    free(control);
}
