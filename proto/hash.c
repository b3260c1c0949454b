/* hash.c - see hash.h. */
#include "proto/hash.h"

#include <assert.h>
#include <sodium.h>

static_assert(sizeof(struct hash_state) >= sizeof(crypto_generichash_state),
              "room for libsodium's state");

static crypto_generichash_state *state_of(struct hash_state *s)
{
    return (crypto_generichash_state *)(void *)s->opaque;
}

void hash_init(struct hash_state *s, const char *domain)
{
    (void)crypto_generichash_init(state_of(s), NULL, 0, ID_BYTES);
    if (domain != NULL) {
        hash_update(s, domain, strlen(domain) + 1);
    }
}

void hash_update(struct hash_state *s, const void *bytes, size_t len)
{
    if (len > 0) {
        (void)crypto_generichash_update(state_of(s), bytes, len);
    }
}

void hash_final(struct hash_state *s, struct hash32 *out)
{
    (void)crypto_generichash_final(state_of(s), out->b, ID_BYTES);
}

void hash_bytes(const char *domain,
                const void *bytes,
                size_t len,
                struct hash32 *out)
{
    struct hash_state s;

    hash_init(&s, domain);
    hash_update(&s, bytes, len);
    hash_final(&s, out);
}

static void leaf_init(struct hash_state *s)
{
    hash_init(s, NULL);
    hash_update(s, "leaf", 4);
}

void hash_tree_leaf(const void *piece, size_t len, struct hash32 *out)
{
    struct hash_state s;

    assert(len <= HASH_PIECE_BYTES);
    leaf_init(&s);
    hash_update(&s, piece, len);
    hash_final(&s, out);
}

/* `out` may be one of the two. */
static void hash_node(const struct hash32 *left,
                      const struct hash32 *right,
                      struct hash32 *out)
{
    uint8_t text[4 + 2 * ID_BYTES] = {'n', 'o', 'd', 'e'};

    memcpy(text + 4, left->b, ID_BYTES);
    memcpy(text + 4 + ID_BYTES, right->b, ID_BYTES);
    hash_bytes(NULL, text, sizeof text, out);
}

uint64_t hash_tree_pieces(uint64_t len)
{
    if (len == 0) {
        return 1;
    }
    return (len - 1) / HASH_PIECE_BYTES + 1;
}

/* One level up, in place; returns how many nodes are left. */
static size_t tree_level(struct hash32 *nodes, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2) {
        hash_node(&nodes[i], &nodes[i + 1], &nodes[i / 2]);
    }
    if (n % 2 == 1) {
        nodes[n / 2] = nodes[n - 1];
    }
    return n / 2 + n % 2;
}

void hash_tree_root(struct hash32 *leaves, size_t n, struct hash32 *out)
{
    if (n == 0) {
        hash_tree_leaf(NULL, 0, out);
        return;
    }
    while (n > 1) {
        n = tree_level(leaves, n);
    }
    *out = leaves[0];
}

void hash_tree_init(struct hash_tree_state *s)
{
    s->n_leaves = 0;
    s->fill = 0;
    leaf_init(&s->leaf);
}

/* stack[i] holds the subtree of 2^k leaves for the i-th highest set bit k of
 * n_leaves; a new leaf merges with as many as n_leaves has low one bits. */
static void tree_push_leaf(struct hash_tree_state *s, const struct hash32 *leaf)
{
    struct hash32 node = *leaf;
    unsigned top = 0;

    for (uint64_t bits = s->n_leaves; bits != 0; bits &= bits - 1) {
        top++;
    }
    for (uint64_t bits = s->n_leaves; bits & 1; bits >>= 1) {
        hash_node(&s->stack[--top], &node, &node);
    }
    assert(top < HASH_PATH_MAX);
    s->stack[top] = node;
    s->n_leaves++;
}

static void tree_push(struct hash_tree_state *s)
{
    struct hash32 leaf;

    hash_final(&s->leaf, &leaf);
    tree_push_leaf(s, &leaf);
    s->fill = 0;
    leaf_init(&s->leaf);
}

void hash_tree_update(struct hash_tree_state *s, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;

    while (len > 0) {
        size_t n = HASH_PIECE_BYTES - s->fill;

        if (n > len) {
            n = len;
        }
        hash_update(&s->leaf, p, n);
        s->fill += (uint32_t)n;
        p += n;
        len -= n;
        if (s->fill == HASH_PIECE_BYTES) {
            tree_push(s);
        }
    }
}

void hash_tree_final(struct hash_tree_state *s, struct hash32 *out)
{
    unsigned top = 0;

    if (s->fill > 0 || s->n_leaves == 0) {
        tree_push(s);
    }
    for (uint64_t bits = s->n_leaves; bits != 0; bits &= bits - 1) {
        top++;
    }
    *out = s->stack[--top];
    while (top > 0) {
        hash_node(&s->stack[--top], out, out);
    }
}

void hash_tree_keep(const void *bytes,
                    size_t len,
                    struct hash32 *leaves,
                    struct hash32 *out)
{
    const uint8_t *at = bytes;
    struct hash_tree_state s;
    struct hash32 leaf;

    hash_tree_init(&s);
    for (size_t i = 0; i < hash_tree_pieces(len); i++) {
        size_t from = i * HASH_PIECE_BYTES, rest = len - from;

        hash_tree_leaf(at == NULL ? NULL : at + from,
                       rest < HASH_PIECE_BYTES ? rest : HASH_PIECE_BYTES,
                       &leaf);
        tree_push_leaf(&s, &leaf);
        if (leaves != NULL) {
            leaves[i] = leaf;
        }
    }
    hash_tree_final(&s, out);
}

void hash_tree(const void *bytes, size_t len, struct hash32 *out)
{
    struct hash_tree_state s;

    hash_tree_init(&s);
    hash_tree_update(&s, bytes, len);
    hash_tree_final(&s, out);
}
