/* store.h - the records that a DHT node keeps for others.
 *
 * A record is named by {key, publisher}: several publishers share a key (the
 * run id), each has at most one record under it. Only a higher sequence of the
 * same publisher replaces; every record is verified before it is kept, after
 * the cheap checks, so that a flood costs no signatures.
 *
 * Caps: per key (a full key refuses newcomers, so that a flood of ids cannot
 * push out who was there first), per key and network of the peers that bring
 * records (prefix.h: nor can one operator fill a key), per publisher, total. A
 * full store drops the record whose roots (dht_msg.h) are farthest from us for
 * a record with a closer root, because closer peers hold the dropped one. The
 * records that one network brought beyond its share, a sixteenth, go first. A
 * network that has its share of a full store replaces only its own records, so
 * invented keys and publishers push out nobody else's. Records leave
 * at their expiry. Cost: one scan of the table; records_max * about 760 bytes.
 *
 * Wall seconds come in with each call and decide expiry only; a clock that is
 * wrong by hours loses records early or late and breaks nothing.
 *
 * Pure; fails with the codes of store_put(); memory is borrowed.
 */
#ifndef LOCO_P2P_DHT_STORE_H
#define LOCO_P2P_DHT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/record.h"
#include "proto/sign.h"

struct store_options {
    struct peer_id self;
    uint32_t records_max;
    uint32_t per_key_max;
    uint32_t per_publisher_max;
    uint32_t per_prefix_max; /* of one key that is half full; 0: no cap */
};

struct store_about {
    struct peer_id near; /* of the record's roots the closest to us */
    uint8_t ip[16];      /* of the peer that brought it */
    bool surplus;        /* its network had its share already */
};

struct store {
    struct store_options opt;
    struct record *record;     /* [n], borrowed for the store's life */
    struct store_about *about; /* [n] */
    uint32_t n;
};

size_t store_bytes(const struct store_options *opt);

/* `memory`: store_bytes(), aligned for any type. */
void store_init(struct store *s, const struct store_options *opt, void *memory);

/* Keep a copy of what the peer at `ip` brings (NULL: we ourselves). 0: kept, or
 * the very same was there. LOCO_ESTALE: not newer than what we hold, or
 * expired. LOCO_ERANGE: expires too far ahead. LOCO_EFULL: a cap. LOCO_ESIG:
 * does not verify. Nothing changes on failure. */
int store_put(struct store *s,
              const struct record *record,
              const struct signer *signer,
              const uint8_t *ip,
              uint64_t wall_s);

/* At most `max` unexpired records of `key` into out[]; where there are more,
 * which ones is drawn from *rng. Valid until the store changes. */
size_t store_get(const struct store *s,
                 const struct hash32 *key,
                 uint64_t wall_s,
                 uint64_t *rng,
                 const struct record **out,
                 size_t max);

/* Drop what expired; returns how many. */
uint32_t store_expire(struct store *s, uint64_t wall_s);

#endif
