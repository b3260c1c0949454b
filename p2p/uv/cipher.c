/* cipher.c - see cipher.h. */
#include "p2p/uv/cipher.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <sodium.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#define NONCE_BYTES 12

static const char derive_text[] = "loco-bulk-aes256gcm-1";

struct cipher {
    EVP_CIPHER_CTX *ctx; /* holds the key */
    enum cipher_kind kind;
    uint64_t nonce;
    bool seals;
};

bool cipher_has_aes(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__) && defined(__linux__)
    unsigned long has = getauxval(AT_HWCAP);

    return (has & HWCAP_AES) != 0 && (has & HWCAP_PMULL) != 0;
#else
    return false;
#endif
}

/* The key of AES: BLAKE2b-256, keyed with Noise's, of a text of its own. */
static void derive(const uint8_t key[NOISE_KEY_BYTES],
                   uint8_t out[NOISE_KEY_BYTES])
{
    (void)crypto_generichash(out, NOISE_KEY_BYTES, (const uint8_t *)derive_text,
                             sizeof derive_text - 1, key, NOISE_KEY_BYTES);
}

/* Key and direction are set once, the nonce with every record. */
static bool set_key(struct cipher *c, const uint8_t key[NOISE_KEY_BYTES])
{
    const EVP_CIPHER *algorithm =
        c->kind == CIPHER_AES ? EVP_aes_256_gcm() : EVP_chacha20_poly1305();

    return EVP_CipherInit_ex(c->ctx, algorithm, NULL, key, NULL, c->seals) ==
               1 &&
           EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_SET_IVLEN, NONCE_BYTES,
                               NULL) == 1;
}

struct cipher *
cipher_new(enum cipher_kind kind, const struct noise_cipher *from, bool seals)
{
    struct cipher *c = calloc(1, sizeof *c);
    uint8_t key[NOISE_KEY_BYTES];
    bool ok;

    assert(from->keyed);
    if (c == NULL) {
        return NULL;
    }
    c->kind = kind;
    c->seals = seals;
    c->nonce = kind == CIPHER_AES ? 0 : from->nonce;
    c->ctx = EVP_CIPHER_CTX_new();
    memcpy(key, from->key, sizeof key);
    if (kind == CIPHER_AES) {
        derive(from->key, key);
    }
    ok = c->ctx != NULL && set_key(c, key);
    sodium_memzero(key, sizeof key);
    if (!ok) {
        cipher_free(c);
        return NULL;
    }
    return c;
}

void cipher_free(struct cipher *c)
{
    if (c != NULL) {
        EVP_CIPHER_CTX_free(c->ctx); /* wipes it */
        free(c);
    }
}

/* Four zero bytes, then the counter: little-endian as in Noise's ChaChaPoly,
 * big-endian as in its AESGCM (sections 12.3, 12.4). False: none is left. */
static bool next_nonce(struct cipher *c)
{
    uint8_t nonce[NONCE_BYTES] = {0};

    if (c->nonce == UINT64_MAX) {
        return false;
    }
    put_u64(nonce + 4, c->nonce);
    for (int i = 0; i < 4 && c->kind == CIPHER_AES; i++) {
        uint8_t low = nonce[4 + i];

        nonce[4 + i] = nonce[11 - i];
        nonce[11 - i] = low;
    }
    c->nonce++;
    return EVP_CipherInit_ex(c->ctx, NULL, NULL, NULL, nonce, c->seals) == 1;
}

int cipher_seal(struct cipher *c, const uint8_t *in, size_t len, uint8_t *out)
{
    int n = 0, tail = 0;

    assert(c->seals && len <= NOISE_PLAIN_MAX);
    if (!next_nonce(c) ||
        (len > 0 && EVP_CipherUpdate(c->ctx, out, &n, in, (int)len) != 1) ||
        EVP_CipherFinal_ex(c->ctx, out + n, &tail) != 1 ||
        EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_GET_TAG, NOISE_TAG_BYTES,
                            out + len) != 1) {
        return LOCO_ERANGE;
    }
    assert((size_t)(n + tail) == len);
    return (int)len + NOISE_TAG_BYTES;
}

int cipher_open(struct cipher *c, const uint8_t *in, size_t len, uint8_t *out)
{
    uint8_t tag[NOISE_TAG_BYTES];
    int n = 0, tail = 0;

    assert(!c->seals);
    if (len < NOISE_TAG_BYTES || len > NOISE_MESSAGE_MAX) {
        return LOCO_EPROTO;
    }
    len -= NOISE_TAG_BYTES;
    memcpy(tag, in + len, sizeof tag); /* `out` may be `in` */
    if (!next_nonce(c)) {
        return LOCO_ERANGE;
    }
    if (EVP_CIPHER_CTX_ctrl(c->ctx, EVP_CTRL_AEAD_SET_TAG, NOISE_TAG_BYTES,
                            tag) != 1 ||
        (len > 0 && EVP_CipherUpdate(c->ctx, out, &n, in, (int)len) != 1) ||
        EVP_CipherFinal_ex(c->ctx, out + n, &tail) != 1) {
        sodium_memzero(out, len); /* nothing of it was verified */
        return LOCO_ESIG;
    }
    return (int)len;
}
