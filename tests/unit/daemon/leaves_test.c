/* leaves_test.c - groups of pieces become ready when all their bytes are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/jobs/leaves.h"
#include "proto/base/rng.h"

#define PIECE ((uint64_t)HASH_PIECE_BYTES)
#define GROUP (LEAVES_GROUP * PIECE)

static uint8_t *bytes_of(uint64_t n)
{
    uint8_t *b = malloc(n + 1);

    assert_non_null(b);
    for (uint64_t i = 0; i < n; i++) {
        b[i] = (uint8_t)(i * 2654435761U >> 11);
    }
    return b;
}

/* Cut into parts of `step` that come in a random order. */
static void all_final_in_any_order(uint64_t bytes, uint64_t step, uint64_t seed)
{
    uint64_t n = (bytes + step - 1) / step, n_ready = 0;
    uint32_t *perm = calloc(n, sizeof *perm);
    uint8_t *vector = bytes_of(bytes);
    struct hash32 want, root;
    struct leaves l = {0};

    assert_non_null(perm);
    assert_int_equal(leaves_fit(&l, bytes), 0);
    leaves_begin(&l);
    rng_perm(perm, (uint32_t)n, seed);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t from = perm[i] * step, ready[LEAVES_STEP_MAX];
        uint64_t to = from + step < bytes ? from + step : bytes;
        size_t k = leaves_final(&l, from, to, ready);

        n_ready += k;
        while (k > 0) {
            --k;
            leaves_make(&l, ready[k], vector + ready[k] * GROUP);
        }
    }
    assert_int_equal(n_ready, bytes > 0 ? l.n_groups : 0);
    for (uint64_t g = 0; g < l.n_groups && bytes > 0; g++) {
        assert_true(l.made[g]);
    }
    hash_tree(vector, bytes, &want);
    leaves_make(&l, 0, vector); /* of no bytes there is one group */
    hash_tree_root(l.leaf, (size_t)l.n, &root);
    assert_true(hash32_eq(&root, &want));
    leaves_free(&l);
    free(vector);
    free(perm);
}

static void in_any_order_and_cut_the_root_is_that_of_the_tree(void **state)
{
    static const uint64_t bytes[] = {
        0,     1,         PIECE - 1,
        PIECE, PIECE + 1, 3 * PIECE,
        GROUP, GROUP + 1, 2 * GROUP + 5 * PIECE + 77};
    static const uint64_t step[] = {1 << 16, PIECE, 2 * PIECE + 5};

    (void)state;
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
        for (size_t k = 0; k < sizeof step / sizeof step[0]; k++) {
            all_final_in_any_order(bytes[i], step[k], i * 10 + k);
        }
    }
}

static void a_byte_that_is_missing_keeps_its_group_back(void **state)
{
    uint64_t ready[LEAVES_STEP_MAX];
    struct leaves l = {0};

    (void)state;
    assert_int_equal(leaves_fit(&l, GROUP + PIECE), 0);
    leaves_begin(&l);
    assert_int_equal(leaves_final(&l, 2, PIECE, ready), 0);
    assert_int_equal(leaves_final(&l, GROUP, GROUP + PIECE, ready), 1);
    assert_int_equal(ready[0], 1);
    for (uint64_t p = 1; p < LEAVES_GROUP; p++) {
        assert_int_equal(leaves_final(&l, p * PIECE, (p + 1) * PIECE, ready),
                         0);
    }
    assert_int_equal(leaves_final(&l, 0, 2, ready), 1);
    assert_int_equal(ready[0], 0);
    leaves_free(&l);
}

/* It is not the attempt that it was taken for: nothing of it is trusted. */
static void what_is_final_twice_ends_it(void **state)
{
    uint64_t ready[LEAVES_STEP_MAX];
    struct leaves l = {0};

    (void)state;
    assert_int_equal(leaves_fit(&l, PIECE), 0);
    leaves_begin(&l);
    assert_int_equal(leaves_final(&l, 0, PIECE, ready), 1);
    assert_int_equal(leaves_final(&l, 100, 200, ready), 0);
    assert_false(l.on);
    assert_int_equal(leaves_final(&l, 0, PIECE, ready), 0);
    leaves_begin(&l); /* and the next one begins anew */
    assert_false(l.made[0]);
    assert_int_equal(leaves_final(&l, 0, PIECE, ready), 1);
    leaves_free(&l);
}

static void stopped_nothing_is_ready_and_nothing_is_made(void **state)
{
    uint64_t ready[LEAVES_STEP_MAX];
    uint8_t *vector = bytes_of(PIECE);
    struct leaves l = {0};

    (void)state;
    assert_int_equal(leaves_fit(&l, PIECE), 0);
    assert_int_equal(leaves_final(&l, 0, PIECE, ready), 0); /* not begun */
    leaves_begin(&l);
    leaves_make(&l, 0, vector);
    leaves_stop(&l);
    assert_false(l.made[0]);
    assert_int_equal(leaves_final(&l, 0, PIECE, ready), 0);
    leaves_free(&l);
    free(vector);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_any_order_and_cut_the_root_is_that_of_the_tree),
        cmocka_unit_test(a_byte_that_is_missing_keeps_its_group_back),
        cmocka_unit_test(what_is_final_twice_ends_it),
        cmocka_unit_test(stopped_nothing_is_ready_and_nothing_is_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
