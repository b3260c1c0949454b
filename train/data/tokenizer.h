/* tokenizer.h - text to token ids and back.
 *
 * Two kinds. *Bytes*: 256 ids, id = byte value. *A file*: tokenizer.json of
 * Hugging Face with a byte-level BPE model (GPT-2, Llama 3 and their
 * relatives): added tokens are found in the text first, what lies between them
 * is cut into words (pretoken.h), and words are merged (bpe.h). Ids are those
 * of PyPI `tokenizers` with add_special_tokens=False: no token is put before
 * or behind the text, nothing is truncated or padded.
 *
 * Any bytes can be encoded, and decoding gives them back exactly, but for two
 * wishes of a file: add_prefix_space leaves the space that it put there, and
 * Split with Removed and invert drops what its pattern does not match. A
 * stretch of bytes that is not UTF-8 is a word of its own.
 *
 * What is refused, by sentence: normalizers (they change the text), models
 * other than BPE, prefixes and suffixes of subwords, dropout, a vocabulary
 * without all 256 bytes, added tokens that strip spaces or want whole words,
 * pre-tokenizers other than ByteLevel, Split, Digits and sequences of them,
 * patterns that pattern.h refuses. Merges and ids are checked against the
 * vocabulary. A file may hold at most TOKENIZER_BYTES_MAX.
 *
 * How it fails: LOCO_EFORMAT with a sentence, LOCO_ENOMEM, the codes of
 * file.h. A tokenizer is immutable: any number of threads, each with an
 * encoder of its own.
 */
#ifndef LOCO_TRAIN_DATA_TOKENIZER_H
#define LOCO_TRAIN_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_BYTES_MAX ((size_t)64 << 20)

struct tokenizer;

/* *out is NULL on failure. */
int tokenizer_open(struct tokenizer **out, const char *path, char *errmsg);
int tokenizer_open_memory(struct tokenizer **out,
                          const void *json,
                          size_t size,
                          char *errmsg);
int tokenizer_open_bytes(struct tokenizer **out, char *errmsg);

/* "byte", or the path of a file. */
int tokenizer_open_named(struct tokenizer **out,
                         const char *name,
                         char *errmsg);
void tokenizer_close(struct tokenizer *t); /* NULL is allowed */

/* Largest id + 1: what a model's vocabulary must reach. */
uint32_t tokenizer_vocab(const struct tokenizer *t);

bool tokenizer_is_bytes(const struct tokenizer *t);

/* The bytes that an id stands for; NULL when there is no such id. */
const uint8_t *
tokenizer_text(const struct tokenizer *t, uint32_t id, size_t *len);

/* Whether it is found in a text before words are cut, as tokens that begin or
 * end a text are. */
bool tokenizer_is_added(const struct tokenizer *t, uint32_t id);

/* What a tokenizer.json puts before and behind a text for those who ask for
 * special tokens (`post_processor`); encoding here never does. A post_processor
 * that this version does not follow is named in `refused`, else it is "". */
#define TOKENIZER_AROUND_MAX 4
struct tokenizer_around {
    uint32_t before[TOKENIZER_AROUND_MAX], after[TOKENIZER_AROUND_MAX];
    unsigned n_before, n_after;
    char refused[48];
};
const struct tokenizer_around *tokenizer_around(const struct tokenizer *t);

/* One thread's memory for encoding. */
struct tokenizer_encoder;

/* LOCO_ENOMEM. The tokenizer must outlive it. */
int tokenizer_encoder_open(struct tokenizer_encoder **out,
                           const struct tokenizer *t);
void tokenizer_encoder_close(struct tokenizer_encoder *e); /* or NULL */

/* Some of the ids, in order; any return but 0 ends the encoding with it. */
typedef int (*tokenizer_ids_fn)(void *data, const uint32_t *ids, size_t n);

/* Memory does not grow with the text, only with its longest word. */
int tokenizer_encode(struct tokenizer_encoder *e,
                     const void *text,
                     size_t len,
                     tokenizer_ids_fn on_ids,
                     void *data,
                     char *errmsg);

/* The ids of a short text in one array: caller frees. */
int tokenizer_encode_all(const struct tokenizer *t,
                         const void *text,
                         size_t len,
                         uint32_t **ids,
                         size_t *n,
                         char *errmsg);

#endif
