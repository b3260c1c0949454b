/* invite.c - see invite.h. */
#include "proto/invite.h"

#include <string.h>

#include <sodium.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/messages.h"

enum { AT_NUMBER = 0, AT_EXPIRY = 4, AT_SEED = 12, AT_SIG = 44 };

static int body_of(const struct invite *in,
                   const struct hash32 *run,
                   struct identity *key,
                   struct invitation_body *out)
{
    int rv = identity_generate(key, in->seed);

    *out = (struct invitation_body){
        .run = *run,
        .number = in->number,
        .expiry_s = in->expiry_s,
    };
    memcpy(out->key, key->public, sizeof out->key);
    return rv;
}

int invite_make(const struct identity *author,
                const struct hash32 *run,
                uint32_t number,
                uint64_t expiry_s,
                struct invite *out)
{
    struct signer signer = signer_sodium(author);
    struct invitation_body body;
    struct identity key;
    int rv;

    *out = (struct invite){.number = number, .expiry_s = expiry_s};
    randombytes_buf(out->seed, sizeof out->seed);
    rv = body_of(out, run, &key, &body);
    rv = rv != 0
             ? rv
             : message_sign(&signer, &invitation_body_schema, &body, out->sig);
    identity_wipe(&key);
    return rv;
}

int invite_parse(const char *text, struct invite *out)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "abcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t bytes[INVITE_BYTES];
    size_t len = 0;

    memset(out, 0, sizeof *out);
    /* libsodium 1.0.18 takes some bytes above 127 for digits. */
    if (strnlen(text, INVITE_TEXT_MAX) != INVITE_TEXT_MAX - 1 ||
        strspn(text, alphabet) != INVITE_TEXT_MAX - 1 ||
        sodium_base642bin(bytes, sizeof bytes, text, INVITE_TEXT_MAX - 1, NULL,
                          &len, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
        len != sizeof bytes) {
        return LOCO_EINVAL;
    }
    out->number = get_u32(bytes + AT_NUMBER);
    out->expiry_s = get_u64(bytes + AT_EXPIRY);
    memcpy(out->seed, bytes + AT_SEED, sizeof out->seed);
    memcpy(out->sig, bytes + AT_SIG, sizeof out->sig);
    sodium_memzero(bytes, sizeof bytes);
    return 0;
}

void invite_format(const struct invite *in, char out[INVITE_TEXT_MAX])
{
    uint8_t bytes[INVITE_BYTES];

    put_u32(bytes + AT_NUMBER, in->number);
    put_u64(bytes + AT_EXPIRY, in->expiry_s);
    memcpy(bytes + AT_SEED, in->seed, sizeof in->seed);
    memcpy(bytes + AT_SIG, in->sig, sizeof in->sig);
    (void)sodium_bin2base64(out, INVITE_TEXT_MAX, bytes, sizeof bytes,
                            sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    sodium_memzero(bytes, sizeof bytes);
}

int invite_admission(const struct invite *in,
                     const struct hash32 *run,
                     const struct peer_id *peer,
                     struct admission *out)
{
    struct admission_body body = {.run = *run, .peer = *peer};
    struct identity key;
    struct signer signer;
    int rv = body_of(in, run, &key, &out->invitation.body);

    memcpy(out->invitation.sig, in->sig, sizeof in->sig);
    signer = signer_sodium(&key);
    rv = rv != 0
             ? rv
             : message_sign(&signer, &admission_body_schema, &body, out->proof);
    identity_wipe(&key);
    return rv;
}
