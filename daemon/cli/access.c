/* access.c - loco access: the tokens of a daemon's API. */
#include <stdbool.h>
#include <stdio.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/control_tokens.h"
#include "daemon/settings/state_dir.h"
#include "daemon/visit/http.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/limits.h"

/* Comments are for who opens the file. */
static int print_tokens(const char *path)
{
    char line[512];
    FILE *f = fopen(path, "re");

    if (f == NULL) {
        return cli_fail(TROUBLE_TOKENS, "access: cannot read %s", path);
    }
    while (fgets(line, sizeof line, f) != NULL) {
        if (line[0] != '#' && line[0] != '\n') {
            (void)fputs(line, stdout);
        }
    }
    (void)fclose(f);
    return LOCO_EXIT_OK;
}

/* A daemon that runs forgets the old ones; none need run. */
static void tell_daemon(const char *state, struct http_daemon *old)
{
    char errmsg[HTTP_ERRMSG_MAX];

    if (old->address[0] != '\0' &&
        http_post(old, "/api/v1/reload", errmsg) != 0) {
        (void)fprintf(
            stderr, "loco: cannot tell the daemon of %s (%s): send it SIGHUP\n",
            state, errmsg);
    }
}

int cli_access(const struct cli_call *call)
{
    const char *state = NULL;
    bool renew = false;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &state, "DIR", "the daemon's state directory"},
        {"--new", CLI_FLAG, &renew, NULL,
         "make new tokens; the old ones stop working"},
    };
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    struct http_daemon old = {0};
    struct control_tokens tokens;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    rv = rv == CLI_GO ? cli_state(&state) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    if (file_path_join(path, state, STATE_DIR_TOKENS, errmsg) != 0) {
        return cli_fail(TROUBLE_STATE_DIR, "%s", errmsg);
    }
    (void)http_of_state(state, &old, errmsg);
    rv = control_tokens_load(&tokens, path, errmsg);
    if (renew || rv == LOCO_ENOENT) {
        rv = control_tokens_make(path, renew, errmsg);
        if (rv == 0) {
            tell_daemon(state, &old);
        }
    }
    return rv == 0 ? print_tokens(path)
                   : cli_fail(TROUBLE_TOKENS, "access: %s", errmsg);
}
