/* generate.c - loco generate: text goes on, token by token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/source.h"
#include "kernels/backend.h"
#include "proto/base/err.h"
#include "train/model/generate.h"

/* A token is shown when it is there: whoever reads along sees it grow. */
static int print_token(void *data, uint32_t token)
{
    size_t len = 0;
    const uint8_t *text = tokenizer_text(data, token, &len);

    if (text != NULL) { /* the model may know ids that stand for nothing */
        (void)fwrite(text, 1, len, stdout);
        (void)fflush(stdout);
    }
    return ferror(stdout) ? LOCO_EIO : 0;
}

static int generate_text(const struct model *m,
                         struct tokenizer *t,
                         const char *prompt,
                         struct generate_options *opt,
                         int threads)
{
    char errmsg[ERRMSG_SIZE] = "";
    uint32_t *ids;
    size_t n;
    struct backend backend;
    int rv = tokenizer_encode_all(t, prompt, strlen(prompt), &ids, &n, errmsg);

    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "generate: %s",
                        errmsg);
    }
    opt->prompt = ids;
    opt->prompt_n = (int64_t)n;
    opt->stop = m->eos;
    rv = backend_cpu(&backend, threads);
    if (rv == 0) {
        (void)fputs(prompt, stdout);
        rv = generate(&m->config, &backend, m->theta, opt, print_token, t);
        (void)putchar('\n');
        backend_close(&backend);
    }
    free(ids);
    return rv == 0 ? LOCO_EXIT_OK
                   : cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "generate: %s",
                              loco_strerror(rv));
}

int cli_generate(const struct cli_call *call)
{
    struct cli_source from = {.model = NULL};
    struct generate_options opt = {.temperature = 1.0, .top_p = 1.0};
    uint64_t max_tokens = 256, top_k = 0, threads = 1;
    const char *prompt = NULL;
    const struct cli_option options[] = {
        {"--model", CLI_TEXT, &from.model, "DIR|FILE",
         "a model that was exported, downloaded or imported"},
        {"--state", CLI_LIST, &from.state, "DIR",
         "or the state directory of a daemon; with stages, repeat it for each "
         "stage"},
        {"--prompt", CLI_TEXT, &prompt, "TEXT", "text to continue"},
        {"--max-tokens", CLI_COUNT, &max_tokens, "N", "tokens to add (256)"},
        {"--seed", CLI_COUNT, &opt.seed, "S",
         "seed; the same one gives the same text (0)"},
        {"--temperature", CLI_REAL, &opt.temperature, "X",
         "temperature; 0: greedy (1)"},
        {"--top-k", CLI_COUNT, &top_k, "N",
         "sample among the N likeliest tokens (0: all)"},
        {"--top-p", CLI_REAL, &opt.top_p, "X",
         "sample among the likeliest tokens of this total probability (1)"},
        {"--tokenizer", CLI_TEXT, &from.tokenizer, "byte|FILE",
         "tokenizer to use instead of the model's"},
        {"--threads", CLI_COUNT, &threads, "K", "processor threads (1)"},
    };
    struct tokenizer *t;
    struct model m;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (prompt == NULL || prompt[0] == '\0' || max_tokens > INT32_MAX ||
        top_k > UINT32_MAX) {
        return cli_fail(TROUBLE_USAGE,
                        "generate: --prompt TEXT is missing or empty");
    }
    if (threads == 0 || threads > BACKEND_THREADS_MAX) {
        return cli_fail(TROUBLE_USAGE, "generate: --threads is 1 to 256");
    }
    opt.max_tokens = (int64_t)max_tokens;
    opt.top_k = (uint32_t)top_k;
    rv = cli_source_load(&m, &t, &from);
    if (rv != 0) {
        return rv;
    }
    rv = generate_text(&m, t, prompt, &opt, (int)threads);
    tokenizer_close(t);
    model_close(&m);
    return rv;
}
