/* table.h - uthash with a hash function that every compiler accepts.
 *
 * uthash's own falls through its switch, which clang's warnings refuse. Keys
 * here are peer ids (already hashes) and segment names, all whole words; the
 * tables are small and bounded, so a simple mix is enough. Include this, never
 * uthash.h itself: both must agree in every file. Internal to p2p/uv.
 */
#ifndef LOCO_P2P_UV_TABLE_H
#define LOCO_P2P_UV_TABLE_H

#include <stddef.h>
#include <string.h>

#include "proto/base/rng.h"

/* `len` is a multiple of 8. */
static inline unsigned table_hash(const void *key, size_t len)
{
    uint64_t h = len, word;

    for (size_t i = 0; i + 8 <= len; i += 8) {
        memcpy(&word, (const uint8_t *)key + i, 8);
        h = rng_mix((const uint64_t[]){h, word}, 2);
    }
    return (unsigned)(h >> 32);
}

#define HASH_FUNCTION(key, len, out) ((out) = table_hash((key), (len)))
#include <uthash.h>

#endif
