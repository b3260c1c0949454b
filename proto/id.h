/* id.h - 32-byte names: peers by their key, everything else by its hash.
 *
 * A *peer id* is the BLAKE2b-256 hash of the peer's Ed25519 public key, without
 * prefix, so that nobody can choose it and everybody can check it. A *hash32*
 * is any other 256-bit hash (run ids, view hashes, vote hashes). Two types, so
 * that the compiler refuses to take one for the other.
 *
 * Text: 64 lowercase hex digits for machines. For people the *short form*
 * "7f3k-9x2d-4c": the first 40 bits in base 32 (digits and letters without i,
 * l, o, u), then the same number modulo 1021 as two check characters. 1021 is
 * prime, so every single wrong character and every swap of neighbours is
 * found. The short form names a peer in talk; it never addresses one.
 *
 * Pure functions on values; the only failure is malformed text.
 */
#ifndef LOCO_PROTO_ID_H
#define LOCO_PROTO_ID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "proto/base/bytes.h"

#define ID_BYTES     32
#define ID_HEX_MAX   65 /* 64 digits and the final zero */
#define ID_SHORT_MAX 13 /* xxxx-xxxx-cc and the final zero */

struct peer_id {
    uint8_t b[ID_BYTES];
};

struct hash32 {
    uint8_t b[ID_BYTES];
};

/* The id that belongs to a public key. */
struct peer_id id_of_public(const uint8_t public_key[32]);

/* Byte order, first byte most significant: <0, 0, >0. */
static inline int id_cmp(const struct peer_id *a, const struct peer_id *b)
{
    return memcmp(a->b, b->b, ID_BYTES);
}

static inline bool id_eq(const struct peer_id *a, const struct peer_id *b)
{
    return memcmp(a->b, b->b, ID_BYTES) == 0;
}

bool id_is_zero(const struct peer_id *id);

/* Index 0..255 of the highest bit in which a and b differ (255 = the first bit
 * of byte 0), -1 if equal: Kademlia's bucket number. */
int id_xor_bucket(const struct peer_id *a, const struct peer_id *b);

/* <0 when a is closer to target than b by XOR distance, 0 when a equals b. */
int id_xor_cmp(const struct peer_id *target,
               const struct peer_id *a,
               const struct peer_id *b);

void id_hex(const struct peer_id *id, char out[ID_HEX_MAX]);

/* Exactly 64 lowercase hex digits, else LOCO_EINVAL and *id untouched. */
int id_parse_hex(const char *text, struct peer_id *id);

void id_short(const struct peer_id *id, char out[ID_SHORT_MAX]);

/* First 8 bytes little-endian: the peer as a word for rng_mix(). */
static inline uint64_t id_u64(const struct peer_id *id)
{
    return get_u64(id->b);
}

static inline int hash32_cmp(const struct hash32 *a, const struct hash32 *b)
{
    return memcmp(a->b, b->b, ID_BYTES);
}

static inline bool hash32_eq(const struct hash32 *a, const struct hash32 *b)
{
    return memcmp(a->b, b->b, ID_BYTES) == 0;
}

bool hash32_is_zero(const struct hash32 *hash);

void hash32_hex(const struct hash32 *hash, char out[ID_HEX_MAX]);

int hash32_parse_hex(const char *text, struct hash32 *hash);

static inline uint64_t hash32_u64(const struct hash32 *hash)
{
    return get_u64(hash->b);
}

/* 2n lowercase digits and a zero into out. */
void hex_encode(const uint8_t *bytes, size_t n, char *out);

/* Exactly 2n lowercase digits and the end of text, else LOCO_EINVAL. */
int hex_decode(const char *text, uint8_t *bytes, size_t n);

#endif
