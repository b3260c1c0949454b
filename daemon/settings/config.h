/* config.h - the settings of this machine's daemon.
 *
 * One row of options.def per setting. A value comes from the first of: the
 * command line, the environment (LOCO_*), locod.yaml, the row's default;
 * `source` says which. The file is `--config FILE`, else LOCO_CONFIG, else
 * $XDG_CONFIG_HOME/loco/locod.yaml (~/.config without that) where it exists:
 * one mapping of names to plain values.
 *
 * What the run agrees on is the manifest's business, never found here.
 *
 * How it fails: config_parse returns LOCO_EINVAL (LOCO_ENOENT for a file that
 * was named and is not there), `errmsg` says what and where, and the exit code
 * for it is in `exit_code`: a wrong command line is LOCO_EXIT_USAGE, a wrong
 * file or environment LOCO_EXIT_CONFIG. Unknown names are errors and come with
 * the nearest known one.
 *
 * A plain value, about 45 KB: no allocation, no state. Reads the environment:
 * call it before threads start.
 */
#ifndef LOCO_DAEMON_SETTINGS_CONFIG_H
#define LOCO_DAEMON_SETTINGS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CONFIG_TEXT_MAX   4096 /* a path, with its NUL */
#define CONFIG_ERRMSG_MAX 256
#define CONFIG_FILE_MAX   (64U << 10) /* bytes of a locod.yaml */

enum config_option {
#define OPTION(name, kind, value, min, max, when, cap, argument, help)         \
    CONFIG_##name,
#include "daemon/settings/options.def"
    CONFIG_OPTION_COUNT
};

enum config_source {
    CONFIG_DEFAULT,
    CONFIG_FILE,
    CONFIG_ENVIRONMENT,
    CONFIG_FLAG,
    CONFIG_SOURCE_COUNT
};

#define CONFIG_MEMBER_TEXT(name)  char name[CONFIG_TEXT_MAX];
#define CONFIG_MEMBER_COUNT(name) uint64_t name;
#define CONFIG_MEMBER_FLAG(name)  bool name;

struct config {
#define OPTION(name, kind, value, min, max, when, cap, argument, help)         \
    CONFIG_MEMBER_##kind(name)
#include "daemon/settings/options.def"
    char file[CONFIG_TEXT_MAX]; /* the locod.yaml that was read, or empty */
    enum config_source source[CONFIG_OPTION_COUNT];
    bool help;     /* --help or -h was given: nothing else was checked */
    bool version;  /* --version likewise */
    int exit_code; /* for the process, after an error */
};

/* argv[0] is skipped. `state` is filled in even where nothing names it. */
int config_parse(int argc,
                 char **argv,
                 struct config *config,
                 char errmsg[CONFIG_ERRMSG_MAX]);

/* Set one option from text, as if `source` held it. The current value of a
 * stronger source stays. LOCO_ENOENT: no such option; LOCO_EINVAL: not a value
 * for it. */
int config_set(struct config *config,
               const char *name,
               const char *text,
               enum config_source source,
               char errmsg[CONFIG_ERRMSG_MAX]);

/* Read a locod.yaml that is in memory; `where` names it in sentences. */
int config_read_yaml(struct config *config,
                     const char *yaml,
                     size_t len,
                     const char *where,
                     char errmsg[CONFIG_ERRMSG_MAX]);

/* Defaults everywhere. */
void config_init(struct config *config);

/* The file that is read when no flag names one: LOCO_CONFIG, else the XDG one,
 * whether it is there or not. False: nothing says where. */
bool config_usual_file(char path[CONFIG_TEXT_MAX]);

/* The options as lines for --help. */
void config_print_options(FILE *to);

const char *config_name(enum config_option option);
const char *config_argument(enum config_option option); /* "on|off" of a FLAG */
const char *config_help(enum config_option option);
/* A new value holds while it runs, not only at the next start. */
bool config_is_live(enum config_option option);

/* The value as text, as locod.yaml would hold it; out[CONFIG_TEXT_MAX]. */
void config_text(const struct config *config,
                 enum config_option option,
                 char out[CONFIG_TEXT_MAX]);

/* Take one value, and where it is from, over from another. */
void config_copy(struct config *to,
                 const struct config *from,
                 enum config_option option);

/* "default", "file", "environment", "flag" */
const char *config_source_name(enum config_source source);

#endif
