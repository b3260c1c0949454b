/* cli_stages.c - loco stages: what a host of one stage lacks of the model. */
#include <stdio.h>

#include "daemon/cli.h"
#include "daemon/stage_fetch.h"
#include "proto/base/err.h"

int cli_stages(const struct cli_call *call)
{
    struct cli_list words = {0};
    struct stage_fetch f;
    char errmsg[ERRMSG_SIZE];
    int rv = cli_parse(call, NULL, 0, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    rv = stage_fetch(&f, words.item[0], errmsg);
    if (rv != 0) {
        return cli_fail(rv == LOCO_ENOENT ? TROUBLE_NO_ROUND
                                          : cli_trouble_of(rv, TROUBLE_MODEL),
                        "stages: %s", errmsg);
    }
    (void)printf("round %llu: %u of %u stages fetched, %llu bytes\n",
                 (unsigned long long)f.round, f.fetched, f.stages,
                 (unsigned long long)f.bytes);
    return LOCO_EXIT_OK;
}
