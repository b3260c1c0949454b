/* words.c - see words.h. */
#include "daemon/cli/words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <sodium.h>

#include "proto/base/err.h"
#include "proto/base/nearest.h"

#define LIST_WORDS 2048

static const char *const list[LIST_WORDS] = {
#include "daemon/cli/words.def"
};

/* Bit i of the 33 bytes, the first bit of a byte is its highest. */
static unsigned bit_of(const uint8_t *bytes, unsigned i)
{
    return (unsigned)bytes[i / 8] >> (7 - i % 8) & 1U;
}

static void with_check(const uint8_t secret[32], uint8_t out[33])
{
    uint8_t hash[crypto_hash_sha256_BYTES];

    memcpy(out, secret, 32);
    (void)crypto_hash_sha256(hash, secret, 32);
    out[32] = hash[0];
    sodium_memzero(hash, sizeof hash);
}

void words_encode(const uint8_t secret[32], char out[WORDS_TEXT_MAX])
{
    uint8_t bytes[33];
    size_t len = 0;

    with_check(secret, bytes);
    for (unsigned w = 0; w < WORDS_COUNT; w++) {
        unsigned index = 0;
        size_t n;

        for (unsigned i = 0; i < 11; i++) {
            index = index << 1 | bit_of(bytes, w * 11 + i);
        }
        n = strlen(list[index]);
        memcpy(out + len, list[index], n);
        len += n;
        out[len++] = w + 1 < WORDS_COUNT ? ' ' : '\0';
    }
    sodium_memzero(bytes, sizeof bytes);
}

/* The number of a word, or of the one that its first four letters name. */
static int index_of(const char *word)
{
    size_t len = strlen(word);

    for (int i = 0; i < LIST_WORDS; i++) {
        if (strcmp(list[i], word) == 0 ||
            (len >= 4 && strncmp(list[i], word, len) == 0)) {
            return i;
        }
    }
    return -1;
}

/* The next word in lower case; its length, 0: none, -1: too long. */
static int next_word(const char **at, char out[16])
{
    int n = 0;

    while (isspace((unsigned char)**at)) {
        (*at)++;
    }
    while (**at != '\0' && !isspace((unsigned char)**at)) {
        if (n == 15) {
            return -1;
        }
        out[n++] = (char)tolower((unsigned char)*(*at)++);
    }
    out[n] = '\0';
    return n;
}

static int take_words(const char *text, uint8_t bytes[33], char *errmsg)
{
    char word[16];
    unsigned w;
    int n, index;

    memset(bytes, 0, 33);
    for (w = 0; (n = next_word(&text, word)) != 0; w++) {
        if (w == WORDS_COUNT) {
            (void)snprintf(errmsg, WORDS_ERRMSG_MAX,
                           "there are more than %d words", WORDS_COUNT);
            return LOCO_EINVAL;
        }
        index = n < 0 ? -1 : index_of(word);
        if (index < 0) {
            const char *near =
                n < 0 ? NULL : nearest_word(word, list, LIST_WORDS);

            (void)snprintf(errmsg, WORDS_ERRMSG_MAX,
                           "word %u is not in the list%s%s%s", w + 1,
                           near == NULL ? "" : "; did you mean '",
                           near == NULL ? "" : near, near == NULL ? "" : "'?");
            return LOCO_EINVAL;
        }
        for (unsigned i = 0; i < 11; i++) {
            unsigned place = w * 11 + i;

            bytes[place / 8] |= (uint8_t)(((unsigned)index >> (10 - i) & 1U)
                                          << (7 - place % 8));
        }
    }
    sodium_memzero(word, sizeof word);
    if (w < WORDS_COUNT) {
        (void)snprintf(errmsg, WORDS_ERRMSG_MAX, "there are %u words of %d", w,
                       WORDS_COUNT);
        return LOCO_EINVAL;
    }
    return 0;
}

int words_decode(const char *text,
                 uint8_t secret[32],
                 char errmsg[WORDS_ERRMSG_MAX])
{
    uint8_t bytes[33], right[33];
    int rv = take_words(text, bytes, errmsg);

    if (rv == 0) {
        with_check(bytes, right);
        if (bytes[32] != right[32]) {
            rv = LOCO_EINVAL;
            (void)snprintf(
                errmsg, WORDS_ERRMSG_MAX,
                "every word is in the list, but a word or the order is wrong");
        } else {
            memcpy(secret, bytes, 32);
        }
    }
    sodium_memzero(bytes, sizeof bytes);
    sodium_memzero(right, sizeof right);
    return rv;
}
