/* tokens_fuzz.c - any bytes as somebody else's token file: the first byte says
 * which format, the second how large the vocabulary is. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/base/errmsg.h"
#include "train/data/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t vocabs[] = {0, 1, 256, 50257, 128256, UINT32_MAX};
    struct shard s;
    char errmsg[ERRMSG_SIZE];
    uint32_t ids[64];

    if (size < 2 || shard_open_memory_as(&s, data + 2, size - 2,
                                         (enum shard_format)(data[0] % 4),
                                         vocabs[data[1] % 6], errmsg) != 0) {
        return 0;
    }
    for (uint64_t at = 0; at < s.info.tokens; at += 64) {
        uint64_t left = s.info.tokens - at;
        size_t n = left < 64 ? (size_t)left : 64;

        if (shard_read(&s, at, n, ids) == 0) {
            for (size_t i = 0; i < n; i++) {
                if (ids[i] >= s.info.vocab) {
                    abort();
                }
            }
        }
    }
    shard_close(&s);
    return 0;
}
