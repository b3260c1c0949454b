/* doc_fuzz.c - any "PATH=VALUE" set into a manifest: what is accepted is read
 * back by the same path as a text that sets the same bits. */
#include <stdlib.h>
#include <string.h>

#include "proto/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct manifest m, again;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char errmsg[LOCO_ERRMSG_MAX], text[DOC_TEXT_MAX], line[512];
    char *value;

    if (size == 0 || size >= sizeof line) {
        return 0;
    }
    memcpy(line, data, size);
    line[size] = '\0';
    value = strchr(line, '=');
    if (value == NULL) {
        return 0;
    }
    *value++ = '\0';
    memset(&m, 0, sizeof m);
    if (doc_set(manifest_schema(), &m, line, value, errmsg) != 0) {
        return 0;
    }
    again = m;
    if (doc_get(manifest_schema(), &m, line, text, errmsg) != 0 ||
        doc_set(manifest_schema(), &again, line, text, errmsg) != 0 ||
        memcmp(&m, &again, sizeof m) != 0) {
        abort();
    }
    return 0;
}
