/* upgrade_process.c - the process of the daemon: what it says of itself, how it
 * was started, how it is started once more; see upgrade.h. */
#include "daemon/cli/upgrade.h"

#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/visit/http.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define ENVIRONMENT_BYTES_MAX ((size_t)256 << 10)

/* Of the daemon, for upgrade_start(); not written down, as it may hold
 * secrets. NULL: ours. */
static char **environment;

static void copy_text(char *out, size_t size, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    (void)snprintf(out, size, "%s", text == NULL ? "" : text);
}

struct upgrade_look upgrade_look_at(const char *state)
{
    char errmsg[HTTP_ERRMSG_MAX], *body = NULL;
    struct http_daemon daemon;
    struct upgrade_look l = {.answers = false};
    json_t *o;

    if (http_of_state(state, &daemon, errmsg) != 0 ||
        http_get(&daemon, "/api/v1/status", &body, errmsg) != 0) {
        return l;
    }
    o = json_loads(body, 0, NULL);
    free(body);
    l.answers = json_is_object(o);
    copy_text(l.version, sizeof l.version, o, "version");
    copy_text(l.state, sizeof l.state, o, "state");
    l.pid = (pid_t)json_integer_value(json_object_get(o, "pid"));
    l.peers_alive = json_integer_value(json_object_get(o, "peers_alive"));
    json_decref(o);
    return l;
}

/* ---- how it runs -------------------------------------------------------- */

static size_t read_proc(pid_t pid, const char *name, char *out, size_t size)
{
    char path[64];
    size_t n = 0;
    FILE *f;

    (void)snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    f = fopen(path, "re");
    if (f != NULL) {
        n = fread(out, 1, size - 1, f);
        (void)fclose(f);
    }
    out[n] = '\0';
    return n;
}

static void link_of(pid_t pid, const char *name, char out[FILE_PATH_MAX])
{
    char path[64];
    ssize_t n;

    (void)snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    n = readlink(path, out, FILE_PATH_MAX - 1);
    out[n < 0 ? 0 : n] = '\0';
    if (out[0] != '/') {
        out[0] = '\0'; /* a pipe, a socket */
    }
}

void upgrade_unit_of(const char *cgroups, char out[UPGRADE_UNIT_MAX])
{
    const char *line = strstr(cgroups, "0::/"), *name = NULL;
    size_t len, n;

    out[0] = '\0';
    line = line == NULL ? strstr(cgroups, "name=systemd:/") : line;
    if (line == NULL) {
        return;
    }
    len = strcspn(line, "\n");
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

/* 0: there is no such process, or it has ended and nobody asked how. */
static uint64_t began_at(pid_t pid)
{
    char text[1024], *at;
    unsigned long long began = 0;
    char state = 'Z';

    /* proc(5): the name is in parentheses and may hold any byte. */
    if (pid <= 0 || read_proc(pid, "stat", text, sizeof text) == 0 ||
        (at = strrchr(text, ')')) == NULL ||
        sscanf(at,
               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d "
               "%*d %*d %*d %*d %*d %llu",
               &state, &began) != 2) {
        return 0;
    }
    return state == 'Z' ? 0 : began;
}

bool upgrade_lives(const struct upgrade_process *p)
{
    return p->began != 0 && began_at(p->pid) == p->began;
}

static void look_environment(pid_t pid)
{
    char *text = malloc(ENVIRONMENT_BYTES_MAX);
    size_t len = text == NULL
                     ? 0
                     : read_proc(pid, "environ", text, ENVIRONMENT_BYTES_MAX);
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

void upgrade_look_how(struct upgrade *u)
{
    struct upgrade_process *p = &u->memory.process;
    struct upgrade_look l = upgrade_look_at(u->state);
    char cgroups[4096];
    size_t len;

    memset(p, 0, sizeof *p);
    (void)snprintf(u->memory.was, sizeof u->memory.was, "%s", l.state);
    if (!l.answers || l.pid <= 0) {
        return;
    }
    p->pid = l.pid;
    p->began = began_at(l.pid);
    len = read_proc(l.pid, "cmdline", p->args, sizeof p->args);
    for (size_t at = 0; at < len && p->n_args < UPGRADE_ARGS_MAX;
         at += strlen(p->args + at) + 1) {
        p->arg[p->n_args++] = p->args + at;
    }
    link_of(l.pid, "exe", p->program);
    link_of(l.pid, "cwd", p->cwd);
    link_of(l.pid, "fd/1", p->log);
    (void)read_proc(l.pid, "cgroup", cgroups, sizeof cgroups);
    upgrade_unit_of(cgroups, p->unit);
    look_environment(l.pid);
}

/* ---- once more ---------------------------------------------------------- */

static int run_systemctl(const char *verb, const char *unit)
{
    const char *const argv[] = {"systemctl", "--user", verb, unit, NULL};
    int status = 0;
    pid_t pid;

    /* It takes char pointers and writes to none of them. */
    return posix_spawnp(&pid, argv[0], NULL, NULL,
                        (char *const *)(uintptr_t)argv, environ) == 0 &&
                   waitpid(pid, &status, 0) == pid && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

int upgrade_start(struct upgrade *u)
{
    struct upgrade_process *p = &u->memory.process;
    posix_spawn_file_actions_t files;
    char program[FILE_PATH_MAX], log[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    posix_spawnattr_t how;
    int rv;

    if (p->unit[0] != '\0') {
        (void)run_systemctl("reset-failed", p->unit);
        rv = run_systemctl("restart", p->unit);
        return rv == 0 ? CLI_GO
                       : cli_fail(TROUBLE_UPGRADE,
                                  "upgrade: systemctl --user restart %s: exit "
                                  "code %d",
                                  p->unit, rv);
    }
    if (p->n_args == 0 ||
        file_path_join(program, u->lib, "loco/bin/locod", errmsg) != 0 ||
        file_path_join(log, u->state, "locod.log", errmsg) != 0) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: how locod was started is not known: start "
                        "it again");
    }
    if (posix_spawn_file_actions_init(&files) != 0 ||
        posix_spawnattr_init(&how) != 0) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_addopen(&files, 1,
                                           p->log[0] != '\0' ? p->log : log,
                                           O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (p->cwd[0] != '\0') {
        (void)posix_spawn_file_actions_addchdir_np(&files, p->cwd);
    }
    rv = posix_spawn(&p->pid, program, &files, &how,
                     (char *const *)(uintptr_t)p->arg,
                     environment == NULL ? environ : environment);
    (void)posix_spawnattr_destroy(&how);
    (void)posix_spawn_file_actions_destroy(&files);
    return rv == 0 ? CLI_GO
                   : cli_fail(TROUBLE_UPGRADE, "upgrade: start %s: %s", program,
                              strerror(rv));
}
