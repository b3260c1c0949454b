/* upgrade.h - loco upgrade: the newest release in the place of this one.
 *
 * For a loco that deploy/install.sh installed, and only where the operator
 * named a *release list* and the key of its publisher. In this order:
 *
 *   1. settle what an earlier upgrade began and could not end (trial)
 *   2. the list and its signature; refused: another key, altered bytes, a
 *      serial below one that was seen
 *   3. the newest release for this machine; refused: one older than this, one
 *      that did not come up here before, one that the peers of the run here
 *      would refuse
 *   4. the file, whole and with the list's sha256; install.sh puts it in place
 *   5. the *trial*: the daemon of the state directory drains, starts again in
 *      its process as the new program, and is watched until it takes part
 *      again; else the version before comes back
 *
 *   upgrade.c          what is installed, the question, the order of things
 *   upgrade_release.c  the list, the choice, the file
 *   upgrade_process.c  the daemon's process, and what it says
 *   upgrade_start.c    how it was started, and once more
 *   upgrade_trial.c    it restarts, is watched, goes back
 *   upgrade_memory.c   what the state directory remembers of it
 *
 * A trial is written down before the daemon is asked, so that the next
 * `loco upgrade` ends what a killed one began.
 */
#ifndef LOCO_DAEMON_CLI_UPGRADE_H
#define LOCO_DAEMON_CLI_UPGRADE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/release/releases.h"
#include "proto/base/file.h"

#define UPGRADE_ARGS_MAX       64
#define UPGRADE_ARGS_BYTES_MAX 16384
#define UPGRADE_STATE_MAX      16
#define UPGRADE_UNIT_MAX       128
#define UPGRADE_BOOT_MAX       40

/* How the daemon ran before, so that it can be started once more. */
struct upgrade_process {
    pid_t pid; /* 0: none ran */
    /* proc(5), starttime and boot_id: the id may be another's by now. */
    uint64_t began;
    char boot[UPGRADE_BOOT_MAX];
    uint32_t n_args;
    const char *arg[UPGRADE_ARGS_MAX + 1];
    char args[UPGRADE_ARGS_BYTES_MAX]; /* to which they point, NULs between */
    char program[FILE_PATH_MAX];       /* not written down; "": not known */
    char cwd[FILE_PATH_MAX];
    char log[FILE_PATH_MAX];     /* of its output; "": not a file */
    char unit[UPGRADE_UNIT_MAX]; /* of this user's systemd; "": none */
};

/* STATE/upgrade.json */
struct upgrade_memory {
    char path[FILE_PATH_MAX];
    uint64_t serial;                  /* the highest that was seen */
    char failed[RELEASE_VERSION_MAX]; /* did not come up here; "" */
    bool trial;                       /* the members below are of one */
    char from[RELEASE_VERSION_MAX], to[RELEASE_VERSION_MAX];
    char was[UPGRADE_STATE_MAX]; /* the daemon's state before */
    int64_t peers_alive;         /* that it knew then, it included */
    struct upgrade_process process;
};

struct upgrade {
    const char *state;
    char lib[FILE_PATH_MAX];    /* PREFIX/lib */
    char tree[FILE_PATH_MAX];   /* loco-VERSION-SUM there, this program's */
    char prefix[FILE_PATH_MAX]; /* where install.sh installed */
    char script[FILE_PATH_MAX]; /* the install.sh of this program's version */
    char log[FILE_PATH_MAX];    /* of that script */
    int lock_fd; /* the script holds it as long as it runs, too; or -1 */
    uint64_t patience_s;
    struct upgrade_memory memory;
};

struct upgrade_offer {
    const struct release *release; /* until the next one */
    const struct release_file *file;
    int newer; /* than this program, as version_compare() */
};

/* What a daemon says of itself. */
struct upgrade_look {
    pid_t pid; /* it holds the lock of the state directory; 0: nobody does */
    bool answers;
    char version[RELEASE_VERSION_MAX], state[UPGRADE_STATE_MAX];
    int64_t peers_alive; /* it included */
};

/* What became of a trial. */
enum upgrade_end {
    UPGRADE_UP,      /* it takes part again */
    UPGRADE_UNTRIED, /* it runs, but no more than the old one did, or syncs */
    UPGRADE_NOBODY,  /* no daemon runs on that state directory */
    UPGRADE_ENDED,   /* it ended while it was the old version still */
    UPGRADE_BACK     /* it did not come up: the version before is in use */
};

/* upgrade_memory.c. Empty where there is no file. LOCO_EFORMAT, LOCO_EIO with
 * a sentence in errmsg. */
int upgrade_memory_load(struct upgrade_memory *m,
                        const char *state,
                        char *errmsg);
int upgrade_memory_save(const struct upgrade_memory *m, char *errmsg);

/* upgrade_release.c; CLI_GO, or an exit code after a sentence. The newest
 * release of the signed list for this machine. */
int upgrade_offer(struct upgrade *u,
                  const char *list,
                  const char *key,
                  struct upgrade_offer *out);
/* Whether it must not be installed. */
int upgrade_refuse(const struct upgrade *u,
                   const char *list,
                   const struct upgrade_offer *o,
                   bool again,
                   bool other_protocol);
/* Its file, whole, and put in place. */
int upgrade_put(const struct upgrade *u,
                const char *list,
                const struct upgrade_offer *o);

/* upgrade_process.c */
struct upgrade_look upgrade_look_at(const char *state);
/* /proc/PID/name, with a NUL behind; its bytes. */
size_t upgrade_read_proc(pid_t pid, const char *name, char *out, size_t size);
/* What the daemon of that state directory wrote of itself: its program's file
 * and its arguments, a NUL behind each, and one more; their bytes. 0: nothing,
 * or it does not fit. */
size_t upgrade_told(const char *state, char *out, size_t size);
/* That process, so that it is known again: pid, began, boot. */
void upgrade_mark(struct upgrade_process *p, pid_t pid);
/* POST to the daemon. LOCO_ENOENT: none runs; LOCO_EIO: it does not answer. */
int upgrade_ask(const char *state, const char *path);
/* What STATE/lock says of a daemon that is gone: it had become the new version,
 * or was about to; it was told to end. */
bool upgrade_went_on(const char *state, const struct upgrade_memory *m);
bool upgrade_was_told_to_end(const char *state);
bool upgrade_lives(const struct upgrade_process *p);
/* upgrade_start.c */
/* What it says, and how it was started: into u->memory. CLI_GO, or an exit
 * code. */
int upgrade_look_how(struct upgrade *u);
/* Of /proc/PID/cgroup: the unit of a user's systemd, "locod.service", or "". */
void upgrade_unit_of(const char *cgroups, char out[UPGRADE_UNIT_MAX]);
/* As it was started before, but as the program that is in use now. CLI_GO, or
 * an exit code after a sentence. */
int upgrade_start(struct upgrade *u);

/* upgrade_trial.c */
/* How the daemon of the state directory runs is written down; from and to are
 * set. Before the new version is put in place. */
int upgrade_begin(struct upgrade *u);
/* Nothing was put in place. */
int upgrade_forget(struct upgrade *u);
/* The new version is in place: CLI_GO and how it went, or an exit code after a
 * sentence (the daemon then runs as before, or the sentence says what to do).
 */
int upgrade_try(struct upgrade *u, enum upgrade_end *end);
/* A trial that an earlier command began: the same. */
int upgrade_settle(struct upgrade *u, enum upgrade_end *end);
/* The version before, by hand. */
int upgrade_back(struct upgrade *u);

/* upgrade.c. The version before comes in the place of the one in use: CLI_GO,
 * or an exit code after a sentence and nothing has changed. */
int upgrade_put_back(const struct upgrade *u);
/* Run install.sh with these arguments, NULL at the end; its output
 * goes to u->log. CLI_GO, or an exit code after its last line. */
int upgrade_install(const struct upgrade *u, const char *const *arguments);

#endif
