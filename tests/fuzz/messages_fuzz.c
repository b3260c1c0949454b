/* messages_fuzz.c - any bytes as any control message: the first byte is the
 * type; what is accepted encodes to the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "proto/dht_msg.h"
#include "proto/messages.h"
#include "proto/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The schema of a type of either list, or NULL. */
static const struct msg_schema *schema_of(uint8_t type)
{
    const struct msg_schema *s = dht_msg_schema(type);

    return s != NULL ? s : message_schema(type);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct msg_schema *s;
    uint8_t *obj, *again;
    int n;

    if (size < 1) {
        return 0;
    }
    s = schema_of(data[0]);
    if (s == NULL) {
        return 0;
    }
    obj = malloc(s->size);
    again = malloc(size);
    if (obj == NULL || again == NULL) {
        abort();
    }
    if (msg_decode(s, data + 1, size - 1, obj) == 0) {
        n = msg_encode(s, obj, again, size);
        if (n < 0 || (size_t)n != size - 1 ||
            memcmp(again, data + 1, size - 1) != 0) {
            abort();
        }
    }
    free(again);
    free(obj);
    return 0;
}
