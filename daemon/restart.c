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

#include "proto/base/err.h"
#include "proto/base/log.h"

/* PREFIX/lib/loco-VERSION-SUM/bin/locod -> PREFIX/lib/loco/bin/locod, the link
 * that install.sh turns to the version in use. False: not installed so. */
static bool in_use(char path[FILE_PATH_MAX])
{
    static const char end[] = "/bin/locod", gone[] = " (deleted)";
    ssize_t len = readlink("/proc/self/exe", path, FILE_PATH_MAX - 1);
    char *tree;

    if (len <= 0) {
        return false;
    }
    path[len] = '\0';
    if ((size_t)len > sizeof gone &&
        strcmp(path + len - (sizeof gone - 1), gone) == 0) {
        len -= (ssize_t)sizeof gone - 1;
        path[len] = '\0';
    }
    if ((size_t)len < sizeof end ||
        strcmp(path + len - (sizeof end - 1), end) != 0) {
        return false;
    }
    path[len - ((ssize_t)sizeof end - 1)] = '\0';
    tree = strrchr(path, '/');
    if (tree == NULL || strncmp(tree, "/loco-", 6) != 0) {
        return false;
    }
    /* No longer than it was. */
    memcpy(tree, "/loco/bin/locod", sizeof "/loco/bin/locod");
    return access(path, X_OK) == 0;
}

int start_again(char **argv)
{
    char path[FILE_PATH_MAX];
    sigset_t both;

    /* close_all() has blocked them; one that came meanwhile ends us here. */
    (void)sigemptyset(&both);
    (void)sigaddset(&both, SIGTERM);
    (void)sigaddset(&both, SIGINT);
    (void)sigaddset(&both, SIGHUP);
    (void)signal(SIGHUP, SIG_IGN); /* only a reload: nobody listens yet */
    (void)sigprocmask(SIG_UNBLOCK, &both, NULL);
    (void)signal(SIGHUP, SIG_DFL);
    log_info("main", "starting again");
    if (in_use(path)) {
        (void)execv(path, argv);
        log_error("main", "start %s: %s", path, strerror(errno));
    }
    (void)execvp(argv[0], argv);
    log_error("main", "start %s: %s; going on as the old program", argv[0],
              strerror(errno));
    (void)execv("/proc/self/exe", argv);
    return complain(TROUBLE_SYSTEM, "cannot start again: %s", strerror(errno));
}
