/* safetensors_fuzz.c - any bytes as a safetensors file: open, touch all. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/base/errmsg.h"
#include "train/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors st;
    char errmsg[ERRMSG_SIZE];
    struct st_meta pair;
    uint64_t total = 0;
    volatile uint8_t sink = 0;

    if (safetensors_open_memory(&st, data, size, errmsg) != 0) {
        return 0;
    }
    for (size_t i = 0; i < st.n_tensors; i++) {
        const struct st_tensor *t = &st.tensors[i];
        const uint8_t *p = t->data;

        total += t->bytes;
        for (uint64_t k = 0; k < t->bytes; k++) {
            sink = (uint8_t)(sink ^ p[k]);
        }
        if (safetensors_find(&st, t->name) == NULL) {
            abort();
        }
    }
    if (total > size) {
        abort();
    }
    for (size_t i = 0; i < 8 && safetensors_meta_at(&st, i, &pair); i++) {
        if (safetensors_meta(&st, pair.key) != pair.value) {
            abort();
        }
    }
    safetensors_close(&st);
    return 0;
}
