/* presence_test.c - who uses the machine, in a made-up /dev, /run and /sys. */
#include "daemon/settings/presence.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "tests/unit/train/tmpdir.h"

#define NOW 1800000000

static const char *const made[] = {
    "dev/pts/3",
    "dev/pts/ptmx",
    "dev/tty2",
    "dev/tty0",
    "dev/ttyS0",
    "run/systemd/sessions/1",
    "run/systemd/sessions/c1",
    "sys/class/drm/card0-eDP-1/dpms",
    "sys/class/drm/card0-eDP-1/status",
};
#define N_MADE (sizeof made / sizeof made[0])

/* All folders on the way, then the file. */
static void put(struct tmpdir *t, const char *name, const char *text)
{
    char path[512];

    for (const char *at = strchr(name, '/'); at != NULL;
         at = strchr(at + 1, '/')) {
        (void)snprintf(path, sizeof path, "%s/%.*s", t->path, (int)(at - name),
                       name);
        (void)mkdir(path, 0755);
    }
    tmpdir_put(t, name, text, strlen(text));
}

/* Somebody typed there so long ago. */
static void typed(struct tmpdir *t, const char *name, long ago_s)
{
    const struct timespec times[2] = {{.tv_sec = NOW - ago_s},
                                      {.tv_sec = NOW - 1}};
    char path[512];

    put(t, name, "");
    (void)snprintf(path, sizeof path, "%s/%s", t->path, name);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void take_away(struct tmpdir *t)
{
    char path[512];

    for (size_t i = 0; i < N_MADE; i++) {
        char *slash;

        (void)snprintf(path, sizeof path, "%s/%s", t->path, made[i]);
        (void)remove(path);
        while ((slash = strrchr(path, '/')) > path + strlen(t->path) - 1) {
            *slash = '\0';
            (void)remove(path);
        }
    }
}

static struct presence look(const struct tmpdir *t)
{
    struct presence p;

    presence_look(t->path, NOW, &p);
    return p;
}

static void the_last_key_at_a_terminal_is_found(void **state)
{
    struct presence p;
    struct tmpdir t;

    (void)state;
    tmpdir_make(&t);
    assert_false(look(&t).seen); /* there is nothing at all */
    typed(&t, "dev/tty2", 7200);
    typed(&t, "dev/pts/3", 600);
    /* The master, another name of a console, a serial line: nobody's keys. */
    typed(&t, "dev/pts/ptmx", 1);
    typed(&t, "dev/tty0", 1);
    typed(&t, "dev/ttyS0", 1);
    p = look(&t);
    assert_true(p.seen);
    assert_int_equal(p.ago_s, 600);
    assert_string_equal(p.what, "/dev/pts/3");
    typed(&t, "dev/tty2", 30);
    p = look(&t);
    assert_int_equal(p.ago_s, 30);
    assert_string_equal(p.what, "/dev/tty2");
    typed(&t, "dev/tty2", -20); /* clocks differ a little */
    assert_int_equal(look(&t).ago_s, 0);
    typed(&t, "dev/tty2", -86400); /* or were wrong */
    assert_int_equal(look(&t).ago_s, 600);
    take_away(&t);
}

static void a_desktop_counts_while_its_screen_is_on(void **state)
{
    static const char session[] = "UID=1000\nACTIVE=1\nREMOTE=0\nTYPE=wayland\n"
                                  "CLASS=user\nSEAT=seat0\n";
    static const char *const not [] = {
        "UID=1000\nACTIVE=0\nREMOTE=0\nTYPE=wayland\nCLASS=user\n",
        "UID=1000\nACTIVE=1\nREMOTE=1\nTYPE=x11\nCLASS=user\n",
        "UID=1000\nACTIVE=1\nREMOTE=0\nTYPE=tty\nCLASS=user\n",
        "UID=119\nACTIVE=1\nREMOTE=0\nTYPE=wayland\nCLASS=greeter\n",
        "",
    };
    struct presence p;
    struct tmpdir t;

    (void)state;
    tmpdir_make(&t);
    put(&t, "sys/class/drm/card0-eDP-1/dpms", "On\n");
    put(&t, "sys/class/drm/card0-eDP-1/status", "connected\n");
    put(&t, "run/systemd/sessions/c1", not [3]);
    for (size_t i = 0; i < sizeof not / sizeof not [0]; i++) {
        put(&t, "run/systemd/sessions/1", not [i]);
        if (look(&t).seen) {
            fail_msg("session %zu counts", i);
        }
    }
    put(&t, "run/systemd/sessions/1", session);
    p = look(&t);
    assert_true(p.seen);
    assert_int_equal(p.ago_s, 0);
    assert_string_equal(p.what, "a desktop session");
    put(&t, "sys/class/drm/card0-eDP-1/dpms", "Off\n");
    assert_false(look(&t).seen);
    put(&t, "sys/class/drm/card0-eDP-1/dpms", "On\n");
    put(&t, "sys/class/drm/card0-eDP-1/status", "disconnected\n");
    assert_false(look(&t).seen);
    take_away(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_key_at_a_terminal_is_found),
        cmocka_unit_test(a_desktop_counts_while_its_screen_is_on),
    };

    return cmocka_run_group_tests_name("presence", tests, NULL, NULL);
}
