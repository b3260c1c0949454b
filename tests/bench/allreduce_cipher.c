/* allreduce_cipher.c - bytes per second that one core seals and opens, the
 * bound of an encrypted ring. Run one a core at the same time.
 *
 * use: allreduce_cipher SECONDS [sodium|chacha20|aes]
 * Records of 65,519 bytes, 1 MiB in turns as the shell does it: seal, then
 * open. `sodium` is libsodium's ChaCha20-Poly1305, the others are OpenSSL's
 * code, as p2p/uv/cipher.c uses it. Prints bytes per second (sealed plus
 * opened), by the clock on the wall and by the processor's.
 */
#include <openssl/evp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RECORD  65519
#define RECORDS 16

static unsigned char plain[RECORDS][RECORD], sealed[RECORDS][RECORD + 16];
static unsigned char key[32] = {1}, nonce[12];

static double now(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int sodium_turn(void)
{
    for (int i = 0; i < RECORDS; i++) {
        crypto_aead_chacha20poly1305_ietf_encrypt(
            sealed[i], NULL, plain[i], RECORD, NULL, 0, NULL, nonce, key);
    }
    for (int i = 0; i < RECORDS; i++) {
        if (crypto_aead_chacha20poly1305_ietf_decrypt(
                plain[i], NULL, NULL, sealed[i], RECORD + 16, NULL, 0, nonce,
                key) != 0) {
            return 1;
        }
    }
    return 0;
}

static int turn(EVP_CIPHER_CTX *seals, EVP_CIPHER_CTX *opens)
{
    int n, ok = 1;

    for (int i = 0; i < RECORDS; i++) {
        ok &= EVP_EncryptInit_ex(seals, NULL, NULL, NULL, nonce) &
              EVP_EncryptUpdate(seals, sealed[i], &n, plain[i], RECORD) &
              EVP_EncryptFinal_ex(seals, sealed[i] + n, &n) &
              EVP_CIPHER_CTX_ctrl(seals, EVP_CTRL_AEAD_GET_TAG, 16,
                                  sealed[i] + RECORD);
    }
    for (int i = 0; i < RECORDS; i++) {
        ok &= EVP_DecryptInit_ex(opens, NULL, NULL, NULL, nonce) &
              EVP_CIPHER_CTX_ctrl(opens, EVP_CTRL_AEAD_SET_TAG, 16,
                                  sealed[i] + RECORD) &
              EVP_DecryptUpdate(opens, plain[i], &n, sealed[i], RECORD) &
              EVP_DecryptFinal_ex(opens, plain[i] + n, &n);
    }
    return ok == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 1, bytes = 0;
    const char *kind = argc > 2 ? argv[2] : "sodium";
    const EVP_CIPHER *c =
        strcmp(kind, "aes") == 0 ? EVP_aes_256_gcm() : EVP_chacha20_poly1305();
    EVP_CIPHER_CTX *seals = EVP_CIPHER_CTX_new();
    EVP_CIPHER_CTX *opens = EVP_CIPHER_CTX_new();
    double start, cpu;

    if (sodium_init() < 0 || seals == NULL || opens == NULL ||
        EVP_EncryptInit_ex(seals, c, NULL, key, NULL) != 1 ||
        EVP_DecryptInit_ex(opens, c, NULL, key, NULL) != 1) {
        return 1;
    }
    start = now(CLOCK_MONOTONIC);
    cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    while (now(CLOCK_MONOTONIC) - start < seconds) {
        if (strcmp(kind, "sodium") == 0 ? sodium_turn() : turn(seals, opens)) {
            return 1;
        }
        bytes += 2.0 * RECORDS * RECORD;
    }
    (void)printf("%.0f %.0f\n", bytes / (now(CLOCK_MONOTONIC) - start),
                 bytes / (now(CLOCK_PROCESS_CPUTIME_ID) - cpu));
    EVP_CIPHER_CTX_free(seals);
    EVP_CIPHER_CTX_free(opens);
    return 0;
}
