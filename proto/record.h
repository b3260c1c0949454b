/* record.h - small signed facts that strangers keep for each other.
 *
 * A *record* lives in the DHT or is spread as a rumour: under a key, its
 * publisher says a value of at most RECORD_VALUE_MAX bytes, until `expiry_s`.
 * Whoever holds it can check that the publisher said it; nobody else can
 * write it. Of two records of one publisher under one key the higher
 * *sequence* is the newer; records of other publishers stand beside it.
 *
 * Bytes: msg.h array [bin key, bin publisher, bin value, sequence, expiry_s,
 * bin signature]; the signature is over the same array without its last
 * element, domain "loco-record-1". At most RECORD_BYTES_MAX.
 *
 * Times are seconds since 1970 and come from clocks that may be wrong: they
 * bound storage, no protocol decision rests on them. Fails with LOCO_EPROTO
 * (malformed), LOCO_ESIG, LOCO_ESTALE (expired), LOCO_ERANGE (lifetime).
 */
#ifndef LOCO_PROTO_RECORD_H
#define LOCO_PROTO_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/limits.h"
#include "proto/msg.h"
#include "proto/sign.h"

/* value + key + publisher + signature + two words + headers */
#define RECORD_BYTES_MAX (RECORD_VALUE_MAX + 32 + 32 + 64 + 2 * 9 + 10)

struct record {
    struct hash32 key;
    uint8_t publisher[SIGN_PUBLIC_BYTES];
    uint32_t value_len;
    uint8_t value[RECORD_VALUE_MAX];
    uint64_t sequence;
    uint64_t expiry_s;
    uint8_t signature[SIGN_BYTES];
};

/* For messages that carry records: MSG_FIELD_STRUCT(..., record_schema). */
extern const struct msg_schema record_schema;

/* Set publisher and signature. LOCO_EINVAL: the signer has no key. */
int record_sign(struct record *r, const struct signer *signer);

/* 0 when the publisher signed it, it is not expired at now_s, and it does not
 * ask to be kept longer than RECORD_LIFETIME_MAX_S. */
int record_verify(const struct record *r,
                  const struct signer *signer,
                  uint64_t now_s);

/* Whether `candidate` takes the place of `held`: same key, same publisher,
 * higher sequence. Verify it first. */
bool record_replaces(const struct record *candidate, const struct record *held);

#endif
