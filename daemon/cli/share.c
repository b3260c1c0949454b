/* share.c - loco run share: the line with which others join, and its QR code.
 *
 * The line and the reason why there is none are the daemon's. The code is two
 * modules a character, in colours of its own, black on white, so that it is
 * right on dark terminals and on light ones; it is left out where nobody could
 * read it: not on a terminal, without UTF-8 or colours, or in too narrow a one.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <jansson.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/cli.h"
#include "proto/base/err.h"

#define QUIET 4 /* modules of light around the code, as readers want them */

static bool has_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *v = getenv(names[i]);

        if (v != NULL && v[0] != '\0') { /* the first that is set counts */
            return strcasestr(v, "utf-8") != NULL ||
                   strcasestr(v, "utf8") != NULL;
        }
    }
    return false;
}

/* NULL: it can be shown; else why not. */
static const char *hindrance(size_t columns)
{
    const char *off = getenv("NO_COLOR"), *term = getenv("TERM");
    struct winsize w;

    if (isatty(1) != 1) {
        return "";
    }
    if (!has_utf8()) {
        return "no QR code: this terminal is not said to have UTF-8 (LANG)";
    }
    if ((off != NULL && off[0] != '\0') || term == NULL ||
        strcmp(term, "dumb") == 0) {
        return "no QR code: this terminal is to have no colours";
    }
    if (ioctl(1, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_col < columns) {
        return "no QR code: this terminal is too narrow for it";
    }
    return NULL;
}

/* Whether that module is dark; the quiet zone around them is light. */
static bool is_dark(const json_t *rows, size_t y, size_t x)
{
    const char *row =
        y < QUIET ? NULL : json_string_value(json_array_get(rows, y - QUIET));

    return row != NULL && x >= QUIET && x - QUIET < strlen(row) &&
           row[x - QUIET] == '1';
}

static void print_code(const json_t *rows)
{
    static const char *const halves[] = {" ", "\u2584", "\u2580", "\u2588"};
    size_t side = json_array_size(rows) + 2 * (size_t)QUIET;

    for (size_t y = 0; y < side; y += 2) {
        (void)fputs("\033[30;47m", stdout);
        for (size_t x = 0; x < side; x++) {
            (void)fputs(
                halves[2 * is_dark(rows, y, x) + is_dark(rows, y + 1, x)],
                stdout);
        }
        (void)fputs("\033[0m\n", stdout);
    }
}

static int show(const json_t *o)
{
    const char *uri = json_string_value(json_object_get(o, "uri"));
    const json_t *rows = json_object_get(o, "qr");
    const char *reason = answer_text(o, "reason"), *why;

    if (uri == NULL) {
        return cli_fail(TROUBLE_ADDRESS, "run share: %s", reason);
    }
    if (json_is_array(rows)) {
        why = hindrance(json_array_size(rows) + 2 * (size_t)QUIET);
        if (why == NULL) {
            print_code(rows);
        } else if (why[0] != '\0') {
            (void)fprintf(stderr, "%s\n", why);
        }
    }
    (void)printf("loco join %s\n", uri);
    if (reason[0] != '\0') {
        (void)fprintf(stderr, "%s\n", reason);
    }
    return LOCO_EXIT_OK;
}

int cli_run_share(const struct cli_call *call)
{
    struct cli_target target = {NULL, NULL};
    const struct cli_option options[] = {CLI_TARGET_OPTIONS(target)};
    char *body;
    json_t *o;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    rv = rv == CLI_GO ? cli_ask(&target, "/api/v1/share", &body, &o) : rv;
    if (rv == CLI_GO) {
        rv = show(o);
        json_decref(o);
        free(body);
    }
    return rv;
}
