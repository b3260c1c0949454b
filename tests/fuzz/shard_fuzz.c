/* shard_fuzz.c - any bytes as an .ltk file: open it and read all tokens. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/base/errmsg.h"
#include "train/data/shard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shard s;
    char errmsg[ERRMSG_SIZE];
    uint32_t ids[64];
    uint64_t n;

    if (shard_open_memory(&s, data, size, errmsg) != 0) {
        return 0;
    }
    n = s.info.tokens;
    for (uint64_t at = 0; at < n; at += 64) {
        size_t m = n - at < 64 ? (size_t)(n - at) : 64;

        if (shard_read(&s, at, m, ids) == 0) {
            for (size_t i = 0; i < m; i++) {
                if (ids[i] >= s.info.vocab) {
                    abort();
                }
            }
        }
    }
    if (shard_read(&s, n, 1, ids) == 0) {
        abort();
    }
    shard_close(&s);
    return 0;
}
