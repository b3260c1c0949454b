/* control.c - see control.h.
 *
 * A snapshot is one MHD_Response, which libmicrohttpd counts references to:
 * publishing swaps the pointer, and a slow reader keeps the old bytes alive.
 */
#include "daemon/control.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "daemon/status_json.h"
#include "proto/base/err.h"

#define UNIX_PREFIX "unix:"

struct control {
    struct MHD_Daemon *http;
    int fd;
    char address[CONTROL_ADDRESS_MAX];
    char socket_path[128]; /* sun_path; to unlink, or empty */
    unsigned port;         /* 0: a Unix socket */
    control_command_cb on_command;
    void *data;
    pthread_mutex_t lock; /* of the three below */
    struct MHD_Response *status;
    char *json; /* the bytes of `status`, owned by it */
    uint64_t published_ms;
};

__attribute__((format(printf, 3, 4))) static int
fail(char errmsg[CONTROL_ERRMSG_MAX], int code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(errmsg, CONTROL_ERRMSG_MAX, fmt, args);
    va_end(args);
    return code;
}

static uint64_t monotonic_ms(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000U + (uint64_t)ts.tv_nsec / 1000000U;
}

/* ---- answers ------------------------------------------------------------ */

static enum MHD_Result
answer(struct MHD_Connection *connection, unsigned code, struct MHD_Response *r)
{
    enum MHD_Result result;

    if (r == NULL) {
        return MHD_NO;
    }
    result = MHD_queue_response(connection, code, r);
    MHD_destroy_response(r);
    return result;
}

static struct MHD_Response *
response(const char *type, const char *text, enum MHD_ResponseMemoryMode mode)
{
    /* libmicrohttpd takes a char pointer for all modes; PERSISTENT bytes are
     * only read. */
    struct MHD_Response *r = MHD_create_response_from_buffer(
        strlen(text), (void *)(uintptr_t)text, mode);

    if (r != NULL) {
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        (void)MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL,
                                      "no-store");
        (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    }
    return r;
}

static enum MHD_Result
answer_text(struct MHD_Connection *connection, unsigned code, const char *text)
{
    return answer(
        connection, code,
        response("text/plain; charset=utf-8", text, MHD_RESPMEM_PERSISTENT));
}

static enum MHD_Result get_page(struct control *c,
                                struct MHD_Connection *connection)
{
    static const char page[] =
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<title>locod</title><h1>locod</h1>"
        "<p>This is a loco daemon: it trains one language model together "
        "with other peers. This page is served to this machine only.</p>"
        "<ul><li><a href=/api/v1/status>status</a> (JSON)</li>"
        "<li><a href=/metrics>metrics</a> (Prometheus)</li>"
        "<li><a href=/healthz>health</a></li></ul>"
        "<p>On the command line: <code>loco status</code>.</p></html>\n";

    (void)c;
    return answer(
        connection, MHD_HTTP_OK,
        response("text/html; charset=utf-8", page, MHD_RESPMEM_PERSISTENT));
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
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                           "starting\n");
    }
    return result;
}

static enum MHD_Result get_health(struct control *c,
                                  struct MHD_Connection *connection)
{
    uint64_t now_ms = monotonic_ms();
    bool fresh;

    (void)pthread_mutex_lock(&c->lock);
    fresh = c->status != NULL && now_ms < c->published_ms + CONTROL_STALE_MS;
    (void)pthread_mutex_unlock(&c->lock);
    return fresh ? answer_text(connection, MHD_HTTP_OK, "ok\n")
                 : answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                               "no news from the loop\n");
}

static enum MHD_Result get_metrics(struct control *c,
                                   struct MHD_Connection *connection)
{
    char *json, *text;

    (void)pthread_mutex_lock(&c->lock);
    json = c->json == NULL ? NULL : strdup(c->json);
    (void)pthread_mutex_unlock(&c->lock);
    text = json == NULL ? NULL : status_metrics(json);
    free(json);
    if (text == NULL) {
        return answer_text(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                           "starting\n");
    }
    return answer(
        connection, MHD_HTTP_OK,
        response("text/plain; version=0.0.4", text, MHD_RESPMEM_MUST_FREE));
}

static enum MHD_Result command(struct control *c,
                               struct MHD_Connection *connection,
                               enum control_command what)
{
    c->on_command(c->data, what);
    return answer_text(connection, MHD_HTTP_ACCEPTED, "accepted\n");
}

static enum MHD_Result post_pause(struct control *c,
                                  struct MHD_Connection *connection)
{
    return command(c, connection, CONTROL_PAUSE);
}

static enum MHD_Result post_resume(struct control *c,
                                   struct MHD_Connection *connection)
{
    return command(c, connection, CONTROL_RESUME);
}

static enum MHD_Result post_drain(struct control *c,
                                  struct MHD_Connection *connection)
{
    return command(c, connection, CONTROL_DRAIN);
}

/* ---- requests ----------------------------------------------------------- */

static const struct {
    const char *method, *path;
    enum MHD_Result (*handle)(struct control *, struct MHD_Connection *);
} routes[] = {
    {"GET", "/", get_page},
    {"GET", "/api/v1/status", get_status},
    {"GET", "/healthz", get_health},
    {"GET", "/metrics", get_metrics},
    {"POST", "/api/v1/pause", post_pause},
    {"POST", "/api/v1/resume", post_resume},
    {"POST", "/api/v1/drain", post_drain},
};

/* Whether `host` ("localhost:8080", "[::1]:8080", "127.0.0.1") names this
 * listener by a name that no foreign DNS zone can take. */
static bool host_ok(const struct control *c, const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    char want[CONTROL_ADDRESS_MAX];

    if (host == NULL) {
        return false;
    }
    if (c->port == 0) {
        return true; /* no browser speaks to a Unix socket */
    }
    if (strcasecmp(host, c->address) == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(want, sizeof want, "%s:%u", names[i], c->port);
        if (strcasecmp(host, want) == 0) {
            return true;
        }
    }
    return false;
}

/* Browsers send Origin with every cross-site POST; ours is "http://" Host. */
static bool origin_ok(const char *origin, const char *host)
{
    static const char scheme[] = "http://";

    return origin == NULL ||
           (strncmp(origin, scheme, sizeof scheme - 1) == 0 &&
            strcasecmp(origin + sizeof scheme - 1, host) == 0);
}

static enum MHD_Result route(struct control *c,
                             struct MHD_Connection *connection,
                             const char *path,
                             const char *method)
{
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
                                                   MHD_HTTP_HEADER_HOST);
    const char *origin = MHD_lookup_connection_value(
        connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    bool known = false;

    if (!host_ok(c, host) || !origin_ok(origin, host)) {
        return answer_text(connection, MHD_HTTP_FORBIDDEN,
                           "this address serves locod only\n");
    }
    if (strcmp(method, "HEAD") == 0) {
        method = "GET"; /* libmicrohttpd leaves the body out */
    }
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, path) != 0) {
            continue;
        }
        known = true;
        if (strcmp(routes[i].method, method) == 0) {
            return routes[i].handle(c, connection);
        }
    }
    return known
               ? answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                             "wrong method for this path\n")
               : answer_text(connection, MHD_HTTP_NOT_FOUND, "no such path\n");
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
        return MHD_YES;
    }
    if (*body_len > 0) {
        *body_len = 0;
        return MHD_YES;
    }
    return route(data, connection, path, method);
}

/* ---- listening ---------------------------------------------------------- */

static int listen_unix(struct control *c, const char *path, char *errmsg)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    mode_t mask;
    int fd, rc;

    if (path[0] == '\0' || strlen(path) >= sizeof at.sun_path) {
        return fail(errmsg, LOCO_EINVAL,
                    "control unix:%.100s: a socket path has 1 to %zu bytes",
                    path, sizeof at.sun_path - 1);
    }
    memcpy(at.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return fail(errmsg, LOCO_EIO, "control: socket: %s", strerror(errno));
    }
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) {
        (void)close(fd);
        return fail(errmsg, LOCO_EBUSY,
                    "control unix:%.100s: another process serves it", path);
    }
    if (errno == ECONNREFUSED) {
        (void)unlink(path); /* left by a process that is gone */
    }
    mask = umask(077);
    rc = bind(fd, (struct sockaddr *)&at, sizeof at);
    (void)umask(mask);
    if (rc != 0 || listen(fd, CONTROL_CONNECTIONS_MAX) != 0) {
        rc = fail(errmsg, errno == EADDRINUSE ? LOCO_EBUSY : LOCO_EIO,
                  "control unix:%.100s: %s", path, strerror(errno));
        (void)close(fd);
        return rc;
    }
    (void)snprintf(c->socket_path, sizeof c->socket_path, "%s", path);
    (void)snprintf(c->address, sizeof c->address, UNIX_PREFIX "%s",
                   c->socket_path);
    c->fd = fd;
    return 0;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)a;

        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)a;

        return IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    }
    return false;
}

/* "[::1]:80" or "127.0.0.1:80" into host and port. */
static bool address_split(const char *address, char host[128], char port[8])
{
    const char *colon = strrchr(address, ':');
    const char *from = address;
    size_t len;

    if (colon == NULL || strlen(colon + 1) == 0 || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1)) {
        return false;
    }
    len = (size_t)(colon - address);
    if (len >= 2 && from[0] == '[' && colon[-1] == ']') {
        from++;
        len -= 2;
    }
    if (len == 0 || len >= 128) {
        return false;
    }
    memcpy(host, from, len);
    host[len] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return true;
}

static void address_write(struct control *c)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[INET6_ADDRSTRLEN];

    memset(&at, 0, sizeof at);
    (void)getsockname(c->fd, (struct sockaddr *)&at, &len);
    if (at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)&at;

        (void)inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        c->port = ntohs(in->sin6_port);
        (void)snprintf(c->address, sizeof c->address, "[%s]:%u", host, c->port);
    } else {
        const struct sockaddr_in *in = (const void *)&at;

        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        c->port = ntohs(in->sin_port);
        (void)snprintf(c->address, sizeof c->address, "%s:%u", host, c->port);
    }
}

static int bind_tcp(struct control *c, const struct addrinfo *at)
{
    const int on = 1;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 ||
        listen(fd, CONTROL_CONNECTIONS_MAX) != 0) {
        int why = errno;

        (void)close(fd);
        errno = why;
        return -1;
    }
    c->fd = fd;
    address_write(c);
    return 0;
}

static int listen_tcp(struct control *c, const char *address, char *errmsg)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[128], port[8];
    int rv = 0;

    if (!address_split(address, host, port) ||
        getaddrinfo(host, port, &hints, &found) != 0 || found == NULL) {
        return fail(errmsg, LOCO_EINVAL,
                    "control '%.120s' is not HOST:PORT or unix:PATH", address);
    }
    if (!is_loopback(found->ai_addr)) {
        rv = fail(errmsg, LOCO_EINVAL,
                  "control '%.120s' can be reached from other machines and "
                  "has no password: use 127.0.0.1:PORT or unix:PATH",
                  address);
    } else if (bind_tcp(c, found) != 0) {
        rv = fail(errmsg, errno == EADDRINUSE ? LOCO_EBUSY : LOCO_EIO,
                  "control %.120s: %s%s", address, strerror(errno),
                  errno == EADDRINUSE ? "; choose another port or 0" : "");
    }
    freeaddrinfo(found);
    return rv;
}

/* ---- life --------------------------------------------------------------- */

int control_open(struct control **control,
                 const char *address,
                 control_command_cb on_command,
                 void *data,
                 char errmsg[CONTROL_ERRMSG_MAX])
{
    static const size_t n_prefix = sizeof UNIX_PREFIX - 1;
    struct control *c = calloc(1, sizeof *c);
    int rv;

    if (c == NULL) {
        return fail(errmsg, LOCO_ENOMEM, "control: out of memory");
    }
    c->on_command = on_command;
    c->data = data;
    (void)pthread_mutex_init(&c->lock, NULL);
    rv = strncmp(address, UNIX_PREFIX, n_prefix) == 0
             ? listen_unix(c, address + n_prefix, errmsg)
             : listen_tcp(c, address, errmsg);
    if (rv != 0) {
        goto err_after_lock;
    }
    c->http = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, c,
        MHD_OPTION_LISTEN_SOCKET, c->fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONTROL_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)CONTROL_IDLE_S, MHD_OPTION_END);
    if (c->http == NULL) {
        rv = fail(errmsg, LOCO_EIO, "control: the HTTP thread did not start");
        goto err_after_listen;
    }
    *control = c;
    return 0;

err_after_listen:
    (void)close(c->fd);
    if (c->socket_path[0] != '\0') {
        (void)unlink(c->socket_path);
    }
err_after_lock:
    (void)pthread_mutex_destroy(&c->lock);
    free(c);
    return rv;
}

const char *control_address(const struct control *control)
{
    return control->address;
}

void control_publish(struct control *control, char *json)
{
    struct MHD_Response *next, *last;

    if (json == NULL) {
        return; /* out of memory where it was made: keep the old snapshot */
    }
    next = response("application/json", json, MHD_RESPMEM_MUST_FREE);
    if (next == NULL) {
        free(json);
        return;
    }
    (void)pthread_mutex_lock(&control->lock);
    last = control->status;
    control->status = next;
    control->json = json;
    control->published_ms = monotonic_ms();
    (void)pthread_mutex_unlock(&control->lock);
    if (last != NULL) {
        MHD_destroy_response(last); /* readers hold references of their own */
    }
}

void control_close(struct control *control)
{
    if (control == NULL) {
        return;
    }
    MHD_stop_daemon(control->http); /* closes the listening socket too */
    if (control->socket_path[0] != '\0') {
        (void)unlink(control->socket_path);
    }
    if (control->status != NULL) {
        MHD_destroy_response(control->status);
    }
    (void)pthread_mutex_destroy(&control->lock);
    free(control);
}
