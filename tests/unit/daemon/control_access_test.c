/* control_access_test.c - who is heard at an address that others can reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <sodium.h>

#include "daemon/control/control.h"
#include "daemon/settings/control_tokens.h"
#include "proto/base/err.h"

#define READ_TOKEN    "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"
#define CONTROL_TOKEN "cccccccccccccccccccccccccccccccccc"

struct fixture {
    struct control *control;
    unsigned port;
    atomic_int commands;
    char dir[32], tokens[64];
    char answer[1 << 16];
};

static void on_command(void *data, enum control_command command)
{
    struct fixture *f = data;

    (void)command;
    atomic_fetch_add(&f->commands, 1);
}

static void write_tokens(const struct fixture *f, const char *text, int mode)
{
    FILE *to = fopen(f->tokens, "w");

    assert_non_null(to);
    assert_true(fputs(text, to) >= 0);
    assert_int_equal(fclose(to), 0);
    assert_int_equal(chmod(f->tokens, (mode_t)mode), 0);
}

static int open_at(struct fixture *f, const char *address, bool always)
{
    const struct control_access access = {
        .tokens_path = f->tokens,
        .hosts = "box.example, other.example",
        .always = always,
    };
    char errmsg[ERRMSG_SIZE] = "";
    int rv = control_open(&f->control, address, &access, on_command, f, errmsg);
    const char *colon;

    if (rv != 0) {
        assert_true(strlen(errmsg) > 10);
        return rv;
    }
    colon = strrchr(control_address(f->control), ':');
    assert_int_equal(sscanf(colon, ":%u", &f->port), 1);
    control_publish(f->control, strdup("{\"round\":1}"));
    return 0;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/loco-access-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->tokens, sizeof f->tokens, "%s/tokens", f->dir);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    control_close(f->control);
    (void)unlink(f->tokens);
    (void)rmdir(f->dir);
    free(f);
    return 0;
}

static int open_remote(struct fixture *f)
{
    write_tokens(
        f, "# a comment\n\nread " READ_TOKEN "\ncontrol " CONTROL_TOKEN "\n",
        0600);
    return open_at(f, "0.0.0.0:0", false);
}

/* The status code of one request; -1 where the server closed at once. */
static int raw(struct fixture *f, const char *request)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0), code = -1;
    size_t len = 0;
    ssize_t n;

    at.sin_port = htons((uint16_t)f->port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    (void)send(fd, request, strlen(request), MSG_NOSIGNAL);
    do {
        n = recv(fd, f->answer + len, sizeof f->answer - 1 - len, 0);
        len += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    f->answer[len] = '\0';
    assert_int_equal(close(fd), 0);
    if (len > 0) {
        assert_int_equal(sscanf(f->answer, "HTTP/1.1 %d", &code), 1);
    }
    return code;
}

static int ask(struct fixture *f,
               const char *method,
               const char *path,
               const char *host,
               const char *headers)
{
    char request[4096];

    (void)snprintf(request, sizeof request,
                   "%s %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n"
                   "Content-Length: 0\r\n\r\n",
                   method, path, host, headers);
    return raw(f, request);
}

static const char *bearer(const char *token)
{
    static char header[256];

    (void)snprintf(header, sizeof header, "Authorization: Bearer %s\r\n",
                   token);
    return header;
}

static const char *basic(const char *user_and_password)
{
    static char header[512];
    char text[400];

    (void)sodium_bin2base64(
        text, sizeof text, (const uint8_t *)user_and_password,
        strlen(user_and_password), sodium_base64_VARIANT_ORIGINAL);
    (void)snprintf(header, sizeof header, "Authorization: Basic %s\r\n", text);
    return header;
}

static void without_a_token_there_is_only_health(void **state)
{
    static const char *const paths[] = {"/",
                                        "/api/v1/status",
                                        "/metrics",
                                        "/api/v1/events",
                                        "/dashboard.js",
                                        "/no/such"};
    struct fixture *f = *state;

    assert_int_equal(open_remote(f), 0);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        assert_int_equal(ask(f, "GET", paths[i], "192.0.2.7:80", ""), 401);
        assert_non_null(strstr(f->answer, "WWW-Authenticate: Basic"));
        assert_null(strstr(f->answer, "round"));
    }
    assert_int_equal(ask(f, "POST", "/api/v1/drain", "192.0.2.7", ""), 401);
    assert_int_equal(ask(f, "POST", "/healthz", "192.0.2.7", ""), 401);
    assert_int_equal(ask(f, "GET", "/healthz", "192.0.2.7", ""), 200);
    assert_int_equal(atomic_load(&f->commands), 0);
}

static void wrong_tokens_are_no_tokens(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "Authorization: Bearer \r\n",
        "Authorization: Bearer ccccccccccccccccccccccccccccccccc\r\n",
        "Authorization: Bearer cccccccccccccccccccccccccccccccccc0\r\n",
        "Authorization: Bearer CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC\r\n",
        "Authorization: " CONTROL_TOKEN "\r\n",
        "Authorization: Basic " CONTROL_TOKEN "\r\n",
        "Authorization: Basic ====\r\n",
        "Authorization: Digest username=\"" CONTROL_TOKEN "\"\r\n",
        "X-Authorization: Bearer " CONTROL_TOKEN "\r\n",
    };

    assert_int_equal(open_remote(f), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (ask(f, "GET", "/api/v1/status", "127.0.0.1", bad[i]) != 401) {
            fail_msg("%s was let in", bad[i]);
        }
    }
    assert_int_equal(
        ask(f, "GET", "/api/v1/status?token=" CONTROL_TOKEN, "127.0.0.1", ""),
        401);
}

static void a_scope_is_what_it_says(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(open_remote(f), 0);
    assert_int_equal(
        ask(f, "GET", "/api/v1/status", "127.0.0.1", bearer(READ_TOKEN)), 200);
    assert_non_null(strstr(f->answer, "\"round\":1"));
    assert_int_equal(ask(f, "GET", "/", "127.0.0.1", basic("me:" READ_TOKEN)),
                     200);
    assert_int_equal(
        ask(f, "POST", "/api/v1/pause", "127.0.0.1", bearer(READ_TOKEN)), 403);
    assert_non_null(strstr(f->answer, "only allows reading"));
    assert_int_equal(ask(f, "POST", "/api/v1/pause", "127.0.0.1",
                         basic("a:b:" CONTROL_TOKEN)),
                     401); /* the password is all behind the first colon */
    assert_int_equal(atomic_load(&f->commands), 0);
    assert_int_equal(
        ask(f, "POST", "/api/v1/pause", "127.0.0.1", bearer(CONTROL_TOKEN)),
        202);
    assert_int_equal(ask(f, "POST", "/api/v1/pause", "[2001:db8::1]:7701",
                         basic(":" CONTROL_TOKEN)),
                     202);
    assert_int_equal(
        ask(f, "GET", "/api/v1/status", "127.0.0.1", bearer(CONTROL_TOKEN)),
        200);
    assert_int_equal(atomic_load(&f->commands), 2);
}

/* A page whose name was pointed at this address (DNS rebinding) has its name
 * in Host; one that posts across sites has it in Origin. A browser may send
 * along what the user typed before. */
static void pages_of_others_are_refused_whatever_they_show(void **state)
{
    struct fixture *f = *state;
    char headers[512];

    assert_int_equal(open_remote(f), 0);
    assert_int_equal(
        ask(f, "GET", "/api/v1/status", "evil.example", bearer(CONTROL_TOKEN)),
        403);
    assert_non_null(strstr(f->answer, "control_hosts"));
    assert_int_equal(ask(f, "GET", "/healthz", "evil.example:7701", ""), 403);
    assert_int_equal(ask(f, "GET", "/healthz", "127.0.0.1.evil.example", ""),
                     403);
    assert_int_equal(ask(f, "GET", "/healthz", "box.example.evil.example", ""),
                     403);
    assert_int_equal(ask(f, "GET", "/healthz", "box.exampl", ""), 403);
    assert_int_equal(ask(f, "GET", "/healthz", "", ""), 403);
    assert_int_equal(ask(f, "GET", "/healthz", "[::1", ""), 403);
    assert_int_equal(raw(f, "GET /healthz HTTP/1.0\r\n\r\n"), 403);
    (void)snprintf(headers, sizeof headers, "%sOrigin: http://evil.example\r\n",
                   bearer(CONTROL_TOKEN));
    assert_int_equal(
        ask(f, "POST", "/api/v1/drain", "box.example:7701", headers), 403);
    (void)snprintf(headers, sizeof headers, "%sOrigin: null\r\n",
                   bearer(CONTROL_TOKEN));
    assert_int_equal(
        ask(f, "POST", "/api/v1/drain", "box.example:7701", headers), 403);
    assert_int_equal(atomic_load(&f->commands), 0);
    (void)snprintf(headers, sizeof headers,
                   "%sOrigin: https://BOX.example:7701\r\n",
                   bearer(CONTROL_TOKEN));
    assert_int_equal(
        ask(f, "POST", "/api/v1/drain", "box.example:7701", headers), 202);
    assert_int_equal(
        ask(f, "GET", "/api/v1/status", "other.example", bearer(READ_TOKEN)),
        200);
}

static void long_and_many_headers_end_the_request_only(void **state)
{
    struct fixture *f = *state;
    char *request = malloc(400000);
    size_t n;
    int code;

    assert_non_null(request);
    assert_int_equal(open_remote(f), 0);
    n = (size_t)snprintf(request, 400000,
                         "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                         "Authorization: Bearer ");
    memset(request + n, 'c', 100000);
    (void)memcpy(request + n + 100000, "\r\n\r\n", 5);
    code = raw(f, request);
    assert_true(code == -1 || (code >= 400 && code < 500));
    n = (size_t)snprintf(request, 400000,
                         "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    for (int i = 0; i < 10000; i++) {
        n += (size_t)snprintf(request + n, 400000 - n, "X-%d: y\r\n", i);
    }
    (void)snprintf(request + n, 400000 - n, "\r\n");
    code = raw(f, request);
    assert_true(code == -1 || (code >= 400 && code < 500));
    free(request);
    assert_int_equal(ask(f, "GET", "/healthz", "127.0.0.1", ""), 200);
}

static void tokens_are_made_when_they_are_needed(void **state)
{
    struct fixture *f = *state;
    char token[CONTROL_TOKEN_MAX], errmsg[ERRMSG_SIZE];
    struct stat st;

    assert_int_equal(open_at(f, "127.0.0.1:0", false), 0);
    assert_int_equal(ask(f, "POST", "/api/v1/pause", "evil.example", ""), 403);
    assert_int_not_equal(stat(f->tokens, &st), 0);
    control_close(f->control);
    assert_int_equal(open_at(f, "127.0.0.1:0", true), 0);
    assert_int_equal(stat(f->tokens, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(ask(f, "GET", "/metrics", "127.0.0.1", ""), 401);
    assert_int_equal(
        control_tokens_best(f->tokens, SCOPE_CONTROL, token, errmsg), 0);
    assert_int_equal(strlen(token), 64);
    assert_int_equal(
        ask(f, "POST", "/api/v1/pause", "127.0.0.1", bearer(token)), 202);
    assert_int_equal(control_tokens_best(f->tokens, SCOPE_READ, token, errmsg),
                     0);
    assert_int_equal(
        ask(f, "GET", "/api/v1/status", "127.0.0.1", bearer(token)), 200);
    assert_int_equal(
        ask(f, "POST", "/api/v1/pause", "127.0.0.1", bearer(token)), 403);
    /* In any order, and the other one where there is no such. */
    write_tokens(f, "control " CONTROL_TOKEN "\nread " READ_TOKEN "\n", 0600);
    assert_int_equal(control_tokens_best(f->tokens, SCOPE_READ, token, errmsg),
                     0);
    assert_string_equal(token, READ_TOKEN);
    write_tokens(f, "control " CONTROL_TOKEN "\n", 0600);
    assert_int_equal(control_tokens_best(f->tokens, SCOPE_READ, token, errmsg),
                     0);
    assert_string_equal(token, CONTROL_TOKEN);
}

static void a_renewed_file_ends_the_old_tokens(void **state)
{
    struct fixture *f = *state;
    char errmsg[ERRMSG_SIZE];

    assert_int_equal(open_remote(f), 0);
    write_tokens(f, "read " READ_TOKEN "\n", 0600);
    assert_int_equal(control_access_renew(f->control, "", errmsg), 0);
    assert_int_equal(
        ask(f, "POST", "/api/v1/pause", "127.0.0.1", bearer(CONTROL_TOKEN)),
        401);
    assert_int_equal(
        ask(f, "GET", "/api/v1/status", "127.0.0.1", bearer(READ_TOKEN)), 200);
    assert_int_equal(
        ask(f, "GET", "/api/v1/status", "box.example", bearer(READ_TOKEN)),
        403);
    write_tokens(f, "damaged\n", 0600);
    assert_int_equal(control_access_renew(f->control, "", errmsg),
                     LOCO_EFORMAT);
    assert_int_equal(
        ask(f, "GET", "/api/v1/status", "127.0.0.1", bearer(READ_TOKEN)), 200);
}

/* Bytes that come up to the deadline or the end; -1 where there is no end. */
static ssize_t read_on(struct fixture *f, int fd, const char *until)
{
    const struct timeval patience = {.tv_sec = 60};
    size_t len = 0;
    ssize_t n = 1;

    assert_int_equal(
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    f->answer[0] = '\0';
    while (n > 0 && (until == NULL || strstr(f->answer, until) == NULL)) {
        n = recv(fd, f->answer + len, sizeof f->answer - 1 - len, 0);
        len += n > 0 ? (size_t)n : 0;
        f->answer[len] = '\0';
    }
    return n;
}

static int open_stream(struct fixture *f)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char request[512];
    int len =
        snprintf(request, sizeof request,
                 "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n",
                 bearer(READ_TOKEN));

    at.sin_port = htons((uint16_t)f->port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
    assert_true(read_on(f, fd, "\"round\":1") > 0);
    return fd;
}

/* What was let in with a token that has ended hears no more. */
static void a_renewed_file_ends_the_streams_of_the_old_tokens(void **state)
{
    struct fixture *f = *state;
    char errmsg[ERRMSG_SIZE];
    int fd;

    assert_int_equal(open_remote(f), 0);
    fd = open_stream(f);
    /* The same tokens: it goes on. */
    assert_int_equal(control_access_renew(f->control, "", errmsg), 0);
    control_publish(f->control, strdup("{\"round\":2}"));
    control_news(f->control);
    assert_true(read_on(f, fd, "\"round\":2") > 0);
    write_tokens(f, "control " CONTROL_TOKEN "\n", 0600);
    assert_int_equal(control_access_renew(f->control, "", errmsg), 0);
    control_publish(f->control, strdup("{\"round\":3}"));
    control_news(f->control);
    assert_int_equal(read_on(f, fd, NULL), 0);
    assert_null(strstr(f->answer, "\"round\":3"));
    assert_int_equal(close(fd), 0);
}

struct maker {
    const char *path;
    int rv;
    char token[CONTROL_TOKEN_MAX];
};

static void *make_and_look(void *data)
{
    struct maker *m = data;
    char errmsg[ERRMSG_SIZE];

    m->rv = control_tokens_make(m->path, false, errmsg);
    if (m->rv == 0) {
        m->rv = control_tokens_best(m->path, SCOPE_CONTROL, m->token, errmsg);
    }
    return NULL;
}

/* A daemon that starts, and a person who asks for its tokens. */
static void all_who_make_the_first_file_see_the_same_one(void **state)
{
    enum { MAKERS = 8 };
    struct fixture *f = *state;
    struct maker m[MAKERS];
    pthread_t thread[MAKERS];

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < MAKERS; i++) {
            m[i] = (struct maker){.path = f->tokens};
            assert_int_equal(
                pthread_create(&thread[i], NULL, make_and_look, &m[i]), 0);
        }
        for (int i = 0; i < MAKERS; i++) {
            assert_int_equal(pthread_join(thread[i], NULL), 0);
        }
        for (int i = 0; i < MAKERS; i++) {
            assert_int_equal(m[i].rv, 0);
            assert_string_equal(m[i].token, m[0].token);
        }
        assert_int_equal(unlink(f->tokens), 0);
    }
}

static void a_new_file_replaces_the_old_one(void **state)
{
    struct fixture *f = *state;
    struct maker before = {.path = f->tokens}, after = {.path = f->tokens};
    char errmsg[ERRMSG_SIZE];
    struct stat st;

    (void)make_and_look(&before);
    assert_int_equal(control_tokens_make(f->tokens, true, errmsg), 0);
    (void)make_and_look(&after);
    assert_int_equal(before.rv, 0);
    assert_int_equal(after.rv, 0);
    assert_string_not_equal(before.token, after.token);
    assert_int_equal(stat(f->tokens, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_nlink, 1); /* and nothing is left beside it */
}

static void bad_files_of_tokens_are_refused(void **state)
{
    static const char *const bad[] = {
        "write " READ_TOKEN "\n", "read\n", "read short\n",
        "read " READ_TOKEN " more\n",
        "readrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\n"};
    struct fixture *f = *state;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_tokens(f, bad[i], 0600);
        assert_int_equal(open_at(f, "0.0.0.0:0", false), LOCO_EFORMAT);
    }
    write_tokens(f, "read " READ_TOKEN "\n", 0640);
    assert_int_equal(open_at(f, "0.0.0.0:0", false), LOCO_EIO);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(without_a_token_there_is_only_health),
        T(wrong_tokens_are_no_tokens),
        T(a_scope_is_what_it_says),
        T(pages_of_others_are_refused_whatever_they_show),
        T(long_and_many_headers_end_the_request_only),
        T(tokens_are_made_when_they_are_needed),
        T(a_renewed_file_ends_the_old_tokens),
        T(a_renewed_file_ends_the_streams_of_the_old_tokens),
        T(all_who_make_the_first_file_see_the_same_one),
        T(a_new_file_replaces_the_old_one),
        T(bad_files_of_tokens_are_refused),
    };

    return sodium_init() < 0 ? 1
                             : cmocka_run_group_tests_name(
                                   "daemon/control_access", tests, NULL, NULL);
}
