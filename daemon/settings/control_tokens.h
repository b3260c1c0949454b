/* control_tokens.h - who may ask when others than this machine can.
 *
 * A token is a secret text with a scope: *read* sees everything, *control* may
 * also pause, resume, drain and reload. They stand in STATE/control.tokens,
 * mode 0600, one a line:
 *
 *     # comment
 *     read 5f0c...
 *     control 91ab...
 *
 * The file is made with one of each, 256 random bits, when it is first needed;
 * taking a line out and reloading the settings revokes it. Whoever reads the
 * state directory may do everything anyway, so they are kept as they are; in
 * the memory of the process there are hashes only, and they are compared in a
 * time that does not depend on them.
 *
 * A request shows its token as `Authorization: Bearer TOKEN`, or, from a
 * browser, as the password of HTTP Basic; the user's name does not matter.
 */
#ifndef LOCO_DAEMON_SETTINGS_CONTROL_TOKENS_H
#define LOCO_DAEMON_SETTINGS_CONTROL_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

#define CONTROL_TOKENS_MAX  16
#define CONTROL_TOKEN_LEAST 32  /* characters */
#define CONTROL_TOKEN_MAX   128 /* with its NUL */

/* Each may do what those before it may. */
enum control_scope { SCOPE_NONE, SCOPE_READ, SCOPE_CONTROL };

struct control_tokens {
    unsigned n;
    enum control_scope scope[CONTROL_TOKENS_MAX];
    uint8_t hash[CONTROL_TOKENS_MAX][32];
};

/* LOCO_ENOENT: there is no such file; LOCO_EIO: unreadable, or readable by
 * others than its owner; LOCO_EFORMAT: not such a file. With a sentence. */
int control_tokens_load(struct control_tokens *t,
                        const char *path,
                        char errmsg[ERRMSG_SIZE]);

/* A new file with two tokens. One that is there is replaced or, without
 * `replace`, stays: another process may have made it just now. LOCO_EIO. */
int control_tokens_make(const char *path,
                        bool replace,
                        char errmsg[ERRMSG_SIZE]);

/* No file: this token alone, with that scope. */
void control_tokens_one(struct control_tokens *t,
                        enum control_scope scope,
                        const char *token);

/* 256 random bits as a token. */
#define CONTROL_TOKEN_RANDOM 65 /* with its NUL */
void control_token_random(char out[CONTROL_TOKEN_RANDOM]);

/* What the bearer of text[len] may do. */
enum control_scope control_tokens_scope(const struct control_tokens *t,
                                        const char *text,
                                        size_t len);

/* Of the tokens in a file that may do `scope` the one that may do the least
 * beyond it, else the one with the widest scope; for who may read the file. */
int control_tokens_best(const char *path,
                        enum control_scope scope,
                        char token[CONTROL_TOKEN_MAX],
                        char errmsg[ERRMSG_SIZE]);

#endif
