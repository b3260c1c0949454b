/* machines.h - the daemons that one command watches, on this machine and
 * others.
 *
 * A daemon is named by its state directory, or by its control address
 * ("HOST:PORT", "unix:PATH") with a token where it asks for one. Addresses come
 * from the command line, with the token of LOCO_TOKEN, or from a *machines
 * file*, one a line:
 *
 *     # comment
 *     192.168.1.20:7710  5f0c...
 *     unix:/run/loco/control
 *
 * A file with tokens must not be readable by others (control_tokens.h).
 *
 * How it fails: an exit code after a sentence; CLI_GO otherwise. A plain value.
 */
#ifndef LOCO_DAEMON_CLI_MACHINES_H
#define LOCO_DAEMON_CLI_MACHINES_H

#include "daemon/cli/cli.h"
#include "daemon/visit/http.h"

#define MACHINES_MAX        CLI_LIST_MAX
#define MACHINES_BYTES_MAX  ((size_t)64 << 10)
#define MACHINES_NAME_WIDTH 24

struct machine_name {
    const char *state_dir; /* NULL: `daemon` is the address */
    struct http_daemon daemon;
};

struct machines {
    size_t n;
    struct machine_name item[MACHINES_MAX];
};

/* Add the daemon that a word of the command line names: a folder that is there,
 * else an address if it has a colon, else a state directory that will be. */
int machines_add(struct machines *m, const char *word);

/* Add those of a machines file. */
int machines_read(struct machines *m, const char *path);

/* For people. */
const char *machines_label(const struct machine_name *name);

/* Where it answers: for a state directory, looked up each time. LOCO_ENOENT
 * with a sentence in errmsg (HTTP_ERRMSG_MAX). */
int machines_find(struct machine_name *name, char *errmsg);

#endif
