/* hf_config_fuzz.c - any bytes as a config.json: a model that passes has a
 * shape that every other function may take. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/errmsg.h"
#include "train/model/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_config c, back;
    char errmsg[ERRMSG_SIZE];
    char *text;

    if (hf_config_parse(&c, data, size, errmsg) != 0) {
        return 0;
    }
    if (llama_config_check(&c.model, NULL) != 0 || llama_numel(&c.model) <= 0) {
        abort();
    }
    text = hf_config_text(&c, "float32");
    if (text == NULL ||
        hf_config_parse(&back, text, strlen(text), errmsg) != 0 ||
        back.model.dim != c.model.dim || back.model.tied != c.model.tied) {
        abort();
    }
    free(text);
    return 0;
}
