/* upgrade_process.c - the process of the daemon: which one it is, and what it
 * says of itself; see upgrade.h.
 *
 * The daemon of a state directory is the process of this user that holds its
 * lock. Nothing else tells: the address in STATE/control is that of a daemon
 * that was killed, until another one starts, and its port may be anybody's.
 */
#include "daemon/cli/upgrade.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/state_dir.h"
#include "daemon/visit/http.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define BOOT_FILE        "/proc/sys/kernel/random/boot_id"
#define UPGRADE_WORD_MAX 24 /* of the lock, with its NUL */

/* ---- which one it is ---------------------------------------------------- */

static size_t read_start(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "re");
    size_t n = 0;

    if (f != NULL) {
        n = fread(out, 1, size - 1, f);
        (void)fclose(f);
    }
    out[n] = '\0';
    return n;
}

size_t upgrade_read_proc(pid_t pid, const char *name, char *out, size_t size)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, name);
    return read_start(path, out, size);
}

/* 0: there is no such process, or it has ended and nobody asked how. */
static uint64_t began_at(pid_t pid)
{
    char text[1024], *at;
    unsigned long long began = 0;
    char state = 'Z';

    /* proc(5): the name is in parentheses and may hold any byte. */
    if (pid <= 0 || upgrade_read_proc(pid, "stat", text, sizeof text) == 0 ||
        (at = strrchr(text, ')')) == NULL ||
        sscanf(at,
               ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d "
               "%*d %*d %*d %*d %*d %llu",
               &state, &began) != 2) {
        return 0;
    }
    return state == 'Z' ? 0 : began;
}

static void boot_of(char out[UPGRADE_BOOT_MAX])
{
    (void)read_start(BOOT_FILE, out, UPGRADE_BOOT_MAX);
    out[strcspn(out, "\n")] = '\0';
}

void upgrade_mark(struct upgrade_process *p, pid_t pid)
{
    p->pid = pid;
    p->began = began_at(pid);
    boot_of(p->boot);
}

bool upgrade_lives(const struct upgrade_process *p)
{
    char boot[UPGRADE_BOOT_MAX];

    boot_of(boot);
    return p->began != 0 && strcmp(boot, p->boot) == 0 &&
           began_at(p->pid) == p->began;
}

/* Whether that process is of this user and has the file open. */
static bool holds(pid_t pid, const struct stat *lock)
{
    char path[64];
    struct dirent *entry;
    bool found = false;
    struct stat st;
    DIR *folder;

    (void)snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    folder = opendir(path);
    if (folder == NULL || fstat(dirfd(folder), &st) != 0 ||
        st.st_uid != geteuid()) {
        if (folder != NULL) {
            (void)closedir(folder);
        }
        return false;
    }
    while (!found && (entry = readdir(folder)) != NULL) {
        found = fstatat(dirfd(folder), entry->d_name, &st, 0) == 0 &&
                st.st_dev == lock->st_dev && st.st_ino == lock->st_ino;
    }
    (void)closedir(folder);
    return found;
}

/* What STATE/lock says: the process, and its word ("": none). */
static pid_t written_in(const char *state, char word[UPGRADE_WORD_MAX])
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE], text[64];
    long pid = 0;

    word[0] = '\0';
    if (file_path_join(path, state, STATE_DIR_LOCK, errmsg) != 0) {
        return 0;
    }
    (void)read_start(path, text, sizeof text);
    if (sscanf(text, "%ld %23s", &pid, word) < 2) {
        word[0] = '\0';
    }
    return pid > 0 && pid < INT32_MAX ? (pid_t)pid : 0;
}

size_t upgrade_told(const char *state, char *out, size_t size)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    size_t n;

    if (file_path_join(path, state, STATE_DIR_LOCK, errmsg) != 0) {
        return 0;
    }
    n = read_start(path, out, size);
    if (n <= STATE_DIR_LOCK_HEAD) {
        return 0; /* one of a version before */
    }
    n -= STATE_DIR_LOCK_HEAD;
    memmove(out, out + STATE_DIR_LOCK_HEAD, n + 1);
    return n;
}

static pid_t holder(const char *state)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE], word[UPGRADE_WORD_MAX];
    struct stat lock;
    pid_t pid;

    if (file_path_join(path, state, STATE_DIR_LOCK, errmsg) != 0 ||
        stat(path, &lock) != 0) {
        return 0;
    }
    pid = written_in(state, word);
    return pid > 0 && holds(pid, &lock) ? pid : 0;
}

bool upgrade_went_on(const char *state, const struct upgrade_memory *m)
{
    char word[UPGRADE_WORD_MAX];
    pid_t pid = written_in(state, word);

    return strcmp(word, m->to) == 0 ||
           (strcmp(word, STATE_DIR_LOCK_AGAIN) == 0 && pid == m->process.pid);
}

bool upgrade_was_told_to_end(const char *state)
{
    char word[UPGRADE_WORD_MAX];

    (void)written_in(state, word);
    return strcmp(word, STATE_DIR_LOCK_ENDING) == 0;
}

/* ---- what it says ------------------------------------------------------- */

static void copy_text(char *out, size_t size, const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    (void)snprintf(out, size, "%s", text == NULL ? "" : text);
}

struct upgrade_look upgrade_look_at(const char *state)
{
    char errmsg[HTTP_ERRMSG_MAX], *body = NULL;
    struct http_daemon daemon;
    struct upgrade_look l = {.pid = holder(state)};
    json_t *o;

    if (l.pid == 0 || http_of_state(state, &daemon, errmsg) != 0 ||
        http_get(&daemon, "/api/v1/status", &body, errmsg) != 0) {
        return l;
    }
    o = json_loads(body, 0, NULL);
    free(body);
    /* Another program may have the port of one that was killed. */
    l.answers = json_integer_value(json_object_get(o, "pid")) == l.pid;
    copy_text(l.version, sizeof l.version, o, "version");
    copy_text(l.state, sizeof l.state, o, "state");
    l.peers_alive = json_integer_value(json_object_get(o, "peers_alive"));
    json_decref(o);
    return l;
}

int upgrade_ask(const char *state, const char *path)
{
    char errmsg[HTTP_ERRMSG_MAX];
    struct http_daemon daemon;

    if (holder(state) == 0) {
        return LOCO_ENOENT;
    }
    return http_of_state(state, &daemon, errmsg) == 0 &&
                   http_post(&daemon, path, errmsg) == 0
               ? 0
               : LOCO_EIO;
}
