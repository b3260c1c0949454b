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

#include "daemon/control/control.h"
#include "daemon/control/shown.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define ANSWER_MAX (1 << 20)

struct fixture {
    struct control *control;
    unsigned port;
    atomic_int commands[CONTROL_RELOAD + 1];
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
    char errmsg[ERRMSG_SIZE];

    assert_non_null(f);
    assert_int_equal(
        control_open(&f->control, "127.0.0.1:0", NULL, on_command, f, errmsg),
        0);
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

static int dial(const struct fixture *f)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_port = htons((uint16_t)f->port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* The status code of one request with the given further header lines. */
static int ask_as(struct fixture *f,
                  const char *method,
                  const char *path,
                  const char *headers)
{
    int fd = dial(f);
    char request[1024];
    int code = 0;

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

static void a_trainer_that_stands_still_is_not_healthy(void **state)
{
    struct fixture *f = *state;

    control_publish(f->control, strdup("{\"round\":1}"));
    control_trains(f->control, false);
    assert_int_equal(ask(f, "GET", "/healthz"), 503);
    assert_answers(f, "the trainer stands still");
    assert_int_equal(ask(f, "GET", "/api/v1/status"), 200);
    control_trains(f->control, true);
    assert_int_equal(ask(f, "GET", "/healthz"), 200);
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
    assert_int_equal(ask(f, "POST", "/api/v1/reload"), 202);
    assert_int_equal(ask(f, "POST", "/api/v1/restart"), 202);
    assert_int_equal(atomic_load(&f->commands[CONTROL_RESTART]), 1);
    assert_int_equal(atomic_load(&f->commands[CONTROL_DRAIN]), 2);
    assert_int_equal(atomic_load(&f->commands[CONTROL_RELOAD]), 1);
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

static void bodies_that_are_too_large_are_not_read(void **state)
{
    static const char *const headers[] = {
        "Content-Length: 32769", "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked"};
    struct fixture *f = *state;
    char request[1024];

    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        (void)snprintf(request, sizeof request,
                       "POST /api/v1/pause HTTP/1.1\r\n"
                       "Host: 127.0.0.1:%u\r\n%s\r\n\r\n",
                       f->port, headers[i]);
        exchange(f, dial(f), request); /* no byte of the body is sent */
        assert_answers(f, i == 1 ? "HTTP/1.1 4" : "HTTP/1.1 413");
        assert_int_equal(f->commands[CONTROL_PAUSE], 0);
    }
}

/* 600 connections with a request each are 1,200, of which 500 may come at once:
 * the others take 2 ms each. All are served. */
static void who_asks_without_end_is_slowed_down(void **state)
{
    struct fixture *f = *state;
    uint64_t began_ms = monotonic_ms();

    for (int i = 0; i < 600; i++) {
        assert_int_equal(ask(f, "GET", "/"), 200);
    }
    assert_true(monotonic_ms() - began_ms >= 1390);
}

static void those_who_say_nothing_keep_nobody_out(void **state)
{
    struct fixture *f = *state;
    int fd[80];

    for (size_t i = 0; i < sizeof fd / sizeof fd[0]; i++) {
        fd[i] = dial(f);
    }
    control_publish(f->control, strdup("{}"));
    assert_int_equal(ask(f, "GET", "/healthz"), 200);
    for (size_t i = 0; i < sizeof fd / sizeof fd[0]; i++) {
        assert_int_equal(close(fd[i]), 0);
    }
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
    char errmsg[ERRMSG_SIZE];

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct control *c = NULL;

        errmsg[0] = '\0';
        if (control_open(&c, bad[i], NULL, on_command, f, errmsg) !=
            LOCO_EINVAL) {
            fail_msg("'%s' was not refused", bad[i]);
        }
        assert_true(strlen(errmsg) > 10);
    }
}

static void an_address_in_use_is_busy(void **state)
{
    struct fixture *f = *state;
    char errmsg[ERRMSG_SIZE];
    struct control *c = NULL;

    assert_int_equal(control_open(&c, control_address(f->control), NULL,
                                  on_command, f, errmsg),
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

/* ---- what a person looks at --------------------------------------------- */

/* One attempt at round 412, committed, and two peers of which one is lost. */
static struct shown *shown_example(void)
{
    struct shown *s = NULL;
    struct peer_id ids[2];
    struct node_status status = {.state = NODE_TRAINING,
                                 .round = 412,
                                 .inner_step = 3,
                                 .loss = 2.5F,
                                 .tokens = 640,
                                 .run_tokens = 5000};
    struct history_look look = {.status = &status, .reason = "", .now_ms = 5};

    assert_int_equal(shown_open(&s), 0);
    memset(ids, 1, sizeof ids);
    ids[1].b[0] = 2;
    timeline_begin(&s->rounds, 412, 1, ids, 2, 0, 1, 1800000000);
    s->rounds.row[s->rounds.serial % s->rounds.cap].member[1].planned = true;
    s->rounds.row[s->rounds.serial % s->rounds.cap].member[1].tokens = 320;
    timeline_commit(&s->rounds, 2);
    s->n_peers = 2;
    s->peer[0] = (struct node_peer){.id = ids[0], .self = true};
    s->peer[1] = (struct node_peer){.id = ids[1], .linked = true};
    s->n_edges = 1;
    s->edge[0] = (struct shown_edge){1, 0, 12500, 80};
    s->peers_ms = 1;
    look.rounds = &s->rounds;
    look.peer = s->peer;
    look.n_peers = 2;
    assert_true(history_update(&s->history, &look));
    s->peer[1].state = PEER_DEAD;
    assert_true(history_update(&s->history, &look));
    return s;
}

static void
the_dashboard_is_served_whole_and_forbids_what_is_foreign(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(ask(f, "GET", "/"), 200);
    assert_answers(f, "text/html");
    assert_answers(f, "</html>");
    assert_answers(f, "default-src 'none'");
    assert_int_equal(ask(f, "GET", "/dashboard.js"), 200);
    assert_answers(f, "text/javascript");
    assert_answers(f, "new EventSource(");
    assert_int_equal(ask(f, "GET", "/dashboard.css"), 200);
    assert_answers(f, ".cards");
    assert_int_equal(ask(f, "GET", "/page.css"), 200);
    assert_answers(f, "prefers-color-scheme: dark");
    assert_int_equal(ask(f, "GET", "/page.js"), 200);
    assert_answers(f, "function element(");
    assert_int_equal(ask(f, "GET", "/chart.js"), 200);
    assert_int_equal(ask(f, "POST", "/"), 405);
    assert_int_equal(ask(f, "GET", "/dashboard.html"), 404);
}

static void rounds_peers_and_history_are_asked_for(void **state)
{
    struct fixture *f = *state;
    struct shown *s = shown_example();

    assert_int_equal(ask(f, "GET", "/api/v1/rounds"), 503);
    assert_int_equal(ask(f, "GET", "/api/v1/peers"), 503);
    assert_int_equal(ask(f, "GET", "/api/v1/history"), 503);
    control_serve(f->control, s);
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=412"), 200);
    assert_answers(f, "{\"rounds\":[{\"round\":412,");
    assert_answers(f, "\"members\":[");
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=413"), 200);
    assert_answers(f, "{\"rounds\":[]}");
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?last=1"), 200);
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=0"), 400);
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?round=-1"), 400);
    assert_int_equal(ask(f, "GET", "/api/v1/rounds?last=4x"), 400);
    assert_int_equal(ask(f, "POST", "/api/v1/rounds"), 405);
    assert_int_equal(ask(f, "GET", "/api/v1/peers"), 200);
    assert_answers(f, "\"state\":\"lost\"");
    assert_answers(f, "\"tokens\":320,\"rounds\":1");
    assert_answers(f, "\"links\":[[1,0,12500,80]]");
    assert_int_equal(ask(f, "GET", "/api/v1/history"), 200);
    assert_answers(f, "\"run_tokens\":[5000]");
    assert_answers(f, "\"kind\":\"peer_lost\"");
    control_close(f->control);
    f->control = NULL;
    shown_close(s);
}

/* Open a stream, the request's further headers given. */
static int stream_open(struct fixture *f, const char *headers)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char request[256];

    at.sin_port = htons((uint16_t)f->port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    (void)snprintf(
        request, sizeof request,
        "GET /api/v1/events HTTP/1.1\r\nHost: localhost:%u\r\n%s\r\n", f->port,
        headers);
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    f->answer[0] = '\0';
    return fd;
}

/* Read on until `part` has come; the test's own time limit is the deadline. */
static void stream_until(struct fixture *f, int fd, const char *part)
{
    size_t len = strlen(f->answer);

    while (strstr(f->answer, part) == NULL) {
        ssize_t n = recv(fd, f->answer + len, ANSWER_MAX - 1 - len, 0);

        if (n <= 0) {
            fail_msg("the stream ended without '%s': %s", part, f->answer);
        }
        len += (size_t)n;
        f->answer[len] = '\0';
    }
}

static void a_stream_tells_what_is_and_then_what_changes(void **state)
{
    struct fixture *f = *state;
    struct shown *s = shown_example();
    int fd, late;

    control_serve(f->control, s);
    control_publish(f->control, strdup("{\"round\":1}"));
    fd = stream_open(f, "");
    stream_until(f, fd, "event: sample\n");
    assert_answers(f, "text/event-stream");
    assert_answers(f, "event: status\ndata: {\"round\":1}\n\n");
    assert_answers(f, "event: peers\n");
    assert_answers(f, "id: 1\nevent: event\n");
    control_publish(f->control, strdup("{\"round\":2}"));
    control_news(f->control);
    stream_until(f, fd, "data: {\"round\":2}\n\n");
    late = stream_open(f, "Last-Event-ID: 1\r\n");
    stream_until(f, late, "event: sample\n");
    assert_null(strstr(f->answer, "id: 1\n"));
    assert_answers(f, "id: 2\nevent: event\n");
    control_close(f->control); /* with both streams open */
    f->control = NULL;
    shown_close(s);
    assert_int_equal(close(fd) + close(late), 0);
}

static void streams_are_few_and_leave_room_for_others(void **state)
{
    struct fixture *f = *state;
    int fd[CONTROL_STREAMS_MAX];

    control_publish(f->control, strdup("{}"));
    for (size_t i = 0; i < CONTROL_STREAMS_MAX; i++) {
        fd[i] = stream_open(f, "");
        stream_until(f, fd[i], "event: status\n");
    }
    assert_int_equal(ask(f, "GET", "/api/v1/events"), 503);
    assert_int_equal(ask(f, "GET", "/healthz"), 200);
    assert_int_equal(close(fd[3]), 0);
    do { /* it is noticed with the next news */
        control_publish(f->control, strdup("{}"));
        control_news(f->control);
        fd[3] = stream_open(f, "");
        (void)recv(fd[3], f->answer, 13, MSG_WAITALL);
        if (strncmp(f->answer, "HTTP/1.1 200", 12) != 0) {
            assert_int_equal(close(fd[3]), 0);
            fd[3] = -1;
        }
    } while (fd[3] < 0);
    for (size_t i = 0; i < CONTROL_STREAMS_MAX; i++) {
        assert_int_equal(close(fd[i]), 0);
    }
}

static void
a_unix_socket_is_private_replaced_when_stale_and_removed(void **state)
{
    struct fixture *f = *state;
    char dir[] = "/tmp/loco-control-XXXXXX";
    char address[128], errmsg[ERRMSG_SIZE];
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

    assert_int_equal(control_open(&c, address, NULL, on_command, f, errmsg), 0);
    assert_string_equal(control_address(c), address);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700 & ~077);
    assert_int_equal(
        control_open(&second, address, NULL, on_command, f, errmsg),
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
        TEST(a_trainer_that_stands_still_is_not_healthy),
        TEST(commands_reach_the_callback_once),
        TEST(wrong_paths_and_methods_are_refused),
        TEST(bodies_that_are_too_large_are_not_read),
        TEST(who_asks_without_end_is_slowed_down),
        TEST(those_who_say_nothing_keep_nobody_out),
        TEST(foreign_hosts_and_origins_are_refused),
        TEST(addresses_that_are_not_local_are_refused),
        TEST(an_address_in_use_is_busy),
        TEST(the_dashboard_is_served_whole_and_forbids_what_is_foreign),
        TEST(rounds_peers_and_history_are_asked_for),
        TEST(a_stream_tells_what_is_and_then_what_changes),
        TEST(streams_are_few_and_leave_room_for_others),
        TEST(a_unix_socket_is_private_replaced_when_stale_and_removed),
#undef TEST
    };

    return cmocka_run_group_tests_name("control", tests, NULL, NULL);
}
