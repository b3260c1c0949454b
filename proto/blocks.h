/* blocks.h - a contribution in blocks, and the proof that a piece is of it.
 *
 * A member announces its contribution to a round by a hash before it sees any
 * other one, so what it sends must already be fixed. The encoded vector is cut
 * into *blocks*, those that slices are cut at (exchange_block() in
 * p2p/exchange/exchange.h). Their hashes are the leaves of a tree:
 *     leaf = H("leaf" || block)     node = H("node" || left || right)
 * level by level, a node without partner moves up unchanged (as in hash.h, but
 * for the size of a piece). What is announced is the *root of an offer*
 *     hash("loco-offer-1", id || round, 8 bytes little-endian || root of tree)
 * so that nobody can announce the contribution of somebody else as its own.
 *
 * A *proof* shows that consecutive blocks [from, to) are of a tree of n: the
 * hashes beside them that lead up to the root, from the lowest level up, left
 * before right. Their number follows from (n, from, to), so no length travels.
 *
 * Pure, no failure but that of a proof, no allocation.
 */
#ifndef LOCO_PROTO_BLOCKS_H
#define LOCO_PROTO_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"

#define BLOCKS_PROOF_MAX 88 /* hashes: two of each level */

/* Hashes of all levels of a tree of n leaves, n >= 1. */
uint64_t blocks_nodes(uint64_t n);

/* Make all levels: nodes[blocks_nodes(n)], of which the first n are the leaves
 * (hash_tree_leaf()). The last one is the root. */
void blocks_build(struct hash32 *nodes, uint64_t n);

/* The root over n leaves that are all the same but for the last one. */
void blocks_same(const struct hash32 *leaf,
                 const struct hash32 *last,
                 uint64_t n,
                 struct hash32 *root);

/* Hashes of a proof of blocks [from, to), from < to <= n. */
uint32_t blocks_proof_len(uint64_t n, uint64_t from, uint64_t to);

/* The proof, blocks_proof_len() hashes of 32 bytes. */
void blocks_prove(const struct hash32 *nodes,
                  uint64_t n,
                  uint64_t from,
                  uint64_t to,
                  uint8_t *proof);

/* The root that the leaves of blocks [from, to) have with that proof;
 * leaves[to - from] is overwritten. */
void blocks_root(struct hash32 *leaves,
                 uint64_t n,
                 uint64_t from,
                 uint64_t to,
                 const uint8_t *proof,
                 struct hash32 *root);

/* What READY announces. */
void blocks_offer(const struct peer_id *maker,
                  uint64_t round,
                  const struct hash32 *root,
                  struct hash32 *offer);

#endif
