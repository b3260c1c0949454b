/* dht_msg.c - the tables of dht_msg.h. Field order is wire order. */
#include "proto/dht_msg.h"

#include <string.h>

#include "proto/hash.h"

static const struct msg_field contact_fields[] = {
    MSG_FIELD_FIXED(struct dht_contact, id),
    MSG_FIELD_FIXED(struct dht_contact, ip),
    MSG_FIELD_U16(struct dht_contact, port),
};
static const struct msg_schema contact_schema =
    MSG_SCHEMA(struct dht_contact, contact_fields);

static const struct msg_field dht_ping_fields[] = {
    MSG_FIELD_U64(struct dht_ping, request),
};

static const struct msg_field dht_pong_fields[] = {
    MSG_FIELD_U64(struct dht_pong, request),
};

static const struct msg_field dht_find_node_fields[] = {
    MSG_FIELD_U64(struct dht_find_node, request),
    MSG_FIELD_FIXED(struct dht_find_node, target),
};

static const struct msg_field dht_nodes_fields[] = {
    MSG_FIELD_U64(struct dht_nodes, request),
    MSG_ARRAY_STRUCT(struct dht_nodes, contacts, n_contacts, contact_schema),
};

static const struct msg_field dht_find_value_fields[] = {
    MSG_FIELD_U64(struct dht_find_value, request),
    MSG_FIELD_FIXED(struct dht_find_value, key),
    MSG_FIELD_FIXED(struct dht_find_value, target),
};

static const struct msg_field dht_values_fields[] = {
    MSG_FIELD_U64(struct dht_values, request),
    MSG_ARRAY_STRUCT(struct dht_values, records, n_records, record_schema),
    MSG_ARRAY_STRUCT(struct dht_values, contacts, n_contacts, contact_schema),
};

static const struct msg_field dht_store_fields[] = {
    MSG_FIELD_U64(struct dht_store, request),
    MSG_FIELD_STRUCT(struct dht_store, record, record_schema),
};

static const struct msg_field dht_stored_fields[] = {
    MSG_FIELD_U64(struct dht_stored, request),
    MSG_FIELD_BOOL(struct dht_stored, kept),
};

#define X(name, value, schema)                                                 \
    const struct msg_schema schema##_schema =                                  \
        MSG_SCHEMA(struct schema, schema##_fields);
DHT_MSG_MAP(X)
#undef X

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

size_t dht_msg_bytes_max(uint16_t message)
{
    const struct msg_schema *s = dht_msg_schema(message);

    return s == NULL ? 0 : msg_bytes_max(s);
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
