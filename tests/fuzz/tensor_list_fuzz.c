/* tensor_list_fuzz.c - any bytes as a layout file, and as a safetensors file
 * whose tensors are a model: a list that passes tiles its vector, has names
 * that a terminal can show, and is read back from its own text. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/errmsg.h"
#include "train/model/tensor_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct tensor_list *l)
{
    uint64_t at = 0;

    for (size_t i = 0; i < l->n; i++) {
        const struct tensor_entry *t = &l->at[i];
        uint64_t numel = 1;

        for (unsigned k = 0; k < t->n_dims; k++) {
            numel *= t->shape[k];
        }
        if (t->offset != at || t->numel != numel || numel == 0) {
            abort();
        }
        for (const char *c = t->name; *c != '\0'; c++) {
            if (*c < ' ' || *c > '~') {
                abort();
            }
        }
        at += numel;
    }
    if (l->n == 0 || at != l->numel || at > TENSOR_NUMEL_MAX) {
        abort();
    }
}

static void read_back(const struct tensor_list *l)
{
    struct tensor_list back;
    char errmsg[ERRMSG_SIZE];
    char *text = tensor_list_text(l);

    if (text == NULL ||
        tensor_list_parse(&back, (const uint8_t *)text, strlen(text), errmsg) !=
            0 ||
        tensor_list_same(l, "one", &back, "two", errmsg) != 0) {
        abort();
    }
    tensor_list_free(&back);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors st;
    struct tensor_list l;
    char errmsg[ERRMSG_SIZE];

    if (tensor_list_parse(&l, data, size, errmsg) == 0) {
        check(&l);
        read_back(&l);
    }
    tensor_list_free(&l);
    if (safetensors_open_memory(&st, data, size, errmsg) != 0) {
        return 0;
    }
    if (tensor_list_of_file(&l, &st, errmsg) == 0) {
        check(&l);
    }
    tensor_list_free(&l);
    safetensors_close(&st);
    return 0;
}
