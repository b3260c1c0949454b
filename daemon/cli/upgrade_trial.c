/* upgrade_trial.c - the daemon becomes the new program, or stays the old one;
 * see upgrade.h.
 *
 * What counts as *up*: the new version answers and takes part again, as it did
 * before. One that dies, hangs, or stands outside of a run in which it was
 * while other peers were there, is taken back. One that ends before it was the
 * new program says nothing about that program: somebody stopped it.
 */
#include "daemon/cli/upgrade.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define POLL_MS      200
#define HOLD_MS      2000  /* that it must take part for */
#define OLD_START_MS 60000 /* for the version before to answer again */
#define LATE_MS      20000 /* that a busy daemon may take to answer */
#define SYNC_FACTOR  12    /* so many times our patience may it fetch a state */

static void nap(void)
{
    const struct timespec t = {0, POLL_MS * 1000000L};

    (void)nanosleep(&t, NULL);
}

static bool is_one_of(const char *state, const char *const *words)
{
    while (*words != NULL && strcmp(state, *words) != 0) {
        words++;
    }
    return *words != NULL;
}

/* Fetching a state is no part yet: what follows is what may fail. */
static bool takes_part(const char *state)
{
    static const char *const words[] = {"training", "averaging", "paused",
                                        "finished", NULL};

    return is_one_of(state, words);
}

static int remember(struct upgrade *u)
{
    char errmsg[ERRMSG_SIZE];

    return upgrade_memory_save(&u->memory, errmsg) == 0
               ? CLI_GO
               : cli_fail(TROUBLE_STATE_DIR, "upgrade: %s", errmsg);
}

/* ---- watching ----------------------------------------------------------- */

static void say(const char **last, const char *what)
{
    if (*last == NULL || strcmp(*last, what) != 0) {
        (void)fprintf(stderr, "%s\n", what);
        *last = what;
    }
}

/* At the end of our patience. What the new version says of others is not asked:
 * it may be what is wrong with it. */
static enum upgrade_end judge(const struct upgrade *u,
                              const struct upgrade_look *l)
{
    if (!l->answers || strcmp(l->version, u->memory.to) != 0) {
        return UPGRADE_BACK;
    }
    return strcmp(l->state, "syncing") == 0 || !takes_part(u->memory.was) ||
                   u->memory.peers_alive <= 1
               ? UPGRADE_UNTRIED
               : UPGRADE_BACK;
}

/* Until the new version takes part, is gone, or our patience ends. While the
 * old one drains, which takes a round, our patience has not begun. */
static enum upgrade_end watch(const struct upgrade *u)
{
    const uint64_t patience_ms = u->patience_s * 1000;
    uint64_t now = monotonic_ms(), end = now + patience_ms, since = 0;
    uint64_t last_end = 0; /* 0: the new version has not answered */
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
            last_end =
                last_end == 0 ? now + SYNC_FACTOR * patience_ms : last_end;
            say(&last, strcmp(l.state, "syncing") == 0
                           ? "the new version fetches the state"
                           : "the new version answers");
            if (strcmp(l.state, "syncing") == 0) {
                end =
                    now + patience_ms < last_end ? now + patience_ms : last_end;
            }
        }
        left = left || !l.answers;
        since = l.answers && !old && takes_part(l.state)
                    ? (since == 0 ? now : since)
                    : 0;
        if (since != 0 && now >= since + HOLD_MS) {
            return UPGRADE_UP;
        }
        if (l.pid == 0 && !upgrade_lives(&u->memory.process)) {
            return upgrade_went_on(u->state, &u->memory) ? UPGRADE_BACK
                                                         : UPGRADE_ENDED;
        }
        if (now >= end) {
            return judge(u, &l);
        }
    }
}

/* ---- back --------------------------------------------------------------- */

static int wait_for_answer(const struct upgrade *u, const char *version)
{
    uint64_t end = monotonic_ms() + OLD_START_MS;

    for (;; nap()) {
        struct upgrade_look l = upgrade_look_at(u->state);

        if (l.answers && strcmp(l.version, version) == 0) {
            return CLI_GO;
        }
        if (monotonic_ms() > end) {
            return cli_fail(TROUBLE_UPGRADE,
                            "upgrade: loco %s is in use again, but its daemon "
                            "does not answer: loco status --state %s",
                            version, u->state);
        }
    }
}

/* A daemon that is busy, or has just begun, answers late. */
static struct upgrade_look look_patiently(const char *state)
{
    uint64_t end = monotonic_ms() + LATE_MS;
    struct upgrade_look l = upgrade_look_at(state);

    while (!l.answers && l.pid != 0 && monotonic_ms() < end) {
        nap();
        l = upgrade_look_at(state);
    }
    return l;
}

/* SIGKILL, and wait until it is gone. */
static void end_process(struct upgrade_process *p)
{
    uint64_t end = monotonic_ms() + OLD_START_MS;

    (void)kill(p->pid, SIGKILL);
    while (upgrade_lives(p) && monotonic_ms() < end) {
        nap();
    }
}

/* The new version, which hangs or stands outside, ends; the version before runs
 * as it was started. A daemon of any other version is left alone. */
static int run_again(struct upgrade *u)
{
    struct upgrade_process *p = &u->memory.process;
    struct upgrade_look l = upgrade_look_at(u->state);
    struct upgrade_process other = {.pid = 0};
    int rv;

    if (p->pid == 0 || (l.answers && strcmp(l.version, u->memory.to) != 0)) {
        return CLI_GO;
    }
    if (p->unit[0] == '\0' && upgrade_lives(p)) {
        end_process(p);
    }
    if (p->unit[0] == '\0' && l.pid != 0 && l.pid != p->pid) {
        upgrade_mark(&other, l.pid); /* somebody started it once more */
        end_process(&other);
    }
    rv = upgrade_start(u);
    return rv == CLI_GO ? wait_for_answer(u, u->memory.from) : rv;
}

/* The version before is put in place and runs; the trial is over. One step that
 * fails keeps no other from being taken: the first error is told. */
static int undo(struct upgrade *u)
{
    int first, rv;

    (void)fprintf(stderr, "loco %s did not come up; going back to %s\n",
                  u->memory.to, u->memory.from);
    memcpy(u->memory.failed, u->memory.to, sizeof u->memory.failed);
    first = remember(u);
    rv = upgrade_put_back(u);
    first = first == CLI_GO ? rv : first;
    if (rv == CLI_GO) {
        rv = run_again(u);
        first = first == CLI_GO ? rv : first;
    }
    if (rv == CLI_GO) {
        rv = upgrade_forget(u);
        first = first == CLI_GO ? rv : first;
    }
    return first;
}

/* ---- the trial ---------------------------------------------------------- */

static int end_trial(struct upgrade *u, enum upgrade_end *end)
{
    *end = watch(u);
    if (*end == UPGRADE_BACK) {
        return undo(u);
    }
    if (*end == UPGRADE_UP) {
        u->memory.failed[0] = '\0';
    }
    return upgrade_forget(u);
}

/* A daemon that another program is would start again as that one. */
static int check_program(const struct upgrade *u)
{
    const struct upgrade_process *p = &u->memory.process;
    size_t len = strlen(u->lib);

    return p->pid == 0 || (strncmp(p->program, u->lib, len) == 0 &&
                           strncmp(p->program + len, "/loco-", 6) == 0)
               ? CLI_GO
               : cli_fail(TROUBLE_UPGRADE,
                          "upgrade: the daemon of %s is %s, which is not of "
                          "%s: stop it, or upgrade it with what installed it",
                          u->state, p->program, u->lib);
}

int upgrade_begin(struct upgrade *u)
{
    int rv = upgrade_look_how(u);

    rv = rv == CLI_GO ? check_program(u) : rv;
    u->memory.trial = true;
    return rv == CLI_GO ? remember(u) : rv;
}

int upgrade_forget(struct upgrade *u)
{
    u->memory.trial = false;
    return remember(u);
}

/* Ask it to restart. LOCO_ENOENT: none runs; LOCO_EIO: it did not hear. One
 * whose answer is lost may have heard, and have become a program that ended
 * already: that is for watch() to see. */
static int ask_restart(const struct upgrade *u)
{
    uint64_t end = monotonic_ms() + LATE_MS;
    int rv = upgrade_ask(u->state, "/api/v1/restart");

    while (rv == LOCO_EIO && monotonic_ms() < end) {
        nap();
        rv = upgrade_ask(u->state, "/api/v1/restart");
    }
    if (rv == LOCO_ENOENT && upgrade_went_on(u->state, &u->memory)) {
        rv = 0;
    }
    return rv;
}

/* A daemon that does not hear is busy with something: the version before stays,
 * and nobody is blamed. If it hears later, it restarts as that. */
static int leave_it(struct upgrade *u)
{
    (void)upgrade_put_back(u);
    (void)upgrade_forget(u);
    return cli_fail(TROUBLE_NO_DAEMON,
                    "upgrade: the daemon of %s does not answer; it stays as it "
                    "is",
                    u->state);
}

int upgrade_try(struct upgrade *u, enum upgrade_end *end)
{
    int rv = upgrade_begin(u); /* the download took a while */

    if (rv != CLI_GO) {
        (void)upgrade_put_back(u);
        (void)upgrade_forget(u);
        return rv;
    }
    if (u->memory.process.pid == 0) {
        *end = UPGRADE_NOBODY;
        return upgrade_forget(u);
    }
    rv = ask_restart(u);
    if (rv == LOCO_ENOENT) {
        *end = UPGRADE_ENDED;
        return upgrade_forget(u);
    }
    return rv == 0 ? end_trial(u, end) : leave_it(u);
}

int upgrade_settle(struct upgrade *u, enum upgrade_end *end)
{
    struct upgrade_memory *m = &u->memory;
    struct upgrade_look l = look_patiently(u->state);
    bool is_new = l.answers && strcmp(l.version, m->to) == 0;
    int rv = CLI_GO;

    (void)fprintf(
        stderr, "an earlier upgrade from %s to %s was broken off; ending it\n",
        m->from, m->to);
    *end = UPGRADE_NOBODY;
    if (strcmp(m->to, LOCO_VERSION) != 0) {
        /* Nothing was put in place; or it was taken back, and perhaps the
         * daemon is not the old one yet; or another version is here by now. */
        if (strcmp(m->failed, m->to) == 0 && (l.pid == 0 || is_new) &&
            strcmp(m->from, LOCO_VERSION) == 0) {
            rv = run_again(u);
        }
        return rv == CLI_GO ? upgrade_forget(u) : rv;
    }
    if (l.answers && !is_new && strcmp(l.state, "draining") != 0) {
        return upgrade_try(u, end);
    }
    return m->process.pid == 0 ? upgrade_forget(u) : end_trial(u, end);
}

int upgrade_back(struct upgrade *u)
{
    struct upgrade_look l = look_patiently(u->state);
    char failed[RELEASE_VERSION_MAX];
    int rv;

    memcpy(failed, u->memory.failed, sizeof failed);
    (void)snprintf(u->memory.failed, sizeof u->memory.failed, "%s",
                   LOCO_VERSION);
    rv = remember(u); /* the next upgrade must not bring it again */
    rv = rv == CLI_GO ? upgrade_put_back(u) : rv;
    if (rv != CLI_GO) {
        memcpy(u->memory.failed, failed, sizeof failed);
        (void)remember(u);
        return rv;
    }
    if (l.pid != 0 && ask_restart(u) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON,
                        "upgrade: the version before is in use, but the daemon "
                        "of %s does not answer: start it again",
                        u->state);
    }
    (void)printf(
        "the version before is in use%s\n",
        l.pid != 0 ? "; the daemon starts again with it after its round" : "");
    return LOCO_EXIT_OK;
}
