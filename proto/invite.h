/* invite.h - who may take part in a run that is not for everybody.
 *
 * The author of such a run (`invited` in its manifest) gives out *invites*:
 * each is a secret key of its own, with the author's signature under {run,
 * number, expiry, public key}. A peer shows the signed part and signs its own
 * id with the secret (struct admission of messages.h): who sees that cannot
 * use it, and the secret itself never leaves the machine. Whoever holds the
 * secret can bring as many peers as it likes until the author revokes the
 * number.
 *
 * As text: 144 characters of base64url (RFC 4648, section 5, no padding) of
 *
 *     0   u32  number, little-endian
 *     4   u64  expiry, seconds since 1970, little-endian; 0: never
 *     12       32 bytes: seed of the invite's Ed25519 key
 *     44       64 bytes: the author's signature
 *
 * Pure. Malformed text is LOCO_EINVAL.
 */
#ifndef LOCO_PROTO_INVITE_H
#define LOCO_PROTO_INVITE_H

#include <stdint.h>

#include "proto/id.h"
#include "proto/sign.h"

#define INVITE_BYTES    108
#define INVITE_TEXT_MAX (INVITE_BYTES / 3 * 4 + 1) /* with its NUL */

struct invite {
    uint32_t number;
    uint64_t expiry_s;
    uint8_t seed[SIGN_SEED_BYTES]; /* secret */
    uint8_t sig[SIGN_BYTES];
};

struct admission;

/* A new one, with a secret of its own. */
int invite_make(const struct identity *author,
                const struct hash32 *run,
                uint32_t number,
                uint64_t expiry_s,
                struct invite *out);

int invite_parse(const char *text, struct invite *out);
void invite_format(const struct invite *in, char out[INVITE_TEXT_MAX]);

/* What the peer with that id shows. */
int invite_admission(const struct invite *in,
                     const struct hash32 *run,
                     const struct peer_id *peer,
                     struct admission *out);

#endif
