/* sign.h - who said it: Ed25519 identities and signatures with a domain.
 *
 * An *identity* is one Ed25519 key pair and the peer id made from it. What is
 * signed is always the 32 bytes hash_bytes(domain, bytes): one Ed25519
 * signature of 64 bytes, some 10 us to make and 40 us to check. The *domain*
 * ("loco-record-1") keeps a signature from being shown as one of another kind.
 *
 * Cores get a *signer*, never a key: signer_sodium() is the real one;
 * signer_keyed() is a keyed mix, hundreds of times faster, same interface,
 * for simulations of thousands of peers ONLY (everybody can forge it).
 *
 * Fails with LOCO_ESIG (does not verify), or with LOCO_EIO / LOCO_EFORMAT and
 * a sentence for key files. A signer borrows its identity for its whole life.
 */
#ifndef LOCO_PROTO_SIGN_H
#define LOCO_PROTO_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/id.h"
#include "proto/limits.h"

#define SIGN_PUBLIC_BYTES 32
#define SIGN_SECRET_BYTES 64 /* seed || public, libsodium's layout */
#define SIGN_SEED_BYTES   32
#define SIGN_BYTES        64

struct identity {
    uint8_t public[SIGN_PUBLIC_BYTES];
    uint8_t secret[SIGN_SECRET_BYTES];
    struct peer_id id;
};

/* Once per process, before the first thread: seeds and tunes libsodium.
 * Repeating it is harmless. LOCO_EIO where the machine has no randomness. */
int sign_start(void);

/* A key pair from 32 bytes, or a fresh one where seed is NULL. */
int identity_generate(struct identity *out, const uint8_t *seed);

/* Read a key file of ours. LOCO_ENOENT: there is none. LOCO_EIO: unreadable, or
 * readable by group or others. LOCO_EFORMAT: not a key. errmsg (LOCO_ERRMSG_MAX
 * bytes, may be NULL) says it in a sentence. */
int identity_load(struct identity *out, const char *path, char *errmsg);

/* Write a new key file with mode 0600, synced, by rename. LOCO_EBUSY where the
 * path exists: a key is never overwritten. */
int identity_save(const struct identity *id, const char *path, char *errmsg);

/* Zero the secret so that the compiler cannot leave it out. */
void identity_wipe(struct identity *id);

int sign_detached(const struct identity *id,
                  const char *domain,
                  const void *bytes,
                  size_t len,
                  uint8_t sig[SIGN_BYTES]);

/* What a core holds. `public` is the key that sign() signs for, NULL in a
 * signer that only verifies (sign() then returns LOCO_EINVAL). */
struct signer {
    void *self;
    const uint8_t *public;
    int (*sign)(void *self,
                const char *domain,
                const void *bytes,
                size_t len,
                uint8_t sig[SIGN_BYTES]);
    bool (*verify)(void *self,
                   const uint8_t public[SIGN_PUBLIC_BYTES],
                   const char *domain,
                   const void *bytes,
                   size_t len,
                   const uint8_t sig[SIGN_BYTES]);
};

/* Borrow `id` for the signer's life; NULL makes a signer that only verifies. */
struct signer signer_sodium(const struct identity *id);

/* Same, with a keyed mix in place of Ed25519: simulations only. Its identities
 * may come from identity_generate() or simply be any distinct public bytes. */
struct signer signer_keyed(const struct identity *id);

/* For simulations: public bytes and id from a number, no curve arithmetic.
 * The id is the hash of the public bytes, as for a real identity. */
void identity_fake(struct identity *out, uint64_t number);

#endif
