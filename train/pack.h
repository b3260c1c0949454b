/* pack.h - text files become token shards and a held-out part.
 *
 * The inputs are joined in the order given, byte for byte. The end of that
 * text is held out for evaluation (val.ltk), from the first line that starts
 * at or after total - val_bytes; the rest is cut into `shards` equal pieces,
 * train-0000.ltk and so on. data.json lists the files for `loco run create`:
 *
 *   {"version": 1, "tokenizer": "byte", "vocab": 256, "source": "...",
 *    "licence": "...",
 *    "train": [{"name": "train-0000.ltk", "bytes": N, "tokens": N,
 *               "text_bytes": N, "blake2b": "..."}, ...],
 *    "val": {...} or null}
 *
 * The hash is the caller's: train knows no cryptography. Without a callback
 * the key is absent.
 *
 * Streaming: memory does not grow with the text. An old data.json is removed
 * first and the new one written last, so one that is there describes a
 * finished set.
 *
 * How it fails: a negative code and result.errmsg. Only the byte tokenizer
 * (id = byte value) is here. Blocking; pure apart from the files.
 */
#ifndef LOCO_TRAIN_PACK_H
#define LOCO_TRAIN_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "train/errmsg.h"

#define PACK_SHARDS_MAX    10000
#define PACK_HEX_SIZE      65         /* 32 bytes as hex and a NUL */
#define PACK_VAL_DEFAULT   UINT64_MAX /* a tenth, at most PACK_VAL_BYTES_MAX */
#define PACK_VAL_BYTES_MAX ((uint64_t)128 << 10)

/* Hash the file at `path` into 64 hex digits and a NUL; 0 or an error. */
typedef int (*pack_hash_fn)(void *data,
                            const char *path,
                            char hex_out[PACK_HEX_SIZE]);

struct pack_options {
    uint64_t val_bytes;    /* 0: no held-out part */
    uint32_t shards;       /* at least 1 */
    const char *tokenizer; /* "byte" */
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
    char errmsg[ERRMSG_SIZE];
};

/* `out_dir` is made when it is not there (its parent must be). */
int pack_text(const char *const *inputs,
              size_t n,
              const char *out_dir,
              const struct pack_options *options,
              struct pack_result *result);

#endif
