/* allreduce_cipher.c - bytes per second that one core seals and opens, the
 * bound of an encrypted ring. Run one a core at the same time.
 *
 * use: allreduce_cipher SECONDS
 * ChaCha20-Poly1305 of libsodium over records of 65,519 bytes, 1 MiB in turns
 * as the shell does it: seal, then open. Prints bytes per second (sealed plus
 * opened), by the clock on the wall.
 */
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RECORD  65519
#define RECORDS 16

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    static unsigned char plain[RECORDS][RECORD], sealed[RECORDS][RECORD + 16];
    unsigned char key[32] = {1}, nonce[12] = {0};
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 1, start, bytes = 0;

    if (sodium_init() < 0) {
        return 1;
    }
    for (start = now(); now() - start < seconds;) {
        for (int i = 0; i < RECORDS; i++) {
            crypto_aead_chacha20poly1305_ietf_encrypt(
                sealed[i], NULL, plain[i], RECORD, NULL, 0, NULL, nonce, key);
        }
        for (int i = 0; i < RECORDS; i++) {
            if (crypto_aead_chacha20poly1305_ietf_decrypt(
                    plain[i], NULL, NULL, sealed[i], RECORD + 16, NULL, 0,
                    nonce, key) != 0) {
                return 1;
            }
        }
        bytes += 2.0 * RECORDS * RECORD;
    }
    (void)printf("%.0f\n", bytes / (now() - start));
    return 0;
}
