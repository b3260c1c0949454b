/* control_tokens.c - see control_tokens.h. */
#include "daemon/settings/control_tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sodium.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define FILE_BYTES_MAX 8192
#define SECRET_BYTES   ((CONTROL_TOKEN_RANDOM - 1) / 2)

static const char *const scope_names[] = {
    [SCOPE_READ] = "read",
    [SCOPE_CONTROL] = "control",
};

/* ---- reading ------------------------------------------------------------ */

static void token_hash(const char *text, size_t len, uint8_t hash[32])
{
    (void)crypto_generichash(hash, 32, (const uint8_t *)text, len, NULL, 0);
}

/* The whole file into out[FILE_BYTES_MAX], NUL-ended. */
static int read_file(const char *path, char *out, char *errmsg)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rv = 0;
    struct stat st;
    ssize_t n;

    if (fd < 0) {
        return errmsg_fail(errmsg, errno == ENOENT ? LOCO_ENOENT : LOCO_EIO,
                           "%.160s: %s", path, strerror(errno));
    }
    n = fstat(fd, &st) == 0 ? read(fd, out, FILE_BYTES_MAX) : -1;
    if (n < 0) {
        rv = errmsg_fail(errmsg, LOCO_EIO, "%.160s: %s", path, strerror(errno));
    } else if ((st.st_mode & 077) != 0) {
        rv =
            errmsg_fail(errmsg, LOCO_EIO,
                        "%.160s can be read by others: chmod 600, and make new "
                        "tokens with loco access --new",
                        path);
    } else if (n == FILE_BYTES_MAX) {
        rv = errmsg_fail(errmsg, LOCO_EFORMAT, "%.160s is too long", path);
    } else {
        out[n] = '\0';
    }
    (void)close(fd);
    return rv;
}

/* "control abc..." of `len` bytes; SCOPE_NONE: it is no such line. */
static enum control_scope
line_parse(const char *line, size_t len, const char **token, size_t *token_len)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789"
                                  "-._~+/=";

    for (int s = SCOPE_READ; s <= SCOPE_CONTROL; s++) {
        size_t n = strlen(scope_names[s]);

        if (len <= n || strncmp(line, scope_names[s], n) != 0 ||
            line[n] != ' ') {
            continue;
        }
        *token = line + n + 1;
        *token_len = strspn(*token, allowed);
        if (*token_len == len - n - 1 && *token_len >= CONTROL_TOKEN_LEAST &&
            *token_len < CONTROL_TOKEN_MAX) {
            return (enum control_scope)s;
        }
    }
    return SCOPE_NONE;
}

typedef void
each_token(void *data, enum control_scope scope, const char *token, size_t len);

static int each(const char *path, each_token *take, void *data, char *errmsg)
{
    char text[FILE_BYTES_MAX];
    unsigned line_number = 0, n = 0;
    int rv = read_file(path, text, errmsg);

    for (const char *at = text; rv == 0 && *at != '\0';) {
        size_t len = strcspn(at, "\n"), token_len = 0;
        const char *token = NULL;
        enum control_scope scope;

        line_number++;
        if (len > 0 && *at != '#') {
            scope = line_parse(at, len, &token, &token_len);
            if (scope == SCOPE_NONE || n++ == CONTROL_TOKENS_MAX) {
                rv = errmsg_fail(
                    errmsg, LOCO_EFORMAT,
                    "%.160s:%u: a line is 'read TOKEN' or 'control "
                    "TOKEN', a token has at least %u characters, the "
                    "file at most %u lines",
                    path, line_number, CONTROL_TOKEN_LEAST, CONTROL_TOKENS_MAX);
                break;
            }
            take(data, scope, token, token_len);
        }
        at += len + (at[len] == '\n');
    }
    sodium_memzero(text, sizeof text);
    return rv;
}

static void
take_hash(void *data, enum control_scope scope, const char *token, size_t len)
{
    struct control_tokens *t = data;

    token_hash(token, len, t->hash[t->n]);
    t->scope[t->n++] = scope;
}

int control_tokens_load(struct control_tokens *t,
                        const char *path,
                        char errmsg[ERRMSG_SIZE])
{
    struct control_tokens next = {0};
    int rv = each(path, take_hash, &next, errmsg);

    if (rv == 0) {
        *t = next;
    }
    return rv;
}

void control_tokens_one(struct control_tokens *t,
                        enum control_scope scope,
                        const char *token)
{
    *t = (struct control_tokens){0};
    take_hash(t, scope, token, strlen(token));
}

struct best {
    enum control_scope wanted, scope;
    char *token;
};

static void
take_best(void *data, enum control_scope scope, const char *token, size_t len)
{
    struct best *b = data;

    if (b->scope < b->wanted ? scope > b->scope
                             : scope >= b->wanted && scope < b->scope) {
        b->scope = scope;
        memcpy(b->token, token, len);
        b->token[len] = '\0';
    }
}

int control_tokens_best(const char *path,
                        enum control_scope scope,
                        char token[CONTROL_TOKEN_MAX],
                        char errmsg[ERRMSG_SIZE])
{
    struct best best = {scope, SCOPE_NONE, token};
    int rv;

    token[0] = '\0';
    rv = each(path, take_best, &best, errmsg);
    return rv != 0 || best.scope != SCOPE_NONE
               ? rv
               : errmsg_fail(errmsg, LOCO_ENOENT, "%.160s has no token", path);
}

enum control_scope control_tokens_scope(const struct control_tokens *t,
                                        const char *text,
                                        size_t len)
{
    enum control_scope scope = SCOPE_NONE;
    uint8_t hash[32];

    token_hash(text, len, hash);
    /* All of them each time: no answer is earlier than another. */
    for (unsigned i = 0; i < t->n; i++) {
        if (sodium_memcmp(hash, t->hash[i], sizeof hash) == 0 &&
            t->scope[i] > scope) {
            scope = t->scope[i];
        }
    }
    return scope;
}

/* ---- making ------------------------------------------------------------- */

void control_token_random(char out[CONTROL_TOKEN_RANDOM])
{
    uint8_t secret[SECRET_BYTES];

    randombytes_buf(secret, sizeof secret);
    (void)sodium_bin2hex(out, CONTROL_TOKEN_RANDOM, secret, sizeof secret);
    sodium_memzero(secret, sizeof secret);
}

/* Whole or not at all, and never two writers in one file. */
static bool put(const char *next, const char *path, bool replace)
{
    bool good;

    if (replace) {
        return rename(next, path) == 0;
    }
    good = link(next, path) == 0 || errno == EEXIST;
    return unlink(next) == 0 && good;
}

int control_tokens_make(const char *path,
                        bool replace,
                        char errmsg[ERRMSG_SIZE])
{
    char next[4200], text[512], one[CONTROL_TOKEN_RANDOM],
        other[CONTROL_TOKEN_RANDOM];
    int fd, len, why;
    bool good;

    (void)snprintf(next, sizeof next, "%s.XXXXXX", path);
    control_token_random(one);
    control_token_random(other);
    len = snprintf(text, sizeof text,
                   "# Access tokens of this daemon's API; see daemon/API.md.\n"
                   "read %s\ncontrol %s\n",
                   one, other);
    fd = mkostemp(next, O_CLOEXEC); /* mode 0600 */
    good = fd >= 0 && write(fd, text, (size_t)len) == len && fsync(fd) == 0;
    if (fd >= 0) {
        good = close(fd) == 0 && good;
    }
    good = good && put(next, path, replace);
    why = errno;
    if (!good && fd >= 0) {
        (void)unlink(next);
    }
    sodium_memzero(text, sizeof text);
    sodium_memzero(one, sizeof one);
    sodium_memzero(other, sizeof other);
    return good ? 0
                : errmsg_fail(errmsg, LOCO_EIO, "cannot write %.160s: %s", path,
                              strerror(why));
}
