/* pack.h - text files become token shards and a held-out part.
 *
 * The inputs (pack_input.h: text, JSONL, directories, other people's token
 * files) are joined in the order given. The end is held out for evaluation
 * (val.ltk), from the first line that starts at or after total - val_bytes;
 * the rest is cut into `shards` nearly equal files, train-0000.ltk and so on.
 * Training reads one after the other (loader.h), so each is a sample of the
 * whole: a stripe of about PACK_STRIPE goes to each in turn. Stripes begin at a
 * line's start, so that no word is cut; shards of one stripe, with the byte
 * tokenizer, anywhere; ready tokens are cut by their number. data.json lists
 * the files for `loco run create`:
 *
 *   {"version": 1, "tokenizer": "byte", "vocab": 256, "source": "...",
 *    "licence": "...",
 *    "train": [{"name": "train-0000.ltk", "bytes": N, "tokens": N,
 *               "text_bytes": N, "blake2b": "..."}, ...],
 *    "val": {...} or null}
 *
 * With a tokenizer.json, "tokenizer" is "tokenizer.json", a copy of it that
 * stands beside the shards, and "tokenizer_blake2b" its hash; tokens take two
 * bytes where the vocabulary allows it, else four. Each input is tokenized for
 * itself: no token reaches from one file into the next.
 *
 * The hash is the caller's: train knows no cryptography. Without a callback
 * the key is absent.
 *
 * Streaming: memory does not grow with the text. An old data.json is removed
 * first and the new one written last, so one that is there describes a
 * finished set.
 *
 * How it fails: a negative code and result.errmsg. LOCO_EFORMAT for a token
 * outside the vocabulary, LOCO_EINVAL for text that is too short for any run.
 * Blocking; pure apart from the files.
 */
#ifndef LOCO_TRAIN_DATA_PACK_H
#define LOCO_TRAIN_DATA_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

#define PACK_SHARDS_MAX    10000
#define PACK_STRIPE        ((uint64_t)1 << 20)
#define PACK_HEX_SIZE      65         /* 32 bytes as hex and a NUL */
#define PACK_VAL_DEFAULT   UINT64_MAX /* a tenth, at most PACK_VAL_BYTES_MAX */
#define PACK_VAL_BYTES_MAX ((uint64_t)128 << 10)
/* Tokens without which no run can use a file: the shortest window has two and
 * a target (loader.h); of held-out text the first token is not scored. */
#define PACK_TRAIN_MIN 3
#define PACK_VAL_MIN   2

/* Hash the file at `path` into 64 hex digits and a NUL; 0 or an error. */
typedef int (*pack_hash_fn)(void *data,
                            const char *path,
                            char hex_out[PACK_HEX_SIZE]);

enum pack_format {
    PACK_AUTO, /* .jsonl and .ndjson; .bin that is llm.c's; else text */
    PACK_TEXT,
    PACK_JSONL,
    PACK_LLMC,
    PACK_U16,
    PACK_U32,
};

struct pack_options {
    uint64_t val_bytes;    /* 0: no held-out part; of tokens: as they lie in
                            * the shard */
    uint32_t shards;       /* at least 1 */
    uint64_t stripe;       /* units (bytes of text, ready tokens) that lie
                            * together; 0: PACK_STRIPE */
    const char *tokenizer; /* "byte" or a tokenizer.json */
    enum pack_format format;
    const char *separator; /* behind each text of JSONL; NULL: a newline */
    const char *source;    /* NULL: empty */
    const char *licence;   /* NULL: empty */
    pack_hash_fn hash;     /* NULL: no hashes */
    void *hash_data;
};

struct pack_result {
    uint64_t train_tokens;
    uint64_t val_tokens;
    uint64_t text_bytes; /* of all inputs */
    uint32_t shards;
    uint32_t vocab;
    char errmsg[ERRMSG_SIZE];
};

/* `out_dir` is made when it is not there (its parent must be). */
int pack_text(const char *const *inputs,
              size_t n,
              const char *out_dir,
              const struct pack_options *options,
              struct pack_result *result);

#endif
