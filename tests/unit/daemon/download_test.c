/* download_test.c - the pause between two tries. What servers do, and how files
 * come over, is tests/e2e/data_tests.py's. */
#include "daemon/visit/download.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "tests/unit/train/tmpdir.h"

struct server {
    int listener, stop;
};

/* Hang up on the first who asks, then end the download. */
static void *hang_up_once(void *data)
{
    const struct server *s = data;
    int fd = accept(s->listener, NULL, NULL);

    (void)close(fd);
    (void)eventfd_write(s->stop, 1);
    return NULL;
}

/* The next try would be in a minute, and nobody would answer it: either the
 * pause ends when it is told to, or this test hangs. */
static void a_pause_ends_when_it_is_told_to(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct server s = {socket(AF_INET, SOCK_STREAM, 0), eventfd(0, 0)};
    socklen_t len = sizeof at;
    char url[64], errmsg[ERRMSG_SIZE];
    struct tmpdir dir;
    struct download d = {.bytes = 1000,
                         .urls = {{url, true}},
                         .n_urls = 1,
                         .stall_ms = 3600000,
                         .retry_ms = 60000,
                         .tries = 100,
                         .stop_fd = s.stop};
    pthread_t thread;

    (void)state;
    tmpdir_make(&dir);
    d.path = tmpdir_file(&dir, "a");
    assert_int_equal(bind(s.listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(s.listener, 1), 0);
    assert_int_equal(getsockname(s.listener, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/a",
                   ntohs(at.sin_port));
    assert_int_equal(setenv("no_proxy", "*", 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, hang_up_once, &s), 0);
    assert_int_equal(download(&d, errmsg), LOCO_ECLOSED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(s.listener);
    (void)close(s.stop);
    (void)unlink(d.path);
    tmpdir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_ends_when_it_is_told_to),
    };

    return cmocka_run_group_tests_name("download", tests, NULL, NULL);
}
