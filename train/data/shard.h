/* shard.h - a file of tokens, ready to train on.
 *
 * An `.ltk` file is a 4 KiB header and the tokens, little-endian:
 *
 *   offset  bytes
 *        0      8  magic "LOCO-LTK"
 *        8      4  version, 1
 *       12      4  header size, 4096
 *       16      8  tokens
 *       24      8  text bytes that the tokens stand for
 *       32      4  vocabulary: every token id is below it
 *       36      4  bytes per token: 1, 2 or 4
 *       40     64  tokenizer name      text: UTF-8 without control
 *      104     96  licence             characters, filled up with NUL,
 *      200    512  source              at least one of them
 *      712   3384  zero
 *     4096         tokens
 *
 * The file ends with the last token. Integrity is not the shard's business:
 * the run manifest holds a BLAKE2b hash of the whole file, the daemon checks
 * it before a shard is opened.
 *
 * The tokenizer's name is "byte", or "blake2b:" and the first 32 hex digits of
 * the file's hash, or a file name where nobody could hash.
 *
 * Other people's token files are read too, where a caller says how large the
 * vocabulary is: llm.c's (256 little-endian int32, of which the first three
 * are 20240520 or 20240801, a version and the number of tokens; then uint16 or
 * uint32) and bare uint16 or uint32.
 *
 * Opening maps the file: no memory but the page cache, any size. Ids are
 * checked against the vocabulary as they are read, not at opening.
 *
 * How it fails: LOCO_EFORMAT with a sentence for anything that the table above
 * does not allow, LOCO_ERANGE for a read past the end. The file must not
 * shrink while it is open. Reads are pure: any number of threads.
 */
#ifndef LOCO_TRAIN_DATA_SHARD_H
#define LOCO_TRAIN_DATA_SHARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/file.h"

#define SHARD_HEADER_BYTES   4096
#define SHARD_TOKENIZER_SIZE 64
#define SHARD_LICENCE_SIZE   96
#define SHARD_SOURCE_SIZE    512
#define SHARD_VOCAB_MAX      (1U << 24) /* ids are exact in int32 and fp32 */

struct shard_info {
    uint64_t tokens;
    uint64_t text_bytes;
    uint32_t vocab;
    uint32_t token_bytes;
    char tokenizer[SHARD_TOKENIZER_SIZE];
    char licence[SHARD_LICENCE_SIZE];
    char source[SHARD_SOURCE_SIZE];
};

struct shard {
    struct shard_info info;
    const uint8_t *data; /* first token */
    struct file_map map; /* empty for shards in memory */
};

/* Map a file. shard_close afterwards, whatever the result. */
int shard_open(struct shard *s, const char *path, char *errmsg);

/* The same over a file's bytes in memory, which must outlive the shard. */
int shard_open_memory(struct shard *s,
                      const uint8_t *file,
                      size_t size,
                      char *errmsg);

enum shard_format {
    SHARD_LTK,
    SHARD_LLMC, /* the header says how wide a token is */
    SHARD_U16,
    SHARD_U32,
};

/* Map a file of another format. Its tokenizer, licence and source are not
 * known: the texts are empty, text_bytes is 0. LOCO_EINVAL for a vocabulary
 * outside 1..SHARD_VOCAB_MAX. */
int shard_open_as(struct shard *s,
                  const char *path,
                  enum shard_format format,
                  uint32_t vocab,
                  char *errmsg);
int shard_open_memory_as(struct shard *s,
                         const uint8_t *file,
                         size_t size,
                         enum shard_format format,
                         uint32_t vocab,
                         char *errmsg);

/* Whether the file begins as llm.c's do. */
bool shard_is_llmc(const char *path);

/* Text as a shard of byte tokens (id = byte value), without a header; the
 * text must outlive the shard. */
void shard_from_text(struct shard *s, const void *text, size_t len);

void shard_close(struct shard *s); /* idempotent */

/* out[0..n) = tokens first..first+n-1. LOCO_EFORMAT for an id that is not
 * below the vocabulary. */
int shard_read(const struct shard *s, uint64_t first, size_t n, uint32_t *out);

/* The header that `info` describes. LOCO_EINVAL for one that a reader would
 * refuse. */
int shard_header_encode(uint8_t out[SHARD_HEADER_BYTES],
                        const struct shard_info *info,
                        char *errmsg);

#endif
