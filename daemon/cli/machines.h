/* machines.h - the daemons that one command watches (watch/watch.h), from its
 * command line.
 *
 * Addresses have the token of LOCO_TOKEN, or come from a *machines file*, one a
 * line:
 *
 *     # ADDRESS [TOKEN [NAME]], "-" for no token
 *     192.168.1.20:7710  5f0c...
 *     127.0.0.1:7711     -        attic
 *     unix:/run/loco/control
 *
 * A file with tokens must not be readable by others (control_tokens.h).
 *
 * How it fails: an exit code after a sentence; CLI_GO otherwise. A plain value.
 */
#ifndef LOCO_DAEMON_CLI_MACHINES_H
#define LOCO_DAEMON_CLI_MACHINES_H

#include "daemon/cli/cli.h"
#include "daemon/watch/watch.h"

#define MACHINES_MAX        WATCH_MAX
#define MACHINES_BYTES_MAX  ((size_t)64 << 10)
#define MACHINES_NAME_WIDTH 24

struct machines {
    size_t n;
    struct watch_name item[MACHINES_MAX];
};

/* Add the daemon that a word of the command line names: a folder that is there,
 * else an address if it has a colon, else a state directory that will be. */
int machines_add(struct machines *m, const char *word);

/* Add those of a machines file. */
int machines_read(struct machines *m, const char *path);

/* All that a command was told: words, a machines file (or NULL); of neither,
 * that of the configured state directory. */
int machines_of(struct machines *m,
                const struct cli_list *words,
                const char *file);

#endif
