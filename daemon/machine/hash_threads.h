/* hash_threads.h - the tree hash (proto/hash.h) of long data, by several
 * threads.
 *
 * Pieces are handed out one by one, so that data which is read from a disk
 * comes in its order. Cost: that of hash_tree_keep() by the threads, and some
 * microseconds for each to start: short data stays on the caller's.
 *
 * Never fails: threads that cannot start are done without.
 */
#ifndef LOCO_DAEMON_MACHINE_HASH_THREADS_H
#define LOCO_DAEMON_MACHINE_HASH_THREADS_H

#include <stddef.h>

#include "kernels/pool.h"
#include "proto/id.h"

/* As hash_tree_keep(), by the threads of a pool; NULL: by the caller. */
void hash_pool(struct pool *pool,
               const void *bytes,
               size_t len,
               struct hash32 *leaves,
               struct hash32 *root);

/* The same by threads that end before this returns; the caller is one. */
void hash_threads(const void *bytes,
                  size_t len,
                  int threads,
                  struct hash32 *leaves,
                  struct hash32 *root);

#endif
