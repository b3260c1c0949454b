/* dht_msg.h - what DHT nodes say to each other: four questions, four answers.
 *
 * Each question carries 64 random bits that its answer repeats. The sender's
 * id and address are not in the messages: the link has proven them. Types and
 * sizes are part of the wire. PROTOCOL.md says what each means; p2p/dht/dht.c
 * implements it.
 *
 * Encoded by proto/msg.h: malformed bytes are LOCO_EPROTO, nothing is
 * allocated. msg_bytes_max() of a type's schema is its frame limit.
 */
#ifndef LOCO_PROTO_DHT_MSG_H
#define LOCO_PROTO_DHT_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/limits.h"
#include "proto/msg.h"
#include "proto/record.h"

/* clang-format off */
#define DHT_MSG_MAP(X)                                                         \
    X(PING,       0x20, dht_ping)                                              \
    X(PONG,       0x21, dht_pong)                                              \
    X(FIND_NODE,  0x22, dht_find_node)                                         \
    X(NODES,      0x23, dht_nodes)                                             \
    X(FIND_VALUE, 0x24, dht_find_value)                                        \
    X(VALUES,     0x25, dht_values)                                            \
    X(STORE,      0x26, dht_store)                                             \
    X(STORED,     0x27, dht_stored)
/* clang-format on */

enum dht_message {
#define X(name, value, schema) DHT_MSG_##name = value,
    DHT_MSG_MAP(X)
#undef X
};

/* k of the protocol: Maymounkov & Mazieres 2002, section 2.2. */
#define DHT_CONTACTS_MAX 20

/* An answer with 16 records stays below 12 KB; a lookup asks k holders, and
 * where one holds more it answers with a random choice. */
#define DHT_RECORDS_MAX 16

/* A record is stored next to DHT_ROOTS places, its *roots*: whoever wants a
 * key to be forgotten must crowd all of them. Root 0 is the key itself, root i
 * is hash_bytes("loco-root-1", key || u8 i). */
#define DHT_ROOTS 3

struct dht_contact {
    struct peer_id id;
    uint8_t ip[16]; /* IPv4 mapped */
    uint16_t port;  /* never 0: clients are not told */
};

struct dht_ping {
    uint64_t request;
};

struct dht_pong {
    uint64_t request;
};

struct dht_find_node {
    uint64_t request;
    struct peer_id target;
};

struct dht_nodes {
    uint64_t request;
    uint32_t n_contacts;
    struct dht_contact contacts[DHT_CONTACTS_MAX]; /* closest to the target */
};

struct dht_find_value {
    uint64_t request;
    struct hash32 key;     /* whose records */
    struct peer_id target; /* whose closest contacts: a root of the key */
};

struct dht_values {
    uint64_t request;
    uint32_t n_records;
    struct record records[DHT_RECORDS_MAX]; /* of the key */
    uint32_t n_contacts;
    struct dht_contact contacts[DHT_CONTACTS_MAX]; /* closest to the target */
};

struct dht_store {
    uint64_t request;
    struct record record;
};

struct dht_stored {
    uint64_t request;
    bool kept; /* false: stale, expired, full or not verified */
};

#define X(name, value, schema) extern const struct msg_schema schema##_schema;
DHT_MSG_MAP(X)
#undef X

/* Root `i` < DHT_ROOTS of a key. */
struct peer_id dht_root(const struct hash32 *key, uint32_t i);

/* The schema of a type 0x20..0x27, NULL for any other number. */
const struct msg_schema *dht_msg_schema(uint16_t message);

#endif
