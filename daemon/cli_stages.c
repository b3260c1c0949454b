/* cli_stages.c - loco stages: what a host of one stage lacks of the model. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cli.h"
#include "daemon/stage_fetch.h"
#include "proto/base/err.h"
#include "proto/uri.h"

/* run.invitation: one line. */
static int read_invitation(const char *path, struct invite *out)
{
    char text[INVITE_TEXT_MAX + 2];
    FILE *f = fopen(path, "re");
    size_t n;

    if (f == NULL) {
        return cli_fail(TROUBLE_FILE, "stages: %s: %s", path, strerror(errno));
    }
    n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return invite_parse(text, out) == 0
               ? 0
               : cli_fail(TROUBLE_INVITATIONS, "stages: %s is no invitation",
                          path);
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
                        "stages: --join: this address has no invitation: it "
                        "ends with ?invite=...");
    }
    *out = u.invite;
    return 0;
}

int cli_stages(const struct cli_call *call)
{
    const char *join = NULL, *invitation = NULL;
    const struct cli_option options[] = {
        {"--join", CLI_TEXT, &join, "URI",
         "of a run for invited peers: the address with your invitation"},
        {"--invitation", CLI_TEXT, &invitation, "FILE",
         "or run.invitation, of who started it"},
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
