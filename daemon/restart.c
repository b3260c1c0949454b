/* restart.c - another program follows in this process; see locod.h.
 *
 * The process stays, with its id, its arguments and its folder: a service
 * manager, a container or a shell that waits for it need not know. Everything
 * that this program held has been closed; what was opened by libraries has
 * close-on-exec.
 */
#include "daemon/locod.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

/* The kernel's word for a file that has another one's name by now. */
static void cut_gone(char *path)
{
    static const char gone[] = " (deleted)";
    size_t len = strlen(path);

    if (len > sizeof gone &&
        strcmp(path + len - (sizeof gone - 1), gone) == 0) {
        path[len - (sizeof gone - 1)] = '\0';
    }
}

void find_program(char out[FILE_PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", out, FILE_PATH_MAX - 1);

    out[len < 0 ? 0 : len] = '\0';
    cut_gone(out);
}

/* PREFIX/lib/loco-VERSION-SUM/bin/locod -> PREFIX/lib/loco/bin/locod, the link
 * that install.sh turns to the version in use. False: not installed so. */
static bool in_use(const char *program, char path[FILE_PATH_MAX])
{
    static const char end[] = "/bin/locod";
    size_t len = strlen(program);
    char *tree;

    if (len < sizeof end ||
        strcmp(program + len - (sizeof end - 1), end) != 0) {
        return false;
    }
    len -= sizeof end - 1;
    memcpy(path, program, len);
    path[len] = '\0';
    tree = strrchr(path, '/');
    if (tree == NULL || strncmp(tree, "/loco-", 6) != 0) {
        return false;
    }
    /* No longer than it was. */
    memcpy(tree, "/loco/bin/locod", sizeof "/loco/bin/locod");
    return access(path, X_OK) == 0;
}

int start_again(const char *program, char **argv, int lock_fd)
{
    char path[FILE_PATH_MAX];
    const char *its_place;
    sigset_t both;

    /* close_all() has blocked them; one that came meanwhile ends us here. The
     * next program handles SIGHUP once it can. */
    (void)sigemptyset(&both);
    (void)sigaddset(&both, SIGTERM);
    (void)sigaddset(&both, SIGINT);
    (void)sigaddset(&both, SIGHUP);
    (void)signal(SIGHUP, SIG_IGN);
    end_on_signals();
    (void)sigprocmask(SIG_UNBLOCK, &both, NULL);
    log_info("main", "starting again");
    write_lock(lock_fd, STATE_DIR_LOCK_AGAIN);
    if (in_use(program, path)) {
        (void)execv(path, argv);
        log_error("main", "start %s: %s", path, strerror(errno));
    }
    /* Where argv[0] or this program's file is by now; an upgrade by a package
     * may have put another one there. No search in PATH: the shell that would
     * run what is no program ends in silence. */
    its_place = strchr(argv[0], '/') != NULL ? argv[0] : program;
    (void)execv(its_place, argv);
    log_error("main", "start %s: %s; going on as the old program", its_place,
              strerror(errno));
    (void)execv("/proc/self/exe", argv);
    return complain(TROUBLE_SYSTEM, "cannot start again: %s", strerror(errno));
}
