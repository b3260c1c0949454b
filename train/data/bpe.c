/* bpe.c - the tables of bpe.h; bpe_encode.c merges. */
#include "train/data/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/hash64.h"
#include "train/data/bpe_table.h"

/* At most half of a table is in use. */
static size_t table_size(size_t n)
{
    size_t size = 16;

    while (size < 2 * n) {
        size *= 2;
    }
    return size;
}

int bpe_open(struct bpe *b,
             uint32_t n_ids,
             size_t n_bytes,
             size_t n_merges,
             uint64_t seed)
{
    size_t words = table_size(n_ids);
    size_t merges = table_size(n_merges);

    assert(n_ids <= BPE_IDS_MAX && n_bytes < BPE_NONE);
    memset(b, 0, sizeof *b);
    b->seed = seed;
    b->n_ids = n_ids;
    b->text_room = n_bytes;
    b->words_mask = words - 1;
    b->merges_mask = merges - 1;
    b->at = malloc((n_ids + 1) * sizeof *b->at);
    b->len = calloc(n_ids + 1, sizeof *b->len);
    b->text = malloc(n_bytes + 1);
    b->words = malloc(words * sizeof *b->words);
    b->merges = malloc(merges * sizeof *b->merges);
    if (b->at == NULL || b->len == NULL || b->text == NULL ||
        b->words == NULL || b->merges == NULL) {
        bpe_close(b);
        return LOCO_ENOMEM;
    }
    memset(b->at, 0xff, n_ids * sizeof *b->at);
    memset(b->words, 0xff, words * sizeof *b->words);
    memset(b->merges, 0xff, merges * sizeof *b->merges);
    return 0;
}

void bpe_close(struct bpe *b)
{
    free(b->at);
    free(b->len);
    free(b->text);
    free(b->words);
    free(b->merges);
    memset(b, 0, sizeof *b);
}

/* Where these bytes are, or the free place where they would be. */
static size_t word_place(const struct bpe *b, const uint8_t *bytes, size_t len)
{
    size_t i = (size_t)hash64(bytes, len, b->seed) & b->words_mask;

    while (b->words[i] != BPE_NONE) {
        uint32_t id = b->words[i];

        if (b->len[id] == len && memcmp(b->text + b->at[id], bytes, len) == 0) {
            break;
        }
        i = (i + 1) & b->words_mask;
    }
    return i;
}

uint32_t bpe_find(const struct bpe *b, const uint8_t *bytes, size_t len)
{
    return b->words[word_place(b, bytes, len)];
}

static int store(struct bpe *b, uint32_t id, const uint8_t *bytes, size_t len)
{
    if (len > b->text_room - b->text_len) {
        return LOCO_ERANGE;
    }
    memcpy(b->text + b->text_len, bytes, len);
    b->at[id] = (uint32_t)b->text_len;
    b->len[id] = (uint32_t)len;
    b->text_len += len;
    return 0;
}

int bpe_add(
    struct bpe *b, uint32_t id, const uint8_t *bytes, size_t len, bool known)
{
    size_t place = known ? word_place(b, bytes, len) : 0;
    int rv;

    if (id >= b->n_ids || b->at[id] != BPE_NONE ||
        (known && b->words[place] != BPE_NONE)) {
        return LOCO_EINVAL;
    }
    rv = store(b, id, bytes, len);
    if (rv == 0 && known) {
        b->words[place] = id;
    }
    return rv;
}

int bpe_replace(struct bpe *b, uint32_t id, const uint8_t *bytes, size_t len)
{
    if (b->len[id] == len && memcmp(b->text + b->at[id], bytes, len) == 0) {
        return 0;
    }
    return store(b, id, bytes, len);
}

const uint8_t *bpe_text(const struct bpe *b, uint32_t id, size_t *len)
{
    if (id >= b->n_ids || b->at[id] == BPE_NONE) {
        return NULL;
    }
    *len = b->len[id];
    return b->text + b->at[id];
}

/* The id of left's bytes and right's behind each other. */
static uint32_t joined(const struct bpe *b, uint32_t left, uint32_t right)
{
    size_t n = (size_t)b->len[left] + b->len[right];
    uint8_t small[256];
    uint8_t *bytes = n <= sizeof small ? small : malloc(n);
    uint32_t id = BPE_NONE;

    if (bytes != NULL) {
        memcpy(bytes, b->text + b->at[left], b->len[left]);
        memcpy(bytes + b->len[left], b->text + b->at[right], b->len[right]);
        id = bpe_find(b, bytes, n);
    }
    if (bytes != small) {
        free(bytes);
    }
    return id;
}

int bpe_add_merge(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank)
{
    uint32_t id = joined(b, left, right);
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t i = bpe_pair_hash(b, pair);

    if (id == BPE_NONE) {
        return LOCO_ENOENT;
    }
    while (b->merges[i].pair != BPE_PAIR_FREE && b->merges[i].pair != pair) {
        i = (i + 1) & b->merges_mask;
    }
    b->n_merges += b->merges[i].pair == BPE_PAIR_FREE;
    b->merges[i] = (struct bpe_merge){pair, rank, id};
    return 0;
}

int bpe_seal(struct bpe *b)
{
    for (int i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)i;

        b->byte_id[i] = bpe_find(b, &byte, 1);
        if (b->byte_id[i] == BPE_NONE) {
            return i;
        }
    }
    return -1;
}
