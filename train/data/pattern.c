/* pattern.c - see pattern.h. */
#include "train/data/pattern.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

/* Unicode's White_Space, as the inside of a class. */
#define SPACES                                                                 \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"           \
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

struct reader {
    const char *at;
    char *out;
    size_t n;
    bool in_class;
    bool class_begins; /* just behind [ or [^ */
    char *errmsg;
};

static int refuse(const struct reader *r, const char *what, size_t len)
{
    return errmsg_fail(r->errmsg, LOCO_EFORMAT,
                       "the pattern has %.*s, which this version does not "
                       "read as its author's library does",
                       (int)len, what);
}

static int write(struct reader *r, const char *text, size_t len)
{
    if (len >= PATTERN_MAX - r->n) {
        return errmsg_fail(r->errmsg, LOCO_EFORMAT,
                           "the pattern is longer than %d bytes", PATTERN_MAX);
    }
    memcpy(r->out + r->n, text, len);
    r->n += len;
    return 0;
}

/* Write `len` characters as they are and go on behind them. */
static int copy(struct reader *r, size_t len)
{
    int rv = write(r, r->at, len);

    r->at += len;
    return rv;
}

static size_t hex_digits(const char *p, size_t most)
{
    size_t n = 0;

    while (n < most && isxdigit((unsigned char)p[n])) {
        n++;
    }
    return n;
}

/* \x41, \x{41}, \u0041 at `at`. */
static int code_point(struct reader *r)
{
    const char *p = r->at + 2;
    bool braces = r->at[1] == 'x' && *p == '{';
    size_t n = hex_digits(p + braces, braces ? 6 : r->at[1] == 'u' ? 4 : 2);
    int rv;

    if (n == 0 || (braces && p[1 + n] != '}') || (r->at[1] == 'u' && n != 4)) {
        return refuse(r, r->at, 2);
    }
    rv = write(r, "\\x{", 3);
    rv = rv == 0 ? write(r, p + braces, n) : rv;
    r->at = p + n + (braces ? 2 : 0);
    return rv == 0 ? write(r, "}", 1) : rv;
}

/* \p{L}, \P{Lu} and \p{^L}: a general category; \p{Greek}: a script, which
 * PCRE2 would take for its extensions too if it were not told. */
static int property(struct reader *r)
{
    const char *name = r->at + 3;
    const char *end = r->at[2] == '{' ? strchr(name, '}') : NULL;
    size_t len;
    int rv;

    name += end != NULL && *name == '^';
    len = end == NULL ? 0 : (size_t)(end - name);
    if (len < 1 || len > 40) {
        return refuse(r, r->at, 2);
    }
    for (size_t i = 0; i < len; i++) {
        if (!isalpha((unsigned char)name[i]) && name[i] != '_') {
            return refuse(r, r->at, 2);
        }
    }
    rv = copy(r, (size_t)(name - r->at));
    if (rv == 0 && len > 2) {
        rv = write(r, "sc:", 3);
    }
    return rv == 0 ? copy(r, len + 1) : rv;
}

static int space(struct reader *r)
{
    static const char in[] = SPACES, out[] = "[" SPACES "]",
                      not [] = "[^" SPACES "]", not_in[] = "\\P{White_Space}";
    bool is = r->at[1] == 's';

    r->at += 2;
    if (r->in_class) {
        return is ? write(r, in, sizeof in - 1)
                  : write(r, not_in, sizeof not_in - 1);
    }
    return is ? write(r, out, sizeof out - 1) : write(r, not, sizeof not -1);
}

static int escape(struct reader *r)
{
    char c = r->at[1];

    switch (c) {
    case 's':
    case 'S':
        return space(r);
    case 'p':
    case 'P':
        return property(r);
    case 'x':
    case 'u':
        return code_point(r);
    case 'r':
    case 'n':
    case 't':
    case 'f':
    case 'd':
    case 'D':
        return copy(r, 2);
    default:
        return ispunct((unsigned char)c) ? copy(r, 2)
                                         : refuse(r, r->at, c == '\0' ? 1 : 2);
    }
}

/* "(" and what makes it special. */
static int group(struct reader *r)
{
    static const char *const known[] = {"(?:", "(?=",  "(?!",  "(?<=", "(?<!",
                                        "(?>", "(?i:", "(?i)", "(?-i:"};

    if (r->at[1] != '?' && r->at[1] != '*') {
        return copy(r, 1);
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t len = strlen(known[i]);

        if (strncmp(r->at, known[i], len) == 0) {
            return copy(r, len);
        }
    }
    return refuse(r, r->at, strnlen(r->at, 4));
}

/* One element inside [...]. */
static int in_class(struct reader *r)
{
    bool begins = r->class_begins;

    r->class_begins = false;
    switch (*r->at) {
    case '\\':
        return escape(r);
    case '[':
        return refuse(r, "a class in a class", 18);
    case '&':
        return r->at[1] == '&' ? refuse(r, "&&", 2) : copy(r, 1);
    case ']':
        if (begins) {
            return refuse(r, "an empty class", 14);
        }
        r->in_class = false;
        return copy(r, 1);
    default:
        return copy(r, 1);
    }
}

static int outside_class(struct reader *r)
{
    switch (*r->at) {
    case '\\':
        return escape(r);
    case '(':
        return group(r);
    case '[':
        r->in_class = true;
        r->class_begins = true;
        return copy(r, r->at[1] == '^' ? 2 : 1);
    case '^':
    case '$':
        return refuse(r, r->at, 1);
    case '}':
        return r->at[1] == '+' ? refuse(r, "}+", 2) : copy(r, 1);
    default:
        return copy(r, 1);
    }
}

int pattern_translate(const char *pattern, char out[PATTERN_MAX], char *errmsg)
{
    struct reader r = {.at = pattern, .out = out, .errmsg = errmsg};
    int rv = 0;

    while (rv == 0 && *r.at != '\0') {
        rv = r.in_class ? in_class(&r) : outside_class(&r);
    }
    if (rv == 0 && r.in_class) {
        return refuse(&r, "a class without end", 19);
    }
    out[r.n] = '\0';
    return rv;
}
