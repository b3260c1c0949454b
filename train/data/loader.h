/* loader.h - which tokens a peer trains on at inner step k: a pure function.
 *
 * The train shards are cut into *windows* of T+1 tokens that overlap by one:
 * window w of a shard is tokens w*T .. w*T+T, inputs the first T, targets the
 * last T, so each token but a shard's first is a target once. A window never
 * crosses shards.
 *
 * All windows are walked in an order that a `peer` names: its own, or 0, the
 * one that all share (p2p/round/LEASES.md). Row b of step k is place
 * p = k * batch + b of that sequence; the *epoch* is p divided by the number of
 * windows. An epoch reads one shard after the other, in the order of the
 * manifest, so that training may begin before the later ones are here; a peer's
 * own order begins with a shard that (seed, peer) draws and goes round. Inside
 * a shard the place goes through the permutation that (seed, peer, epoch)
 * names. So a shard should be a sample of the whole text, as those of pack.h
 * are.
 *
 * Nothing is stored per window: the permutation is a Feistel network over the
 * next even power of two, walked until it falls below the number of windows
 * (Black & Rogaway 2002, "cycle walking"), less than four rounds of it on
 * average.
 *
 * So a peer that restarts, or one that takes over, finds step k's batch
 * without any state, and two runs with the same seed see the same data.
 *
 * Held-out text is read in *evaluation windows*: disjoint, T tokens, in file
 * order; a window's first token is given but not scored, the last window may
 * be short. Scored tokens of n: n - ceil(n / T).
 *
 * How it fails: LOCO_EINVAL for options that leave no window, LOCO_ENOENT for a
 * window of a shard that is not here (info alone is set, no map), LOCO_EFORMAT
 * for a token outside the vocabulary. Reads are pure: any number of threads.
 */
#ifndef LOCO_TRAIN_DATA_LOADER_H
#define LOCO_TRAIN_DATA_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "train/data/shard.h"

/* The target of a position that is not scored: no loss, no gradient. */
#define LOADER_NO_TARGET UINT32_MAX

struct loader_options {
    const struct shard *shards; /* borrowed until loader_close */
    size_t n_shards;
    uint32_t seq;   /* T */
    uint32_t batch; /* B, rows of one inner step */
    uint64_t seed;  /* the run's */
    uint64_t peer;  /* this peer's key, e.g. the first 8 bytes of its id */
};

struct loader {
    struct loader_options opt;
    uint64_t n_windows;
    uint64_t *first_window; /* (n_shards + 1) running sum of windows */
};

/* loader_close afterwards, whatever the result. */
int loader_open(struct loader *l,
                const struct loader_options *opt,
                char *errmsg);
void loader_close(struct loader *l); /* idempotent */

/* tokens (B, T), targets (B, T) of an inner step. */
int loader_batch(const struct loader *l,
                 uint64_t step,
                 uint32_t *tokens,
                 uint32_t *targets);

/* Rows first_row .. first_row + n_rows - 1 of the same batch: micro-batches.
 * tokens (n_rows, T), targets (n_rows, T). */
int loader_rows(const struct loader *l,
                uint64_t step,
                uint32_t first_row,
                uint32_t n_rows,
                uint32_t *tokens,
                uint32_t *targets);

/* The window that row `row` of step `step` holds. */
uint64_t loader_window(const struct loader *l, uint64_t step, uint32_t row);

/* Windows of a shard of so many tokens. */
uint64_t loader_windows(uint64_t tokens, uint32_t seq);

/* The place of i in the permutation of 0..n-1 that `key` names; i < n. */
uint64_t loader_permute(uint64_t i, uint64_t n, uint64_t key);

/* Evaluation windows of T tokens in a shard. */
uint64_t eval_window_count(const struct shard *s, uint32_t seq);

/* The first ones that an evaluation of at most so many tokens (0: all) of a
 * text reads; one at least. */
uint64_t eval_windows(uint64_t tokens, uint32_t seq, uint64_t most);

/* tokens (n_rows, T) and targets (n_rows, T) of n_rows evaluation windows
 * from window `first` on; a window's last position, and what lies behind the
 * end of the text, has token 0 or target LOADER_NO_TARGET. *n_scored: the
 * targets that count. seq >= 2. */
int eval_rows(const struct shard *s,
              uint32_t seq,
              uint64_t first,
              uint32_t n_rows,
              uint32_t *tokens,
              uint32_t *targets,
              uint64_t *n_scored);

#endif
