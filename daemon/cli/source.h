/* source.h - the model that a command was given: --state, --model and
 * --tokenizer, read in one way. */
#ifndef LOCO_DAEMON_CLI_SOURCE_H
#define LOCO_DAEMON_CLI_SOURCE_H

#include "daemon/cli/cli.h"
#include "daemon/model/model.h"
#include "train/data/tokenizer.h"

struct cli_source {
    struct cli_list state; /* several where the model is cut into stages */
    const char *model;     /* exactly one of the two */
    const char *tokenizer; /* NULL: the model's */
};

/* 0, or an exit code after a sentence. Nothing is open then. */
int cli_source_open(struct model_source *s, const struct cli_source *from);

/* The model in memory with its tokenizer, likewise. */
int cli_source_load(struct model *m,
                    struct tokenizer **t,
                    const struct cli_source *from);

#endif
