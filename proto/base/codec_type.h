/* codec_type.h - the wire types and what each is good for: rows of codec.def.
 *
 * A wire type says how the peers of a run send a vector. The manifest names it,
 * the trainer and the GPU encode it (train/sync/codec/codec.h,
 * kernels/plugin.h), the exchanges cut vectors at its blocks. Constant tables.
 */
#ifndef LOCO_PROTO_BASE_CODEC_TYPE_H
#define LOCO_PROTO_BASE_CODEC_TYPE_H

/* CODEC_FP32, ...: the number on the wire; never renumbered. */
enum codec_id {
#define CODEC(ID, ...) CODEC_##ID,
#include "proto/base/codec.def"
    CODEC_COUNT
};

/* CODEC_FP32_BLOCK, ...: elements of a block. */
enum codec_block {
#define CODEC(ID, type, block, ...) CODEC_##ID##_BLOCK = (block),
#include "proto/base/codec.def"
};

/* What is worked on at a time of a type without blocks. */
#define CODEC_PIECE 1024

/* What a type's rounding leaves usable; each includes those before it. Parts of
 * a difference need error feedback, which sends the rest of it later. A state
 * (parameters, first moment) is large beside its changes; a second moment, too,
 * spans many powers of two, and what becomes 0 stands under a root. */
enum codec_content {
    CODEC_PARTS,
    CODEC_DIFFERENCES,
    CODEC_STATES,
    CODEC_SQUARES
};

/* Whether decoded values encode to the bytes that they came from: always, with
 * the exponents of the blocks noted (train/sync/codec/recode.h), or never. */
enum codec_again { CODEC_SAME, CODEC_NOTED, CODEC_LOST };

/* How a sum is made: partial sums travel, or a slice's owner encodes once. */
enum codec_exchange { CODEC_RING, CODEC_BUTTERFLY };

struct codec_type {
    const char *name;
    enum codec_exchange exchange;
    enum codec_content holds;
    enum codec_again again;
};

extern const struct codec_type codec_types[CODEC_COUNT];

/* All names, for people: "fp32|bf16|...". */
extern const char *const codec_names;

#endif
