/* notify_test.c - systemd hears what is due, and nothing from a stalled one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/control/notify.h"

struct fixture {
    int fd;
    struct notify n;
    struct node_status s;
    char heard[4096]; /* datagrams, a line end after each */
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char name[64];
    int len;

    assert_non_null(f);
    len = snprintf(name, sizeof name, "@loco-notify-%d", (int)getpid());
    memcpy(at.sun_path, name, (size_t)len);
    at.sun_path[0] = '\0';
    f->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(
        bind(f->fd, (struct sockaddr *)&at,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)len)),
        0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    assert_int_equal(setenv("WATCHDOG_USEC", "20000000", 1), 0);
    assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
    notify_open(&f->n);
    assert_true(f->n.fd >= 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    notify_close(&f->n);
    assert_int_equal(close(f->fd), 0);
    free(f);
    return 0;
}

static const char *heard(struct fixture *f)
{
    size_t len = 0;
    ssize_t n;

    while ((n = recv(f->fd, f->heard + len, sizeof f->heard - len - 2, 0)) >
           0) {
        len += (size_t)n;
        f->heard[len++] = '\n';
    }
    f->heard[len] = '\0';
    return f->heard;
}

static void ready_once_then_food_and_a_line(void **state)
{
    struct fixture *f = *state;

    f->s.state = NODE_WAITING;
    (void)snprintf(f->s.reason, sizeof f->s.reason, "2 of 4 are here");
    notify_update(&f->n, &f->s, 100000);
    assert_string_equal(heard(f), "READY=1\nWATCHDOG=1\nSTATUS=waiting, round "
                                  "0, 0 peers, 0 tokens/s: 2 of 4 are here\n");
    notify_update(&f->n, &f->s, 100250);
    assert_string_equal(heard(f), "");
    notify_update(&f->n, &f->s, 110000);
    assert_non_null(strstr(heard(f), "WATCHDOG=1\n"));
    assert_null(strstr(f->heard, "READY"));
    f->s.state = NODE_DRAINING;
    notify_update(&f->n, &f->s, 110250);
    notify_update(&f->n, &f->s, 110500);
    assert_string_equal(heard(f), "STOPPING=1\n");
}

static void a_trainer_that_stands_still_gets_no_food(void **state)
{
    struct fixture *f = *state;
    uint64_t now_ms = 100000;

    f->s.state = NODE_TRAINING;
    f->s.inner_step = 5;
    notify_update(&f->n, &f->s, now_ms);
    assert_non_null(strstr(heard(f), "WATCHDOG=1\n"));
    now_ms += NOTIFY_STALL_MS;
    assert_false(notify_update(&f->n, &f->s, now_ms));
    assert_null(strstr(heard(f), "WATCHDOG=1\n"));
    notify_idle(&f->n, now_ms + 5000); /* it waits for a training loop */
    assert_true(notify_update(&f->n, &f->s, now_ms + 5000));
    assert_non_null(strstr(heard(f), "WATCHDOG=1\n"));
    now_ms += 5000 + NOTIFY_STALL_MS;
    assert_false(notify_update(&f->n, &f->s, now_ms));
    assert_null(strstr(heard(f), "WATCHDOG=1\n"));
    f->s.inner_step++;
    notify_update(&f->n, &f->s, now_ms + 10000);
    assert_non_null(strstr(heard(f), "WATCHDOG=1\n"));
    f->s.state = NODE_WAITING; /* for peers, for as long as it takes */
    notify_update(&f->n, &f->s, now_ms + 9 * (uint64_t)NOTIFY_STALL_MS);
    assert_non_null(strstr(heard(f), "WATCHDOG=1\n"));
}

static void the_watchdog_of_another_process_is_not_ours(void **state)
{
    struct fixture *f = *state;

    notify_close(&f->n);
    assert_int_equal(setenv("WATCHDOG_PID", "1", 1), 0);
    notify_open(&f->n);
    assert_int_equal(f->n.watchdog_ms, 0);
    notify_close(&f->n);
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    notify_open(&f->n);
    assert_int_equal(f->n.fd, -1);
    notify_update(&f->n, &f->s, 1);
    assert_string_equal(heard(f), "");
}

static void a_restart_is_a_reload_and_no_end(void **state)
{
    struct fixture *f = *state;

    f->s.state = NODE_TRAINING;
    notify_update(&f->n, &f->s, 100000);
    (void)heard(f);
    notify_restarting(&f->n);
    f->s.state = NODE_DRAINING;
    notify_update(&f->n, &f->s, 100250);
    notify_restarting(&f->n);
    notify_stopping(&f->n);
    assert_int_equal(strncmp(heard(f), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
    assert_null(strstr(f->heard, "STOPPING"));
    assert_null(strstr(strstr(f->heard, "RELOADING") + 1, "RELOADING"));
}

static void a_reload_has_a_begin_and_an_end(void **state)
{
    struct fixture *f = *state;

    notify_reloading(&f->n); /* READY=1 is a word for the first update */
    notify_reloaded(&f->n);
    assert_string_equal(heard(f), "");
    notify_update(&f->n, &f->s, 100000);
    (void)heard(f);
    notify_reloading(&f->n);
    assert_int_equal(strncmp(heard(f), "RELOADING=1\nMONOTONIC_USEC=", 27), 0);
    notify_reloaded(&f->n);
    assert_string_equal(heard(f), "READY=1\n");
    notify_stopping(&f->n);
    (void)heard(f);
    notify_reloading(&f->n);
    notify_reloaded(&f->n);
    assert_string_equal(heard(f), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(a_restart_is_a_reload_and_no_end),
        TEST(a_reload_has_a_begin_and_an_end),
        TEST(ready_once_then_food_and_a_line),
        TEST(a_trainer_that_stands_still_gets_no_food),
        TEST(the_watchdog_of_another_process_is_not_ours),
#undef TEST
    };

    return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
