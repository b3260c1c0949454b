/* uri_fuzz.c - any text as an invitation, a host, a hex or a short id: what is
 * accepted is written back and read to the same value. */
#include <stdlib.h>
#include <string.h>

#include "proto/uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_uri(const char *text)
{
    char out[URI_TEXT_MAX], errmsg[LOCO_ERRMSG_MAX];
    struct uri u, back;

    if (uri_parse(text, &u, errmsg) != 0) {
        return;
    }
    if (uri_format(&u, out, sizeof out) < 0 ||
        uri_parse(out, &back, errmsg) != 0 ||
        memcmp(&u, &back, sizeof u) != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char errmsg[LOCO_ERRMSG_MAX];
    struct uri_host host;
    struct peer_id id;
    char *text = malloc(size + 1);

    if (text == NULL) {
        abort();
    }
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    check_uri(text);
    (void)uri_host_parse(text, true, &host, errmsg);
    (void)id_parse_hex(text, &id);
    free(text);
    return 0;
}
