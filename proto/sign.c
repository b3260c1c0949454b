/* sign.c - see sign.h. */
#include "proto/sign.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "proto/base/rng.h"
#include "proto/hash.h"

#define KEY_MAGIC "loco-key-1 "
/* magic, seed in hex, blank, short id as a check, newline, final zero */
#define KEY_TEXT_MAX (11 + 64 + 1 + 12 + 1 + 1)

/* Write a sentence where somebody wants one; returns `err`. */
static int fail(int err, char *errmsg, const char *what, const char *path)
{
    if (errmsg != NULL) {
        (void)snprintf(errmsg, LOCO_ERRMSG_MAX, "identity %s: %s", path, what);
    }
    return err;
}

static int fail_errno(char *errmsg, const char *what, const char *path)
{
    char text[128];
    int code = errno;
    int err = code == ENOENT   ? LOCO_ENOENT
              : code == ENOSPC ? LOCO_EDISK
              : code == EEXIST ? LOCO_EBUSY
                               : LOCO_EIO;

    (void)snprintf(text, sizeof text, "%s: %s", what, strerror(code));
    return fail(err, errmsg, text, path);
}

int sign_start(void)
{
    return sodium_init() < 0 ? LOCO_EIO : 0;
}

int identity_generate(struct identity *out, const uint8_t *seed)
{
    int rv = sign_start();

    if (rv != 0) {
        return rv;
    }
    if (seed != NULL) {
        (void)crypto_sign_seed_keypair(out->public, out->secret, seed);
    } else {
        (void)crypto_sign_keypair(out->public, out->secret);
    }
    out->id = id_of_public(out->public);
    return 0;
}

void identity_wipe(struct identity *id)
{
    sodium_memzero(id, sizeof *id);
}

/* Parse the text of a key file; 0 or LOCO_EFORMAT. */
static int key_parse(char *text, struct identity *out)
{
    const size_t magic = strlen(KEY_MAGIC);
    uint8_t seed[SIGN_SEED_BYTES];
    char check[ID_SHORT_MAX];
    int rv;

    if (strlen(text) != KEY_TEXT_MAX - 1 ||
        memcmp(text, KEY_MAGIC, magic) != 0 || text[magic + 64] != ' ' ||
        text[KEY_TEXT_MAX - 2] != '\n') {
        return LOCO_EFORMAT;
    }
    text[magic + 64] = '\0';
    text[KEY_TEXT_MAX - 2] = '\0';
    if (hex_decode(text + magic, seed, sizeof seed) != 0) {
        return LOCO_EFORMAT;
    }
    rv = identity_generate(out, seed);
    sodium_memzero(seed, sizeof seed);
    if (rv != 0) {
        return rv;
    }
    id_short(&out->id, check);
    if (strcmp(check, text + magic + 65) != 0) {
        identity_wipe(out);
        return LOCO_EFORMAT;
    }
    return 0;
}

int identity_load(struct identity *out, const char *path, char *errmsg)
{
    char text[KEY_TEXT_MAX + 1];
    struct stat st;
    ssize_t n;
    int fd, rv;

    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return fail_errno(errmsg, "cannot open it", path);
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        rv = fail(LOCO_EIO, errmsg, "is not a regular file", path);
    } else if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        rv = fail(LOCO_EIO, errmsg,
                  "other users can read or write this secret key; "
                  "run: chmod 600 on it",
                  path);
    } else if ((n = read(fd, text, KEY_TEXT_MAX)) < 0) {
        rv = fail_errno(errmsg, "cannot read it", path);
    } else {
        text[n] = '\0';
        rv = key_parse(text, out);
        if (rv == LOCO_EFORMAT) {
            (void)fail(rv, errmsg,
                       "is not a loco key or is damaged; "
                       "restore it from a backup, or move it away to get "
                       "a new identity",
                       path);
        }
    }
    sodium_memzero(text, sizeof text);
    (void)close(fd);
    return rv;
}

int identity_save(const struct identity *id, const char *path, char *errmsg)
{
    char tmp[4096], text[KEY_TEXT_MAX], seed[2 * SIGN_SEED_BYTES + 1];
    char check[ID_SHORT_MAX];
    ssize_t n;
    int fd, rv = 0;

    if (snprintf(tmp, sizeof tmp, "%s.%ld", path, (long)getpid()) >=
        (int)sizeof tmp) {
        return fail(LOCO_EINVAL, errmsg, "the path is too long", path);
    }
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fail_errno(errmsg, "cannot create it", path);
    }
    hex_encode(id->secret, SIGN_SEED_BYTES, seed);
    id_short(&id->id, check);
    (void)snprintf(text, sizeof text, KEY_MAGIC "%s %s\n", seed, check);
    n = write(fd, text, strlen(text));
    if (n != (ssize_t)strlen(text) || fsync(fd) != 0) {
        rv = fail_errno(errmsg, "cannot write it", path);
    }
    sodium_memzero(text, sizeof text);
    sodium_memzero(seed, sizeof seed);
    if (close(fd) != 0 && rv == 0) {
        rv = fail_errno(errmsg, "cannot write it", path);
    }
    /* link, not rename: an existing key stays. */
    if (rv == 0 && link(tmp, path) != 0) {
        rv = fail_errno(errmsg, "cannot name it", path);
    }
    (void)unlink(tmp);
    if (rv ==
        0) { /* if it fails, the file's own bytes are there all the same */
        (void)file_sync_folder(path, NULL);
    }
    return rv;
}

int sign_detached(const struct identity *id,
                  const char *domain,
                  const void *bytes,
                  size_t len,
                  uint8_t sig[SIGN_BYTES])
{
    struct hash32 h;

    hash_bytes(domain, bytes, len, &h);
    (void)crypto_sign_detached(sig, NULL, h.b, sizeof h.b, id->secret);
    return 0;
}

static int sodium_sign(void *self,
                       const char *domain,
                       const void *bytes,
                       size_t len,
                       uint8_t sig[SIGN_BYTES])
{
    if (self == NULL) {
        return LOCO_EINVAL;
    }
    return sign_detached(self, domain, bytes, len, sig);
}

static bool sodium_verify(void *self,
                          const uint8_t public[SIGN_PUBLIC_BYTES],
                          const char *domain,
                          const void *bytes,
                          size_t len,
                          const uint8_t sig[SIGN_BYTES])
{
    struct hash32 h;

    (void)self;
    hash_bytes(domain, bytes, len, &h);
    return crypto_sign_verify_detached(sig, h.b, sizeof h.b, public) == 0;
}

struct signer signer_sodium(const struct identity *id)
{
    return (struct signer){
        .self = (void *)(uintptr_t)id,
        .public = id == NULL ? NULL : id->public,
        .sign = sodium_sign,
        .verify = sodium_verify,
    };
}

/* Absorb bytes, 8 at a time, the last word padded with zeros; the length is
 * absorbed by the caller. */
static uint64_t mix_bytes(uint64_t h, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    uint64_t s;

    for (; len >= 8; p += 8, len -= 8) {
        s = h ^ get_u64(p);
        h = rng_next(&s);
    }
    if (len > 0) {
        uint8_t last[8] = {0};

        memcpy(last, p, len);
        s = h ^ get_u64(last);
        h = rng_next(&s);
    }
    return h;
}

static void keyed_mix(const uint8_t *public,
                      const char *domain,
                      const void *bytes,
                      size_t len,
                      uint8_t sig[SIGN_BYTES])
{
    uint64_t word = len;
    uint64_t h = rng_mix(&word, 1);

    h = mix_bytes(h, public, SIGN_PUBLIC_BYTES);
    h = mix_bytes(h, domain, strlen(domain) + 1);
    h = mix_bytes(h, bytes, len);
    for (size_t i = 0; i < SIGN_BYTES; i += 8) {
        put_u64(sig + i, rng_next(&h));
    }
}

static int keyed_sign(void *self,
                      const char *domain,
                      const void *bytes,
                      size_t len,
                      uint8_t sig[SIGN_BYTES])
{
    const struct identity *id = self;

    if (id == NULL) {
        return LOCO_EINVAL;
    }
    keyed_mix(id->public, domain, bytes, len, sig);
    return 0;
}

static bool keyed_verify(void *self,
                         const uint8_t public[SIGN_PUBLIC_BYTES],
                         const char *domain,
                         const void *bytes,
                         size_t len,
                         const uint8_t sig[SIGN_BYTES])
{
    uint8_t want[SIGN_BYTES];

    (void)self;
    keyed_mix(public, domain, bytes, len, want);
    return memcmp(want, sig, sizeof want) == 0;
}

struct signer signer_keyed(const struct identity *id)
{
    return (struct signer){
        .self = (void *)(uintptr_t)id,
        .public = id == NULL ? NULL : id->public,
        .sign = keyed_sign,
        .verify = keyed_verify,
    };
}

void identity_fake(struct identity *out, uint64_t number)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < SIGN_PUBLIC_BYTES; i += 8) {
        put_u64(out->public + i, rng_next(&number));
    }
    out->id = id_of_public(out->public);
}
