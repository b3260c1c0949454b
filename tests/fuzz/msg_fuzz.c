/* msg_fuzz.c - any bytes as a message with every kind of field: what is
 * accepted encodes to the same bytes again, what is refused leaves zeros. */
#include <stdlib.h>
#include <string.h>

#include "proto/id.h"
#include "proto/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct inner {
    struct peer_id id;
    uint16_t n_data;
    uint8_t data[40];
};

struct outer {
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    bool flag;
    uint32_t n_list;
    struct inner list[3];
    uint8_t n_words;
    uint64_t words[20];
};

static const struct msg_field inner_fields[] = {
    MSG_FIELD_FIXED(struct inner, id),
    MSG_FIELD_BYTES(struct inner, data, n_data),
};
static const struct msg_schema inner_schema =
    MSG_SCHEMA(struct inner, inner_fields);

static const struct msg_field outer_fields[] = {
    MSG_FIELD_U8(struct outer, u8),
    MSG_FIELD_U16(struct outer, u16),
    MSG_FIELD_U32(struct outer, u32),
    MSG_FIELD_U64(struct outer, u64),
    MSG_FIELD_BOOL(struct outer, flag),
    MSG_ARRAY_STRUCT(struct outer, list, n_list, inner_schema),
    MSG_ARRAY_U64(struct outer, words, n_words),
};
static const struct msg_schema outer_schema =
    MSG_SCHEMA(struct outer, outer_fields);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct outer zero;
    uint8_t again[1024];
    struct outer obj;
    int n;

    memset(&obj, 0x55, sizeof obj);
    if (msg_decode(&outer_schema, data, size, &obj) != 0) {
        if (memcmp(&obj, &zero, sizeof obj) != 0) {
            abort();
        }
        return 0;
    }
    n = msg_encode(&outer_schema, &obj, again, sizeof again);
    if (n < 0 || (size_t)n != size || memcmp(again, data, size) != 0 ||
        size > msg_bytes_max(&outer_schema)) {
        abort();
    }
    return 0;
}
