/* hash_threads.c - see hash_threads.h. */
#include "daemon/machine/hash_threads.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"

#define PIECES_EACH 4 /* fewer for a thread are not worth starting it */

struct work {
    const uint8_t *bytes;
    size_t len, n;
    struct hash32 *leaves;
    atomic_size_t next;
};

static void take_pieces(void *arg, int worker)
{
    struct work *w = arg;
    const size_t group = hash_tree_at_once();
    size_t i;

    (void)worker;
    while ((i = atomic_fetch_add(&w->next, group)) < w->n) {
        size_t at = i * HASH_PIECE_BYTES, left = w->len - at;
        size_t most = group * HASH_PIECE_BYTES;

        hash_tree_leaves(w->bytes + at, left < most ? left : most,
                         &w->leaves[i]);
    }
}

void hash_pool(struct pool *pool,
               const void *bytes,
               size_t len,
               struct hash32 *leaves,
               struct hash32 *root)
{
    size_t n = (size_t)hash_tree_pieces(len);
    struct work w = {.bytes = bytes, .len = len, .n = n, .leaves = leaves};
    struct hash32 *nodes =
        pool == NULL || leaves == NULL ? NULL : malloc(n * sizeof *nodes);

    if (nodes == NULL) {
        hash_tree_keep(bytes, len, leaves, root);
        return;
    }
    pool_run(pool, take_pieces, &w);
    memcpy(nodes, leaves, n * sizeof *nodes);
    hash_tree_root(nodes, n, root);
    free(nodes);
}

void hash_threads(const void *bytes,
                  size_t len,
                  int threads,
                  struct hash32 *leaves,
                  struct hash32 *root)
{
    size_t n = (size_t)hash_tree_pieces(len);
    struct pool *pool = NULL;

    if ((size_t)threads > n / PIECES_EACH) {
        threads = (int)(n / PIECES_EACH);
    }
    if (threads > 1 && pool_open(&pool, threads, NULL) != 0) {
        pool = NULL;
    }
    hash_pool(pool, bytes, len, leaves, root);
    pool_close(pool);
}
