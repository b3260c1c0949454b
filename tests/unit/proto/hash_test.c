/* hash_test.c - domains, the tree, Merkle paths. The expected values come from
 * Python's hashlib.blake2b(digest_size=32), an implementation of its own. */
#include "tests/unit/proto/suite.h"

#include <stdlib.h>

#include "proto/base/rng.h"
#include "proto/hash.h"
#include "proto/hash_lanes.h"

#define MIB ((size_t)HASH_PIECE_BYTES)

static void assert_hex(const struct hash32 *h, const char *want)
{
    char hex[ID_HEX_MAX];

    hash32_hex(h, hex);
    assert_string_equal(hex, want);
}

/* The file that the Python side hashed: byte i is (i * 31 + i / 251) & 255. */
static uint8_t *pattern(size_t len)
{
    uint8_t *p = malloc(len + 1);

    assert_non_null(p);
    for (size_t i = 0; i < len; i++) {
        p[i] = (uint8_t)(i * 31 + i / 251);
    }
    return p;
}

static void a_domain_is_a_prefix_with_its_zero(void **state)
{
    struct hash32 a, b;
    struct hash_state s;

    (void)state;
    hash_bytes(NULL, "abc", 3, &a);
    assert_hex(
        &a, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
    hash_bytes("loco-test", "abc", 3, &a);
    assert_hex(
        &a, "1ce6332bbb410e726f5eebf86a6bdb1f84f46a4606b0add8c14d96df89345143");
    hash_init(&s, "loco-test");
    hash_update(&s, "a", 1);
    hash_update(&s, "", 0);
    hash_update(&s, "bc", 2);
    hash_final(&s, &b);
    assert_true(hash32_eq(&a, &b));
    hash_bytes("loco-tes", "tabc", 4, &b);
    assert_false(hash32_eq(&a, &b));
}

static void the_tree_equals_an_independent_implementation(void **state)
{
    static const struct {
        size_t len;
        const char *want;
    } rows[] = {
        {0, "ca44a5bebe5187f941e272b3de93f82b5d5e7053f2df58e2e8634cc2e779d566"},
        {1, "c4f0dc1a035670dea21c26bf720475e4eeeccff980b79afda991388ffdb93e47"},
        {MIB - 1,
         "6d61949f9dc10fca26b6b2b526e99cd2282b1dab347e14f20b17cac8f8619c16"},
        {MIB,
         "7435f64cf7a743f9bc601b45aac4ee3e67849deca1554f1ac0869dfa851b38ca"},
        {MIB + 1,
         "948b7f1a451cd6000b71694572ffc73028164b6d363cdb7855c42ff289696aef"},
        {3 * MIB,
         "3f4a719bcbd8f350caae857f674b3de77d959a8190a94297289f962a2cc18ea6"},
        {5 * MIB + 12345,
         "4633db01b744e3c323ef9fed426a1bf4ee02fdf36defa6c8c35c83d3516790f8"},
        {7 * MIB,
         "566c83c10a0657648b914338f019895ddace10ee7dd5737dd1b02f1e471f218b"},
        {21 * MIB + 7, /* eight lanes twice, four once, one and a bit alone */
         "6d1502731434a2e6323d1641f3b9b9185a1e320d42bbdcaa4209a458afdc2c39"},
    };
    uint8_t *data = pattern(21 * MIB + 7);
    struct hash32 h, leaves[22];

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        hash_tree(data, rows[i].len, &h);
        assert_hex(&h, rows[i].want);
        hash_tree_keep(data, rows[i].len, leaves, &h);
        assert_hex(&h, rows[i].want);
        hash_tree_root(leaves, (size_t)hash_tree_pieces(rows[i].len), &h);
        assert_hex(&h, rows[i].want);
    }
    free(data);
}

static void the_tree_does_not_depend_on_how_data_arrives(void **state)
{
    const size_t len = 5 * MIB + 12345;
    uint8_t *data = pattern(len);
    struct hash_tree_state s;
    struct hash32 want, got;
    uint64_t rng = 7;

    (void)state;
    hash_tree(data, len, &want);
    for (int round = 0; round < 4; round++) {
        size_t at = 0;

        hash_tree_init(&s);
        while (at < len) {
            size_t n = (size_t)rng_below(&rng, 700000);

            n = n > len - at ? len - at : n;
            hash_tree_update(&s, data + at, n);
            at += n;
        }
        hash_tree_final(&s, &got);
        assert_true(hash32_eq(&want, &got));
    }
    free(data);
}

static void every_set_of_lanes_gives_the_leaves_of_libsodium(void **state)
{
    static const char *const isas[] = {"avx2", "avx512"};
    const size_t n = HASH_AT_ONCE_MAX;
    uint8_t *data = pattern(n * MIB + 1);
    struct hash32 want[2][HASH_AT_ONCE_MAX], got[HASH_AT_ONCE_MAX];

    (void)state;
    for (size_t i = 0; i < 2 * n; i++) { /* at odd addresses too */
        hash_tree_leaf(data + i / n + i % n * MIB, MIB, &want[i / n][i % n]);
    }
    for (size_t i = 0; i < N_OF(isas); i++) {
        const struct hash_lanes *l = hash_lanes_get(isas[i]);

        if (l == NULL) {
            print_message("%s: not on this processor\n", isas[i]);
            continue;
        }
        assert_string_equal(l->isa, isas[i]);
        assert_in_range(l->n, 2, n);
        for (size_t odd = 0; odd < 2; odd++) {
            memset(got, 0, sizeof got);
            l->leaves(data + odd, got);
            assert_memory_equal(got, want[odd], l->n * sizeof *got);
            assert_true(l->n == n || hash32_is_zero(&got[l->n]));
        }
    }
    assert_null(hash_lanes_get("none"));
    free(data);
}

static void leaves_made_apart_give_the_same_root(void **state)
{
    const size_t len = 3 * MIB + 1;
    uint8_t *data = pattern(len);
    struct hash32 leaves[4], want, got;

    (void)state;
    assert_true(hash_tree_pieces(len) == 4);
    assert_true(hash_tree_pieces(0) == 1);
    assert_true(hash_tree_pieces(MIB) == 1);
    assert_true(hash_tree_pieces(UINT64_MAX) == (uint64_t)1 << 44);
    for (size_t i = 0; i < 4; i++) {
        hash_tree_leaf(data + i * MIB, i < 3 ? MIB : 1, &leaves[i]);
    }
    hash_tree_root(leaves, 4, &got);
    hash_tree(data, len, &want);
    assert_true(hash32_eq(&want, &got));
    hash_tree_root(NULL, 0, &got);
    hash_tree(NULL, 0, &want);
    assert_true(hash32_eq(&want, &got));
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_domain_is_a_prefix_with_its_zero),
        cmocka_unit_test(the_tree_equals_an_independent_implementation),
        cmocka_unit_test(the_tree_does_not_depend_on_how_data_arrives),
        cmocka_unit_test(every_set_of_lanes_gives_the_leaves_of_libsodium),
        cmocka_unit_test(leaves_made_apart_give_the_same_root),
    };

    return cmocka_run_group_tests_name("proto/hash", tests, NULL, NULL);
}
