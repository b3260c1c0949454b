/* cipher_test.c - what seals bulk records, against libsodium's code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sodium.h>

#include "p2p/uv/cipher.h"
#include "proto/base/err.h"
#include "proto/id.h"
#include "proto/sign.h"

static const size_t lens[] = {0, 1, 15, 16, 17, 63, 64, 65, 4096, 65519};

#define LENS (sizeof lens / sizeof lens[0])

static struct noise_cipher direction(void)
{
    struct noise_cipher n = {.keyed = true};

    for (unsigned i = 0; i < sizeof n.key; i++) {
        n.key[i] = (uint8_t)i;
    }
    return n;
}

static uint8_t *bytes_of(size_t n)
{
    uint8_t *b = malloc(n + NOISE_TAG_BYTES);

    assert_non_null(b);
    for (size_t i = 0; i < n; i++) {
        b[i] = (uint8_t)(i * 2654435761U >> 9);
    }
    return b;
}

/* A peer that knows only Noise reads it, and is read. */
static void chacha_is_noises_own(void **state)
{
    struct noise_cipher noise[2] = {direction(), direction()}, from;
    struct cipher *seals, *opens;

    (void)state;
    from = direction();
    seals = cipher_new(CIPHER_CHACHA, &from, true);
    opens = cipher_new(CIPHER_CHACHA, &from, false);
    assert_true(seals != NULL && opens != NULL);
    for (size_t i = 0; i < LENS; i++) {
        uint8_t *plain = bytes_of(lens[i]), *out = bytes_of(lens[i]);
        uint8_t *want = bytes_of(lens[i]);
        int n = noise_seal(&noise[0], plain, lens[i], want);

        assert_int_equal(cipher_seal(seals, plain, lens[i], out), n);
        assert_memory_equal(out, want, (size_t)n);
        assert_int_equal(cipher_open(opens, out, (size_t)n, out), lens[i]);
        assert_memory_equal(out, plain, lens[i]);
        assert_int_equal(noise_open(&noise[1], want, (size_t)n, want), lens[i]);
        free(plain);
        free(out);
        free(want);
    }
    cipher_free(seals);
    cipher_free(opens);
}

/* The example of PROTOCOL.md, section 12. */
static void aes_is_as_the_protocol_says(void **state)
{
    static const char *const records[] = {
        "08ab26b3c1c70751d5e7f38f37e8da6c253406",
        "2bb1f24630f093b6ff932424914719dd"};
    struct noise_cipher from = direction();
    struct cipher *seals = cipher_new(CIPHER_AES, &from, true);
    uint8_t out[64];
    char hex[2 * sizeof out + 1];

    (void)state;
    assert_non_null(seals);
    hex_encode(out, (size_t)cipher_seal(seals, (const uint8_t *)"abc", 3, out),
               hex);
    assert_string_equal(hex, records[0]);
    hex_encode(out, (size_t)cipher_seal(seals, out, 0, out), hex);
    assert_string_equal(hex, records[1]);
    cipher_free(seals);
}

static void aes_is_that_of_another_library(void **state)
{
    struct noise_cipher from = direction();
    struct cipher *seals = cipher_new(CIPHER_AES, &from, true);
    struct cipher *opens = cipher_new(CIPHER_AES, &from, false);
    uint8_t key[32], nonce[12] = {0};

    (void)state;
    assert_true(seals != NULL && opens != NULL);
    assert_int_equal(
        crypto_generichash(key, sizeof key,
                           (const uint8_t *)"loco-bulk-aes256gcm-1", 21,
                           from.key, sizeof from.key),
        0);
    for (size_t i = 0; i < LENS; i++) {
        uint8_t *plain = bytes_of(lens[i]), *out = bytes_of(lens[i]);
        uint8_t *want = bytes_of(lens[i]);
        size_t n = lens[i] + NOISE_TAG_BYTES;

        assert_int_equal(cipher_seal(seals, plain, lens[i], out), n);
        if (crypto_aead_aes256gcm_is_available()) {
            nonce[11] = (uint8_t)i;
            crypto_aead_aes256gcm_encrypt(want, NULL, plain, lens[i], NULL, 0,
                                          NULL, nonce, key);
            assert_memory_equal(out, want, n);
        }
        assert_int_equal(cipher_open(opens, out, n, out), lens[i]);
        assert_memory_equal(out, plain, lens[i]);
        free(plain);
        free(out);
        free(want);
    }
    cipher_free(seals);
    cipher_free(opens);
}

/* One bit anywhere, or another place in the order: nothing of it is seen. */
static void what_was_tampered_with_is_refused_and_wiped(void **state)
{
    (void)state;
    for (int kind = CIPHER_CHACHA; kind <= CIPHER_AES; kind++) {
        for (size_t at = 0; at < 80 + NOISE_TAG_BYTES; at += 5) {
            struct noise_cipher from = direction();
            struct cipher *seals = cipher_new(kind, &from, true);
            struct cipher *opens = cipher_new(kind, &from, false);
            uint8_t out[80 + NOISE_TAG_BYTES] = {0}, zero[80] = {0};
            uint8_t to[80];

            memset(out, 9, 80);
            assert_int_equal(cipher_seal(seals, out, 80, out), sizeof out);
            out[at] ^= 1U << at % 8;
            memset(to, 7, sizeof to);
            assert_int_equal(cipher_open(opens, out, sizeof out, to),
                             LOCO_ESIG);
            assert_memory_equal(to, zero, sizeof to);
            cipher_free(seals);
            cipher_free(opens);
        }
    }
}

static void records_open_in_their_order_only(void **state)
{
    (void)state;
    for (int kind = CIPHER_CHACHA; kind <= CIPHER_AES; kind++) {
        struct noise_cipher from = direction();
        struct cipher *seals = cipher_new(kind, &from, true);
        struct cipher *opens = cipher_new(kind, &from, false);
        uint8_t first[3 + NOISE_TAG_BYTES], second[3 + NOISE_TAG_BYTES];

        cipher_seal(seals, (const uint8_t *)"one", 3, first);
        cipher_seal(seals, (const uint8_t *)"one", 3, second);
        assert_memory_not_equal(first, second, sizeof first);
        assert_int_equal(cipher_open(opens, second, sizeof second, second),
                         LOCO_ESIG);
        cipher_free(seals);
        cipher_free(opens);
    }
}

static void lengths_that_cannot_be_are_refused(void **state)
{
    static uint8_t bytes[NOISE_MESSAGE_MAX + 1];

    (void)state;
    for (int kind = CIPHER_CHACHA; kind <= CIPHER_AES; kind++) {
        struct noise_cipher from = direction();
        struct cipher *opens = cipher_new(kind, &from, false);

        assert_int_equal(cipher_open(opens, bytes, 0, bytes), LOCO_EPROTO);
        assert_int_equal(cipher_open(opens, bytes, NOISE_TAG_BYTES - 1, bytes),
                         LOCO_EPROTO);
        assert_int_equal(cipher_open(opens, bytes, sizeof bytes, bytes),
                         LOCO_EPROTO);
        cipher_free(opens);
    }
    cipher_free(NULL);
}

/* The key of AES is not Noise's: neither opens the other's. */
static void the_two_ciphers_share_no_key(void **state)
{
    struct noise_cipher from = direction();
    uint8_t key[32], out[3 + NOISE_TAG_BYTES], nonce[12] = {0};
    struct cipher *seals = cipher_new(CIPHER_AES, &from, true);

    (void)state;
    memcpy(key, from.key, sizeof key);
    assert_int_equal(cipher_seal(seals, (const uint8_t *)"abc", 3, out), 19);
    if (crypto_aead_aes256gcm_is_available()) {
        assert_int_not_equal(crypto_aead_aes256gcm_decrypt(out, NULL, NULL, out,
                                                           sizeof out, NULL, 0,
                                                           nonce, key),
                             0);
    }
    cipher_free(seals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chacha_is_noises_own),
        cmocka_unit_test(aes_is_as_the_protocol_says),
        cmocka_unit_test(aes_is_that_of_another_library),
        cmocka_unit_test(what_was_tampered_with_is_refused_and_wiped),
        cmocka_unit_test(records_open_in_their_order_only),
        cmocka_unit_test(lengths_that_cannot_be_are_refused),
        cmocka_unit_test(the_two_ciphers_share_no_key),
    };

    return sign_start() != 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
