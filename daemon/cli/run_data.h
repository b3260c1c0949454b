/* run_data.h - the text of a run that is made: what data.json says of it. */
#ifndef LOCO_DAEMON_CLI_RUN_DATA_H
#define LOCO_DAEMON_CLI_RUN_DATA_H

#include "daemon/cli/cli.h"
#include "proto/manifest.h"

/* m->data from the folder that loco data pack wrote; every shard is at
 * BASE/NAME of each of the servers. A LOCO_EXIT code; the sentence is printed,
 * as of the others. */
int run_data_fill(struct manifest *m,
                  const char *dir,
                  const struct cli_list *bases);

/* The shards from `first` on are at BASE/NAME of each server. */
int run_data_urls(struct manifest_data *data,
                  const struct cli_list *bases,
                  uint32_t first);

/* Whether a step finds its windows in the shards; `command` is create or
 * sign. */
int run_data_check(const struct manifest *m, const char *command);

/* Links to the shards of `folder` beside the file `out`. */
int run_data_link(const struct manifest_data *data,
                  const char *folder,
                  const char *out);

#endif
