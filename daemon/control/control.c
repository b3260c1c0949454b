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
#include <time.h>
#include <unistd.h>

#include "daemon/control/qr.h"
#include "daemon/control/status_json.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define TOO_LARGE 413 /* libmicrohttpd changed its name for it */

/* ---- answers ------------------------------------------------------------ */

enum MHD_Result control_answer(struct MHD_Connection *connection,
                               unsigned code,
                               struct MHD_Response *r)
{
    enum MHD_Result result;

    if (r == NULL) {
        return MHD_NO;
    }
    result = MHD_queue_response(connection, code, r);
    MHD_destroy_response(r);
    return result;
}

struct MHD_Response *control_response(const char *type,
                                      const char *bytes,
                                      size_t len,
                                      enum MHD_ResponseMemoryMode mode)
{
    /* libmicrohttpd takes a char pointer for all modes; PERSISTENT bytes are
     * only read. */
    struct MHD_Response *r =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)bytes, mode);

    if (r != NULL) {
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL,
                                      "no-store");
        (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    }
    return r;
}

enum MHD_Result control_answer_text(struct MHD_Connection *connection,
                                    unsigned code,
                                    const char *text)
{
    return control_answer(connection, code,
                          control_response("text/plain; charset=utf-8", text,
                                           strlen(text),
                                           MHD_RESPMEM_PERSISTENT));
}

/* JSON from malloc, taken; NULL: 503. */
static enum MHD_Result control_answer_json(struct MHD_Connection *connection,
                                           char *json)
{
    struct MHD_Response *r;

    if (json == NULL) {
        return control_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                   "starting\n");
    }
    r = control_response("application/json", json, strlen(json),
                         MHD_RESPMEM_MUST_FREE);
    if (r == NULL) {
        free(json);
    }
    return control_answer(connection, MHD_HTTP_OK, r);
}

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
        return control_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
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
        return control_answer_text(connection, MHD_HTTP_BAD_REQUEST,
                                   "round and last are numbers, at least 1\n");
    }
    return control_answer_json(
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
    return control_answer_json(connection, text);
}

static enum MHD_Result get_health(struct control *c,
                                  struct MHD_Connection *connection)
{
    uint64_t now_ms = monotonic_ms();
    bool fresh;

    (void)pthread_mutex_lock(&c->lock);
    fresh = c->status != NULL && now_ms < c->published_ms + CONTROL_STALE_MS;
    (void)pthread_mutex_unlock(&c->lock);
    return fresh ? control_answer_text(connection, MHD_HTTP_OK, "ok\n")
                 : control_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                       "the event loop does not respond\n");
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
        return control_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                                   "starting\n");
    }
    more = shown == NULL ? NULL : shown_metrics(shown);
    len = asprintf(&all, "%s%s", text, more == NULL ? "" : more);
    free(text);
    free(more);
    if (len < 0) {
        return MHD_NO;
    }
    return control_answer(connection, MHD_HTTP_OK,
                          control_response("text/plain; version=0.0.4", all,
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
        return control_answer_text(connection, MHD_HTTP_ACCEPTED, "accepted\n");
    }
    (void)snprintf(sentence + strlen(sentence), 2, "\n");
    r = control_response("text/plain; charset=utf-8", sentence,
                         strlen(sentence), MHD_RESPMEM_MUST_COPY);
    return control_answer(connection, MHD_HTTP_BAD_REQUEST, r);
}

/* ---- requests ----------------------------------------------------------- */

/* 500 a second, 500 at once, where a connection and a request count as one
 * each: another program of this machine must not take a core from training. */
static const struct budget_price asking = {2000, 1000000};

/* Somebody connected, or asks. Nobody is refused; beyond the price this thread
 * sleeps, and all who ask wait. */
static void pace(struct control *c)
{
    uint64_t now_ms = monotonic_ms(), wait_ms;
    struct timespec ts;

    if (budget_overdrawn(&c->asked, &asking, now_ms)) {
        wait_ms = (c->asked.paid_us - asking.burst_us) / 1000 - now_ms + 1;
        ts = (struct timespec){.tv_nsec = (long)wait_ms * 1000000L};
        (void)nanosleep(&ts, NULL);
    }
    budget_charge(&c->asked, &asking, 1, now_ms);
}

static enum MHD_Result
on_connect(void *data, const struct sockaddr *from, socklen_t len)
{
    (void)from;
    (void)len;
    pace(data);
    return MHD_YES;
}

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
        return control_answer_json(
            connection, shown == NULL ? NULL : routes[i].show(shown));
    }
    c->on_command(c->data, routes[i].command);
    return control_answer_text(connection, MHD_HTTP_ACCEPTED, "accepted\n");
}

static enum MHD_Result route(struct control *c,
                             struct MHD_Connection *connection,
                             const char *path,
                             const char *method)
{
    enum MHD_Result answer;
    bool known = false;

    if (!control_admits(c, connection, path, method, &answer)) {
        return answer;
    }
    if (strcmp(method, "HEAD") == 0) {
        method = "GET"; /* libmicrohttpd leaves the body out */
    }
    if (control_is_file(path)) {
        return strcmp(method, "GET") == 0
                   ? control_get_file(connection, path)
                   : control_answer_text(connection,
                                         MHD_HTTP_METHOD_NOT_ALLOWED,
                                         "wrong method for this path\n");
    }
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, path) != 0) {
            continue;
        }
        known = true;
        if (strcmp(routes[i].method, method) == 0) {
            return serve(c, connection, i);
        }
    }
    return known ? control_answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                                       "wrong method for this path\n")
                 : control_answer_text(connection, MHD_HTTP_NOT_FOUND,
                                       "no such path\n");
}

/* A body of more than a request may have, or of a size that nobody knows: it is
 * not read. */
static bool is_too_large(struct MHD_Connection *connection)
{
    const char *size = MHD_lookup_connection_value(
        connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                       MHD_HTTP_HEADER_TRANSFER_ENCODING) !=
               NULL ||
           (size != NULL && strtoull(size, NULL, 10) > CONTROL_REQUEST_MAX);
}

/* libmicrohttpd calls this once with the headers, then per piece of a body,
 * then a last time without one. *seen marks the first call. */
static enum MHD_Result on_request(void *data,
                                  struct MHD_Connection *connection,
                                  const char *path,
                                  const char *method,
                                  const char *version,
                                  const char *body,
                                  size_t *body_len,
                                  void **seen)
{
    (void)version;
    (void)body;
    if (*seen == NULL) {
        *seen = data;
        pace(data);
        return is_too_large(connection)
                   ? control_answer_text(connection, TOO_LARGE,
                                         "no request needs a body\n")
                   : MHD_YES;
    }
    if (*body_len > 0) {
        *body_len = 0;
        return MHD_YES;
    }
    return route(data, connection, path, method);
}

/* ---- life --------------------------------------------------------------- */

int control_open(struct control **control,
                 const char *address,
                 const struct control_access *access,
                 control_command_cb on_command,
                 void *data,
                 char errmsg[ERRMSG_SIZE])
{
    struct control *c = calloc(1, sizeof *c);
    int rv;

    if (c == NULL) {
        (void)snprintf(errmsg, ERRMSG_SIZE, "control: out of memory");
        return LOCO_ENOMEM;
    }
    c->on_command = on_command;
    c->data = data;
    (void)pthread_mutex_init(&c->lock, NULL);
    rv = control_listen(&c->socket, address,
                        access != NULL && access->tokens_path != NULL, errmsg);
    if (rv != 0) {
        goto err_after_lock;
    }
    rv = control_access_open(c, access, errmsg);
    if (rv != 0) {
        goto err_after_listen;
    }
    c->http = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, on_connect,
        c, on_request, c, MHD_OPTION_LISTEN_SOCKET, c->socket.fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONTROL_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)CONTROL_IDLE_S,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        c->socket.remote ? (unsigned)CONTROL_PER_ADDRESS_MAX : 0U,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONTROL_REQUEST_MAX,
        MHD_OPTION_END);
    if (c->http == NULL) {
        rv = LOCO_EIO;
        (void)snprintf(errmsg, ERRMSG_SIZE,
                       "control: the HTTP thread did not start");
        goto err_after_listen;
    }
    *control = c;
    return 0;

err_after_listen:
    (void)close(c->socket.fd);
    control_unlink(&c->socket);
err_after_lock:
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
    return rv;
}

const char *control_address(const struct control *control)
{
    return control->socket.address;
}

void control_publish(struct control *control, char *json)
{
    struct MHD_Response *next, *last;
    bool due;

    if (json == NULL) {
        return; /* out of memory where it was made: keep the old snapshot */
    }
    next = control_response("application/json", json, strlen(json),
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
    control_news(control);          /* none may be suspended from here on */
    MHD_stop_daemon(control->http); /* closes the listening socket too */
    control_unlink(&control->socket);
    if (control->status != NULL) {
        MHD_destroy_response(control->status);
    }
    (void)pthread_mutex_destroy(&control->lock);
    free(control);
}
