/* pack_part.h - one piece of the inputs as a shard file; inside of pack.h. */
#ifndef LOCO_TRAIN_DATA_PACK_PART_H
#define LOCO_TRAIN_DATA_PACK_PART_H

#include "train/data/pack_input.h"
#include "train/data/shard.h"
#include "train/data/tokenizer.h"

struct pack_writer {
    const struct pack_inputs *in;
    const struct tokenizer *tokenizer;
    struct tokenizer_encoder *encoder; /* NULL for bytes */
    char *errmsg;
};

struct pack_range {
    uint64_t begin, end; /* units of the inputs */
};

/* Write n ranges of the inputs to `path`. `info` holds everything but tokens
 * and text_bytes, which are filled in. */
int pack_part(const struct pack_writer *w,
              const char *path,
              const struct pack_range *ranges,
              uint64_t n,
              struct shard_info *info);

#endif
