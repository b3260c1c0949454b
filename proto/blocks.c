/* blocks.c - see blocks.h. */
#include "proto/blocks.h"

#include <string.h>

#include "proto/base/bytes.h"
#include "proto/hash.h"

static void
join(const struct hash32 *left, const struct hash32 *right, struct hash32 *out)
{
    struct hash32 pair[2] = {*left, *right};

    hash_tree_root(pair, 2, out);
}

uint64_t blocks_nodes(uint64_t n)
{
    uint64_t all = n;

    for (; n > 1; all += n) {
        n = (n + 1) / 2;
    }
    return all;
}

void blocks_build(struct hash32 *nodes, uint64_t n)
{
    while (n > 1) {
        struct hash32 *above = nodes + n;

        for (uint64_t i = 0; i + 1 < n; i += 2) {
            join(&nodes[i], &nodes[i + 1], &above[i / 2]);
        }
        if (n % 2 != 0) {
            above[n / 2] = nodes[n - 1];
        }
        nodes = above;
        n = (n + 1) / 2;
    }
}

void blocks_same(const struct hash32 *leaf,
                 const struct hash32 *last,
                 uint64_t n,
                 struct hash32 *root)
{
    struct hash32 all = *leaf, end = *last;

    for (; n > 1; n = (n + 1) / 2) {
        if (n % 2 == 0) { /* else it moves up as it is */
            join(&all, &end, &end);
        }
        join(&all, &all, &all);
    }
    *root = end;
}

/* A level on the way up: n hashes, of which [from, to) are known. */
struct level {
    uint64_t n, from, to;
};

/* Whether the level lacks the hash before the first known one. */
static bool lacks_left(const struct level *l)
{
    return l->from % 2 != 0;
}

/* The same of the one behind the last. */
static bool lacks_right(const struct level *l)
{
    return l->to % 2 != 0 && l->to < l->n;
}

static void up(struct level *l)
{
    l->from /= 2;
    l->to = (l->to + 1) / 2;
    l->n = (l->n + 1) / 2;
}

uint32_t blocks_proof_len(uint64_t n, uint64_t from, uint64_t to)
{
    uint32_t len = 0;

    for (struct level l = {n, from, to}; l.n > 1; up(&l)) {
        len += (uint32_t)lacks_left(&l) + (uint32_t)lacks_right(&l);
    }
    return len;
}

void blocks_prove(const struct hash32 *nodes,
                  uint64_t n,
                  uint64_t from,
                  uint64_t to,
                  uint8_t *proof)
{
    for (struct level l = {n, from, to}; l.n > 1; up(&l)) {
        if (lacks_left(&l)) {
            memcpy(proof, nodes[l.from - 1].b, sizeof nodes->b);
            proof += sizeof nodes->b;
        }
        if (lacks_right(&l)) {
            memcpy(proof, nodes[l.to].b, sizeof nodes->b);
            proof += sizeof nodes->b;
        }
        nodes += l.n;
    }
}

static const uint8_t *take(const uint8_t *proof, struct hash32 *h)
{
    memcpy(h->b, proof, sizeof h->b);
    return proof + sizeof h->b;
}

void blocks_root(struct hash32 *leaves,
                 uint64_t n,
                 uint64_t from,
                 uint64_t to,
                 const uint8_t *proof,
                 struct hash32 *root)
{
    for (struct level l = {n, from, to}; l.n > 1; up(&l)) {
        uint64_t known = l.to - l.from, made = 0, at = 0;
        struct hash32 beside;

        if (lacks_left(&l)) {
            proof = take(proof, &beside);
            join(&beside, &leaves[at++], &leaves[made++]);
        }
        for (; at + 1 < known; at += 2) {
            join(&leaves[at], &leaves[at + 1], &leaves[made++]);
        }
        if (at < known && lacks_right(&l)) {
            proof = take(proof, &beside);
            join(&leaves[at], &beside, &leaves[made++]);
        } else if (at < known) {
            leaves[made++] = leaves[at];
        }
    }
    *root = leaves[0];
}

void blocks_offer(const struct peer_id *maker,
                  uint64_t round,
                  const struct hash32 *root,
                  struct hash32 *offer)
{
    uint8_t bytes[ID_BYTES + 8 + ID_BYTES];

    memcpy(bytes, maker->b, ID_BYTES);
    put_u64(bytes + ID_BYTES, round);
    memcpy(bytes + ID_BYTES + 8, root->b, ID_BYTES);
    hash_bytes("loco-offer-1", bytes, sizeof bytes, offer);
}
