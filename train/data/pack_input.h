/* pack_input.h - what `loco data pack` reads: the inputs, one after the other.
 *
 * Kinds of file: *text*, taken byte for byte; *JSONL*, one object a line with
 * its text in the field "text", each text followed by a separator; *tokens*,
 * made by somebody else: llm.c's (header 20240520 with uint16 or 20240801 with
 * uint32) or bare uint16 or uint32. A directory stands for all files in it and
 * below, in the order of their paths; hidden names and links are passed over.
 *
 * All inputs are one sequence of *units*: bytes of text, or tokens; the two do
 * not mix. JSONL is written out as text first (a file in the output directory
 * that is gone when the inputs are closed), so that memory does not grow.
 *
 * How it fails: LOCO_EFORMAT with file and line, the codes of file.h.
 */
#ifndef LOCO_TRAIN_DATA_PACK_INPUT_H
#define LOCO_TRAIN_DATA_PACK_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/file.h"
#include "train/data/pack.h"
#include "train/data/shard.h"

struct pack_input {
    char *path;
    struct file_map map; /* of text */
    struct shard tokens; /* or of tokens */
    uint64_t units;
};

struct pack_inputs {
    struct pack_input *items;
    size_t n, room;
    uint64_t units; /* of all */
    bool tokens;    /* units are tokens */
};

/* `vocab`: tokens must be below it. pack_inputs_close afterwards, whatever the
 * result. */
int pack_inputs_open(struct pack_inputs *in,
                     const char *const *paths,
                     size_t n,
                     const struct pack_options *options,
                     uint32_t vocab,
                     const char *out_dir,
                     char *errmsg);
void pack_inputs_close(struct pack_inputs *in); /* idempotent */

/* First line start at or after unit `at` and before the end, 0 when there is
 * none; last line start before `at`, 0 when there is none. Text only. */
uint64_t pack_line_after(const struct pack_inputs *in, uint64_t at);
uint64_t pack_line_before(const struct pack_inputs *in, uint64_t at);

#endif
