/* hash_threads_test.c - several threads make the hash that one makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/machine/hash_threads.h"
#include "proto/hash.h"

static void any_number_of_threads_makes_the_same_leaves_and_root(void **state)
{
    static const size_t lens[] = {
        0,
        1,
        HASH_PIECE_BYTES,
        7 * HASH_PIECE_BYTES + 1,
        8 * HASH_PIECE_BYTES,
        37 * HASH_PIECE_BYTES - 5,
    };
    static const int threads[] = {1, 2, 3, 8};
    size_t most = 37 * HASH_PIECE_BYTES;
    uint8_t *bytes = malloc(most);

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < most; i++) {
        bytes[i] = (uint8_t)(i * 2654435761U >> 24);
    }
    for (size_t k = 0; k < sizeof lens / sizeof lens[0]; k++) {
        struct hash32 want[40], got[40], root, again;
        size_t n = (size_t)hash_tree_pieces(lens[k]);

        hash_tree_keep(bytes, lens[k], want, &root);
        for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
            memset(got, 0, sizeof got);
            memset(&again, 0, sizeof again);
            hash_threads(bytes, lens[k], threads[t], got, &again);
            assert_memory_equal(&again, &root, sizeof root);
            assert_memory_equal(got, want, n * sizeof want[0]);
        }
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_makes_the_same_leaves_and_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
