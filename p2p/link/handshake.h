/* handshake.h - who is at the other end: Noise XX that carries identities.
 *
 * Noise proves that the peer owns an X25519 key; this binds that key to the
 * Ed25519 key behind a peer id. Messages 2 and 3 carry a *hello* of 108 bytes:
 *     0  public key      Ed25519, 32
 *    32  signature       64, over the handshake hash at that point (the hash
 *                        before the payload), which covers both ephemeral keys
 *                        and the sender's static key; domain per direction
 *    96  u16 listen port 0: does not listen
 *    98  u8  kind        what the initiator wants of this connection; 0 in
 *                        the responder's hello
 *    99  u8  zero
 *   100  u64 feature bits
 * little-endian. The prologue is "loco" || u16 HANDSHAKE_VERSION || 32 bytes
 * run id, so peers of another run or handshake cannot read each other's second
 * message. Message 1 has no payload. A session costs two signatures more than
 * Noise: 0.5 ms a side.
 *
 * Pure: 32 random bytes come in, messages of fixed length come and go; the
 * deadline is the caller's. Copying a session copies secrets: wipe it.
 *
 * Fails with LOCO_ERUN (initiator: message 2 does not decrypt), LOCO_ESIG
 * (tag, signature, or not the expected peer), LOCO_EINVAL (it is ourselves),
 * LOCO_ETWIN (our identity with another static key: another process has it),
 * LOCO_EPROTO (anything else). A failed session is dropped without an answer.
 */
#ifndef LOCO_P2P_LINK_HANDSHAKE_H
#define LOCO_P2P_LINK_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/link/noise.h"
#include "proto/id.h"
#include "proto/sign.h"

#define HANDSHAKE_HELLO_BYTES    108
#define HANDSHAKE_1_BYTES        NOISE_XX_1_BYTES
#define HANDSHAKE_2_BYTES        (NOISE_XX_2_BYTES + HANDSHAKE_HELLO_BYTES)
#define HANDSHAKE_3_BYTES        (NOISE_XX_3_BYTES + HANDSHAKE_HELLO_BYTES)
#define HANDSHAKE_MESSAGE_MAX    HANDSHAKE_2_BYTES
#define HANDSHAKE_PROLOGUE_BYTES (4 + 2 + 32)

/* Feature bits. PLAIN_BULK: this side agrees to segments without encryption
 * and tags on bulk connections; they go so where both sides say it. */
#define HANDSHAKE_PLAIN_BULK 1ULL
/* AES_BULK: this side has instructions for AES-256-GCM and takes it on bulk
 * connections; it is used where both sides say it. */
#define HANDSHAKE_AES_BULK 2ULL

/* Wire values of a hello's kind. */
enum connection_kind {
    CONNECTION_NONE, /* responder's hello */
    CONNECTION_CONTROL,
    CONNECTION_BULK,
    CONNECTION_PROBE, /* only to see who is there; closed when that is known */
    CONNECTION_RELAY, /* to be carried on to another peer */
    CONNECTION_KIND_COUNT
};

/* What a side says about itself; `public_key` and `id` are proven. */
struct handshake_hello {
    uint8_t public_key[SIGN_PUBLIC_BYTES];
    struct peer_id id;
    uint16_t listen_port;
    enum connection_kind kind;
    uint64_t features;
};

struct handshake_options {
    const struct signer *signer; /* borrowed for the session */
    struct hash32 run_id;
    uint16_t version;
    uint8_t static_secret[NOISE_KEY_BYTES]; /* X25519; random, one a process */
    uint16_t listen_port;
    uint64_t features;
};

struct handshake {
    struct noise noise;
    struct handshake_hello remote; /* valid once done */
    /* private */
    const struct signer *signer;
    struct peer_id expected; /* zero: anyone */
    struct peer_id self;
    uint16_t listen_port;
    uint64_t features;
    enum connection_kind kind;
};

/* `ephemeral`: 32 fresh random bytes. `kind` and `expected` (NULL: anyone) are
 * the initiator's; a responder passes CONNECTION_NONE and NULL. */
void handshake_init(struct handshake *h,
                    const struct handshake_options *opt,
                    const uint8_t ephemeral[NOISE_KEY_BYTES],
                    enum connection_kind kind,
                    const struct peer_id *expected);

/* Bytes of the message that is due from the peer; 0 when none is. */
size_t handshake_expects(const struct handshake *h);

/* Write the message that is due from us, if one is, into `out`: its length, 0
 * when it is not our turn, or a negative code. */
int handshake_write(struct handshake *h, uint8_t out[HANDSHAKE_MESSAGE_MAX]);

/* Take the peer's message of exactly handshake_expects() bytes. */
int handshake_read(struct handshake *h, const uint8_t *in, size_t len);

/* All messages are through and the peer is who it says. */
bool handshake_done(const struct handshake *h);

/* Forget every secret of the session. */
void handshake_wipe(struct handshake *h);

#endif
