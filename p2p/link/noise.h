/* noise.h - Noise_XX_25519_ChaChaPoly_BLAKE2b: three messages, two keys.
 *
 * The Noise Protocol Framework, revision 34 (Perrin 2018), section 5 and the
 * XX pattern of section 7.5, no more:
 *     -> e          <- e, ee, s, es          -> s, se
 * Both sides end with the other's static key, the same handshake hash and one
 * key for each direction. Cost: four X25519 and about 20 BLAKE2b calls a side,
 * 0.3 ms; after it about 1 ns per byte sealed.
 *
 * Words: the *prologue* is what both must already agree on; the *handshake
 * hash* names everything said so far; a *message* is at most 65535 bytes, its
 * *payload* is what the layer above sends along. What the payloads say (whose
 * key it is) is handshake.h.
 *
 * Pure: key bytes come in as arguments, no randomness, clock or allocation.
 * Process-wide: sign_start() before the first use. A session is 800 bytes and
 * holds secrets: noise_wipe() it.
 *
 * Fails with LOCO_ESIG (a tag does not verify: another prologue, or tampered
 * bytes), LOCO_EPROTO (wrong length, low-order point), LOCO_ERANGE (does not
 * fit). After a failure the session is dead and must be dropped.
 */
#ifndef LOCO_P2P_LINK_NOISE_H
#define LOCO_P2P_LINK_NOISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NOISE_KEY_BYTES   32
#define NOISE_HASH_BYTES  64
#define NOISE_TAG_BYTES   16
#define NOISE_MESSAGE_MAX 65535 /* section 3: one message, tags included */
#define NOISE_PLAIN_MAX   (NOISE_MESSAGE_MAX - NOISE_TAG_BYTES)

/* Bytes of handshake message 1, 2, 3 around the payload. */
#define NOISE_XX_1_BYTES 32
#define NOISE_XX_2_BYTES (32 + 48 + NOISE_TAG_BYTES)
#define NOISE_XX_3_BYTES (48 + NOISE_TAG_BYTES)

/* One direction of a finished session. Nonces count up and never repeat;
 * both sides must seal and open in the same order. */
struct noise_cipher {
    uint8_t key[NOISE_KEY_BYTES];
    uint64_t nonce;
    bool keyed;
};

struct noise {
    uint8_t remote_static[NOISE_KEY_BYTES]; /* set once it was received */
    uint8_t hash[NOISE_HASH_BYTES];         /* of the transcript so far */
    /* hash before the payload of the last message was mixed in: what both
     * sides know while one writes and the other reads that payload */
    uint8_t payload_hash[NOISE_HASH_BYTES];
    struct noise_cipher send, recv; /* valid once noise_done() */
    /* private */
    struct noise_cipher cipher;
    uint8_t chain[NOISE_HASH_BYTES];
    uint8_t static_secret[NOISE_KEY_BYTES];
    uint8_t static_public[NOISE_KEY_BYTES];
    uint8_t ephemeral_secret[NOISE_KEY_BYTES];
    uint8_t ephemeral_public[NOISE_KEY_BYTES];
    uint8_t remote_ephemeral[NOISE_KEY_BYTES];
    uint8_t n_messages; /* done so far, 0..3 */
    bool initiator;
    bool failed;
    bool open; /* between noise_write_begin() and noise_write_end() */
};

/* Keys and prologue are copied. The ephemeral secret must be 32 fresh random
 * bytes for every session; using one twice breaks both sessions. */
void noise_init(struct noise *n,
                bool initiator,
                const void *prologue,
                size_t prologue_len,
                const uint8_t static_secret[NOISE_KEY_BYTES],
                const uint8_t ephemeral_secret[NOISE_KEY_BYTES]);

/* Write the next handshake message: its length, or a negative code. The
 * payload may not overlap `out`. */
int noise_write(
    struct noise *n, const void *payload, size_t len, uint8_t *out, size_t cap);

/* The same in two parts, for a payload that signs payload_hash: _begin writes
 * the keys and sets payload_hash, _end appends the payload. Both return bytes
 * written to their `out`. */
int noise_write_begin(struct noise *n, uint8_t *out, size_t cap);
int noise_write_end(
    struct noise *n, const void *payload, size_t len, uint8_t *out, size_t cap);

/* Read the next handshake message: payload length, or a negative code. */
int noise_read(struct noise *n,
               const uint8_t *in,
               size_t len,
               uint8_t *payload,
               size_t cap);

/* Whose turn it is, and whether all three messages are through. */
bool noise_my_turn(const struct noise *n);
bool noise_done(const struct noise *n);

/* Seal in[len], len <= NOISE_PLAIN_MAX, into out[len + NOISE_TAG_BYTES]; `out`
 * may be `in`, but must not overlap it otherwise. LOCO_ERANGE when the 2^64 - 1
 * nonces are used up. */
int noise_seal(struct noise_cipher *c,
               const uint8_t *in,
               size_t len,
               uint8_t *out);

/* Open in[len] into out[len - NOISE_TAG_BYTES] (same rule of overlap): the
 * length, or LOCO_ESIG with `out` unspecified and the direction unusable. */
int noise_open(struct noise_cipher *c,
               const uint8_t *in,
               size_t len,
               uint8_t *out);

/* Forget every secret of the session. */
void noise_wipe(struct noise *n);

#endif
