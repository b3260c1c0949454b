/* cipher.h - what seals the records of a bulk connection.
 *
 * Two ciphers, both one direction of a finished handshake with its own key and
 * a nonce that counts up: ChaCha20-Poly1305 as Noise ends with it, or
 * AES-256-GCM under a key derived from Noise's, where both ends have
 * instructions for it and said so in their hellos (HANDSHAKE_AES_BULK). Records
 * look the same.
 *
 * The code is OpenSSL's: for records of 64 KiB its ChaCha20-Poly1305 is about
 * twice as fast as libsodium's and its AES-256-GCM three to four times.
 * Handshakes, control connections and all signatures stay with libsodium.
 *
 * Cost: about 0.3 us a record beside its bytes. Memory: 1 KB. Fails with
 * LOCO_ENOMEM (cipher_new), LOCO_ESIG (a tag does not verify: the direction is
 * dead), LOCO_EPROTO (a length that cannot be), LOCO_ERANGE (2^64 - 1 nonces
 * are used up). Not for two threads at a time.
 */
#ifndef LOCO_P2P_UV_CIPHER_H
#define LOCO_P2P_UV_CIPHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "p2p/link/noise.h"

enum cipher_kind { CIPHER_CHACHA, CIPHER_AES };

struct cipher;

/* Whether this processor has instructions for AES-256-GCM. */
bool cipher_has_aes(void);

/* The direction that `from` is, from its next nonce on (AES: from 0); it is
 * not used any more. NULL: no memory. */
struct cipher *
cipher_new(enum cipher_kind kind, const struct noise_cipher *from, bool seals);

/* Wipes its key; NULL is fine. */
void cipher_free(struct cipher *c);

/* As noise_seal() and noise_open(), with their rules of overlap. */
int cipher_seal(struct cipher *c, const uint8_t *in, size_t len, uint8_t *out);
int cipher_open(struct cipher *c, const uint8_t *in, size_t len, uint8_t *out);

#endif
