/* stages.c - loco stages: what a host of one stage lacks of the model. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli/cli.h"
#include "daemon/visit/stage_fetch.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/uri.h"

/* run.invitation: one line. */
static int read_invitation(const char *path, struct invite *out)
{
    char errmsg[ERRMSG_SIZE], *text;
    size_t size;
    int rv = file_read_whole(path, INVITE_TEXT_MAX + 1, &text, &size, errmsg);

    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_INVITATIONS), "stages: %s",
                        errmsg);
    }
    text[strcspn(text, "\n")] = '\0';
    rv = invite_parse(text, out) == 0
             ? 0
             : cli_fail(TROUBLE_INVITATIONS, "stages: %s is not an invitation",
                        path);
    free(text);
    return rv;
}

/* The invitation in what `locod --join` was given. */
static int from_uri(const char *text, struct invite *out)
{
    char errmsg[LOCO_ERRMSG_MAX] = "";
    struct uri u;

    if (uri_parse(text, &u, errmsg) != 0) {
        return cli_fail(TROUBLE_URI, "stages: --join: %s", errmsg);
    }
    if (!u.has_invite) {
        return cli_fail(TROUBLE_NOT_INVITED,
                        "stages: --join: this address has no invitation; one "
                        "that has ends with ?invite=...");
    }
    *out = u.invite;
    return 0;
}

int cli_stages(const struct cli_call *call)
{
    const char *join = NULL, *invitation = NULL;
    const struct cli_option options[] = {
        {"--join", CLI_TEXT, &join, "URI",
         "address with your invitation, in a run for invited peers"},
        {"--invitation", CLI_TEXT, &invitation, "FILE",
         "or run.invitation, at the peer that started the run"},
    };
    struct cli_list words = {0};
    struct invite invite;
    struct stage_fetch f;
    char errmsg[ERRMSG_SIZE];
    bool shows = false;
    int rv = CLI_PARSE(call, options, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    if (join != NULL || invitation != NULL) {
        rv = join != NULL ? from_uri(join, &invite)
                          : read_invitation(invitation, &invite);
        if (rv != 0) {
            return rv;
        }
        shows = true;
    }
    rv = stage_fetch(&f, words.item[0], shows ? &invite : NULL, errmsg);
    if (rv != 0) {
        return cli_fail(rv == LOCO_ERUN     ? TROUBLE_NOT_INVITED
                        : rv == LOCO_ENOENT ? TROUBLE_NO_ROUND
                                            : cli_trouble_of(rv, TROUBLE_MODEL),
                        "stages: %s", errmsg);
    }
    (void)printf("round %llu: %u of %u stages fetched, %llu bytes\n",
                 (unsigned long long)f.round, f.fetched, f.stages,
                 (unsigned long long)f.bytes);
    return LOCO_EXIT_OK;
}
