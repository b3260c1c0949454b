/* bpe.h - byte-pair encoding: the bytes of one word in, token ids out.
 *
 * A word starts as its single bytes; the neighbouring pair whose merge has the
 * lowest rank, the leftmost of equals, becomes one token, until no pair of
 * neighbours is in the list of merges (Sennrich et al. 2016; over bytes:
 * Radford et al. 2019). Short words take a scan over their pairs, longer ones
 * a heap: O(n log n). Words seen lately come out of a cache.
 *
 * Two objects. struct bpe is the vocabulary and its merges, immutable once it
 * is sealed: any number of threads. struct bpe_work is one thread's memory.
 *
 * Both tables are open addressing with a seed that the file's own bytes give
 * (hash64 of all of it), so that a stranger cannot choose what collides.
 *
 * How it fails: LOCO_EINVAL for an id or a text that is there already,
 * LOCO_ENOENT for a merge of what is not in the vocabulary, LOCO_ERANGE for a
 * word over BPE_WORD_MAX, LOCO_ENOMEM.
 */
#ifndef LOCO_TRAIN_DATA_BPE_H
#define LOCO_TRAIN_DATA_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BPE_IDS_MAX  (1U << 20) /* ids are below it, as a model's are */
#define BPE_NONE     UINT32_MAX
#define BPE_WORD_MAX ((size_t)16 << 20) /* bytes without a break */

/* One row of the merge table; pair BPE_PAIR_FREE: a free one. */
struct bpe_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank;
    uint32_t id; /* of the result */
};

struct bpe {
    uint64_t seed;
    uint32_t n_ids;   /* largest id + 1 */
    uint32_t *at;     /* (n_ids) where an id's bytes begin; BPE_NONE: no id */
    uint32_t *len;    /* (n_ids) */
    uint8_t *text;    /* bytes of all ids */
    size_t text_len;  /* used */
    size_t text_room; /* allocated */
    uint32_t *words;  /* by hash of the bytes: an id or BPE_NONE */
    size_t words_mask;
    struct bpe_merge *merges;
    size_t merges_mask;
    size_t n_merges;
    uint32_t byte_id[256];
    bool whole_words; /* a word that is a token is that token: ignore_merges */
};

/* Room for ids below n_ids with n_bytes of text and n_merges merges. bpe_close
 * afterwards, whatever the result. */
int bpe_open(struct bpe *b,
             uint32_t n_ids,
             size_t n_bytes,
             size_t n_merges,
             uint64_t seed);
void bpe_close(struct bpe *b); /* idempotent */

/* `id` stands for these bytes. With `known`, merges and whole words can name
 * them; without, they only decode. At most n_bytes in all. */
int bpe_add(
    struct bpe *b, uint32_t id, const uint8_t *bytes, size_t len, bool known);

/* Other bytes for an id that was added; what could name it still can. */
int bpe_replace(struct bpe *b, uint32_t id, const uint8_t *bytes, size_t len);

/* BPE_NONE when no known token has these bytes. */
uint32_t bpe_find(const struct bpe *b, const uint8_t *bytes, size_t len);

/* left and right become the token of their joined bytes. A pair that is there
 * already takes the new rank. */
int bpe_add_merge(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank);

/* Take what every byte is as a token; the first byte that is none, or -1. */
int bpe_seal(struct bpe *b);

/* The bytes of an id; NULL when there is none. */
const uint8_t *bpe_text(const struct bpe *b, uint32_t id, size_t *len);

/* Called with ids in order; any return but 0 stops the encoding. */
typedef int (*bpe_ids_fn)(void *data, const uint32_t *ids, size_t n);

struct bpe_work;

/* NULL: no memory. */
struct bpe_work *bpe_work_new(const struct bpe *b);
void bpe_work_free(struct bpe_work *w); /* NULL is allowed */

/* Ids are collected, `take` is called now and then. */
int bpe_encode(struct bpe_work *w,
               const uint8_t *word,
               size_t len,
               bpe_ids_fn take,
               void *data);
int bpe_put(struct bpe_work *w, uint32_t id, bpe_ids_fn take, void *data);

/* Hand over what is left. */
int bpe_flush(struct bpe_work *w, bpe_ids_fn take, void *data);

/* Forget it, after an error. */
void bpe_drop(struct bpe_work *w);

#endif
