/* leaves.h - a tree hash that is made while its bytes still arrive.
 *
 * The vote of a round names the tree hash (proto/hash.h) of a vector that
 * arrives in segments, in no order. Whoever waits for the last one and then
 * hashes everything adds a second for each 1 to 4 GB. Here the owner says which
 * bytes are final; a group of pieces of the tree (8 of 1 MiB, which are hashed
 * together) of which that is true of all is ready, its leaves can be made at
 * once, by a worker; what is left at the end is the last few groups and the
 * root.
 *
 *     leaves_fit -> leaves_begin -> (leaves_final -> leaves_make)*
 *
 * leaves_stop(): nothing is known of these bytes any more (they may be written
 * again): all leaves are made at the end. Every byte may be final once; one
 * that is twice ends it too.
 *
 * Threads: none inside. leaves_make() may run elsewhere, under a lock that the
 * owner holds in leaves_begin() and leaves_stop(), and to read `made` and
 * `leaf`. Memory: 33 bytes a piece. Fails with LOCO_ENOMEM only (leaves_fit).
 */
#ifndef LOCO_DAEMON_JOBS_LEAVES_H
#define LOCO_DAEMON_JOBS_LEAVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hash.h"

#define LEAVES_GROUP    HASH_AT_ONCE_MAX /* pieces; the last one has the rest */
#define LEAVES_STEP_MAX 4 /* groups that one segment can complete */

struct leaves {
    uint64_t bytes;      /* of the vector */
    uint64_t n;          /* pieces, at least 1 */
    uint64_t n_groups;   /* at least 1 */
    bool on;             /* begun and not stopped */
    uint32_t *missing;   /* (n_groups) bytes of it that are not final */
    bool *made;          /* (n_groups) */
    struct hash32 *leaf; /* (n) valid where its group is made */
};

/* Room for a vector of so many bytes; what was known is forgotten. */
int leaves_fit(struct leaves *l, uint64_t bytes);
void leaves_free(struct leaves *l);

/* Nothing is final yet. */
void leaves_begin(struct leaves *l);
void leaves_stop(struct leaves *l);

/* Bytes [from, to) are final, at most LEAVES_STEP_MAX - 1 MiB: the number of
 * groups that are complete by that, named in `ready`. */
size_t leaves_final(struct leaves *l,
                    uint64_t from,
                    uint64_t to,
                    uint64_t ready[LEAVES_STEP_MAX]);

/* Bytes [*from, *to) are group `g`. */
void leaves_group(const struct leaves *l,
                  uint64_t g,
                  uint64_t *from,
                  uint64_t *to);

/* Its leaves, of the group's bytes; nothing where they are made already. */
void leaves_make(struct leaves *l, uint64_t g, const uint8_t *bytes);

#endif
