/* config_set.c - loco config set: one setting in locod.yaml.
 *
 * Comments and order stay: the line that sets the name is replaced, else one is
 * appended. Before the file is written the new text is read as locod would
 * read it, so that a wrong value never reaches the disk. It keeps its mode; a
 * new one is for its owner alone, as it may hold an invitation.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/config.h"
#include "proto/base/err.h"
#include "proto/base/file.h"

/* Whether the line sets `name`. */
static bool line_sets(const char *line, const char *name)
{
    size_t n = strlen(name);

    return strncmp(line, name, n) == 0 &&
           line[n + strspn(line + n, " \t")] == ':';
}

/* The file with the setting; caller frees. NULL: out of memory. */
static char *
edited(const char *text, const char *name, const char *value, size_t *size)
{
    char *out = NULL;
    FILE *to = open_memstream(&out, size);
    bool done = false;

    if (to == NULL) {
        return NULL;
    }
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");

        if (line_sets(text, name)) {
            (void)fprintf(to, "%s: \"%s\"\n", name, value);
            done = true;
        } else {
            (void)fprintf(to, "%.*s\n", (int)len, text);
        }
        text += len + (text[len] == '\n');
    }
    if (!done) {
        (void)fprintf(to, "%s: \"%s\"\n", name, value);
    }
    if (fclose(to) != 0) {
        free(out);
        return NULL;
    }
    return out;
}

static int change(const char *path, const char *name, const char *value)
{
    char errmsg[CONFIG_ERRMSG_MAX];
    static struct config config;
    char *text, *next;
    size_t size = 0;
    int rv = file_read_whole(path, CONFIG_FILE_MAX, &text, &size, errmsg);

    if (rv != 0 && rv != LOCO_ENOENT) {
        return cli_fail(TROUBLE_SETTINGS, "%s", errmsg);
    }
    next = edited(rv == 0 ? text : "", name, value, &size);
    free(text);
    if (next == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    config_init(&config);
    rv = config_set(&config, name, value, CONFIG_FILE, errmsg);
    rv = rv != 0 ? rv : config_read_yaml(&config, next, size, path, errmsg);
    if (rv != 0) {
        rv = cli_fail(TROUBLE_SETTINGS, "%s", errmsg);
    } else {
        rv = file_make_folders(path, errmsg);
        rv = rv != 0 ? rv : file_write_secret(path, next, size, errmsg);
        rv = rv == 0 ? LOCO_EXIT_OK : cli_fail(TROUBLE_SETTINGS, "%s", errmsg);
    }
    free(next);
    return rv;
}

int cli_config_set(const struct cli_call *call)
{
    char path[CONFIG_TEXT_MAX];
    struct cli_list words = {0};
    const char *file = NULL;
    const struct cli_option options[] = {
        {"--config", CLI_TEXT, &file, "FILE", "settings file (the usual one)"},
    };
    int rv = CLI_PARSE(call, options, &words, 2, 2);

    if (rv != CLI_GO) {
        return rv;
    }
    if (strpbrk(words.item[1], "\"\\\n") != NULL) {
        return cli_fail(TROUBLE_USAGE,
                        "config set: the value has a quote, a backslash or a "
                        "line break: edit the file instead");
    }
    if (file == NULL && !config_usual_file(path)) {
        return cli_fail(TROUBLE_SETTINGS,
                        "config set: HOME and XDG_CONFIG_HOME are not set: "
                        "name the file with --config");
    }
    rv = change(file == NULL ? path : file, words.item[0], words.item[1]);
    if (rv == LOCO_EXIT_OK) {
        (void)fprintf(stderr, "wrote %s\n", file == NULL ? path : file);
    }
    return rv;
}
