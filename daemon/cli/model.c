/* model.c - loco export and import. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/source.h"
#include "daemon/model/model.h"
#include "proto/base/err.h"

static bool dtype_named(const char *name, enum st_dtype *dtype)
{
    static const struct {
        const char *name;
        enum st_dtype dtype;
    } rows[] = {{"fp32", ST_F32}, {"bf16", ST_BF16}, {"fp16", ST_F16}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(name, rows[i].name) == 0) {
            *dtype = rows[i].dtype;
            return true;
        }
    }
    return false;
}

int cli_export(const struct cli_call *call)
{
    struct cli_source from = {.model = NULL};
    struct model_export_options opt = {.dtype = ST_F32};
    const char *format = "hf", *out = NULL, *dtype = "fp32";
    const struct cli_option options[] = {
        {"--state", CLI_LIST, &from.state, "DIR",
         "state directory of a daemon; with stages, repeat it for each stage"},
        {"--model", CLI_TEXT, &from.model, "DIR|FILE", "or a model's files"},
        {"--format", CLI_TEXT, &format, "hf", "hf: Hugging Face (hf)"},
        {"--dtype", CLI_TEXT, &dtype, "NAME",
         "type of the weights: fp32, bf16 or fp16 (fp32)"},
        {"--max-shard-bytes", CLI_COUNT, &opt.shard_bytes, "N",
         "size limit of one weights file (5000000000)"},
        {"--out", CLI_TEXT, &out, "DIR", "what to write"},
    };
    char errmsg[ERRMSG_SIZE];
    struct model_source s;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if (out == NULL || strcmp(format, "hf") != 0 ||
        !dtype_named(dtype, &opt.dtype)) {
        return cli_fail(TROUBLE_USAGE,
                        "export: --out DIR is needed; the only format is hf; "
                        "--dtype is fp32, bf16 or fp16");
    }
    rv = cli_source_open(&s, &from);
    if (rv != 0) {
        return rv;
    }
    rv = model_export(&s, out, &opt, errmsg);
    if (rv != 0) {
        rv = cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "export: %s", errmsg);
    } else if (s.facts.run_id[0] != '\0') {
        (void)printf("%s: round %llu of run %.16s\n", out,
                     (unsigned long long)s.facts.round, s.facts.run_id);
    } else {
        (void)printf("%s: %lld parameters\n", out,
                     (long long)llama_numel(&s.config.model));
    }
    model_source_close(&s);
    return rv;
}

int cli_import(const struct cli_call *call)
{
    struct cli_source from = {.model = NULL};
    struct cli_list words = {0};
    uint64_t seq = 0;
    const char *out = NULL;
    const struct cli_option options[] = {
        {"--out", CLI_TEXT, &out, "FILE", "what to write"},
        {"--seq", CLI_COUNT, &seq, "N",
         "context, at most the model's (the model's)"},
    };
    char errmsg[ERRMSG_SIZE];
    struct model_source s;
    int rv = CLI_PARSE(call, options, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    if (out == NULL) {
        return cli_fail(TROUBLE_USAGE, "import: --out FILE is missing");
    }
    from.model = words.item[0];
    rv = cli_source_open(&s, &from);
    if (rv != 0) {
        return rv;
    }
    if (seq > s.config.model.seq) {
        rv = cli_fail(TROUBLE_USAGE,
                      "import: --seq %llu is more than the model's %u",
                      (unsigned long long)seq, s.config.model.seq);
    } else {
        s.config.model.seq = seq == 0 ? s.config.model.seq : (uint32_t)seq;
        rv = model_import(&s, out, errmsg);
        if (rv != 0) {
            rv = cli_fail(cli_trouble_of(rv, TROUBLE_MODEL), "import: %s",
                          errmsg);
        } else {
            (void)printf("%s: %lld parameters, vocabulary %u, windows of %u\n",
                         out, (long long)llama_numel(&s.config.model),
                         s.config.model.vocab, s.config.model.seq);
        }
    }
    model_source_close(&s);
    return rv;
}
