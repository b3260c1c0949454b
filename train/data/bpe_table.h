/* bpe_table.h - the merge table of bpe.h, for the files that read it.
 *
 * Nobody but bpe.c and bpe_encode.c includes this file.
 */
#ifndef LOCO_TRAIN_DATA_BPE_TABLE_H
#define LOCO_TRAIN_DATA_BPE_TABLE_H

#include "proto/base/hash64.h"
#include "train/data/bpe.h"

#define BPE_PAIR_FREE UINT64_MAX /* no pair: both ids are below BPE_IDS_MAX */

static inline size_t bpe_pair_hash(const struct bpe *b, uint64_t pair)
{
    uint64_t h = (pair ^ b->seed) * HASH64_K1;

    return (size_t)(h ^ h >> 32) & b->merges_mask;
}

/* The merge of two ids; NULL when there is none. */
static inline const struct bpe_merge *
bpe_merge_of(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t i = bpe_pair_hash(b, pair);

    while (b->merges[i].pair != pair) {
        if (b->merges[i].pair == BPE_PAIR_FREE) {
            return NULL;
        }
        i = (i + 1) & b->merges_mask;
    }
    return &b->merges[i];
}

#endif
