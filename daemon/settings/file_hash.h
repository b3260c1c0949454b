/* file_hash.h - the tree hash (proto/hash.h) of a file: a shard's name.
 *
 * Reads the file once, about 1 ns a byte, in constant memory. Blocking: call it
 * from workers and commands. LOCO_ENOENT, LOCO_EIO with a sentence in errmsg
 * (LOCO_ERRMSG_MAX bytes, may be NULL).
 */
#ifndef LOCO_DAEMON_SETTINGS_FILE_HASH_H
#define LOCO_DAEMON_SETTINGS_FILE_HASH_H

#include "proto/hash.h"

int file_hash(const char *path, struct hash32 *out, char *errmsg);

/* Whether the file has this size and this hash: 0, LOCO_EHASH, or as above. One
 * of another size is not read: it may be sparse and without end. */
int file_check(const char *path,
               uint64_t bytes,
               const struct hash32 *hash,
               char *errmsg);

#endif
