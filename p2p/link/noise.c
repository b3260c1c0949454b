/* noise.c - see noise.h. Names follow the specification: MixKey, MixHash,
 * EncryptAndHash (sections 5.1 to 5.3). */
#include "p2p/link/noise.h"

#include <assert.h>
#include <string.h>

#include <sodium.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"

#define HASH_BLOCK_BYTES 128 /* BLAKE2b's block, for HMAC (RFC 2104) */

/* 33 characters, less than HASHLEN: padded with zeros, not hashed (5.2). */
static const char protocol_name[] = "Noise_XX_25519_ChaChaPoly_BLAKE2b";

static void hash_two(const uint8_t *a,
                     size_t a_len,
                     const void *b,
                     size_t b_len,
                     uint8_t out[NOISE_HASH_BYTES])
{
    crypto_generichash_blake2b_state s;

    crypto_generichash_blake2b_init(&s, NULL, 0, NOISE_HASH_BYTES);
    crypto_generichash_blake2b_update(&s, a, a_len);
    if (b_len > 0) {
        crypto_generichash_blake2b_update(&s, b, b_len);
    }
    crypto_generichash_blake2b_final(&s, out, NOISE_HASH_BYTES);
}

/* HMAC-BLAKE2b with a key of NOISE_HASH_BYTES. `out` may be `key`. */
static void hmac(const uint8_t key[NOISE_HASH_BYTES],
                 const void *bytes,
                 size_t len,
                 uint8_t out[NOISE_HASH_BYTES])
{
    uint8_t inner_pad[HASH_BLOCK_BYTES], outer_pad[HASH_BLOCK_BYTES];
    uint8_t inner[NOISE_HASH_BYTES];

    memset(inner_pad, 0x36, sizeof inner_pad);
    memset(outer_pad, 0x5c, sizeof outer_pad);
    for (size_t i = 0; i < NOISE_HASH_BYTES; i++) {
        inner_pad[i] ^= key[i];
        outer_pad[i] ^= key[i];
    }
    hash_two(inner_pad, sizeof inner_pad, bytes, len, inner);
    hash_two(outer_pad, sizeof outer_pad, inner, sizeof inner, out);
    sodium_memzero(inner_pad, sizeof inner_pad);
    sodium_memzero(outer_pad, sizeof outer_pad);
    sodium_memzero(inner, sizeof inner);
}

/* HKDF with two outputs (section 4.3). `first` may be `chain`. */
static void hkdf(const uint8_t chain[NOISE_HASH_BYTES],
                 const void *input,
                 size_t len,
                 uint8_t first[NOISE_HASH_BYTES],
                 uint8_t second[NOISE_HASH_BYTES])
{
    uint8_t temp[NOISE_HASH_BYTES], message[NOISE_HASH_BYTES + 1];

    hmac(chain, input, len, temp);
    message[0] = 1;
    hmac(temp, message, 1, first);
    memcpy(message, first, NOISE_HASH_BYTES);
    message[NOISE_HASH_BYTES] = 2;
    hmac(temp, message, sizeof message, second);
    sodium_memzero(temp, sizeof temp);
    sodium_memzero(message, sizeof message);
}

static void cipher_key(struct noise_cipher *c,
                       const uint8_t key[NOISE_HASH_BYTES])
{
    /* HASHLEN is 64: the key is its first 32 bytes. */
    memcpy(c->key, key, NOISE_KEY_BYTES);
    c->nonce = 0;
    c->keyed = true;
}

/* ChaChaPoly's nonce: 4 zero bytes, then the counter (section 12.3). */
static void cipher_nonce(const struct noise_cipher *c, uint8_t nonce[12])
{
    memset(nonce, 0, 4);
    put_u64(nonce + 4, c->nonce);
}

static int cipher_seal(struct noise_cipher *c,
                       const uint8_t *ad,
                       size_t ad_len,
                       const uint8_t *in,
                       size_t len,
                       uint8_t *out)
{
    uint8_t nonce[12];

    assert(c->keyed && len <= NOISE_PLAIN_MAX);
    if (c->nonce == UINT64_MAX) {
        return LOCO_ERANGE;
    }
    cipher_nonce(c, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, in, len, ad, ad_len,
                                              NULL, nonce, c->key);
    c->nonce++;
    return (int)len + NOISE_TAG_BYTES;
}

static int cipher_open(struct noise_cipher *c,
                       const uint8_t *ad,
                       size_t ad_len,
                       const uint8_t *in,
                       size_t len,
                       uint8_t *out)
{
    uint8_t nonce[12];
    int rv;

    assert(c->keyed);
    if (len < NOISE_TAG_BYTES || len > NOISE_MESSAGE_MAX) {
        return LOCO_EPROTO;
    }
    if (c->nonce == UINT64_MAX) {
        return LOCO_ERANGE;
    }
    cipher_nonce(c, nonce);
    rv = crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, in, len, ad,
                                                   ad_len, nonce, c->key);
    if (rv != 0) {
        return LOCO_ESIG;
    }
    c->nonce++;
    return (int)len - NOISE_TAG_BYTES;
}

static void mix_hash(struct noise *n, const void *bytes, size_t len)
{
    hash_two(n->hash, sizeof n->hash, bytes, len, n->hash);
}

static void mix_key(struct noise *n, const uint8_t input[NOISE_KEY_BYTES])
{
    uint8_t key[NOISE_HASH_BYTES];

    hkdf(n->chain, input, NOISE_KEY_BYTES, n->chain, key);
    cipher_key(&n->cipher, key);
    sodium_memzero(key, sizeof key);
}

/* MixKey(DH(secret, public)). A point of low order gives an all-zero secret
 * that anybody knows: refused. */
static int mix_dh(struct noise *n,
                  const uint8_t secret[NOISE_KEY_BYTES],
                  const uint8_t public[NOISE_KEY_BYTES])
{
    uint8_t shared[NOISE_KEY_BYTES];

    if (crypto_scalarmult_curve25519(shared, secret, public) != 0) {
        return LOCO_EPROTO;
    }
    mix_key(n, shared);
    sodium_memzero(shared, sizeof shared);
    return 0;
}

static int encrypt_and_hash(
    struct noise *n, const void *in, size_t len, uint8_t *out, size_t cap)
{
    size_t need = len + (n->cipher.keyed ? NOISE_TAG_BYTES : 0);
    int rv;

    if (len > NOISE_PLAIN_MAX || need > cap) {
        return LOCO_ERANGE;
    }
    if (n->cipher.keyed) {
        rv = cipher_seal(&n->cipher, n->hash, NOISE_HASH_BYTES, in, len, out);
        if (rv < 0) {
            return rv;
        }
    } else if (len > 0) {
        memcpy(out, in, len);
    }
    mix_hash(n, out, need);
    return (int)need;
}

static int decrypt_and_hash(
    struct noise *n, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    uint8_t hash[NOISE_HASH_BYTES];
    size_t tag = n->cipher.keyed ? NOISE_TAG_BYTES : 0;
    int rv;

    if (len < tag || len > NOISE_MESSAGE_MAX) {
        return LOCO_EPROTO;
    }
    if (len - tag > cap) {
        return LOCO_ERANGE;
    }
    memcpy(hash, n->hash, sizeof hash);
    mix_hash(n, in, len);
    if (!n->cipher.keyed) {
        if (len > 0) {
            memcpy(out, in, len);
        }
        return (int)len;
    }
    rv = cipher_open(&n->cipher, hash, sizeof hash, in, len, out);
    return rv;
}

/* DH of the two keys that token `ee`, `es` or `se` names: the first letter is
 * the initiator's key, the second the responder's. */
static int mix_token(struct noise *n, char initiator_key, char responder_key)
{
    char mine = n->initiator ? initiator_key : responder_key;
    char theirs = n->initiator ? responder_key : initiator_key;

    return mix_dh(n, mine == 'e' ? n->ephemeral_secret : n->static_secret,
                  theirs == 'e' ? n->remote_ephemeral : n->remote_static);
}

static void split(struct noise *n)
{
    uint8_t first[NOISE_HASH_BYTES], second[NOISE_HASH_BYTES];

    hkdf(n->chain, "", 0, first, second);
    cipher_key(n->initiator ? &n->send : &n->recv, first);
    cipher_key(n->initiator ? &n->recv : &n->send, second);
    sodium_memzero(first, sizeof first);
    sodium_memzero(second, sizeof second);
    sodium_memzero(n->ephemeral_secret, sizeof n->ephemeral_secret);
    sodium_memzero(n->static_secret, sizeof n->static_secret);
    sodium_memzero(n->chain, sizeof n->chain);
    sodium_memzero(&n->cipher, sizeof n->cipher);
}

static int fail(struct noise *n, int rv)
{
    n->failed = true;
    return rv;
}

void noise_init(struct noise *n,
                bool initiator,
                const void *prologue,
                size_t prologue_len,
                const uint8_t static_secret[NOISE_KEY_BYTES],
                const uint8_t ephemeral_secret[NOISE_KEY_BYTES])
{
    static_assert(sizeof protocol_name - 1 <= NOISE_HASH_BYTES,
                  "a longer name would have to be hashed");
    memset(n, 0, sizeof *n);
    n->initiator = initiator;
    memcpy(n->hash, protocol_name, sizeof protocol_name - 1);
    memcpy(n->chain, n->hash, NOISE_HASH_BYTES);
    memcpy(n->static_secret, static_secret, NOISE_KEY_BYTES);
    memcpy(n->ephemeral_secret, ephemeral_secret, NOISE_KEY_BYTES);
    crypto_scalarmult_curve25519_base(n->static_public, static_secret);
    crypto_scalarmult_curve25519_base(n->ephemeral_public, ephemeral_secret);
    mix_hash(n, prologue, prologue_len);
}

static int write_ephemeral(struct noise *n, uint8_t *out)
{
    memcpy(out, n->ephemeral_public, NOISE_KEY_BYTES);
    mix_hash(n, out, NOISE_KEY_BYTES);
    return NOISE_KEY_BYTES;
}

static int write_static(struct noise *n, uint8_t *out, size_t cap)
{
    return encrypt_and_hash(n, n->static_public, NOISE_KEY_BYTES, out, cap);
}

/* The tokens of message 1, 2 or 3 into out[cap]. */
static int write_tokens(struct noise *n, uint8_t *out, size_t cap)
{
    int used = 0, rv;

    if (cap < NOISE_KEY_BYTES) {
        return LOCO_ERANGE;
    }
    if (n->n_messages == 0) {
        return write_ephemeral(n, out);
    }
    if (n->n_messages == 1) {
        used = write_ephemeral(n, out);
        rv = mix_token(n, 'e', 'e');
        if (rv != 0) {
            return rv;
        }
    }
    rv = write_static(n, out + used, cap - (size_t)used);
    if (rv < 0) {
        return rv;
    }
    used += rv;
    rv = n->n_messages == 1 ? mix_token(n, 'e', 's') : mix_token(n, 's', 'e');
    return rv != 0 ? rv : used;
}

int noise_write_begin(struct noise *n, uint8_t *out, size_t cap)
{
    int rv;

    assert(noise_my_turn(n) && !n->open);
    rv = write_tokens(n, out, cap);
    if (rv < 0) {
        return fail(n, rv);
    }
    memcpy(n->payload_hash, n->hash, sizeof n->hash);
    n->open = true;
    return rv;
}

int noise_write_end(
    struct noise *n, const void *payload, size_t len, uint8_t *out, size_t cap)
{
    int rv;

    assert(n->open && !n->failed);
    if (len > NOISE_PLAIN_MAX - NOISE_XX_2_BYTES) {
        return fail(n, LOCO_ERANGE);
    }
    rv = encrypt_and_hash(n, payload, len, out, cap);
    if (rv < 0) {
        return fail(n, rv);
    }
    n->open = false;
    if (++n->n_messages == 3) {
        split(n);
    }
    return rv;
}

int noise_write(
    struct noise *n, const void *payload, size_t len, uint8_t *out, size_t cap)
{
    int used = noise_write_begin(n, out, cap), rv;

    if (used < 0) {
        return used;
    }
    rv = noise_write_end(n, payload, len, out + used, cap - (size_t)used);
    return rv < 0 ? rv : used + rv;
}

static int read_static(struct noise *n, const uint8_t *in)
{
    int rv = decrypt_and_hash(n, in, NOISE_KEY_BYTES + NOISE_TAG_BYTES,
                              n->remote_static, sizeof n->remote_static);

    return rv < 0 ? rv : 0;
}

/* The tokens of the next message; returns how many bytes they took. */
static int read_tokens(struct noise *n, const uint8_t *in, size_t len)
{
    static const size_t least[3] = {NOISE_XX_1_BYTES, NOISE_XX_2_BYTES,
                                    NOISE_XX_3_BYTES};
    int used = 0, rv;

    if (len < least[n->n_messages] || len > NOISE_MESSAGE_MAX) {
        return LOCO_EPROTO;
    }
    if (n->n_messages < 2) {
        memcpy(n->remote_ephemeral, in, NOISE_KEY_BYTES);
        mix_hash(n, in, NOISE_KEY_BYTES);
        used = NOISE_KEY_BYTES;
        if (n->n_messages == 0) {
            return used;
        }
        rv = mix_token(n, 'e', 'e');
        if (rv != 0) {
            return rv;
        }
    }
    rv = read_static(n, in + used);
    if (rv != 0) {
        return rv;
    }
    used += NOISE_KEY_BYTES + NOISE_TAG_BYTES;
    rv = n->n_messages == 1 ? mix_token(n, 'e', 's') : mix_token(n, 's', 'e');
    return rv != 0 ? rv : used;
}

int noise_read(struct noise *n,
               const uint8_t *in,
               size_t len,
               uint8_t *payload,
               size_t cap)
{
    int used, rv;

    assert(!noise_my_turn(n) && !noise_done(n) && !n->failed);
    used = read_tokens(n, in, len);
    if (used < 0) {
        return fail(n, used);
    }
    memcpy(n->payload_hash, n->hash, sizeof n->hash);
    rv = decrypt_and_hash(n, in + used, len - (size_t)used, payload, cap);
    if (rv < 0) {
        return fail(n, rv);
    }
    if (++n->n_messages == 3) {
        split(n);
    }
    return rv;
}

bool noise_my_turn(const struct noise *n)
{
    return !n->failed && n->n_messages < 3 &&
           (n->n_messages % 2 == 0) == n->initiator;
}

bool noise_done(const struct noise *n)
{
    return !n->failed && n->n_messages == 3;
}

int noise_seal(struct noise_cipher *c,
               const uint8_t *in,
               size_t len,
               uint8_t *out)
{
    return cipher_seal(c, NULL, 0, in, len, out);
}

int noise_open(struct noise_cipher *c,
               const uint8_t *in,
               size_t len,
               uint8_t *out)
{
    return cipher_open(c, NULL, 0, in, len, out);
}

void noise_wipe(struct noise *n)
{
    sodium_memzero(n, sizeof *n);
}
