/* watch_test.c - many daemons asked at once, of which one hangs, one sends too
 * much and one is not there; which of them are not for every account. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <curl/curl.h>

#include "daemon/visit/http_many.h"
#include "daemon/watch/watch.h"
#include "proto/base/err.h"
#include "tests/unit/train/tmpdir.h"

/* A daemon that answers each who asks with the same bytes, then hangs up; NULL:
 * it takes connections and never says anything. */
struct server {
    int listener;
    const char *answer;
    size_t repeat; /* of the answer's last byte */
    pthread_t thread;
    char address[64];
};

static void answer_one(const struct server *s, int fd)
{
    char request[4096];
    size_t n = 0;
    ssize_t got;
    bool open = true;

    request[0] = '\0';
    while (strstr(request, "\r\n\r\n") == NULL &&
           (got = read(fd, request + n, sizeof request - n - 1)) > 0) {
        n += (size_t)got;
        request[n] = '\0';
    }
    open = send(fd, s->answer, strlen(s->answer), MSG_NOSIGNAL) > 0;
    for (size_t i = 0; open && i < s->repeat; i++) {
        open = send(fd, s->answer + strlen(s->answer) - 1, 1, MSG_NOSIGNAL) > 0;
    }
}

static void *serve(void *data)
{
    const struct server *s = data;
    int fd;

    while ((fd = accept(s->listener, NULL, NULL)) >= 0) {
        answer_one(s, fd);
        (void)close(fd);
    }
    return NULL;
}

static void server_open(struct server *s, const char *answer, size_t repeat)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;

    *s =
        (struct server){socket(AF_INET, SOCK_STREAM, 0), answer, repeat, 0, ""};
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(s->listener, 16), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(s->address, sizeof s->address, "127.0.0.1:%u",
                   ntohs(at.sin_port));
    if (answer != NULL) {
        assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
    }
}

static void server_close(struct server *s)
{
    (void)shutdown(s->listener, SHUT_RDWR);
    if (s->answer != NULL) {
        assert_int_equal(pthread_join(s->thread, NULL), 0);
    }
    (void)close(s->listener);
}

static struct watch_name named(const char *address, const char *token)
{
    struct watch_name name = {.state_dir = NULL};

    (void)snprintf(name.daemon.address, sizeof name.daemon.address, "%s",
                   address);
    (void)snprintf(name.daemon.token, sizeof name.daemon.token, "%s", token);
    return name;
}

#define GOOD                                                                   \
    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"state\":\"training\"}"

/* The question to the one that hangs comes first and stays without an answer:
 * if it held up the other, this test would end with its failure. */
static void one_that_hangs_holds_up_nobody(void **state)
{
    struct server hangs, good;
    struct http_many *m = http_many_open(2, 1000);
    struct watch_name a, b;
    struct http_answer answer;

    (void)state;
    assert_non_null(m);
    server_open(&hangs, NULL, 0);
    server_open(&good, GOOD, 0);
    a = named(hangs.address, "");
    b = named(good.address, "");
    assert_int_equal(http_many_ask(m, 0, &a.daemon, "/x"), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(http_many_ask(m, 0, &a.daemon, "/x"), 0);
        assert_int_equal(http_many_ask(m, 1, &b.daemon, "/x"), 0);
        while (http_many_next(m, 1000, &answer) == 0) {
        }
        assert_int_equal(answer.slot, 1);
        assert_int_equal(answer.rv, 0);
        assert_string_equal(answer.body, "{\"state\":\"training\"}");
        free(answer.body);
    }
    http_many_close(m); /* with the question that has no answer */
    server_close(&hangs);
    server_close(&good);
}

static const char *trouble_of(const struct watch *w, size_t i)
{
    return watch_row(w, i)->trouble;
}

static void each_row_says_why_it_has_no_answer(void **state)
{
    struct server good, large, refuses, lies;
    struct watch_name names[5];
    struct watch *w;
    json_t *o;
    char *text;

    (void)state;
    server_open(&good, GOOD, 0);
    server_open(&large, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[",
                WATCH_BODY_MAX + 1);
    server_open(&refuses,
                "HTTP/1.1 401 No\r\nConnection: close\r\n\r\na token\x1b[2J",
                0);
    server_open(&lies, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", 0);
    names[0] = named(good.address, "");
    names[1] = named(large.address, "");
    names[2] = named(refuses.address, "");
    names[3] = named(lies.address, "");
    names[4] = named("127.0.0.1:1", "");
    w = watch_open(names, 5, 600000, true);
    assert_non_null(w);
    assert_false(watch_settled(w));
    while (!watch_settled(w)) {
        (void)watch_step(w, 1000);
    }
    assert_true(watch_row(w, 0)->answers && trouble_of(w, 0)[0] == '\0');
    for (size_t i = 1; i < 5; i++) {
        assert_false(watch_row(w, i)->answers);
        assert_null(watch_row(w, i)->status);
    }
    assert_true(strlen(trouble_of(w, 1)) > 10);
    assert_non_null(strstr(trouble_of(w, 2), "HTTP 401 a token?[2J"));
    assert_non_null(strstr(trouble_of(w, 3), "not the status of a daemon"));
    assert_non_null(strstr(trouble_of(w, 4), "no daemon answers"));
    text = watch_json(w);
    o = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(o, "machines")), 5);
    assert_int_equal(json_integer_value(json_object_get(
                         json_object_get(o, "totals"), "answering")),
                     1);
    json_decref(o);
    free(text);
    watch_close(w);
    server_close(&good);
    server_close(&large);
    server_close(&refuses);
    server_close(&lies);
}

static void write_file(struct tmpdir *dir, const char *name, const char *text)
{
    FILE *f = fopen(tmpdir_file(dir, name), "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fchmod(fileno(f), 0600), 0);
    assert_int_equal(fclose(f), 0);
}

static void what_has_a_token_or_a_socket_is_not_for_every_account(void **state)
{
    struct watch_name open_one = named("127.0.0.1:1", "");
    struct watch_name token = named("127.0.0.1:1", "t");
    struct watch_name file = named("unix:/x", "");
    struct watch_name dir_name = {.state_dir = NULL};
    struct watch *w;
    struct tmpdir dir;

    (void)state;
    (void)unsetenv("LOCO_TOKEN");
    tmpdir_make(&dir);
    dir_name.state_dir = dir.path;
    assert_false(watch_is_private(&open_one));
    assert_true(watch_is_private(&token));
    assert_true(watch_is_private(&file));
    assert_true(watch_is_private(&dir_name)); /* nothing is known of it */
    write_file(&dir, "control", "127.0.0.1:1\n");
    assert_false(watch_is_private(&dir_name));
    write_file(&dir, "control.tokens",
               "read rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\n");
    assert_true(watch_is_private(&dir_name));
    /* Shown to all, it is not asked. */
    w = watch_open(&dir_name, 1, 600000, true);
    assert_true(watch_step(w, 0));
    assert_true(watch_settled(w));
    assert_non_null(strstr(trouble_of(w, 0), "with a password"));
    watch_close(w);
    w = watch_open(&dir_name, 1, 600000, false);
    while (!watch_settled(w)) {
        (void)watch_step(w, 1000);
    }
    assert_non_null(strstr(trouble_of(w, 0), "no daemon answers"));
    watch_close(w);
    tmpdir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_hangs_holds_up_nobody),
        cmocka_unit_test(each_row_says_why_it_has_no_answer),
        cmocka_unit_test(what_has_a_token_or_a_socket_is_not_for_every_account),
    };

    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
