/* run_yaml.h - run.yaml: the run manifest as a file that people read.
 *
 * The file holds every key of the manifest (proto/manifest.h) and beside them
 * `run_id` and `signature`, both in hex. The signature is over the canonical
 * bytes of the values, not over the file: comments, order and spacing are
 * free, a changed value is found.
 *
 * Only local files come here. Peers send canonical msgpack, which never
 * reaches a YAML parser. No aliases, no second document; an
 * unknown key, a key written twice and a value out of range are LOCO_EINVAL
 * with a sentence "FILE:LINE: path: what"; the nearest known key is named.
 * Missing keys keep their default. The parser is libyaml's event stream, so
 * that every sentence has its line.
 */
#ifndef LOCO_DAEMON_SETTINGS_RUN_YAML_H
#define LOCO_DAEMON_SETTINGS_RUN_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/manifest.h"

/* 512 shards with four URLs each, and comments. */
#define RUN_YAML_BYTES_MAX (4U << 20)

struct run_yaml {
    struct manifest manifest;
    struct hash32 run_id;          /* of the values; checked when signed */
    uint8_t signature[SIGN_BYTES]; /* zero when unsigned */
    bool is_signed;
};

/* How strict the reader is: signing tools read files that are not signed, or
 * whose values were just edited. */
enum run_yaml_trust { RUN_YAML_SIGNED, RUN_YAML_ANY };

/* Read, check every value, and (RUN_YAML_SIGNED) run id and signature.
 * LOCO_ENOENT, LOCO_EIO, LOCO_EFORMAT (not YAML) or LOCO_EINVAL, with a
 * sentence in errmsg (LOCO_ERRMSG_MAX bytes). A wrong run id or signature is
 * LOCO_EINVAL too: the file was altered, no peer misbehaved. */
int run_yaml_load(const char *path,
                  enum run_yaml_trust trust,
                  struct run_yaml *out,
                  char *errmsg);

/* The same from the wire form that a daemon keeps: signed and canonical. */
int run_yaml_load_kept(const char *path, struct run_yaml *out, char *errmsg);

/* Same from memory; `name` stands in the sentences. */
int run_yaml_parse(const char *text,
                   size_t len,
                   const char *name,
                   enum run_yaml_trust trust,
                   struct run_yaml *out,
                   char *errmsg);

/* Sign with `author`, fill run_id and signature. */
int run_yaml_sign(struct run_yaml *r, const struct identity *author);

/* Write the file new, synced, renamed over the old one. */
int run_yaml_save(const struct run_yaml *r, const char *path, char *errmsg);

#endif
