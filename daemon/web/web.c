/* web.c - see web/web.h. */
#include "daemon/web/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/err.h"

#define TOO_LARGE 413 /* libmicrohttpd changed its name for it */

#define POLICY                                                                 \
    "default-src 'none'; script-src 'self'; style-src 'self'; "                \
    "connect-src 'self'; img-src data:; base-uri 'none'; "                     \
    "form-action 'none'; frame-ancestors 'none'"

/* ---- answers ------------------------------------------------------------ */

enum MHD_Result web_answer(struct MHD_Connection *connection,
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

struct MHD_Response *web_response(const char *type,
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
        /* No page of another site may load it, not even as an image. */
        (void)MHD_add_response_header(r, "Cross-Origin-Resource-Policy",
                                      "same-origin");
    }
    return r;
}

enum MHD_Result web_answer_text(struct MHD_Connection *connection,
                                unsigned code,
                                const char *text)
{
    return web_answer(connection, code,
                      web_response("text/plain; charset=utf-8", text,
                                   strlen(text), MHD_RESPMEM_PERSISTENT));
}

enum MHD_Result web_answer_json(struct MHD_Connection *connection, char *json)
{
    struct MHD_Response *r;

    if (json == NULL) {
        return web_answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                               "starting\n");
    }
    r = web_response("application/json", json, strlen(json),
                     MHD_RESPMEM_MUST_FREE);
    if (r == NULL) {
        free(json);
    }
    return web_answer(connection, MHD_HTTP_OK, r);
}

/* ---- pages -------------------------------------------------------------- */

const struct web_file *
web_file_find(const struct web_file *files, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(files[i].path, path) == 0) {
            return &files[i];
        }
    }
    return NULL;
}

enum MHD_Result web_answer_file(struct MHD_Connection *connection,
                                const struct web_file *file,
                                const char *method)
{
    struct MHD_Response *r;

    if (strcmp(method, "GET") != 0) {
        return web_answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                               "wrong method for this path\n");
    }
    r = web_response(file->type, file->bytes, (size_t)(file->end - file->bytes),
                     MHD_RESPMEM_PERSISTENT);
    if (r != NULL) {
        (void)MHD_add_response_header(r, "Content-Security-Policy", POLICY);
        (void)MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    }
    return web_answer(connection, MHD_HTTP_OK, r);
}

/* ---- requests ----------------------------------------------------------- */

/* 500 a second, 500 at once, where a connection and a request count as one
 * each: another program of this machine must not take a core from training. */
static const struct budget_price asking = {2000, 1000000};

/* Somebody connected, or asks. Nobody is refused; beyond the price this thread
 * sleeps, and all who ask wait. */
static void pace(struct web *w)
{
    uint64_t now_ms = monotonic_ms(), wait_ms;
    struct timespec ts;

    if (budget_overdrawn(&w->asked, &asking, now_ms)) {
        wait_ms = (w->asked.paid_us - asking.burst_us) / 1000 - now_ms + 1;
        ts = (struct timespec){.tv_nsec = (long)wait_ms * 1000000L};
        (void)nanosleep(&ts, NULL);
    }
    budget_charge(&w->asked, &asking, 1, now_ms);
}

static enum MHD_Result
on_connect(void *data, const struct sockaddr *from, socklen_t len)
{
    (void)from;
    (void)len;
    pace(data);
    return MHD_YES;
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
           (size != NULL && strtoull(size, NULL, 10) > WEB_REQUEST_MAX);
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
    struct web *w = data;
    enum MHD_Result answer;

    (void)version;
    (void)body;
    if (*seen == NULL) {
        *seen = data;
        pace(w);
        return is_too_large(connection)
                   ? web_answer_text(connection, TOO_LARGE,
                                     "no request needs a body\n")
                   : MHD_YES;
    }
    if (*body_len > 0) {
        *body_len = 0;
        return MHD_YES;
    }
    if (!web_admits(w, connection, path, method, &answer)) {
        return answer;
    }
    /* libmicrohttpd leaves the body of an answer to HEAD out. */
    return w->on_ask(w->data, connection, path,
                     strcmp(method, "HEAD") == 0 ? "GET" : method);
}

/* ---- life --------------------------------------------------------------- */

static int start(struct web *w, char *errmsg)
{
    w->http = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, on_connect,
        w, on_request, w, MHD_OPTION_LISTEN_SOCKET, w->socket.fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)WEB_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)WEB_IDLE_S,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        w->socket.remote ? (unsigned)WEB_PER_ADDRESS_MAX : 0U,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)WEB_REQUEST_MAX,
        MHD_OPTION_END);
    return w->http != NULL
               ? 0
               : errmsg_fail(errmsg, LOCO_EIO, "the HTTP thread did not start");
}

int web_open(struct web **web,
             const char *address,
             const struct web_terms *terms,
             web_ask_cb on_ask,
             void *data,
             char errmsg[ERRMSG_SIZE])
{
    struct web *w = calloc(1, sizeof *w);
    int rv;

    if (w == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "%s: out of memory",
                           terms->setting);
    }
    w->on_ask = on_ask;
    w->data = data;
    (void)snprintf(w->name, sizeof w->name, "%s", terms->name);
    (void)snprintf(w->advice, sizeof w->advice, "%s", terms->advice);
    (void)pthread_mutex_init(&w->lock, NULL);
    rv = web_listen(&w->socket, terms->setting, address, terms->anywhere,
                    errmsg);
    if (rv != 0) {
        goto err_after_lock;
    }
    rv = web_access_open(w, terms, errmsg);
    *web = w; /* before the thread, which may be asked at once */
    rv = rv == 0 ? start(w, errmsg) : rv;
    if (rv != 0) {
        goto err_after_listen;
    }
    return 0;

err_after_listen:
    *web = NULL;
    (void)close(w->socket.fd);
    web_unlink(&w->socket);
err_after_lock:
    (void)pthread_mutex_destroy(&w->lock);
    free(w);
    return rv;
}

const char *web_address(const struct web *web)
{
    return web->socket.address;
}

bool web_guarded(const struct web *web)
{
    return web->guarded;
}

void web_close(struct web *web)
{
    MHD_stop_daemon(web->http); /* closes the listening socket too */
    web_unlink(&web->socket);
    (void)pthread_mutex_destroy(&web->lock);
    free(web);
}
