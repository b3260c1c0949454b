/* upgrade_start.c - how the daemon was started, and how it is started once
 * more; see upgrade.h. */
#include "daemon/cli/upgrade.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "proto/base/errmsg.h"

#define ENVIRONMENT_BYTES_MAX ((size_t)256 << 10)

/* Of the daemon, for upgrade_start(); not written down, as it may hold
 * secrets. NULL: ours. */
static char **environment;

/* ---- how it was started ------------------------------------------------- */

/* "": not to be had. */
static void link_of(pid_t pid, const char *name, char out[FILE_PATH_MAX])
{
    char path[64];
    ssize_t n;

    (void)snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    n = readlink(path, out, FILE_PATH_MAX - 1);
    out[n < 0 ? 0 : n] = '\0';
}

/* Where its output goes, if that is a file which is there still. */
static void look_log(struct upgrade_process *p)
{
    struct stat open, there;
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%ld/fd/1", (long)p->pid);
    link_of(p->pid, "fd/1", p->log);
    if (stat(path, &open) != 0 || !S_ISREG(open.st_mode) ||
        lstat(p->log, &there) != 0 || there.st_dev != open.st_dev ||
        there.st_ino != open.st_ino) {
        p->log[0] = '\0';
    }
}

/* The last name of the path in that line. */
static void unit_in(const char *line, char out[UPGRADE_UNIT_MAX])
{
    size_t len = line == NULL ? 0 : strcspn(line, "\n"), n;
    const char *name = NULL;

    out[0] = '\0';
    if (len == 0) {
        return;
    }
    for (size_t i = 0; i < len; i++) {
        name = line[i] == '/' ? line + i + 1 : name;
    }
    n = (size_t)(line + len - name);
    if (memmem(line, len, "/user@", 6) != NULL && n > 8 &&
        n < UPGRADE_UNIT_MAX && memcmp(name + n - 8, ".service", 8) == 0 &&
        memcmp(name, "user@", 5) != 0) {
        memcpy(out, name, n);
        out[n] = '\0';
    }
}

void upgrade_unit_of(const char *cgroups, char out[UPGRADE_UNIT_MAX])
{
    unit_in(strstr(cgroups, "0::/"), out);
    if (out[0] == '\0') { /* systemd has its units in the older hierarchy */
        unit_in(strstr(cgroups, "name=systemd:/"), out);
    }
}

/* Where a timer of cron or su has not set it, systemctl finds nobody. */
static void name_runtime(void)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/run/user/%ld", (long)geteuid());
    if (getenv("XDG_RUNTIME_DIR") == NULL && access(path, F_OK) == 0) {
        (void)setenv("XDG_RUNTIME_DIR", path, 1);
    }
}

/* The process that systemd has for a unit; 0: none; -1: it does not answer. */
static pid_t main_pid(const char *unit)
{
    const char *const argv[] = {"systemctl", "--user",  "show", "-p",
                                "MainPID",   "--value", unit,   NULL};
    posix_spawn_file_actions_t files;
    int fds[2], status = -1;
    char text[32] = "";
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) != 0) {
        return -1;
    }
    name_runtime();
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_adddup2(&files, fds[1], 1);
    (void)posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    /* It takes char pointers and writes to none of them. */
    if (posix_spawnp(&pid, argv[0], &files, NULL,
                     (char *const *)(uintptr_t)argv, environ) == 0) {
        (void)close(fds[1]);
        fds[1] = -1;
        while (n + 1 < sizeof text &&
               (got = read(fds[0], text + n, sizeof text - 1 - n)) > 0) {
            n += (size_t)got;
        }
        (void)waitpid(pid, &status, 0);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    (void)close(fds[0]);
    if (fds[1] >= 0) {
        (void)close(fds[1]);
    }
    return status == 0 ? (pid_t)strtol(text, NULL, 10) : -1;
}

/* A unit counts only if it was made for the daemon: a daemon that was started
 * by hand in a terminal's unit is not that unit. */
static int look_unit(struct upgrade_process *p)
{
    char cgroups[4096];
    pid_t pid = 0;

    (void)upgrade_read_proc(p->pid, "cgroup", cgroups, sizeof cgroups);
    upgrade_unit_of(cgroups, p->unit);
    if (p->unit[0] != '\0') {
        pid = main_pid(p->unit);
    }
    if (pid < 0) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: the daemon is of the unit %s, and systemctl "
                        "--user does not answer here: set XDG_RUNTIME_DIR, or "
                        "log in as its user",
                        p->unit);
    }
    if (pid != p->pid) {
        p->unit[0] = '\0';
    }
    return CLI_GO;
}

static void look_environment(pid_t pid)
{
    char *text = malloc(ENVIRONMENT_BYTES_MAX);
    size_t len = text == NULL ? 0
                              : upgrade_read_proc(pid, "environ", text,
                                                  ENVIRONMENT_BYTES_MAX);
    size_t n = 0;

    for (size_t at = 0; at < len; at += strlen(text + at) + 1) {
        n++;
    }
    environment = len == 0 || len + 1 == ENVIRONMENT_BYTES_MAX
                      ? NULL
                      : calloc(n + 1, sizeof *environment);
    if (environment == NULL) {
        free(text);
        return;
    }
    n = 0; /* text stays as long as this program */
    for (size_t at = 0; at < len; at += strlen(text + at) + 1) {
        environment[n++] = text + at;
    }
}

/* Its program and arguments, as it wrote them: in an emulator (qemu-user) /proc
 * tells those of the emulator. Of one of a version before, as /proc tells.
 * False: too long. */
static bool look_program(const char *state, struct upgrade_process *p)
{
    static char told[FILE_PATH_MAX + sizeof p->args];
    size_t len = upgrade_told(state, told, sizeof told), first;

    if (len > 0) {
        first = strlen(told) + 1;
        len -= first < len ? first : len;
        (void)snprintf(p->program, sizeof p->program, "%.*s", FILE_PATH_MAX - 1,
                       told);
        len = len < sizeof p->args ? len : sizeof p->args - 1;
        memcpy(p->args, told + first, len);
        p->args[len] = '\0';
    } else {
        link_of(p->pid, "exe", p->program);
        len = upgrade_read_proc(p->pid, "cmdline", p->args, sizeof p->args);
    }
    for (size_t at = 0; at < len && p->n_args < UPGRADE_ARGS_MAX;
         at += strlen(p->args + at) + 1) {
        p->arg[p->n_args++] = p->args + at;
    }
    return len + 1 < sizeof p->args && p->n_args < UPGRADE_ARGS_MAX;
}

int upgrade_look_how(struct upgrade *u)
{
    struct upgrade_process *p = &u->memory.process;
    struct upgrade_look l = upgrade_look_at(u->state);

    memset(p, 0, sizeof *p);
    if (l.answers) { /* else what it said before holds */
        (void)snprintf(u->memory.was, sizeof u->memory.was, "%s", l.state);
        u->memory.peers_alive = l.peers_alive;
    }
    if (l.pid == 0) {
        return CLI_GO;
    }
    upgrade_mark(p, l.pid);
    if (!look_program(u->state, p)) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: the daemon of %s has a very long command "
                        "line: put its settings into locod.yaml",
                        u->state);
    }
    link_of(l.pid, "cwd", p->cwd);
    look_log(p);
    look_environment(l.pid);
    return look_unit(p);
}

/* ---- once more ---------------------------------------------------------- */

static int run_systemctl(const char *verb, const char *option, const char *unit)
{
    const char *const argv[] = {"systemctl", "--user", verb,
                                option,      unit,     NULL};
    int status = 0;
    pid_t pid;

    return posix_spawnp(&pid, argv[0], NULL, NULL,
                        (char *const *)(uintptr_t)argv, environ) == 0 &&
                   waitpid(pid, &status, 0) == pid && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

/* In a session of its own; an errno. */
static int spawn(struct upgrade_process *p,
                 const char *program,
                 const char *log,
                 const char *cwd)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    int rv;

    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&files, 1, log,
                                           O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (cwd[0] != '\0') {
        (void)posix_spawn_file_actions_addchdir_np(&files, cwd);
    }
    rv = posix_spawn(&p->pid, program, &files, &how,
                     (char *const *)(uintptr_t)p->arg,
                     environment == NULL ? environ : environment);
    (void)posix_spawnattr_destroy(&how);
    (void)posix_spawn_file_actions_destroy(&files);
    return rv;
}

/* The unit with its new program, of which nothing is left. A restart alone
 * waits for one that takes no SIGTERM as long as a round may take. */
static int start_unit(const char *unit)
{
    int rv;

    (void)run_systemctl("kill", "--signal=KILL", unit);
    rv = run_systemctl("restart", "--quiet", unit);
    if (rv == 0) {
        return CLI_GO;
    }
    /* It has started too often. Not before: of a unit that systemd-run made,
     * nothing would be left to start. */
    (void)run_systemctl("reset-failed", "--quiet", unit);
    rv = run_systemctl("restart", "--quiet", unit);
    return rv == 0
               ? CLI_GO
               : cli_fail(TROUBLE_UPGRADE,
                          "upgrade: systemctl --user restart %s: exit code %d",
                          unit, rv);
}

int upgrade_start(struct upgrade *u)
{
    struct upgrade_process *p = &u->memory.process;
    char program[FILE_PATH_MAX], log[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    int rv;

    if (p->unit[0] != '\0') {
        return start_unit(p->unit);
    }
    if (p->n_args == 0 ||
        file_path_join(program, u->lib, "loco/bin/locod", errmsg) != 0 ||
        file_path_join(log, u->state, "locod.log", errmsg) != 0) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: how locod was started is not known: start "
                        "it again");
    }
    rv = spawn(p, program, p->log[0] != '\0' ? p->log : log, p->cwd);
    rv = rv == 0 ? 0 : spawn(p, program, log, p->cwd);
    rv = rv == 0 ? 0 : spawn(p, program, log, "/"); /* its folder is gone */
    if (rv != 0) {
        return cli_fail(TROUBLE_UPGRADE, "upgrade: start %s: %s", program,
                        strerror(rv));
    }
    upgrade_mark(p, p->pid);
    return CLI_GO;
}
