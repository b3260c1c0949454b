/* record.c - see record.h. */
#include "proto/record.h"

#include <string.h>

#include "proto/base/err.h"

#define DOMAIN_RECORD "loco-record-1"

/* The signature comes last, so that the signed part has one field less. */
static const struct msg_field record_fields[] = {
    MSG_FIELD_FIXED(struct record, key),
    MSG_FIELD_FIXED(struct record, publisher),
    MSG_FIELD_BYTES(struct record, value, value_len),
    MSG_FIELD_U64(struct record, sequence),
    MSG_FIELD_U64(struct record, expiry_s),
    MSG_FIELD_FIXED(struct record, signature),
};

const struct msg_schema record_schema =
    MSG_SCHEMA(struct record, record_fields);

static const struct msg_schema signed_schema = {
    .name = "signed part of struct record",
    .size = sizeof(struct record),
    .fields = record_fields,
    .n_fields = sizeof record_fields / sizeof record_fields[0] - 1,
};

int record_sign(struct record *r, const struct signer *signer)
{
    uint8_t bytes[RECORD_BYTES_MAX];
    int n;

    if (signer->public == NULL) {
        return LOCO_EINVAL;
    }
    memcpy(r->publisher, signer->public, sizeof r->publisher);
    n = msg_encode(&signed_schema, r, bytes, sizeof bytes);
    if (n < 0) {
        return n;
    }
    return signer->sign(signer->self, DOMAIN_RECORD, bytes, (size_t)n,
                        r->signature);
}

int record_verify(const struct record *r,
                  const struct signer *signer,
                  uint64_t now_s)
{
    uint8_t bytes[RECORD_BYTES_MAX];
    int n;

    if (r->expiry_s <= now_s) {
        return LOCO_ESTALE;
    }
    if (r->expiry_s - now_s > RECORD_LIFETIME_MAX_S) {
        return LOCO_ERANGE;
    }
    n = msg_encode(&signed_schema, r, bytes, sizeof bytes);
    if (n < 0) {
        return n;
    }
    return signer->verify(signer->self, r->publisher, DOMAIN_RECORD, bytes,
                          (size_t)n, r->signature)
               ? 0
               : LOCO_ESIG;
}

bool record_replaces(const struct record *candidate, const struct record *held)
{
    return hash32_eq(&candidate->key, &held->key) &&
           memcmp(candidate->publisher, held->publisher,
                  sizeof held->publisher) == 0 &&
           candidate->sequence > held->sequence;
}
