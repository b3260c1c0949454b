/* cli.h - the `loco` command: one row per command, one way to read options.
 *
 * A *command* is one or two words ("status", "run create") and a function that
 * returns the exit code of the process (proto/base/err.h). It declares its
 * options as a table; cli_parse fills them in and answers --help from the
 * same table, so that help and parser cannot disagree.
 *
 * Results go to stdout and nothing else does; sentences for people go to
 * stderr. One thread; the process ends with the command.
 */
#ifndef LOCO_DAEMON_CLI_CLI_H
#define LOCO_DAEMON_CLI_CLI_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/settings/trouble.h"
#include "proto/doc.h"

#define CLI_LIST_MAX 64

/* What cli_parse returns when the command should run. */
#define CLI_GO (-1)

enum cli_kind {
    CLI_FLAG,  /* bool: true when given */
    CLI_TEXT,  /* const char *: borrowed from argv */
    CLI_COUNT, /* uint64_t: digits */
    CLI_REAL,  /* double: finite */
    CLI_LIST   /* struct cli_list: may be given many times */
};

struct cli_list {
    size_t n;
    const char *item[CLI_LIST_MAX];
};

struct cli_option {
    const char *name; /* with the dashes */
    enum cli_kind kind;
    void *to;
    const char *argument; /* its name in --help; NULL for flags */
    const char *help;
};

struct cli_call;

struct cli_command {
    const char *name;
    const char *arguments; /* beside the options, for --help; may be "" */
    const char *summary;   /* one sentence, no full stop */
    const char *example;
    int (*run)(const struct cli_call *call);
};

struct cli_call {
    const struct cli_command *command;
    int argc; /* what follows the command's words */
    char **argv;
    /* Not NULL: the command is not run, cli_parse only names its options. */
    void (*on_option)(void *data, const struct cli_option *option);
    void *data;
};

/* Every command, in the order of --help. */
const struct cli_command *cli_commands(size_t *n);

/* Fill in the options; words that are none go to `words`, of which there must
 * be between least and most (`words` may be NULL with most 0). CLI_GO, or the
 * exit code after help or a sentence. */
int cli_parse(const struct cli_call *call,
              const struct cli_option *options,
              size_t n_options,
              struct cli_list *words,
              size_t least,
              size_t most);

/* "loco: sentence [id]" to stderr; returns the exit code of `what`. Every
 * command that fails has said so by this, and nothing else ends with an id. */
int cli_fail(enum trouble what, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* One JSON object to stdout, keys in the order of setting; jansson's flags say
 * how. Takes the object; an exit code. NULL: there was no memory for it. */
struct json_t;
int cli_print_json(struct json_t *o, size_t flags);

/* *state, where NULL the configured directory. CLI_GO, or the exit code after a
 * sentence. */
int cli_state(const char **state);

/* `name` in the source tree that this program was built in (build/loco ->
 * NAME), into path[FILE_PATH_MAX]: 0, or an error with a sentence. */
int cli_tree_file(char *path, const char *name, char *errmsg);

/* The value in "path=value" of --set, and its path; NULL after a sentence. */
const char *
cli_set_split(const char *command, const char *item, char path[DOC_PATH_MAX]);

/* Whether --set names that path. */
bool cli_is_set(const struct cli_list *set, const char *path);

/* What an error of proto/base/err.h is; `bad` where it is in what was read: a
 * hash, a form, a value. */
enum trouble cli_trouble_of(int err, enum trouble bad);

/* cli_parse over an option array. */
#define CLI_PARSE(call, options, words, least, most)                           \
    cli_parse((call), (options), sizeof(options) / sizeof((options)[0]),       \
              (words), (least), (most))

/* The commands, each in the file that its group names. */
#define COMMAND(run, name, arguments, summary, example)                        \
    int run(const struct cli_call *call);
#include "daemon/cli/commands.def"

#endif
