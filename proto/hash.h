/* hash.h - BLAKE2b-256 with a domain in front, and the tree over 1 MiB pieces.
 *
 * H(x) is BLAKE2b with 32 bytes of output and no key (RFC 7693). A *domain* is
 * a short string that says what is hashed; hash_bytes() is
 * H(domain || 0x00 || bytes), so that no two uses can be taken for each other.
 * Domains never begin with "leaf" or "node".
 *
 * The *tree hash* names long data (shards, parameters, wire bytes): cut into
 * pieces of HASH_PIECE_BYTES, the last one shorter;
 *     leaf = H("leaf" || piece)     node = H("node" || left || right)
 * level by level, a node without partner moves up unchanged. Empty data is one
 * empty piece.
 * Cost: hash_lanes.h, for data in memory; libsodium's, where it comes in cuts.
 *
 * Pure, no failure, no allocation. Process-wide: call sign_start() first, or
 * the slower portable code is used.
 */
#ifndef LOCO_PROTO_HASH_H
#define LOCO_PROTO_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"

#define HASH_PIECE_BYTES (1U << 20)
#define HASH_PATH_MAX    44 /* levels: 2^44 pieces are 2^64 bytes */
#define HASH_AT_ONCE_MAX 8

struct hash_state {
    _Alignas(64) uint8_t opaque[384]; /* libsodium's generichash state */
};

/* `domain` may be NULL: plain BLAKE2b-256 without prefix. */
void hash_init(struct hash_state *s, const char *domain);
void hash_update(struct hash_state *s, const void *bytes, size_t len);
void hash_final(struct hash_state *s, struct hash32 *out);

/* One shot of the three above. */
void hash_bytes(const char *domain,
                const void *bytes,
                size_t len,
                struct hash32 *out);

/* Tree hash of data in memory. */
void hash_tree(const void *bytes, size_t len, struct hash32 *out);

/* The same; its leaves go to leaves[hash_tree_pieces(len)], unless NULL. */
void hash_tree_keep(const void *bytes,
                    size_t len,
                    struct hash32 *leaves,
                    struct hash32 *out);

/* Tree hash of data that arrives in any cuts. */
struct hash_tree_state {
    struct hash_state leaf;
    uint64_t n_leaves;                  /* finished pieces */
    uint32_t fill;                      /* bytes in the open piece */
    struct hash32 stack[HASH_PATH_MAX]; /* roots of full subtrees */
};

void hash_tree_init(struct hash_tree_state *s);
void hash_tree_update(struct hash_tree_state *s, const void *bytes, size_t len);
void hash_tree_final(struct hash_tree_state *s, struct hash32 *out);

/* For work that is spread over threads: leaves apart, then the root. */
void hash_tree_leaf(const void *piece, size_t len, struct hash32 *out);

/* leaves[hash_tree_pieces(len)] of data that begins with a piece: the same, for
 * less than one by one where there are hash_tree_at_once() whole ones or more.
 */
void hash_tree_leaves(const void *bytes, size_t len, struct hash32 *leaves);
size_t hash_tree_at_once(void); /* 1 to HASH_AT_ONCE_MAX */

/* leaves[n] is overwritten; n = 0 stands for empty data. */
void hash_tree_root(struct hash32 *leaves, size_t n, struct hash32 *out);

/* Number of pieces of `len` bytes, at least 1. */
uint64_t hash_tree_pieces(uint64_t len);

#endif
