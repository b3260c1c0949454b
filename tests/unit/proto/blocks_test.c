/* blocks_test.c - proofs of blocks: each range of each small tree, and each
 * byte of a proof. The expected offer comes from Python's
 * hashlib.blake2b(digest_size=32). */
#include "tests/unit/proto/suite.h"

#include "proto/blocks.h"
#include "proto/hash.h"

#define MOST 33

/* The tree of n leaves. */
static uint64_t make(struct hash32 *nodes, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        uint8_t block[] = {(uint8_t)n, (uint8_t)i, 7};

        hash_tree_leaf(block, sizeof block, &nodes[i]);
    }
    blocks_build(nodes, n);
    return blocks_nodes(n);
}

static struct hash32 root_of(const struct hash32 *nodes,
                             uint64_t n,
                             uint64_t from,
                             uint64_t to,
                             const uint8_t *proof)
{
    struct hash32 leaves[MOST], root;

    memcpy(leaves, nodes + from, (to - from) * sizeof *leaves);
    blocks_root(leaves, n, from, to, proof, &root);
    return root;
}

static void a_tree_of_equal_leaves_needs_no_leaves(void **state)
{
    const uint8_t block[] = {0, 0, 0, 0};

    (void)state;
    for (uint64_t n = 1; n <= MOST; n++) {
        struct hash32 nodes[2 * MOST + 8], root;

        for (uint64_t i = 0; i < n; i++) { /* the last block is shorter */
            hash_tree_leaf(block, i + 1 < n ? sizeof block : n % 4 + 1,
                           &nodes[i]);
        }
        blocks_build(nodes, n);
        blocks_same(&nodes[0], &nodes[n - 1], n, &root);
        assert_true(hash32_eq(&root, &nodes[blocks_nodes(n) - 1]));
    }
}

static void each_range_of_a_tree_has_its_proof(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= MOST; n++) {
        struct hash32 nodes[2 * MOST + 8], again[MOST], root;
        uint64_t all = make(nodes, n);

        assert_true(all <= sizeof nodes / sizeof nodes[0]);
        memcpy(again, nodes, n * sizeof *again);
        hash_tree_root(again, n, &root);
        assert_true(hash32_eq(&root, &nodes[all - 1]));
        for (uint64_t from = 0; from < n; from++) {
            for (uint64_t to = from + 1; to <= n; to++) {
                uint8_t proof[BLOCKS_PROOF_MAX * 32];
                uint32_t len = blocks_proof_len(n, from, to);
                struct hash32 got;

                assert_true(len <= 12);
                blocks_prove(nodes, n, from, to, proof);
                got = root_of(nodes, n, from, to, proof);
                assert_true(hash32_eq(&got, &root));
            }
        }
    }
}

static void a_proof_is_of_its_place_and_bytes(void **state)
{
    struct hash32 nodes[2 * MOST + 8], other, root;
    uint8_t proof[BLOCKS_PROOF_MAX * 32];
    uint64_t n = 21, from = 5, to = 10;
    uint32_t len = blocks_proof_len(n, from, to);

    (void)state;
    root = nodes[make(nodes, n) - 1];
    blocks_prove(nodes, n, from, to, proof);
    for (uint32_t i = 0; i < len * 32; i++) {
        proof[i] ^= 1;
        other = root_of(nodes, n, from, to, proof);
        assert_false(hash32_eq(&other, &root));
        proof[i] ^= 1;
    }
    nodes[from].b[3] ^= 1;
    other = root_of(nodes, n, from, to, proof);
    assert_false(hash32_eq(&other, &root));
    nodes[from].b[3] ^= 1;
    other = nodes[6]; /* two blocks that change places */
    nodes[6] = nodes[7];
    nodes[7] = other;
    other = root_of(nodes, n, from, to, proof);
    assert_false(hash32_eq(&other, &root));
}

static void an_offer_is_of_one_maker_and_round(void **state)
{
    struct peer_id a = {{1}}, b = {{2}};
    struct hash32 root = {{9, 8}}, offer[3];
    char hex[ID_HEX_MAX];

    (void)state;
    blocks_offer(&a, 258, &root, &offer[0]);
    blocks_offer(&b, 258, &root, &offer[1]);
    blocks_offer(&a, 259, &root, &offer[2]);
    assert_false(hash32_eq(&offer[0], &offer[1]));
    assert_false(hash32_eq(&offer[0], &offer[2]));
    hash32_hex(&offer[0], hex);
    assert_string_equal(
        hex,
        "f7dbb0bc47110c19f5685d2bd4e7fd50751a812f25b7067ca180c357fe4b02f3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_of_equal_leaves_needs_no_leaves),
        cmocka_unit_test(each_range_of_a_tree_has_its_proof),
        cmocka_unit_test(a_proof_is_of_its_place_and_bytes),
        cmocka_unit_test(an_offer_is_of_one_maker_and_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
