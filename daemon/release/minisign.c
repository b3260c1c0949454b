/* minisign.c - see minisign.h. */
#include "daemon/release/minisign.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define TRUSTED "trusted comment: "

_Static_assert(MINISIGN_KEY_BYTES == crypto_sign_PUBLICKEYBYTES &&
                   MINISIGN_SIGNATURE_BYTES == crypto_sign_BYTES,
               "Ed25519");

struct line {
    const char *text;
    size_t len;
};

/* The line at *at, which becomes the place of the next one. */
static struct line next_line(const char **at, const char *end)
{
    struct line l = {*at, 0};
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));

    l.len = (size_t)((newline == NULL ? end : newline) - l.text);
    *at = newline == NULL ? end : newline + 1;
    while (l.len > 0 &&
           (l.text[l.len - 1] == '\r' || l.text[l.len - 1] == ' ')) {
        l.len--;
    }
    return l;
}

/* Exactly n bytes. */
static bool decode(struct line l, uint8_t *out, size_t n)
{
    const char *end = NULL;
    size_t got = 0;

    return sodium_base642bin(out, n, l.text, l.len, NULL, &got, &end,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           got == n && end == l.text + l.len;
}

int minisign_key_parse(struct minisign_key *key, const char *text, char *errmsg)
{
    uint8_t raw[2 + MINISIGN_NAME_BYTES + MINISIGN_KEY_BYTES];
    const char *end = text + strlen(text);
    struct line last = {text, 0};

    while (text < end) {
        struct line l = next_line(&text, end);

        last = l.len > 0 ? l : last;
    }
    if (!decode(last, raw, sizeof raw) || memcmp(raw, "Ed", 2) != 0) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "'%.*s' is no public key of minisign, which has 56 "
                           "characters and begins with RW",
                           (int)(last.len < 64 ? last.len : 64), last.text);
    }
    memcpy(key->name, raw + 2, sizeof key->name);
    memcpy(key->key, raw + 2 + sizeof key->name, sizeof key->key);
    return 0;
}

static int
parse_comment(struct minisign_signature *s, struct line l, char *errmsg)
{
    const size_t label = sizeof TRUSTED - 1;

    if (l.len < label || memcmp(l.text, TRUSTED, label) != 0 ||
        l.len - label >= sizeof s->comment ||
        memchr(l.text, '\0', l.len) != NULL) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the signature's third line is no trusted comment");
    }
    memcpy(s->comment, l.text + label, l.len - label);
    s->comment[l.len - label] = '\0';
    return 0;
}

int minisign_signature_parse(struct minisign_signature *s,
                             const char *text,
                             size_t len,
                             char *errmsg)
{
    uint8_t raw[2 + MINISIGN_NAME_BYTES + MINISIGN_SIGNATURE_BYTES];
    const char *end = text + len;
    struct line lines[4];
    int rv;

    *s = (struct minisign_signature){.comment = ""};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        lines[i] = next_line(&text, end);
    }
    if (!decode(lines[1], raw, sizeof raw)) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the signature is not in the format of minisign");
    }
    if (memcmp(raw, "ED", 2) != 0) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           memcmp(raw, "Ed", 2) == 0
                               ? "the signature has minisign's older form; "
                                 "sign with minisign 0.10 or newer"
                               : "the signature has a form that is not known");
    }
    memcpy(s->name, raw + 2, sizeof s->name);
    memcpy(s->of_hash, raw + 2 + sizeof s->name, sizeof s->of_hash);
    rv = parse_comment(s, lines[2], errmsg);
    if (rv == 0 && !decode(lines[3], s->of_comment, sizeof s->of_comment)) {
        rv = errmsg_fail(errmsg, LOCO_EFORMAT,
                         "the signature of the trusted comment is missing");
    }
    return rv;
}

int minisign_verify(const struct minisign_signature *s,
                    const struct minisign_key *key,
                    const void *bytes,
                    size_t len,
                    char *errmsg)
{
    uint8_t hash[crypto_generichash_BYTES_MAX];
    uint8_t signed_too[MINISIGN_SIGNATURE_BYTES + MINISIGN_COMMENT_MAX];
    size_t n = strlen(s->comment);

    if (memcmp(s->name, key->name, sizeof s->name) != 0) {
        return errmsg_fail(errmsg, LOCO_ESIG, "it is signed with another key");
    }
    (void)crypto_generichash(hash, sizeof hash, bytes, len, NULL, 0);
    memcpy(signed_too, s->of_hash, sizeof s->of_hash);
    memcpy(signed_too + sizeof s->of_hash, s->comment, n);
    if (crypto_sign_verify_detached(s->of_hash, hash, sizeof hash, key->key) !=
        0) {
        return errmsg_fail(errmsg, LOCO_ESIG,
                           "it is not what was signed with this key: it was "
                           "altered or is damaged");
    }
    return crypto_sign_verify_detached(s->of_comment, signed_too,
                                       sizeof s->of_hash + n, key->key) == 0
               ? 0
               : errmsg_fail(errmsg, LOCO_ESIG,
                             "the signature's trusted comment was altered");
}
