/* shard_pick.h - which shard a free worker takes next: the one most behind.
 *
 * AsyncDiLoCo's sampling (algorithms page 6.3): shard i is drawn with
 * probability p_i ~ max(|D_i| / sum |D| - n_i / sum n, 0), where n_i tokens
 * have been consumed from it, counted when they are submitted. When all terms
 * are 0 (nothing consumed, or exact balance) p_i ~ |D_i|. The paper's text
 * speaks of sampling workers; it is shards that are drawn.
 *
 * Pure: the caller brings the random word, so that peers can agree on a draw.
 */
#ifndef LOCO_TRAIN_SYNC_SHARD_PICK_H
#define LOCO_TRAIN_SYNC_SHARD_PICK_H

#include <stddef.h>
#include <stdint.h>

struct shard_use {
    uint64_t tokens;   /* |D_i| */
    uint64_t consumed; /* n_i */
};

/* p (n) = probabilities, sum 1; 0 everywhere when no shard has tokens. */
void shard_pick_probabilities(const struct shard_use *shards,
                              size_t n,
                              double *p);

/* Draw one with a uniform word; n when no shard has tokens. */
size_t shard_pick(const struct shard_use *shards, size_t n, uint64_t word);

#endif
