/* minisign.h - who published a file: signatures in the format of minisign(1).
 *
 * A *key* is the line that a publisher shows, 56 characters that begin with
 * "RW": base64 of "Ed", 8 bytes that name the key, an Ed25519 public key. A
 * *signature* is the text of FILE.minisig, four lines:
 *
 *     untrusted comment: ...
 *     base64 of "ED", the key's name, Ed25519 of BLAKE2b-512(file)
 *     trusted comment: ...
 *     base64 of Ed25519 of (that signature, that comment)
 *
 * A publisher signs with minisign itself; nothing here can sign. The older
 * form, "Ed", which signs the file and not its hash, is refused.
 *
 * How it fails: LOCO_EFORMAT (no such text), LOCO_ESIG (another key, or these
 * are other bytes), each with a sentence in errmsg
 * (LOCO_ERRMSG_MAX). Plain values, no allocation.
 */
#ifndef LOCO_DAEMON_RELEASE_MINISIGN_H
#define LOCO_DAEMON_RELEASE_MINISIGN_H

#include <stddef.h>
#include <stdint.h>

#define MINISIGN_NAME_BYTES      8
#define MINISIGN_KEY_BYTES       32
#define MINISIGN_SIGNATURE_BYTES 64
#define MINISIGN_COMMENT_MAX     1024 /* with its NUL */
#define MINISIGN_TEXT_MAX        4096 /* bytes of a FILE.minisig */

struct minisign_key {
    uint8_t name[MINISIGN_NAME_BYTES];
    uint8_t key[MINISIGN_KEY_BYTES];
};

struct minisign_signature {
    uint8_t name[MINISIGN_NAME_BYTES];
    uint8_t of_hash[MINISIGN_SIGNATURE_BYTES];
    uint8_t of_comment[MINISIGN_SIGNATURE_BYTES];
    char comment[MINISIGN_COMMENT_MAX]; /* the trusted one, without its label */
};

/* The last line that is not empty counts, so that the whole of a minisign.pub
 * may be given. */
int minisign_key_parse(struct minisign_key *key,
                       const char *text,
                       char *errmsg);

/* text[len] needs no NUL. */
int minisign_signature_parse(struct minisign_signature *s,
                             const char *text,
                             size_t len,
                             char *errmsg);

/* 0: whoever has the key's other half signed bytes[len] and the comment. */
int minisign_verify(const struct minisign_signature *s,
                    const struct minisign_key *key,
                    const void *bytes,
                    size_t len,
                    char *errmsg);

#endif
