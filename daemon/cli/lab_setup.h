/* lab_setup.h - from a command's arguments to a laboratory.
 *
 * Settings are those of a run manifest (--set sync.period=16), read by the same
 * code; what only the laboratory has is lab.* (lab_numbers in the .c file).
 * Machines come from --links, the comings and goings from --members; both are
 * small tables in text, `#` begins a comment:
 *
 * --set sync.topology=owners, which only the laboratory has, takes arrivals one
 * by one at the owners of slices (async-dn, async-naive) in place of quorums.
 * With --set stages=S peers are the hosts of S stages (lab.h), and
 * lab.fixed_routes=1 keeps every micro-batch in its column.
 *
 *   links    PEER|* TOKENS_PER_S UP_MBIT DOWN_MBIT DELAY_MS
 *   members  TOKENS join|leave|die PEER
 *            TOKENS speed PEER TOKENS_PER_S
 *
 * All functions return 0, or the exit code of the process after a sentence.
 */
#ifndef LOCO_DAEMON_CLI_LAB_SETUP_H
#define LOCO_DAEMON_CLI_LAB_SETUP_H

#include "daemon/cli/cli.h"
#include "daemon/cli/lab_files.h"
#include "proto/manifest.h"
#include "train/lab/lab.h"

struct lab_arguments {
    const char *command; /* "sim train": how its sentences begin */
    const char *sync, *model, *data, *members, *links, *dtype;
    uint64_t peers, tokens, seed, threads;
    struct cli_list set;
};

struct lab_setup {
    struct lab_arguments a;
    struct manifest manifest;
    struct lab_options lab; /* points into the rest: do not move it */
    struct lab_machine machines[LAB_PEERS_MAX];
    struct lab_event events[LAB_EVENTS_MAX];
    struct lab_text text;
};

/* Check the arguments, read the files, fill in the options.
 * lab_setup_close() afterwards, whatever the result. */
int lab_setup_open(struct lab_setup *s);
void lab_setup_close(struct lab_setup *s);

/* The options again, from the arguments as they are now; files stay. */
int lab_setup_settings(struct lab_setup *s);

#endif
