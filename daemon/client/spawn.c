/* spawn.c - a locod of our own: find, start, look after, stop.
 *
 * It gets a session of its own, so that Ctrl-C at the loop does not reach it:
 * the loop's end tells it to drain. It outlives a loop that is killed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/client/internal.h"
#include "proto/base/err.h"
#include "proto/base/file.h"

#define LOG_NAME      "locod.log"
#define LOOK_EVERY_MS 20
#define ARGS_FIXED    10
#define LOOP_GRACE_S  "600" /* to start a program again that was killed */

extern char **environ;

bool child_wanted(const struct loco *l)
{
    return (l->join != NULL || l->run != NULL) && l->child.pid == 0 &&
           !l->child.in_use;
}

/* ---- which program, which log ------------------------------------------- */

/* DIR/rest, where DIR has this library; false: no such program. */
static bool beside(char out[STATE_PATH_MAX], const char *rest)
{
    Dl_info info;
    const char *slash;
    int n;

    if (dladdr((const void *)(uintptr_t)&loco_open, &info) == 0 ||
        info.dli_fname == NULL ||
        (slash = strrchr(info.dli_fname, '/')) == NULL) {
        return false;
    }
    n = snprintf(out, STATE_PATH_MAX, "%.*s/%s", (int)(slash - info.dli_fname),
                 info.dli_fname, rest);
    return n > 0 && n < STATE_PATH_MAX && access(out, X_OK) == 0;
}

static const char *program(const struct loco *l, char room[STATE_PATH_MAX])
{
    const char *named = l->locod != NULL && l->locod[0] != '\0'
                            ? l->locod
                            : getenv("LOCO_LOCOD");

    if (named != NULL && named[0] != '\0') {
        return named;
    }
    return beside(room, "locod") || beside(room, "../bin/locod") ? room
                                                                 : "locod";
}

/* "": not redirected. */
static int log_path(struct loco *l, char out[STATE_PATH_MAX])
{
    char why[LOCO_ERRMSG_MAX];

    if (l->locod_log != NULL) {
        (void)snprintf(out, STATE_PATH_MAX, "%s", l->locod_log);
        return 0;
    }
    if (file_path_join(out, l->state, LOG_NAME, why) != 0 ||
        file_make_folders(out, why) != 0) {
        return link_fail(l, LOCO_FAIL_SYSTEM, "no state directory: %.200s",
                         why);
    }
    return 0;
}

void child_last_line(struct loco *l, char out[LAST_LINE_MAX])
{
    char path[STATE_PATH_MAX], text[1024];
    size_t n = 0;
    FILE *f;
    char *at;

    out[0] = '\0';
    if (log_path(l, path) != 0 || path[0] == '\0' ||
        (f = fopen(path, "re")) == NULL) {
        return;
    }
    if (fseek(f, -(long)sizeof text + 1, SEEK_END) != 0) {
        rewind(f);
    }
    n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    while (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    text[n] = '\0';
    at = strrchr(text, '\n');
    (void)snprintf(out, LAST_LINE_MAX, "%.*s", LAST_LINE_MAX - 1,
                   at == NULL ? text : at + 1);
}

/* ---- start -------------------------------------------------------------- */

/* What it would inherit of us and must not: blocked or ignored signals, our
 * files, our terminal. Returns an errno. */
static int prepare(posix_spawn_file_actions_t *files,
                   posix_spawnattr_t *attr,
                   const char *log)
{
    sigset_t none, all;
    int rv;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGKILL);
    (void)sigdelset(&all, SIGSTOP);
    (void)posix_spawnattr_setsigmask(attr, &none);
    (void)posix_spawnattr_setsigdefault(attr, &all);
    (void)posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSIGDEF |
                                             POSIX_SPAWN_SETSID);
    rv = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
    if (rv == 0 && log[0] != '\0') {
        rv = posix_spawn_file_actions_addopen(
            files, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        rv = rv != 0 ? rv : posix_spawn_file_actions_adddup2(files, 1, 2);
    }
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
    rv = rv != 0 ? rv : posix_spawn_file_actions_addclosefrom_np(files, 3);
#endif
#endif
    return rv;
}

static int
spawn(pid_t *pid, const char *path, const char *log, char *const *args)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int rv = posix_spawn_file_actions_init(&files);

    if (rv != 0) {
        return rv;
    }
    rv = posix_spawnattr_init(&attr);
    if (rv == 0) {
        rv = prepare(&files, &attr, log);
        rv = rv != 0 ? rv
                     : posix_spawnp(pid, path, &files, &attr, args, environ);
        (void)posix_spawnattr_destroy(&attr);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return rv;
}

/* posix_spawn() takes char *const; it does not write. Caller frees. */
static char **arguments(const struct loco *l, const char *path)
{
    static const char state[] = "--state", trainer[] = "--trainer",
                      kind[] = "socket", join[] = "--join", run[] = "--run",
                      grace[] = "--loop-grace-s", grace_s[] = LOOP_GRACE_S;
    size_t n = 0, more = 0;
    const char **args;

    while (l->locod_args[more] != NULL) {
        more++;
    }
    args = calloc(ARGS_FIXED + more, sizeof args[0]);
    if (args == NULL) {
        return NULL;
    }
    args[n++] = path;
    args[n++] = state;
    args[n++] = l->state;
    args[n++] = trainer;
    args[n++] = kind;
    args[n++] = l->join != NULL ? join : run;
    args[n++] = l->join != NULL ? l->join : l->run;
    if (!l->options.keep) {
        args[n++] = grace;
        args[n++] = grace_s;
    }
    for (size_t i = 0; i < more; i++) {
        args[n++] = l->locod_args[i];
    }
    return (char **)(uintptr_t)args;
}

int child_start(struct loco *l)
{
    char room[STATE_PATH_MAX], log[STATE_PATH_MAX];
    const char *path;
    char **args;
    int rv;

    if (!child_wanted(l) || (l->was_up && !l->child.mine)) {
        return 0;
    }
    rv = log_path(l, log);
    if (rv != 0) {
        return rv;
    }
    path = program(l, room);
    args = arguments(l, path);
    if (args == NULL) {
        return link_fail(l, LOCO_FAIL_MEMORY, "out of memory");
    }
    rv = spawn(&l->child.pid, path, log, args);
    free(args);
    if (rv != 0) {
        l->child.pid = 0;
        return link_fail(l, LOCO_FAIL_NO_DAEMON,
                         "cannot start %.100s: %s; install locod, or set "
                         "LOCO_LOCOD to its path",
                         path, strerror(rv));
    }
    l->child.mine = true;
    l->child.welcome = false;
    link_log(l, "no locod runs on %s: started %s, process %ld%s%s", l->state,
             path, (long)l->child.pid,
             log[0] != '\0' ? ", its output goes to " : "", log);
    return 0;
}

/* ---- its end ------------------------------------------------------------ */

/* It ended before it welcomed us: what it said last is the reason. */
static int never_welcomed(struct loco *l, int status)
{
    char line[LAST_LINE_MAX];
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;

    if (code == LOCO_EXIT_STATE) {
        l->child.in_use = true; /* another one may listen soon */
        return 0;
    }
    child_last_line(l, line);
    return link_fail(l, LOCO_FAIL_NO_DAEMON, "locod ended with %s %d%s%s",
                     code >= 0 ? "exit code" : "signal",
                     code >= 0 ? code : WTERMSIG(status),
                     line[0] != '\0' ? ": " : "", line);
}

int child_look(struct loco *l)
{
    int status = 0;
    pid_t rv;

    if (l->child.pid == 0) {
        return 0;
    }
    rv = waitpid(l->child.pid, &status, WNOHANG);
    if (rv == 0) {
        return 0;
    }
    l->child.pid = 0;
    if (rv < 0) {
        return 0; /* the program itself has waited for it */
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        static const char text[] = "locod has ended";

        link_end(l, 0, text, sizeof text - 1);
        return 0;
    }
    if (!l->child.welcome) {
        return never_welcomed(l, status);
    }
    link_log(l, "locod ended with %s %d: it is started again",
             WIFEXITED(status) ? "exit code" : "signal",
             WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return 0;
}

int child_stop(struct loco *l, uint64_t deadline_ms)
{
    while (l->child.pid != 0) {
        const struct timespec nap = {.tv_nsec = LOOK_EVERY_MS * 1000000L};
        pid_t rv = waitpid(l->child.pid, NULL, WNOHANG);

        if (rv != 0) {
            l->child.pid = 0;
            break;
        }
        if (!l->child.stopped) {
            /* Not waited for yet: the number is still its own. */
            (void)kill(l->child.pid, SIGTERM);
            l->child.stopped = true;
        }
        if (now_ms() >= deadline_ms || nanosleep(&nap, NULL) != 0) {
            return 0;
        }
    }
    return 1;
}
