/* dht_msg.c - the tables of dht_msg.h. Field order is wire order. */
#include "proto/dht_msg.h"

#include <string.h>

#include "proto/hash.h"

/* clang-format off */
MSG_PART(dht_contact,
         MSG_FIELD_FIXED(struct dht_contact, id),
         MSG_FIELD_FIXED(struct dht_contact, ip),
         MSG_FIELD_U16(struct dht_contact, port));

MSG_DEFINE(dht_ping, MSG_FIELD_U64(struct dht_ping, request));

MSG_DEFINE(dht_pong, MSG_FIELD_U64(struct dht_pong, request));

MSG_DEFINE(dht_find_node,
           MSG_FIELD_U64(struct dht_find_node, request),
           MSG_FIELD_FIXED(struct dht_find_node, target));

MSG_DEFINE(dht_nodes,
           MSG_FIELD_U64(struct dht_nodes, request),
           MSG_ARRAY_STRUCT(struct dht_nodes, contacts, n_contacts,
                            dht_contact_schema));

MSG_DEFINE(dht_find_value,
           MSG_FIELD_U64(struct dht_find_value, request),
           MSG_FIELD_FIXED(struct dht_find_value, key),
           MSG_FIELD_FIXED(struct dht_find_value, target));

MSG_DEFINE(dht_values,
           MSG_FIELD_U64(struct dht_values, request),
           MSG_ARRAY_STRUCT(struct dht_values, records, n_records,
                            record_schema),
           MSG_ARRAY_STRUCT(struct dht_values, contacts, n_contacts,
                            dht_contact_schema));

MSG_DEFINE(dht_store,
           MSG_FIELD_U64(struct dht_store, request),
           MSG_FIELD_STRUCT(struct dht_store, record, record_schema));

MSG_DEFINE(dht_stored,
           MSG_FIELD_U64(struct dht_stored, request),
           MSG_FIELD_BOOL(struct dht_stored, kept));

/* clang-format on */

const struct msg_schema *dht_msg_schema(uint16_t message)
{
    switch (message) {
#define X(name, value, schema)                                                 \
    case value:                                                                \
        return &schema##_schema;
        DHT_MSG_MAP(X)
#undef X
    default:
        return NULL;
    }
}

struct peer_id dht_root(const struct hash32 *key, uint32_t i)
{
    uint8_t bytes[ID_BYTES + 1];
    struct peer_id root;
    struct hash32 h = *key;

    if (i > 0) {
        memcpy(bytes, key->b, ID_BYTES);
        bytes[ID_BYTES] = (uint8_t)i;
        hash_bytes("loco-root-1", bytes, sizeof bytes, &h);
    }
    memcpy(root.b, h.b, sizeof root.b);
    return root;
}
