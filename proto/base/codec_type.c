/* codec_type.c - see codec_type.h. */
#include "proto/base/codec_type.h"

/* clang-format off */
const struct codec_type codec_types[CODEC_COUNT] = {
#define CODEC(ID, type, block, head, bits, exchange, holds, again)             \
    [CODEC_##ID] = {#type, CODEC_##exchange, CODEC_##holds, CODEC_##again},
#include "proto/base/codec.def"
};

const char *const codec_names = &( /* but for the first bar */
#define CODEC(ID, type, ...) "|" #type
#include "proto/base/codec.def"
    )[1];
/* clang-format on */
