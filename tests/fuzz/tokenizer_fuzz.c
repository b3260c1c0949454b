/* tokenizer_fuzz.c - any bytes as a tokenizer.json, and behind a NUL a text:
 * open it, encode the text, decode every id. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/errmsg.h"
#include "train/data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_ids(void *data, const uint32_t *ids, size_t n)
{
    const struct tokenizer *t = data;

    for (size_t i = 0; i < n; i++) {
        size_t len;

        if (ids[i] >= tokenizer_vocab(t) ||
            tokenizer_text(t, ids[i], &len) == NULL || len == 0) {
            abort();
        }
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, '\0', size);
    size_t json = end == NULL ? size : (size_t)(end - data);
    struct tokenizer_encoder *e;
    struct tokenizer *t;
    char errmsg[ERRMSG_SIZE];

    if (tokenizer_open_memory(&t, data, json, errmsg) != 0) {
        return 0;
    }
    if (end != NULL && tokenizer_encoder_open(&e, t) == 0) {
        (void)tokenizer_encode(e, end + 1, size - json - 1, on_ids, t, errmsg);
        tokenizer_encoder_close(e);
    }
    tokenizer_close(t);
    return 0;
}
