/* upgrade_trial.c - the daemon becomes the new program, or stays the old one;
 * see upgrade.h.
 *
 * What counts as *up*: the new version answers and takes part again, as it did
 * before. One that answers but stands outside of a run in which it was, while
 * other peers are there, counts as down at the end of our patience; where
 * nobody else is there, nothing can be told, and it stays.
 */
#include "daemon/cli/upgrade.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/cli/cli.h"
#include "daemon/visit/http.h"
#include "proto/base/clock.h"
#include "proto/base/errmsg.h"

#define POLL_MS      200
#define HOLD_MS      2000  /* that it must take part for */
#define OLD_START_MS 60000 /* for the version before to answer again */

static void nap(void)
{
    const struct timespec t = {0, POLL_MS * 1000000L};

    (void)nanosleep(&t, NULL);
}

static bool takes_part(const char *state)
{
    static const char *const words[] = {"training", "averaging", "syncing",
                                        "paused", "finished"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(state, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int remember(struct upgrade *u)
{
    char errmsg[ERRMSG_SIZE];

    return upgrade_memory_save(&u->memory, errmsg) == 0
               ? CLI_GO
               : cli_fail(TROUBLE_STATE_DIR, "upgrade: %s", errmsg);
}

/* ---- watching ----------------------------------------------------------- */

static int ask_restart(const struct upgrade *u)
{
    char errmsg[HTTP_ERRMSG_MAX];
    struct http_daemon daemon;
    int rv = http_of_state(u->state, &daemon, errmsg);

    rv = rv == 0 ? http_post(&daemon, "/api/v1/restart", errmsg) : rv;
    return rv == 0 ? CLI_GO
                   : cli_fail(TROUBLE_NO_DAEMON, "upgrade: %s", errmsg);
}

static void say(const char **last, const char *what)
{
    if (*last == NULL || strcmp(*last, what) != 0) {
        (void)fprintf(stderr, "%s\n", what);
        *last = what;
    }
}

/* At the end of our patience. */
static enum upgrade_end judge(const struct upgrade *u,
                              const struct upgrade_look *l)
{
    if (!l->answers || strcmp(l->version, u->memory.to) != 0) {
        return UPGRADE_BACK;
    }
    return !takes_part(u->memory.was) || l->peers_alive <= 1 ? UPGRADE_ALONE
                                                             : UPGRADE_BACK;
}

/* Until the new version takes part, is gone, or our patience ends. While the
 * old one drains, which takes a round, our patience has not begun. */
static enum upgrade_end watch(const struct upgrade *u)
{
    const uint64_t patience_ms = u->patience_s * 1000;
    uint64_t now = monotonic_ms(), end = now + patience_ms, since = 0;
    const char *last = NULL;
    bool left = false; /* the old one has drained */

    for (;; nap()) {
        struct upgrade_look l = upgrade_look_at(u->state);
        bool old = l.answers && strcmp(l.version, u->memory.to) != 0;

        now = monotonic_ms();
        if (old && strcmp(l.state, "draining") == 0) {
            say(&last, "the daemon finishes its round");
            end = now + patience_ms;
            left = true;
        } else if (old && left) {
            return UPGRADE_BACK; /* it could not start the new program */
        } else if (!old && l.answers) {
            say(&last, "the new version answers");
        }
        left = left || !l.answers;
        since = l.answers && !old && takes_part(l.state)
                    ? (since == 0 ? now : since)
                    : 0;
        if (since != 0 && now >= since + HOLD_MS) {
            return UPGRADE_UP;
        }
        if (!l.answers && !upgrade_lives(&u->memory.process)) {
            return UPGRADE_BACK;
        }
        if (now >= end) {
            return judge(u, &l);
        }
    }
}

/* ---- back --------------------------------------------------------------- */

/* The daemon runs as the version that is in use, if it ran before. */
static int ensure_running(struct upgrade *u)
{
    struct upgrade_process *p = &u->memory.process;
    uint64_t end = monotonic_ms() + OLD_START_MS;
    struct upgrade_look l = upgrade_look_at(u->state);
    int rv = CLI_GO;

    if (p->pid == 0 || (l.answers && strcmp(l.version, u->memory.from) == 0)) {
        return CLI_GO;
    }
    if (p->unit[0] == '\0' && upgrade_lives(p)) {
        (void)kill(p->pid, SIGKILL); /* the new version, which hangs */
        while (upgrade_lives(p) && monotonic_ms() < end) {
            nap();
        }
    }
    rv = upgrade_start(u);
    while (rv == CLI_GO) {
        l = upgrade_look_at(u->state);
        if (l.answers && strcmp(l.version, u->memory.from) == 0) {
            return CLI_GO;
        }
        if (monotonic_ms() > end) {
            return cli_fail(TROUBLE_UPGRADE,
                            "upgrade: loco %s is in use again, but its daemon "
                            "does not answer: loco status --state %s",
                            u->memory.from, u->state);
        }
        nap();
    }
    return rv;
}

/* The version before is put in place and runs; the trial is over. */
static int undo(struct upgrade *u)
{
    static const char *const arguments[] = {"--back", NULL};
    int rv;

    (void)fprintf(stderr, "loco %s did not come up; going back to %s\n",
                  u->memory.to, u->memory.from);
    memcpy(u->memory.failed, u->memory.to, sizeof u->memory.failed);
    rv = remember(u);
    rv = rv == CLI_GO ? upgrade_install(u, arguments) : rv;
    rv = rv == CLI_GO ? ensure_running(u) : rv;
    return rv == CLI_GO ? upgrade_forget(u) : rv;
}

/* ---- the trial ---------------------------------------------------------- */

static int end_trial(struct upgrade *u, enum upgrade_end *end)
{
    *end = u->memory.process.pid == 0 ? UPGRADE_NOBODY : watch(u);
    if (*end == UPGRADE_BACK) {
        return undo(u);
    }
    u->memory.failed[0] = '\0';
    return upgrade_forget(u);
}

int upgrade_begin(struct upgrade *u)
{
    const char *program = u->memory.process.program;
    size_t len = strlen(u->lib);

    upgrade_look_how(u);
    if (program[0] != '\0' && (strncmp(program, u->lib, len) != 0 ||
                               strncmp(program + len, "/loco-", 6) != 0)) {
        return cli_fail(TROUBLE_UPGRADE,
                        "upgrade: the daemon of %s is %s, which is not of %s: "
                        "stop it, or upgrade it with what installed it",
                        u->state, program, u->lib);
    }
    u->memory.trial = true;
    return remember(u);
}

int upgrade_forget(struct upgrade *u)
{
    u->memory.trial = false;
    return remember(u);
}

int upgrade_try(struct upgrade *u, enum upgrade_end *end)
{
    int rv = u->memory.process.pid == 0 ? CLI_GO : ask_restart(u);

    return rv == CLI_GO ? end_trial(u, end) : rv;
}

int upgrade_settle(struct upgrade *u, enum upgrade_end *end)
{
    struct upgrade_look l;
    int rv = CLI_GO;

    (void)fprintf(
        stderr, "an earlier upgrade from %s to %s was broken off; ending it\n",
        u->memory.from, u->memory.to);
    if (strcmp(u->memory.to, LOCO_VERSION) != 0) {
        /* Nothing was put in place, or the version before is again. */
        *end = UPGRADE_NOBODY;
        rv = ensure_running(u);
        return rv == CLI_GO ? upgrade_forget(u) : rv;
    }
    l = upgrade_look_at(u->state);
    if (l.answers && strcmp(l.version, u->memory.from) == 0 &&
        strcmp(l.state, "draining") != 0) {
        rv = ask_restart(u);
    }
    return rv == CLI_GO ? end_trial(u, end) : rv;
}

int upgrade_back(struct upgrade *u)
{
    static const char *const arguments[] = {"--back", NULL};
    bool runs = upgrade_look_at(u->state).answers;
    int rv = upgrade_install(u, arguments);

    if (rv != CLI_GO) {
        return rv;
    }
    if (runs) {
        rv = ask_restart(u);
        if (rv != CLI_GO) {
            return rv;
        }
    }
    (void)printf("the version before is in use%s\n",
                 runs ? "; the daemon starts again with it after its round"
                      : "");
    return LOCO_EXIT_OK;
}
