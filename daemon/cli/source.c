/* source.c - see cli/source.h. */
#include "daemon/cli/source.h"

#include <stddef.h>

#include "daemon/cli/cli.h"
#include "proto/base/err.h"

static int check(const struct cli_source *from)
{
    return (from->state.n == 0) == (from->model == NULL)
               ? cli_fail(TROUBLE_USAGE,
                          "give either --state DIR or --model DIR")
               : 0;
}

int cli_source_open(struct model_source *s, const struct cli_source *from)
{
    char errmsg[ERRMSG_SIZE];
    int rv = check(from);

    if (rv != 0) {
        return rv;
    }
    rv = from->state.n > 0
             ? model_source_state(s, from->state.item, from->state.n, errmsg)
             : model_source_files(s, from->model, errmsg);
    if (rv != 0) {
        model_source_close(s);
        return cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "%s", errmsg);
    }
    return 0;
}

/* The tokenizer must not make ids that the model does not know. */
static int
open_tokenizer(const struct model *m, struct tokenizer **t, const char *name)
{
    char errmsg[ERRMSG_SIZE];
    int rv;

    name = name != NULL ? name : m->tokenizer;
    if (name[0] == '\0') {
        return cli_fail(TROUBLE_MODEL,
                        "the model has no tokenizer.json beside it: name one "
                        "with --tokenizer byte|FILE");
    }
    rv = tokenizer_open_named(t, name, errmsg);
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "%s", errmsg);
    }
    if (tokenizer_vocab(*t) > m->config.vocab) {
        rv = cli_fail(TROUBLE_MODEL,
                      "the tokenizer has %u ids, the model only %u",
                      tokenizer_vocab(*t), m->config.vocab);
        tokenizer_close(*t);
        *t = NULL;
    }
    return rv;
}

int cli_source_load(struct model *m,
                    struct tokenizer **t,
                    const struct cli_source *from)
{
    char errmsg[ERRMSG_SIZE];
    int rv = check(from);

    *t = NULL;
    if (rv != 0) {
        return rv;
    }
    rv = from->state.n > 0
             ? model_open_state(m, from->state.item, from->state.n, errmsg)
             : model_open_files(m, from->model, errmsg);
    rv = rv == 0 ? open_tokenizer(m, t, from->tokenizer)
                 : cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "%s", errmsg);
    if (rv != 0) {
        model_close(m);
    }
    return rv;
}
