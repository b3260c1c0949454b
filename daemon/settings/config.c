/* config.c - see config.h. */
#include "daemon/settings/config.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "daemon/settings/courtesy.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/nearest.h"

enum option_kind { TEXT, COUNT, FLAG };
enum option_when { LIVE, START };

struct option {
    const char *name;
    enum option_kind kind;
    const char *value; /* default */
    uint64_t min, max;
    enum option_when when;
    const char *argument;
    const char *help;
    size_t offset; /* of the member in struct config */
};

static const struct option options[CONFIG_OPTION_COUNT] = {
#define OPTION(name, kind, value, min, max, when, cap, argument, help)         \
    {#name,    kind, value,                                                    \
     min,      max,  when,                                                     \
     argument, help, offsetof(struct config, name)},
#include "daemon/settings/options.def"
};

static const char *const source_names[CONFIG_SOURCE_COUNT] = {
    [CONFIG_DEFAULT] = "default",
    [CONFIG_FILE] = "file",
    [CONFIG_ENVIRONMENT] = "environment",
    [CONFIG_FLAG] = "flag",
};

static const struct option *option_find(const char *name)
{
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
        if (strcmp(options[i].name, name) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

static const char *option_nearest(const char *name)
{
    const char *names[CONFIG_OPTION_COUNT];

    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
        names[i] = options[i].name;
    }
    return nearest_word(name, names, CONFIG_OPTION_COUNT);
}

static int count_parse(const struct option *o, const char *text, uint64_t *out)
{
    char *end;
    unsigned long long value;

    if (!isdigit((unsigned char)text[0])) {
        return LOCO_EINVAL;
    }
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < o->min || value > o->max) {
        return LOCO_EINVAL;
    }
    *out = value;
    return 0;
}

static int flag_parse(const char *text, bool *out)
{
    static const char *const on[] = {"on", "true", "yes", "1"};
    static const char *const off[] = {"off", "false", "no", "0"};

    for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
        if (strcmp(text, on[i]) == 0 || strcmp(text, off[i]) == 0) {
            *out = strcmp(text, on[i]) == 0;
            return 0;
        }
    }
    return LOCO_EINVAL;
}

/* Whether `text` is one of the words of "a|b|c"; anything goes without "|". */
static bool choice_ok(const char *choices, const char *text)
{
    const char *at = choices;
    size_t len = strlen(text);

    if (strchr(choices, '|') == NULL) {
        return true;
    }
    while (at != NULL) {
        if (strncmp(at, text, len) == 0 && (at[len] == '|' || !at[len])) {
            return len > 0;
        }
        at = strchr(at, '|');
        at = at == NULL ? NULL : at + 1;
    }
    return false;
}

static int option_assign(struct config *config,
                         const struct option *o,
                         const char *text,
                         char errmsg[CONFIG_ERRMSG_MAX])
{
    char *member = (char *)config + o->offset;

    switch (o->kind) {
    case TEXT:
        if (strlen(text) >= CONFIG_TEXT_MAX) {
            return errmsg_invalid(errmsg, "%s: value too long", o->name);
        }
        if (!choice_ok(o->argument, text)) {
            return errmsg_invalid(errmsg, "%s: '%.60s' is not one of %s",
                                  o->name, text, o->argument);
        }
        memcpy(member, text, strlen(text) + 1);
        return 0;
    case COUNT:
        if (count_parse(o, text, (uint64_t *)(void *)member) != 0) {
            return errmsg_invalid(
                errmsg, "%s: '%.60s' is not a whole number from %llu to %llu",
                o->name, text, (unsigned long long)o->min,
                (unsigned long long)o->max);
        }
        return 0;
    case FLAG:
        if (flag_parse(text, (bool *)member) != 0) {
            return errmsg_invalid(errmsg, "%s: '%.60s' is neither on nor off",
                                  o->name, text);
        }
        return 0;
    }
    return LOCO_EINVAL;
}

void config_init(struct config *config)
{
    char errmsg[CONFIG_ERRMSG_MAX];

    memset(config, 0, sizeof *config);
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
        int rv = option_assign(config, &options[i], options[i].value, errmsg);

        assert(rv == 0); /* a default that its own row refuses */
        (void)rv;
    }
}

int config_set(struct config *config,
               const char *name,
               const char *text,
               enum config_source source,
               char errmsg[CONFIG_ERRMSG_MAX])
{
    const struct option *o = option_find(name);
    const char *near;
    int rv;

    if (o == NULL) {
        near = option_nearest(name);
        return errmsg_fail(errmsg, LOCO_ENOENT,
                           near == NULL ? "unknown setting '%.60s'%s"
                                        : "unknown setting '%.60s'; "
                                          "did you mean '%s'?",
                           name, near == NULL ? "" : near);
    }
    if (config->source[o - options] > source) {
        /* Weaker, but it must still be right: a mistake in the file shows
         * whether or not a flag hides it today. */
        struct config scratch = {0};

        return option_assign(&scratch, o, text, errmsg);
    }
    rv = option_assign(config, o, text, errmsg);
    if (rv == 0) {
        config->source[o - options] = source;
    }
    return rv;
}

/* ---- locod.yaml -------------------------------------------------------- */

/* One "key: value" pair of the root mapping. */
static int pair_read(struct config *config,
                     const yaml_node_t *key,
                     const yaml_node_t *value,
                     bool *seen,
                     const char *where,
                     char errmsg[CONFIG_ERRMSG_MAX])
{
    char inner[CONFIG_ERRMSG_MAX];
    unsigned long line = (unsigned long)key->start_mark.line + 1;
    const char *name = (const char *)key->data.scalar.value;
    const struct option *o;
    int rv;

    if (key->type != YAML_SCALAR_NODE || value->type != YAML_SCALAR_NODE) {
        return errmsg_invalid(
            errmsg, "%s:%lu: settings are 'name: value' lines", where, line);
    }
    o = option_find(name);
    if (o != NULL && seen[o - options]) {
        return errmsg_invalid(errmsg, "%s:%lu: '%s' is set twice", where, line,
                              name);
    }
    rv = config_set(config, name, (const char *)value->data.scalar.value,
                    CONFIG_FILE, inner);
    if (rv != 0) {
        return errmsg_invalid(errmsg, "%.100s:%lu: %.140s", where, line, inner);
    }
    assert(o != NULL);
    seen[o - options] = true;
    return 0;
}

static int root_read(struct config *config,
                     yaml_document_t *document,
                     const char *where,
                     char errmsg[CONFIG_ERRMSG_MAX])
{
    yaml_node_t *root = yaml_document_get_root_node(document);
    bool seen[CONFIG_OPTION_COUNT] = {false};

    if (root == NULL) {
        return 0; /* empty, or only comments */
    }
    if (root->type != YAML_MAPPING_NODE) {
        return errmsg_invalid(errmsg, "%s: settings are 'name: value' lines",
                              where);
    }
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start;
         p < root->data.mapping.pairs.top; p++) {
        int rv = pair_read(config, yaml_document_get_node(document, p->key),
                           yaml_document_get_node(document, p->value), seen,
                           where, errmsg);

        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

int config_read_yaml(struct config *config,
                     const char *yaml,
                     size_t len,
                     const char *where,
                     char errmsg[CONFIG_ERRMSG_MAX])
{
    yaml_parser_t parser;
    yaml_document_t document;
    int rv;

    if (!yaml_parser_initialize(&parser)) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "%s: out of memory", where);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)yaml, len);
    if (yaml_parser_load(&parser, &document)) {
        rv = root_read(config, &document, where, errmsg);
        yaml_document_delete(&document);
    } else {
        rv = errmsg_invalid(errmsg, "%.120s:%lu: not YAML: %s", where,
                            (unsigned long)parser.problem_mark.line + 1,
                            parser.problem == NULL ? "unreadable"
                                                   : parser.problem);
    }
    yaml_parser_delete(&parser);
    return rv;
}

/* LOCO_ENOENT where there is no such file. */
static int file_read(struct config *config,
                     const char *path,
                     char errmsg[CONFIG_ERRMSG_MAX])
{
    char *text;
    size_t len;
    int rv = file_read_whole(path, CONFIG_FILE_MAX, &text, &len, errmsg);

    if (rv == 0) {
        rv = config_read_yaml(config, text, len, path, errmsg);
        free(text);
    }
    if (rv == 0) {
        (void)snprintf(config->file, sizeof config->file, "%s", path);
    }
    return rv;
}

/* ---- where files are when nobody says ----------------------------------- */

/* $variable/loco/rest, or $HOME/fallback/loco/rest; false when neither is
 * set or the path is too long. XDG base directory specification 0.8. */
static bool xdg_path(char out[CONFIG_TEXT_MAX],
                     const char *variable,
                     const char *fallback,
                     const char *rest)
{
    const char *base = getenv(variable);
    const char *home = getenv("HOME");
    int n;

    if (base != NULL && base[0] == '/') {
        n = snprintf(out, CONFIG_TEXT_MAX, "%s/loco%s", base, rest);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(out, CONFIG_TEXT_MAX, "%s/%s/loco%s", home, fallback,
                     rest);
    } else {
        return false;
    }
    return n > 0 && n < CONFIG_TEXT_MAX;
}

bool config_usual_file(char path[CONFIG_TEXT_MAX])
{
    const char *named = getenv("LOCO_CONFIG");

    if (named != NULL && named[0] != '\0') {
        return snprintf(path, CONFIG_TEXT_MAX, "%s", named) < CONFIG_TEXT_MAX;
    }
    return xdg_path(path, "XDG_CONFIG_HOME", ".config", "/locod.yaml");
}

static int file_load(struct config *config,
                     const char *flag,
                     char errmsg[CONFIG_ERRMSG_MAX])
{
    char path[CONFIG_TEXT_MAX];
    const char *named = flag != NULL ? flag : getenv("LOCO_CONFIG");
    int rv;

    if (named != NULL && named[0] != '\0') {
        return file_read(config, named, errmsg);
    }
    if (!xdg_path(path, "XDG_CONFIG_HOME", ".config", "/locod.yaml")) {
        return 0;
    }
    rv = file_read(config, path, errmsg);
    return rv == LOCO_ENOENT ? 0 : rv;
}

/* ---- environment and command line --------------------------------------- */

static int environment_load(struct config *config,
                            char errmsg[CONFIG_ERRMSG_MAX])
{
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
        char variable[64] = "LOCO_";
        char inner[CONFIG_ERRMSG_MAX];
        const char *text;
        size_t n = strlen(variable);

        for (const char *c = options[i].name; *c != '\0'; c++) {
            variable[n++] = (char)toupper((unsigned char)*c);
        }
        variable[n] = '\0';
        text = getenv(variable);
        if (text == NULL) {
            continue;
        }
        if (config_set(config, options[i].name, text, CONFIG_ENVIRONMENT,
                       inner) != 0) {
            return errmsg_invalid(errmsg, "environment %s: %.190s", variable,
                                  inner);
        }
    }
    return 0;
}

/* "--log-json=on" -> name "log_json", value "on" or NULL. */
static int flag_split(const char *arg,
                      char name[64],
                      const char **value,
                      char errmsg[CONFIG_ERRMSG_MAX])
{
    const char *equals = strchr(arg, '=');
    size_t len = equals == NULL ? strlen(arg) : (size_t)(equals - arg);

    if (strncmp(arg, "--", 2) != 0 || len < 3 || len - 2 >= 64) {
        return errmsg_invalid(
            errmsg, "'%.60s' is not an option; see locod --help", arg);
    }
    for (size_t i = 2; i < len; i++) {
        name[i - 2] = arg[i] == '-' ? '_' : arg[i];
    }
    name[len - 2] = '\0';
    *value = equals == NULL ? NULL : equals + 1;
    return 0;
}

static int flag_load(struct config *config,
                     int argc,
                     char **argv,
                     int *i,
                     const char **file,
                     char errmsg[CONFIG_ERRMSG_MAX])
{
    char name[64], inner[CONFIG_ERRMSG_MAX];
    const struct option *o;
    const char *value = NULL;
    int rv = flag_split(argv[*i], name, &value, errmsg);

    if (rv != 0) {
        return rv;
    }
    o = option_find(name);
    if (value == NULL && o != NULL && o->kind == FLAG) {
        value = "on";
    } else if (value == NULL && (o != NULL || strcmp(name, "config") == 0)) {
        if (*i + 1 == argc) {
            return errmsg_invalid(errmsg, "%s: a value must follow", argv[*i]);
        }
        value = argv[++*i];
    }
    if (strcmp(name, "config") == 0) {
        *file = value;
        return 0;
    }
    rv = config_set(config, name, value == NULL ? "" : value, CONFIG_FLAG,
                    inner);
    if (rv != 0) {
        return errmsg_invalid(errmsg, "command line: %.200s", inner);
    }
    return 0;
}

static bool asked(int argc, char **argv, const char *a, const char *b)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], a) == 0 || strcmp(argv[i], b) == 0) {
            return true;
        }
    }
    return false;
}

/* What no single value can tell. */
static int config_check(struct config *config, char errmsg[CONFIG_ERRMSG_MAX])
{
    struct courtesy_schedule week;

    if (config->run[0] != '\0' && config->join[0] != '\0') {
        return errmsg_invalid(
            errmsg, "run and join exclude each other: a run is started from "
                    "its run.yaml or joined by its URI");
    }
    if (courtesy_schedule_parse(&week, config->schedule, errmsg) != 0) {
        return LOCO_EINVAL;
    }
    if (config->state[0] == '\0' &&
        !xdg_path(config->state, "XDG_STATE_HOME", ".local/state", "")) {
        return errmsg_invalid(
            errmsg, "no state directory: give --state DIR (neither HOME nor "
                    "XDG_STATE_HOME is set)");
    }
    return 0;
}

/* Beside a GPU threads copy and hash what a round brings, and train in its
 * place when it is lost. A list of processors is one of so many threads. */
static void fill_threads(struct config *config)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;

    if (strcmp(config->device, "cuda") == 0 &&
        config->source[CONFIG_threads] == CONFIG_DEFAULT &&
        strcmp(config->affinity, "off") == 0 && n > 1) {
        config->threads = n < 256 ? (uint64_t)n : 256;
    }
}

int config_parse(int argc,
                 char **argv,
                 struct config *config,
                 char errmsg[CONFIG_ERRMSG_MAX])
{
    const char *file = NULL;
    int rv = 0;

    config_init(config);
    config->help = asked(argc, argv, "--help", "-h");
    config->version = asked(argc, argv, "--version", "-V");
    if (config->help || config->version) {
        return 0;
    }
    config->exit_code = LOCO_EXIT_USAGE;
    for (int i = 1; rv == 0 && i < argc; i++) {
        rv = flag_load(config, argc, argv, &i, &file, errmsg);
    }
    if (rv == 0) {
        config->exit_code = LOCO_EXIT_CONFIG;
        rv = file_load(config, file, errmsg);
    }
    rv = rv == 0 ? environment_load(config, errmsg) : rv;
    rv = rv == 0 ? config_check(config, errmsg) : rv;
    if (rv == 0) {
        fill_threads(config);
        config->exit_code = LOCO_EXIT_OK;
    }
    return rv;
}

/* ---- for people --------------------------------------------------------- */

const char *config_name(enum config_option option)
{
    return options[option].name;
}

const char *config_argument(enum config_option option)
{
    return options[option].kind == FLAG ? "on|off" : options[option].argument;
}

const char *config_help(enum config_option option)
{
    return options[option].help;
}

bool config_is_live(enum config_option option)
{
    return options[option].when == LIVE;
}

const char *config_source_name(enum config_source source)
{
    return source_names[source];
}

void config_text(const struct config *config,
                 enum config_option option,
                 char out[CONFIG_TEXT_MAX])
{
    const struct option *o = &options[option];
    const char *member = (const char *)config + o->offset;

    switch (o->kind) {
    case TEXT:
        memcpy(out, member, CONFIG_TEXT_MAX);
        return;
    case COUNT:
        (void)snprintf(
            out, CONFIG_TEXT_MAX, "%llu",
            (unsigned long long)*(const uint64_t *)(const void *)member);
        return;
    case FLAG:
        (void)snprintf(out, CONFIG_TEXT_MAX, "%s",
                       *(const bool *)member ? "on" : "off");
        return;
    }
}

void config_copy(struct config *to,
                 const struct config *from,
                 enum config_option option)
{
    const struct option *o = &options[option];
    const char *source = (const char *)from + o->offset;
    size_t size = o->kind == TEXT    ? CONFIG_TEXT_MAX
                  : o->kind == COUNT ? sizeof(uint64_t)
                                     : sizeof(bool);

    memcpy((char *)to + o->offset, source, size);
    to->source[option] = from->source[option];
}

void config_print_options(FILE *to)
{
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
        const struct option *o = &options[i];
        char flag[64];
        size_t n = (size_t)snprintf(flag, sizeof flag, "--%s %s", o->name,
                                    o->argument);

        for (size_t j = 2; j < strlen(o->name) + 2 && j < n; j++) {
            flag[j] = flag[j] == '_' ? '-' : flag[j];
        }
        (void)fprintf(to, "  %-30s %s", flag, o->help);
        (void)fprintf(to, o->value[0] == '\0' ? "%s\n" : " (%s)\n", o->value);
    }
    (void)fprintf(to, "  %-30s %s\n", "--config FILE", "settings file");
}
