/* hash.c - see hash.h. */
#include "proto/hash.h"

#include <assert.h>
#include <sodium.h>
#include <stdbool.h>

#include "proto/hash_lanes.h"

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

#ifdef LOCO_ISA_X86
void hash_leaves_avx2(const uint8_t *pieces, struct hash32 *leaves);
void hash_leaves_avx512(const uint8_t *pieces, struct hash32 *leaves);

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f");
}

/* From the fastest one on. */
static const struct {
    struct hash_lanes lanes;
    bool (*supported)(void);
} sets[] = {
    {{"avx512", 8, hash_leaves_avx512}, has_avx512},
    {{"avx2", 4, hash_leaves_avx2}, has_avx2},
};

const struct hash_lanes *hash_lanes_get(const char *isa)
{
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const struct hash_lanes *l = &sets[i].lanes;

        if ((isa == NULL || strcmp(isa, l->isa) == 0) && sets[i].supported()) {
            return l;
        }
    }
    return NULL;
}
#else
const struct hash_lanes *hash_lanes_get(const char *isa)
{
    (void)isa;
    return NULL;
}
#endif

size_t hash_tree_at_once(void)
{
    const struct hash_lanes *l = hash_lanes_get(NULL);

    return l == NULL ? 1 : l->n;
}

void hash_tree_leaves(const void *bytes, size_t len, struct hash32 *leaves)
{
    const struct hash_lanes *l = hash_lanes_get(NULL);
    const uint8_t *at = bytes;
    size_t n = (size_t)hash_tree_pieces(len), whole = len / HASH_PIECE_BYTES;
    size_t i = 0;

    for (; l != NULL && i + l->n <= whole; i += l->n) {
        l->leaves(at + i * HASH_PIECE_BYTES, leaves + i);
    }
    for (; i < n; i++) {
        size_t from = i * HASH_PIECE_BYTES;

        hash_tree_leaf(len == 0 ? NULL : at + from,
                       i < whole ? HASH_PIECE_BYTES : len - from, &leaves[i]);
    }
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
    struct hash32 group[HASH_AT_ONCE_MAX];
    struct hash_tree_state s;
    size_t n, pieces = (size_t)hash_tree_pieces(len);

    hash_tree_init(&s);
    for (size_t i = 0; i < pieces; i += n) {
        size_t from = i * HASH_PIECE_BYTES;
        size_t most = hash_tree_at_once() * HASH_PIECE_BYTES;
        size_t bytes_now = len - from < most ? len - from : most;

        n = (size_t)hash_tree_pieces(bytes_now);
        hash_tree_leaves(at == NULL ? NULL : at + from, bytes_now, group);
        for (size_t k = 0; k < n; k++) {
            tree_push_leaf(&s, &group[k]);
        }
        if (leaves != NULL) {
            memcpy(leaves + i, group, n * sizeof group[0]);
        }
    }
    hash_tree_final(&s, out);
}

void hash_tree(const void *bytes, size_t len, struct hash32 *out)
{
    hash_tree_keep(bytes, len, NULL, out);
}
