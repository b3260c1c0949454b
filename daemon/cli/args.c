/* args.c - options, help and sentences of `loco`; see cli.h. */
#include "daemon/cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/err.h"
#include "proto/base/nearest.h"

int cli_fail(enum trouble what, const char *fmt, ...)
{
    va_list args;

    (void)fflush(stdout);
    (void)fputs("loco: ", stderr);
    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fprintf(stderr, " [%s]\n", trouble_id(what));
    return trouble_exit(what);
}

int cli_print_json(struct json_t *o, size_t flags)
{
    if (o == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    (void)json_dumpf(o, stdout, JSON_PRESERVE_ORDER | flags);
    (void)putchar('\n');
    json_decref(o);
    return LOCO_EXIT_OK;
}

enum trouble cli_trouble_of(int err, enum trouble bad)
{
    switch (err) {
    case LOCO_EINVAL:
    case LOCO_ERANGE:
    case LOCO_EFORMAT:
    case LOCO_EHASH:
    case LOCO_ESIG:
        return bad;
    case LOCO_ELOCKED:
        return TROUBLE_STATE_IN_USE;
    case LOCO_ERUN:
        return TROUBLE_INCOMPATIBLE;
    case LOCO_EDEVICE:
    case LOCO_ECUDA:
        return TROUBLE_DEVICE;
    case LOCO_ENOMEM:
    case LOCO_EDISK:
        return TROUBLE_RESOURCES;
    default:
        return TROUBLE_FILE;
    }
}

static void print_help(const struct cli_command *command,
                       const struct cli_option *options,
                       size_t n)
{
    (void)printf("%s.\n\nuse: loco %s%s%s%s\n", command->summary, command->name,
                 command->arguments[0] == '\0' ? "" : " ", command->arguments,
                 n > 0 ? " [options]" : "");
    if (n > 0) {
        (void)printf("\n");
    }
    for (size_t i = 0; i < n; i++) {
        char flag[64];

        (void)snprintf(flag, sizeof flag, "%s %s", options[i].name,
                       options[i].argument == NULL ? "" : options[i].argument);
        (void)printf("  %-26s %s\n", flag, options[i].help);
    }
    (void)printf("\nexample:\n  %s\n", command->example);
}

static const struct cli_option *
option_find(const char *name, const struct cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(options[i].name, name) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

static int usage(const struct cli_command *command, const char *what)
{
    return cli_fail(TROUBLE_USAGE, "%s; see loco %s --help", what,
                    command->name);
}

static int option_unknown(const struct cli_command *command,
                          const char *name,
                          const struct cli_option *options,
                          size_t n)
{
    const char *names[CLI_LIST_MAX];
    const char *near;
    char what[160];

    for (size_t i = 0; i < n && i < CLI_LIST_MAX; i++) {
        names[i] = options[i].name;
    }
    near = nearest_word(name, names, n < CLI_LIST_MAX ? n : CLI_LIST_MAX);
    (void)snprintf(what, sizeof what,
                   near == NULL ? "unknown option %.60s%s"
                                : "unknown option %.60s, did you mean %s?",
                   name, near == NULL ? "" : near);
    return usage(command, what);
}

/* False when `text` is no value for the option. */
static bool option_store(const struct cli_option *o, const char *text)
{
    struct cli_list *list = o->to;
    char *end;

    errno = 0;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->to = true;
        return true;
    case CLI_TEXT:
        *(const char **)o->to = text;
        return true;
    case CLI_COUNT:
        *(uint64_t *)o->to = strtoull(text, &end, 10);
        return isdigit((unsigned char)text[0]) && *end == '\0' && errno == 0;
    case CLI_REAL:
        *(double *)o->to = strtod(text, &end);
        return text[0] != '\0' && *end == '\0' && errno == 0 &&
               isfinite(*(double *)o->to);
    case CLI_LIST:
        if (list->n == CLI_LIST_MAX) {
            return false;
        }
        list->item[list->n++] = text;
        return true;
    }
    return false;
}

/* argv[*i] is an option: read it and its value, CLI_GO or an exit code. */
static int option_read(const struct cli_call *call,
                       const struct cli_option *options,
                       size_t n,
                       int *i)
{
    char name[64], what[200];
    const char *arg = call->argv[*i];
    const char *equals = strchr(arg, '=');
    size_t len = equals == NULL ? strlen(arg) : (size_t)(equals - arg);
    const struct cli_option *o;
    const char *value = equals == NULL ? NULL : equals + 1;

    (void)snprintf(name, sizeof name, "%.*s", (int)(len < 63 ? len : 63), arg);
    o = option_find(name, options, n);
    if (o == NULL) {
        return option_unknown(call->command, name, options, n);
    }
    if (o->kind == CLI_FLAG && value != NULL) {
        (void)snprintf(what, sizeof what, "%s takes no value", name);
        return usage(call->command, what);
    }
    if (o->kind != CLI_FLAG && value == NULL) {
        if (*i + 1 == call->argc) {
            (void)snprintf(what, sizeof what, "%s %s: the value is missing",
                           name, o->argument);
            return usage(call->command, what);
        }
        value = call->argv[++*i];
    }
    if (!option_store(o, value)) {
        (void)snprintf(what, sizeof what, "%s %s: '%.60s' is not valid", name,
                       o->argument, value);
        return usage(call->command, what);
    }
    return CLI_GO;
}

int cli_parse(const struct cli_call *call,
              const struct cli_option *options,
              size_t n_options,
              struct cli_list *words,
              size_t least,
              size_t most)
{
    bool only_words = false;
    size_t n = 0;

    if (call->on_option != NULL) {
        for (size_t i = 0; i < n_options; i++) {
            call->on_option(call->data, &options[i]);
        }
        return LOCO_EXIT_OK;
    }
    for (int i = 0; i < call->argc; i++) {
        if (strcmp(call->argv[i], "--help") == 0 ||
            strcmp(call->argv[i], "-h") == 0) {
            print_help(call->command, options, n_options);
            return LOCO_EXIT_OK;
        }
        if (strcmp(call->argv[i], "--") == 0) {
            break;
        }
    }
    for (int i = 0; i < call->argc; i++) {
        const char *arg = call->argv[i];

        if (!only_words && strcmp(arg, "--") == 0) {
            only_words = true;
        } else if (!only_words && arg[0] == '-' && arg[1] != '\0') {
            int rv = option_read(call, options, n_options, &i);

            if (rv != CLI_GO) {
                return rv;
            }
        } else if (n == most || words == NULL || words->n == CLI_LIST_MAX) {
            return usage(call->command, "too many arguments");
        } else {
            words->item[words->n++] = arg;
            n++;
        }
    }
    return n < least ? usage(call->command, "an argument is missing") : CLI_GO;
}
