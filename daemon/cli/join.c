/* join.c - loco join: take part in a run, for a person.
 *
 * Starts locod in a session of its own (so that Ctrl-C reaches only us), with
 * its log in STATE/locod.log, and shows `loco top` until it ends. Before that:
 * what the run asks for, from its signed manifest, and the question whether to
 * join (join_terms.h). Where a visit does not bring the manifest, a daemon
 * fetches it and is stopped again: it is the first thing that a joiner gets.
 *
 * Ctrl-C or SIGTERM: the daemon finishes the round in flight and says goodbye;
 * a second one stops it at once. The exit code is the daemon's.
 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/join_terms.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/uri.h"

#define FETCH_S 60 /* for the manifest to arrive */
#define POLL_MS 100

struct join {
    const char *uri, *listen, *state;
    const struct uri *run;
    char self[FILE_PATH_MAX];  /* this program */
    char locod[FILE_PATH_MAX]; /* the daemon beside it */
    char log[FILE_PATH_MAX];
};

/* Signals that came and were not passed on yet. */
static volatile sig_atomic_t asked;

static void on_signal(int number)
{
    (void)number;
    asked++;
}

static void nap(void)
{
    const struct timespec t = {0, POLL_MS * 1000000L};

    (void)nanosleep(&t, NULL); /* a signal ends it early */
}

/* build/loco -> build/locod, /usr/bin/loco -> /usr/bin/locod. */
static int find_programs(struct join *j)
{
    ssize_t len = readlink("/proc/self/exe", j->self, sizeof j->self - 2);

    if (len <= 0) {
        return cli_fail(TROUBLE_PROGRAM,
                        "join: cannot find the directory of this program");
    }
    j->self[len] = '\0';
    memcpy(j->locod, j->self, (size_t)len);
    memcpy(j->locod + len, "d", 2);
    if (access(j->locod, X_OK) != 0) {
        return cli_fail(TROUBLE_PROGRAM,
                        "join: %s is missing: build or install locod",
                        j->locod);
    }
    return CLI_GO;
}

/* The pid; 0 or less: it did not start. A daemon gets a session of its own and
 * the log for its output. */
static pid_t spawn(const struct join *j, const char *const *argv, bool daemon)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    pid_t pid = 0;
    int rv;

    if (posix_spawn_file_actions_init(&files) != 0) {
        return 0;
    }
    if (posix_spawnattr_init(&how) != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return 0;
    }
    if (daemon) {
        (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
        (void)posix_spawn_file_actions_addopen(
            &files, 1, j->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        (void)posix_spawn_file_actions_adddup2(&files, 1, 2);
    }
    /* It takes char pointers and writes to none of them. */
    rv = posix_spawn(&pid, argv[0], &files, &how,
                     (char *const *)(uintptr_t)argv, environ);
    (void)posix_spawnattr_destroy(&how);
    (void)posix_spawn_file_actions_destroy(&files);
    if (rv != 0) {
        (void)cli_fail(TROUBLE_PROGRAM, "join: start %s: %s", argv[0],
                       strerror(rv));
        return 0;
    }
    return pid;
}

/* `fetch`: only for the manifest. Then the caps of this machine do not matter
 * yet: they are held against it before the question (join_terms.h). */
static pid_t start(const struct join *j, bool fetch)
{
    const char *argv[16] = {j->locod, "--state", j->state, "--join", j->uri};
    size_t n = 5;

    if (j->listen != NULL) {
        argv[n++] = "--listen";
        argv[n++] = j->listen;
    }
    if (fetch) {
        argv[n++] = "--mapping"; /* which an end would wait for */
        argv[n++] = "off";
        argv[n++] = "--memory-bytes";
        argv[n++] = "0";
        argv[n++] = "--disk-bytes";
        argv[n++] = "0";
    }
    argv[n] = NULL;
    return spawn(j, argv, true);
}

static int code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : LOCO_EXIT_FAILURE;
}

/* The last lines of its log say why. */
static int ended(const struct join *j, int status)
{
    char tail[1024];
    FILE *f = fopen(j->log, "re");
    size_t n = 0;

    if (code_of(status) != 0 && f != NULL) {
        if (fseek(f, -(long)sizeof tail, SEEK_END) != 0) {
            rewind(f);
        }
        n = fread(tail, 1, sizeof tail, f);
        (void)fprintf(stderr, "%.*s(log: %s)\n", (int)n, tail, j->log);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return code_of(status);
}

static bool is_there(const char *file)
{
    struct stat st;

    return file != NULL && stat(file, &st) == 0 && st.st_size > 0;
}

/* Wait for the daemon, passing signals on; the code it ended with. With
 * `until` (a file), only until that is there: CLI_GO, and the daemon is
 * stopped. */
static int attend(const struct join *j, pid_t pid, const char *until)
{
    const uint64_t limit_ms = monotonic_ms() + FETCH_S * 1000;
    int status = 0, passed = 0;

    for (;;) {
        pid_t done = waitpid(pid, &status, WNOHANG);

        if (is_there(until)) { /* whatever it thinks of the run */
            if (done != pid) {
                (void)kill(pid, SIGTERM);
                (void)waitpid(pid, &status, 0);
            }
            return CLI_GO;
        }
        if (done == pid) {
            return ended(j, status);
        }
        if (asked > passed) {
            passed = asked;
            (void)fprintf(
                stderr, "\n%s (log: %s)\n",
                passed == 1
                    ? "finishing the current round; Ctrl-C again stops at once"
                    : "stopping at once",
                j->log);
            (void)kill(pid, SIGTERM);
        }
        if (until != NULL && passed == 0 && monotonic_ms() > limit_ms) {
            (void)kill(pid, SIGTERM);
            (void)waitpid(pid, &status, 0);
            return cli_fail(TROUBLE_UNREACHABLE,
                            "join: no peer gave the manifest of the run within "
                            "%d s; loco doctor --join %s says why",
                            FETCH_S, j->uri);
        }
        nap();
    }
}

/* The manifest, from a daemon that is stopped again: it can show an invitation
 * and look for other peers of the run. */
static int fetch_manifest(const struct join *j)
{
    char manifest[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    pid_t pid;

    if (file_path_join(manifest, j->state, STATE_DIR_MANIFEST, errmsg) != 0) {
        return cli_fail(TROUBLE_STATE_DIR, "%s", errmsg);
    }
    pid = start(j, true);
    if (pid <= 0) {
        return LOCO_EXIT_FAILURE;
    }
    return attend(j, pid, manifest);
}

static int take_part(const struct join *j)
{
    const char *const top[] = {j->self, "top",    "--patience",
                               "3600",  j->state, NULL};
    pid_t daemon = start(j, false), view;
    int rv;

    if (daemon <= 0) {
        return LOCO_EXIT_FAILURE;
    }
    (void)fprintf(
        stderr,
        "joining; Ctrl-C leaves after the current round; for friends, "
        "a line and a QR code: loco run share --state %s\n",
        j->state);
    view = spawn(j, top, false);
    rv = attend(j, daemon, NULL);
    if (view > 0) {
        (void)kill(view, SIGTERM);
        (void)waitpid(view, NULL, 0);
    }
    return rv;
}

static int prepare(struct join *j)
{
    static struct uri u;
    char errmsg[LOCO_ERRMSG_MAX];
    int rv = uri_parse(j->uri, &u, errmsg);

    if (rv != 0) {
        return cli_fail(TROUBLE_URI, "%s", errmsg);
    }
    j->run = &u;
    rv = cli_state(&j->state);
    if (rv != CLI_GO) {
        return rv;
    }
    rv = file_path_join(j->log, j->state, "locod.log", errmsg);
    rv = rv == 0 ? file_make_folders(j->log, errmsg) : rv;
    return rv == 0 ? CLI_GO : cli_fail(TROUBLE_STATE_DIR, "join: %s", errmsg);
}

int cli_join(const struct cli_call *call)
{
    struct cli_list words = {0};
    struct join j = {0};
    bool yes = false;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &j.state, "DIR",
         "directory for identity, data, checkpoints (XDG state directory)"},
        {"--listen", CLI_TEXT, &j.listen, "HOST:PORT",
         "address to listen on for peers (0.0.0.0:7700)"},
        {"--yes", CLI_FLAG, &yes, NULL, "join without asking"},
    };
    const struct sigaction act = {.sa_handler = on_signal};
    int rv = CLI_PARSE(call, options, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    j.uri = words.item[0];
    rv = find_programs(&j);
    rv = rv == CLI_GO ? prepare(&j) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    (void)sigaction(SIGINT, &act, NULL);
    (void)sigaction(SIGTERM, &act, NULL);
    (void)sigaction(SIGHUP, &act, NULL);
    if (!yes) {
        rv = join_terms_ask(j.state, j.run, &asked);
        if (rv == JOIN_TERMS_NO_RUN) {
            rv = fetch_manifest(&j);
            rv = rv == CLI_GO ? join_terms_ask(j.state, j.run, &asked) : rv;
        }
    }
    if (rv == CLI_GO && asked > 0) {
        return LOCO_EXIT_OK; /* nothing is begun for whoever wants to leave */
    }
    return rv == CLI_GO ? take_part(&j) : rv;
}
