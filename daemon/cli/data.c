/* data.c - loco data pack. */
#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/file_hash.h"
#include "proto/base/err.h"
#include "proto/base/nearest.h"
#include "train/data/pack.h"

static int hash_hex(void *data, const char *path, char hex_out[PACK_HEX_SIZE])
{
    struct hash32 hash;
    int rv = file_hash(path, &hash, NULL);

    (void)data;
    if (rv == 0) {
        hash32_hex(&hash, hex_out);
    }
    return rv;
}

static void
print_result(const struct pack_result *r, const char *out, bool json)
{
    json_t *o;

    if (!json) {
        (void)printf("%s: %u shards, %llu tokens to train on, %llu held out\n",
                     out, r->shards, (unsigned long long)r->train_tokens,
                     (unsigned long long)r->val_tokens);
        return;
    }
    o = json_pack("{s:s, s:i, s:I, s:I, s:I, s:I}", "out", out, "shards",
                  (int)r->shards, "train_tokens", (json_int_t)r->train_tokens,
                  "val_tokens", (json_int_t)r->val_tokens, "text_bytes",
                  (json_int_t)r->text_bytes, "vocab", (json_int_t)r->vocab);
    (void)cli_print_json(o, 0);
}

static const char *const formats[] = {
    [PACK_AUTO] = "auto",  [PACK_TEXT] = "text", [PACK_JSONL] = "jsonl",
    [PACK_LLMC] = "llm.c", [PACK_U16] = "u16",   [PACK_U32] = "u32"};

int cli_data_pack(const struct cli_call *call)
{
    struct cli_list inputs = {0};
    struct pack_options pack = {.tokenizer = "byte", .hash = hash_hex};
    uint64_t shards = 1, val_bytes = PACK_VAL_DEFAULT;
    const char *out = NULL, *format = "auto";
    bool json = false;
    const struct cli_option options[] = {
        {"--out", CLI_TEXT, &out, "DIR",
         "directory for the shards and data.json"},
        {"--val-bytes", CLI_COUNT, &val_bytes, "N",
         "held-out bytes at the end (a tenth, at most 131072)"},
        {"--shards", CLI_COUNT, &shards, "N",
         "number of files, of equal size (1)"},
        {"--tokenizer", CLI_TEXT, &pack.tokenizer, "byte|FILE",
         "one token per byte, or a tokenizer.json (byte)"},
        {"--format", CLI_TEXT, &format, "NAME",
         "auto, text, jsonl (field \"text\"), or ready tokens: llm.c, u16, "
         "u32"},
        {"--separator", CLI_TEXT, &pack.separator, "TEXT",
         "put after each JSONL text (a newline)"},
        {"--source", CLI_TEXT, &pack.source, "TEXT", "source of the text"},
        {"--licence", CLI_TEXT, &pack.licence, "TEXT", "licence of the text"},
        {"--json", CLI_FLAG, &json, NULL, "print one JSON object"},
    };
    struct pack_result result = {0};
    int found, rv = CLI_PARSE(call, options, &inputs, 1, CLI_LIST_MAX);

    if (rv != CLI_GO) {
        return rv;
    }
    if (out == NULL) {
        return cli_fail(TROUBLE_USAGE, "data pack: --out DIR is missing");
    }
    if (shards == 0 || shards > PACK_SHARDS_MAX) {
        return cli_fail(TROUBLE_USAGE, "data pack: --shards is 1 to %d",
                        PACK_SHARDS_MAX);
    }
    found = word_place(format, formats, 6);
    if (found < 0) {
        return cli_fail(TROUBLE_USAGE,
                        "data pack: --format is auto, text, jsonl, llm.c, u16 "
                        "or u32, not %.40s",
                        format);
    }
    pack.format = (enum pack_format)found;
    pack.shards = (uint32_t)shards;
    pack.val_bytes = val_bytes;
    rv = pack_text(inputs.item, inputs.n, out, &pack, &result);
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_DATA), "data pack: %s",
                        result.errmsg);
    }
    print_result(&result, out, json);
    return LOCO_EXIT_OK;
}
