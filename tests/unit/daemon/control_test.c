/* control_test.c - the HTTP server, asked over real sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/control.h"
#include "proto/base/err.h"

#define ANSWER_MAX 65536

struct fixture {
    struct control *control;
    unsigned port;
    atomic_int commands[3];
    char answer[ANSWER_MAX];
};

static void on_command(void *data, enum control_command command)
{
    struct fixture *f = data;

    atomic_fetch_add(&f->commands[command], 1);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char errmsg[CONTROL_ERRMSG_MAX];

    assert_non_null(f);
    assert_int_equal(
        control_open(&f->control, "127.0.0.1:0", on_command, f, errmsg), 0);
    assert_int_equal(
        sscanf(control_address(f->control), "127.0.0.1:%u", &f->port), 1);
    assert_true(f->port > 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    control_close(f->control);
    free(f);
    return 0;
}

static void exchange(struct fixture *f, int fd, const char *request)
{
    size_t len = 0;
    ssize_t n;

    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL),
                     strlen(request));
    do {
        n = recv(fd, f->answer + len, ANSWER_MAX - 1 - len, 0);
        len += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    f->answer[len] = '\0';
    assert_int_equal(close(fd), 0);
}

/* The status code of one request with the given further header lines. */
static int ask_as(struct fixture *f,
                  const char *method,
                  const char *path,
                  const char *headers)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char request[1024];
    int code = 0;

    at.sin_port = htons((uint16_t)f->port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    (void)snprintf(request, sizeof request,
                   "%s %s HTTP/1.1\r\n%sConnection: close\r\n"
                   "Content-Length: 0\r\n\r\n",
                   method, path, headers);
    exchange(f, fd, request);
    assert_int_equal(sscanf(f->answer, "HTTP/1.1 %d", &code), 1);
    return code;
}

static int ask(struct fixture *f, const char *method, const char *path)
{
    char host[64];

    (void)snprintf(host, sizeof host, "Host: 127.0.0.1:%u\r\n", f->port);
    return ask_as(f, method, path, host);
}

static void assert_answers(const struct fixture *f, const char *part)
{
    if (strstr(f->answer, part) == NULL) {
        fail_msg("'%s' is not in: %s", part, f->answer);
    }
}

static void before_the_first_snapshot_it_is_unavailable(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(ask(f, "GET", "/api/v1/status"), 503);
    assert_int_equal(ask(f, "GET", "/healthz"), 503);
    assert_int_equal(ask(f, "GET", "/metrics"), 503);
    assert_int_equal(ask(f, "GET", "/"), 200);
    assert_answers(f, "/api/v1/status");
}

static void the_newest_snapshot_is_served(void **state)
{
    struct fixture *f = *state;

    control_publish(f->control, strdup("{\"round\":1}"));
    control_publish(f->control, strdup("{\"round\":2}"));
    control_publish(f->control, NULL); /* out of memory at the maker's */
    assert_int_equal(ask(f, "GET", "/api/v1/status"), 200);
    assert_answers(f, "{\"round\":2}");
    assert_answers(f, "application/json");
    assert_int_equal(ask(f, "GET", "/healthz"), 200);
    assert_int_equal(ask(f, "GET", "/metrics"), 200);
    assert_answers(f, "\nloco_round 2\n");
    assert_int_equal(ask(f, "HEAD", "/api/v1/status"), 200);
    assert_null(strstr(f->answer, "round"));
}

static void commands_reach_the_callback_once(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(ask(f, "POST", "/api/v1/pause"), 202);
    assert_int_equal(ask(f, "POST", "/api/v1/resume"), 202);
    assert_int_equal(ask(f, "POST", "/api/v1/drain"), 202);
    assert_int_equal(ask(f, "POST", "/api/v1/drain"), 202);
    assert_int_equal(atomic_load(&f->commands[CONTROL_PAUSE]), 1);
    assert_int_equal(atomic_load(&f->commands[CONTROL_RESUME]), 1);
    assert_int_equal(atomic_load(&f->commands[CONTROL_DRAIN]), 2);
}

static void wrong_paths_and_methods_are_refused(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(ask(f, "GET", "/api/v1/drain"), 405);
    assert_int_equal(ask(f, "POST", "/api/v1/status"), 405);
    assert_int_equal(ask(f, "GET", "/etc/passwd"), 404);
    assert_int_equal(ask(f, "GET", "/api/v1/status/x"), 404);
    assert_int_equal(atomic_load(&f->commands[CONTROL_DRAIN]), 0);
}

static void foreign_hosts_and_origins_are_refused(void **state)
{
    struct fixture *f = *state;
    char headers[256];

    assert_int_equal(ask_as(f, "GET", "/", "Host: evil.example\r\n"), 403);
    (void)snprintf(headers, sizeof headers, "Host: evil.example:%u\r\n",
                   f->port);
    assert_int_equal(ask_as(f, "GET", "/", headers), 403);
    assert_int_equal(ask_as(f, "GET", "/", "Host: 127.0.0.1:1\r\n"), 403);
    (void)snprintf(headers, sizeof headers,
                   "Host: localhost:%u\r\nOrigin: http://evil.example\r\n",
                   f->port);
    assert_int_equal(ask_as(f, "POST", "/api/v1/drain", headers), 403);
    (void)snprintf(headers, sizeof headers,
                   "Host: 127.0.0.1:%u\r\nOrigin: null\r\n", f->port);
    assert_int_equal(ask_as(f, "POST", "/api/v1/drain", headers), 403);
    assert_int_equal(atomic_load(&f->commands[CONTROL_DRAIN]), 0);
    (void)snprintf(headers, sizeof headers,
                   "Host: localhost:%u\r\nOrigin: http://localhost:%u\r\n",
                   f->port, f->port);
    assert_int_equal(ask_as(f, "POST", "/api/v1/drain", headers), 202);
}

static void addresses_that_are_not_local_are_refused(void **state)
{
    static const char *const bad[] = {
        "0.0.0.0:0",  "[::]:0",      "192.0.2.1:0",      "127.0.0.1",
        "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:123456", ":80",
        "",           "unix:"};
    struct fixture *f = *state;
    char errmsg[CONTROL_ERRMSG_MAX];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct control *c = NULL;

        errmsg[0] = '\0';
        if (control_open(&c, bad[i], on_command, f, errmsg) != LOCO_EINVAL) {
            fail_msg("'%s' was not refused", bad[i]);
        }
        assert_true(strlen(errmsg) > 10);
    }
}

static void an_address_in_use_is_busy(void **state)
{
    struct fixture *f = *state;
    char errmsg[CONTROL_ERRMSG_MAX];
    struct control *c = NULL;

    assert_int_equal(
        control_open(&c, control_address(f->control), on_command, f, errmsg),
        LOCO_EBUSY);
    assert_non_null(strstr(errmsg, control_address(f->control)));
}

static int dial_unix(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    assert_true(fd >= 0 && strlen(path) < sizeof at.sun_path);
    memcpy(at.sun_path, path, strlen(path) + 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static char *make_rounds(void *data, uint64_t round)
{
    char text[64];

    (void)data;
    if (round == 7) {
        return NULL; /* not now */
    }
    (void)snprintf(text, sizeof text, "{\"rounds\":[%llu]}",
                   (unsigned long long)round);
    return strdup(text);
}

static void rounds_are_asked_for_when_somebody_wants_them(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(ask(f, "GET", "/api/v1/rounds"), 503);
    control_serve_rounds(f->control, make_rounds);
    assert_int_equal(ask(f, "GET", "/api/v1/rounds"), 200);
    assert_answers(f, "{\"rounds\":[0]}");
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=412"), 200);
    assert_answers(f, "{\"rounds\":[412]}");
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=7"), 503);
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=0"), 400);
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=-1"), 400);
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=4x"), 400);
    assert_int_equal(ask(f, "POST", "/api/v1/rounds"), 405);
}

static void
a_unix_socket_is_private_replaced_when_stale_and_removed(void **state)
{
    struct fixture *f = *state;
    char dir[] = "/tmp/loco-control-XXXXXX";
    char address[128], errmsg[CONTROL_ERRMSG_MAX];
    const char *path = address + strlen("unix:");
    struct control *c = NULL, *second = NULL;
    struct sockaddr_un stale = {.sun_family = AF_UNIX};
    struct stat st;
    int fd;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(address, sizeof address, "unix:%s/socket", dir);
    memcpy(stale.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&stale, sizeof stale), 0);
    assert_int_equal(close(fd), 0); /* the file stays, nobody listens */

    assert_int_equal(control_open(&c, address, on_command, f, errmsg), 0);
    assert_string_equal(control_address(c), address);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700 & ~077);
    assert_int_equal(control_open(&second, address, on_command, f, errmsg),
                     LOCO_EBUSY);
    control_publish(c, strdup("{\"round\":9}"));
    exchange(f, dial_unix(path),
             "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n"
             "Connection: close\r\n\r\n");
    assert_answers(f, "{\"round\":9}");
    control_close(c);
    assert_int_equal(stat(path, &st), -1);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(before_the_first_snapshot_it_is_unavailable),
        TEST(the_newest_snapshot_is_served),
        TEST(commands_reach_the_callback_once),
        TEST(wrong_paths_and_methods_are_refused),
        TEST(foreign_hosts_and_origins_are_refused),
        TEST(addresses_that_are_not_local_are_refused),
        TEST(an_address_in_use_is_busy),
        TEST(rounds_are_asked_for_when_somebody_wants_them),
        TEST(a_unix_socket_is_private_replaced_when_stale_and_removed),
#undef TEST
    };

    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
