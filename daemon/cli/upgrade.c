/* upgrade.c - loco upgrade: what is installed, the order of things; see
 * upgrade.h. */
#include "daemon/cli/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/config.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define SCRIPT_LOCK_FD 9

/* What the command line says. */
struct asked {
    const char *list, *key;
    bool check, yes, again, other_protocol, back, json;
};

/* ---- what is installed -------------------------------------------------- */

/* The PREFIX as it was given to install.sh, which compares its links as text:
 * from the line "link PREFIX/bin/loco" of its record. */
static bool read_prefix(struct upgrade *u, const char *tree)
{
    static const char begin[] = "link ", end[] = "/bin/loco";
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE], *text = NULL;
    bool found = false;
    size_t size = 0;

    if (file_path_join(path, tree, "installed", errmsg) != 0 ||
        file_read_whole(path, 1U << 20, &text, &size, errmsg) != 0) {
        return false;
    }
    for (char *line = text, *next; line != NULL && !found; line = next) {
        size_t len = strcspn(line, "\n");

        next = line[len] == '\0' ? NULL : line + len + 1;
        line[len] = '\0';
        if (len > sizeof begin + sizeof end &&
            len < sizeof u->prefix + sizeof begin &&
            strncmp(line, begin, sizeof begin - 1) == 0 &&
            strcmp(line + len - (sizeof end - 1), end) == 0) {
            line[len - (sizeof end - 1)] = '\0';
            (void)snprintf(u->prefix, sizeof u->prefix, "%s",
                           line + sizeof begin - 1);
            found = true;
        }
    }
    free(text);
    return found;
}

static void link_in_use(const struct upgrade *u, char out[FILE_PATH_MAX])
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    ssize_t n = file_path_join(path, u->lib, "loco", errmsg) == 0
                    ? readlink(path, out, FILE_PATH_MAX - 1)
                    : -1;

    out[n < 0 ? 0 : n] = '\0';
}

/* PREFIX/lib/loco-VERSION-SUM/bin/loco: install.sh's place, and in use? */
static int find_install(struct upgrade *u)
{
    static const char end[] = "/bin/loco";
    char self[FILE_PATH_MAX], used[FILE_PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    char *name = NULL;

    self[len < 0 ? 0 : len] = '\0';
    len -= (ssize_t)sizeof end - 1;
    if (len > 0 && strcmp(self + len, end) == 0) {
        self[len] = '\0';
        name = strrchr(self, '/');
    }
    if (name == NULL || strncmp(name, "/loco-", 6) != 0 ||
        snprintf(u->script, sizeof u->script, "%s/install.sh", self) >=
            (int)sizeof u->script ||
        access(u->script, R_OK) != 0 || !read_prefix(u, self)) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: %s was not installed by install.sh; upgrade "
                        "it with what installed it: apt, pip, a new build",
                        self);
    }
    *name++ = '\0';
    (void)snprintf(u->lib, sizeof u->lib, "%s", self);
    (void)snprintf(u->tree, sizeof u->tree, "%s", name);
    link_in_use(u, used);
    if (strcmp(used, name) != 0) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: %s/%s is not the version in use, %s is: use "
                        "the loco of that one",
                        u->lib, name, used);
    }
    return CLI_GO;
}

/* One upgrade at a time; the system forgets it with the process. */
static int lock(struct upgrade *u)
{
    u->lock_fd = open(u->lib, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Not every network file system has locks for folders. */
    if (u->lock_fd >= 0 && flock(u->lock_fd, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: another loco upgrade is at work in %s",
                        u->lib);
    }
    return CLI_GO;
}

/* The last line that the script wrote. */
static void last_line(const char *path, char out[ERRMSG_SIZE])
{
    char errmsg[ERRMSG_SIZE], *text = NULL, *end, *begin;
    size_t size = 0;

    (void)snprintf(out, ERRMSG_SIZE, "it says nothing");
    if (file_read_whole(path, 1U << 20, &text, &size, errmsg) != 0) {
        return;
    }
    end = text + size;
    while (end > text && (end[-1] == '\n' || end[-1] == '\0')) {
        *--end = '\0';
    }
    begin = strrchr(text, '\n');
    if (end > text) {
        (void)snprintf(out, ERRMSG_SIZE, "%s",
                       begin == NULL ? text : begin + 1);
    }
    free(text);
}

int upgrade_install(const struct upgrade *u, const char *const *arguments)
{
    const char *argv[12] = {"sh", u->script, "--prefix", u->prefix};
    posix_spawn_file_actions_t files;
    char said[ERRMSG_SIZE];
    int status = 0, rv;
    size_t n = 4;
    pid_t pid;

    while (*arguments != NULL && n + 1 < sizeof argv / sizeof argv[0]) {
        argv[n++] = *arguments++;
    }
    if (posix_spawn_file_actions_init(&files) != 0) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    (void)posix_spawn_file_actions_addopen(&files, 1, u->log,
                                           O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (u->lock_fd >= 0) { /* it is locked until both have ended */
        (void)posix_spawn_file_actions_adddup2(&files, u->lock_fd,
                                               SCRIPT_LOCK_FD);
    }
    /* It takes char pointers and writes to none of them. */
    rv = posix_spawnp(&pid, "sh", &files, NULL, (char *const *)(uintptr_t)argv,
                      environ);
    (void)posix_spawn_file_actions_destroy(&files);
    if (rv != 0 || waitpid(pid, &status, 0) != pid) {
        return cli_fail(TROUBLE_PROGRAM, "upgrade: start sh %s: %s", u->script,
                        strerror(rv != 0 ? rv : errno));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return CLI_GO;
    }
    last_line(u->log, said);
    return cli_fail(TROUBLE_UPGRADE, "upgrade: %s (log: %s)", said, u->log);
}

static int ask(const struct asked *a, const struct upgrade_offer *o)
{
    char answer[16] = "";

    if (a->yes) {
        return CLI_GO;
    }
    (void)fprintf(stderr, "Upgrade loco %s to %s (%.1f MB)? [y/N] ",
                  LOCO_VERSION, o->release->text, (double)o->file->bytes / 1e6);
    if (fgets(answer, sizeof answer, stdin) == NULL ||
        (answer[0] != 'y' && answer[0] != 'Y')) {
        (void)fprintf(stderr, "nothing was changed\n");
        return LOCO_EXIT_OK;
    }
    return CLI_GO;
}

int upgrade_put_back(const struct upgrade *u)
{
    static const char *const arguments[] = {"--back", NULL};
    char before[FILE_PATH_MAX], after[FILE_PATH_MAX];
    int rv;

    link_in_use(u, before);
    rv = upgrade_install(u, arguments);
    link_in_use(u, after);
    /* What failed after that one step changes nothing. */
    return strcmp(before, after) != 0 ? CLI_GO : rv;
}

/* ---- the command -------------------------------------------------------- */

static int report(const struct asked *a,
                  const char *from,
                  const char *to,
                  const char *what)
{
    bool same = strcmp(from, to) == 0;

    if (a->json) {
        return cli_print_json(
            json_pack("{ss ss ss}", "from", from, "to", to, "result", what),
            JSON_COMPACT);
    }
    (void)printf("%s: loco %s%s%s\n", what, from, same ? "" : " -> ",
                 same ? "" : to);
    return LOCO_EXIT_OK;
}

static int tell(const struct asked *a,
                const char *from,
                const char *to,
                enum upgrade_end end)
{
    static const char *const words[] = {
        [UPGRADE_UP] = "upgraded",
        [UPGRADE_UNTRIED] = "upgraded, not yet tried in the run",
        [UPGRADE_NOBODY] = "upgraded, no daemon runs here",
        [UPGRADE_ENDED] = "upgraded, the daemon ended meanwhile",
        [UPGRADE_BACK] = "gone back",
    };

    if (end != UPGRADE_BACK) {
        return report(a, from, to, words[end]);
    }
    (void)report(a, to, from, words[end]);
    return cli_fail(TROUBLE_UPGRADE,
                    "upgrade: loco %s did not come up, and the version before "
                    "is in use again",
                    to);
}

/* A server that hides new lists cannot be told from a publisher who rests, but
 * by the age of the list. release.sh takes the time for its serial. */
static void tell_date(uint64_t serial)
{
    time_t made = (time_t)serial;
    struct tm tm;
    char day[16];

    if (serial < INT64_C(1) << 40 && gmtime_r(&made, &tm) != NULL &&
        strftime(day, sizeof day, "%Y-%m-%d", &tm) > 0) {
        (void)fprintf(stderr, "the list is of %s\n", day);
    }
}

static int upgrade(struct upgrade *u, const struct asked *a)
{
    struct upgrade_offer o = {0};
    char used[FILE_PATH_MAX];
    enum upgrade_end end;
    int rv;

    rv = upgrade_offer(u, a->list, a->key, &o);
    if (rv == CLI_GO && o.newer == 0) {
        tell_date(u->memory.serial);
        return report(a, LOCO_VERSION, o.release->text, "up to date");
    }
    rv = rv == CLI_GO
             ? upgrade_refuse(u, a->list, &o, a->again, a->other_protocol)
             : rv;
    if (rv == CLI_GO && a->check) {
        return report(a, LOCO_VERSION, o.release->text, "available");
    }
    rv = rv == CLI_GO ? ask(a, &o) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    (void)snprintf(u->memory.from, sizeof u->memory.from, "%s", LOCO_VERSION);
    (void)snprintf(u->memory.to, sizeof u->memory.to, "%s", o.release->text);
    u->memory.was[0] = '\0';
    u->memory.peers_alive = 0;
    rv = upgrade_begin(u);
    if (rv != CLI_GO) {
        return rv;
    }
    rv = upgrade_put(u, a->list, &o);
    if (rv != CLI_GO) {
        link_in_use(u, used);
        if (strcmp(used, u->tree) != 0) { /* it failed after its one step */
            (void)upgrade_put_back(u);
        }
        (void)upgrade_forget(u);
        return rv;
    }
    rv = upgrade_try(u, &end);
    return rv == CLI_GO ? tell(a, LOCO_VERSION, o.release->text, end) : rv;
}

static int prepare(struct upgrade *u, struct asked *a)
{
    static struct config config;
    char errmsg[CONFIG_ERRMSG_MAX], *none[] = {NULL};
    int rv;

    if (config_parse(0, none, &config, errmsg) != 0) {
        return cli_fail(trouble_of_settings(config.exit_code), "%s", errmsg);
    }
    u->state = u->state == NULL ? config.state : u->state;
    a->list = a->list == NULL ? config.upgrade_list : a->list;
    a->key = a->key == NULL ? config.upgrade_key : a->key;
    rv = find_install(u);
    rv = rv == CLI_GO ? lock(u) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    if (file_path_join(u->log, u->state, STATE_DIR_UPGRADE_LOG, errmsg) != 0 ||
        file_make_folders(u->log, errmsg) != 0 ||
        upgrade_memory_load(&u->memory, u->state, errmsg) != 0) {
        return cli_fail(TROUBLE_STATE_DIR, "upgrade: %s", errmsg);
    }
    return CLI_GO;
}

/* What an earlier upgrade began and did not end. CLI_GO: go on. */
static int settle(struct upgrade *u, const struct asked *a)
{
    char from[RELEASE_VERSION_MAX], to[RELEASE_VERSION_MAX];
    enum upgrade_end end;
    int rv;

    memcpy(from, u->memory.from, sizeof from);
    memcpy(to, u->memory.to, sizeof to);
    if (a->check) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: that from %s to %s was broken off; loco "
                        "upgrade without --check ends it",
                        from, to);
    }
    rv = upgrade_settle(u, &end);
    return rv == CLI_GO && end == UPGRADE_BACK
               ? tell(a, from, to, end) /* this program is out of use */
               : rv;
}

int cli_upgrade(const struct cli_call *call)
{
    static struct upgrade u = {.patience_s = 300, .lock_fd = -1}; /* 100 KB */
    struct asked a = {0};
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &u.state, "DIR", "the daemon's state directory"},
        {"--list", CLI_TEXT, &a.list, "URL|FILE",
         "signed list of releases (setting upgrade_list)"},
        {"--key", CLI_TEXT, &a.key, "RW...",
         "minisign key of its publisher (setting upgrade_key)"},
        {"--check", CLI_FLAG, &a.check, NULL, "only say what is new"},
        {"--yes", CLI_FLAG, &a.yes, NULL, "upgrade without asking"},
        {"--patience", CLI_COUNT, &u.patience_s, "S",
         "seconds in which the daemon must take part again (300)"},
        {"--again", CLI_FLAG, &a.again, NULL,
         "also a release that did not come up here before"},
        {"--other-protocol", CLI_FLAG, &a.other_protocol, NULL,
         "also a release that the peers of this run refuse"},
        {"--back", CLI_FLAG, &a.back, NULL,
         "go back to the version that was in use before"},
        {"--json", CLI_FLAG, &a.json, NULL, "print one JSON object"},
    };
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    rv = rv == CLI_GO ? prepare(&u, &a) : rv;
    rv = rv == CLI_GO && u.memory.trial ? settle(&u, &a) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    if (a.back) {
        return upgrade_back(&u);
    }
    if (a.list[0] == '\0' || a.key[0] == '\0') {
        return cli_fail(TROUBLE_USAGE,
                        "upgrade: off, as no list of releases is named here: "
                        "loco config set upgrade_list URL, and upgrade_key "
                        "with its publisher's key; or --list and --key");
    }
    return upgrade(&u, &a);
}
