/* doc_text.c - documents as text: values, paths, checks; see doc.h. */
#include "proto/doc.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/nearest.h"
#include "proto/id.h"
#include "proto/mp.h"
#include "proto/word.h"

const struct doc_field *
doc_find(const struct doc_schema *s, const char *key, char *errmsg)
{
    struct nearest near;

    nearest_start(&near, key);
    for (size_t i = 0; i < s->n_fields; i++) {
        if (strcmp(key, s->fields[i].key) == 0) {
            return &s->fields[i];
        }
        nearest_offer(&near, s->fields[i].key);
    }
    if (near.best == NULL) {
        (void)errmsg_invalid(errmsg,
                             "unknown key '%.40s'; the keys here are %s", key,
                             near.known);
    } else {
        (void)errmsg_invalid(
            errmsg, "unknown key '%.64s'; the nearest known key is '%s'", key,
            near.best);
    }
    return NULL;
}

/* The sentence for a word that is not in the list. */
static int invalid_word(const struct doc_field *f,
                        const char *path,
                        const char *text,
                        char *errmsg)
{
    struct nearest near;

    nearest_start(&near, text);
    for (const char *const *w = f->words; *w != NULL; w++) {
        nearest_offer(&near, *w);
    }
    return errmsg_invalid(errmsg, "%s: '%.40s' is none of %s", path, text,
                          near.known);
}

static int
check_range(const struct doc_field *f, const char *path, double v, char *errmsg)
{
    if ((f->least != 0 || f->most != 0) && !(v >= f->least && v <= f->most)) {
        return errmsg_invalid(errmsg, "%s: %.10g is outside %.10g to %.10g",
                              path, v, f->least, f->most);
    }
    return 0;
}

/* One value at p against its range or words. */
int doc_check_value(const struct doc_field *f,
                    const char *path,
                    const void *p,
                    char *errmsg)
{
    const char *text = p;
    double d;

    switch (f->kind) {
    case DOC_U32:
    case DOC_U64:
        return check_range(f, path, (double)word_load(p, f->size), errmsg);
    case DOC_F64:
        memcpy(&d, p, sizeof d);
        if (!isfinite(d)) {
            return errmsg_invalid(errmsg, "%s: is not a finite number", path);
        }
        return check_range(f, path, d, errmsg);
    case DOC_STR:
        if (memchr(text, '\0', f->size) == NULL ||
            !mp_utf8_ok(text, strlen(text))) {
            return errmsg_invalid(errmsg, "%s: is not a UTF-8 text", path);
        }
        for (const char *const *w = f->words; w != NULL; w++) {
            if (*w == NULL) {
                return invalid_word(f, path, text, errmsg);
            }
            if (strcmp(*w, text) == 0) {
                break;
            }
        }
        return 0;
    case DOC_BOOL:
    case DOC_HEX:
    case DOC_MAP:
    case DOC_KIND_COUNT:
        break;
    }
    return 0;
}

static int parse_uint(const struct doc_field *f,
                      const char *text,
                      const char *path,
                      void *p,
                      char *errmsg)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0') {
        return errmsg_invalid(errmsg, "%s: '%.40s' is not a whole number", path,
                              text);
    }
    if (errno != 0 || word_store(p, f->size, v) != 0) {
        return errmsg_invalid(errmsg, "%s: '%.40s' is too large", path, text);
    }
    return 0;
}

static int parse_f64(const char *text, const char *path, void *p, char *errmsg)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(v) ||
        text[strspn(text, "0123456789+-.eE")] != '\0') {
        return errmsg_invalid(errmsg, "%s: '%.40s' is not a number", path,
                              text);
    }
    v = v == 0 ? 0.0 : v; /* no minus zero */
    memcpy(p, &v, sizeof v);
    return 0;
}

int doc_parse_value(const struct doc_field *f,
                    const char *text,
                    const char *path,
                    void *p,
                    char *errmsg)
{
    bool b = strcmp(text, "true") == 0;
    int rv = 0;

    switch (f->kind) {
    case DOC_U32:
    case DOC_U64:
        rv = parse_uint(f, text, path, p, errmsg);
        break;
    case DOC_F64:
        rv = parse_f64(text, path, p, errmsg);
        break;
    case DOC_BOOL:
        if (!b && strcmp(text, "false") != 0) {
            return errmsg_invalid(
                errmsg, "%s: '%.40s' is neither true nor false", path, text);
        }
        memcpy(p, &b, sizeof b);
        break;
    case DOC_STR:
        if (strlen(text) >= f->size) {
            return errmsg_invalid(errmsg, "%s: longer than %zu bytes", path,
                                  f->size - 1);
        }
        memset(p, 0, f->size); /* the bytes behind the end are defined */
        memcpy(p, text, strlen(text));
        break;
    case DOC_HEX:
        if (hex_decode(text, p, f->size) != 0) {
            return errmsg_invalid(errmsg, "%s: is not %zu lowercase hex digits",
                                  path, 2 * f->size);
        }
        break;
    case DOC_MAP:
    case DOC_KIND_COUNT:
        return errmsg_invalid(errmsg, "%s: holds several keys, not one value",
                              path);
    }
    return rv != 0 ? rv : doc_check_value(f, path, p, errmsg);
}

void doc_format_value(const struct doc_field *f,
                      const void *p,
                      char out[DOC_TEXT_MAX])
{
    double d;
    bool b;

    out[0] = '\0';
    switch (f->kind) {
    case DOC_U32:
    case DOC_U64:
        (void)snprintf(out, DOC_TEXT_MAX, "%llu",
                       (unsigned long long)word_load(p, f->size));
        break;
    case DOC_F64:
        memcpy(&d, p, sizeof d);
        for (int digits = 6; digits <= 17; digits++) {
            (void)snprintf(out, DOC_TEXT_MAX, "%.*g", digits, d);
            if (strtod(out, NULL) == d) {
                break;
            }
        }
        break;
    case DOC_BOOL:
        memcpy(&b, p, sizeof b);
        (void)snprintf(out, DOC_TEXT_MAX, "%s", b ? "true" : "false");
        break;
    case DOC_STR:
        (void)snprintf(out, DOC_TEXT_MAX, "%.*s", (int)f->size, (char *)p);
        break;
    case DOC_HEX:
        if (2 * f->size < DOC_TEXT_MAX) {
            hex_encode(p, f->size, out);
        }
        break;
    case DOC_MAP:
    case DOC_KIND_COUNT:
        break;
    }
}

/* One step of a path: "key" or "key[index]". */
struct step {
    char key[DOC_PATH_MAX];
    bool indexed;
    uint32_t index;
};

/* Cut the first step off *path; false where it is malformed. */
static bool take_step(const char **path, struct step *s)
{
    size_t n = strcspn(*path, ".[");
    char *end;

    if (n == 0 || n >= sizeof s->key) {
        return false;
    }
    memcpy(s->key, *path, n);
    s->key[n] = '\0';
    s->indexed = false;
    *path += n;
    if (**path == '[') {
        unsigned long v = strtoul(*path + 1, &end, 10);

        if ((*path)[1] < '0' || (*path)[1] > '9' || *end != ']' ||
            v > UINT32_MAX) {
            return false;
        }
        s->index = (uint32_t)v;
        s->indexed = true;
        *path = end + 1;
    }
    if (**path == '.') {
        (*path)++;
        return **path != '\0';
    }
    return **path == '\0';
}

/* The field and the place of `path`; `grow` lets the index behind the end of
 * a list append an element, whose count is set when it is stored. */
static int walk(const struct doc_schema *s,
                uint8_t *obj,
                const char *path,
                bool grow,
                const struct doc_field **field,
                uint8_t **place,
                char *errmsg)
{
    const char *rest = path;
    struct step step;

    for (unsigned depth = 0; depth < DOC_DEPTH_MAX; depth++) {
        const struct doc_field *f;
        uint32_t n, index = 0;

        if (!take_step(&rest, &step)) {
            return errmsg_invalid(errmsg, "'%.64s' is not a path", path);
        }
        f = doc_find(s, step.key, errmsg);
        if (f == NULL) {
            return LOCO_EINVAL;
        }
        if (f->list != step.indexed) {
            return errmsg_invalid(errmsg,
                                  f->list ? "%.64s: is a list, write %s[0]"
                                          : "%.64s: %s is not a list",
                                  path, step.key);
        }
        n = doc_count(f, obj);
        if (f->list) {
            index = step.index;
            if (index >= f->max || index > n || (index == n && !grow)) {
                return errmsg_invalid(errmsg, "%.64s: no such element", path);
            }
            if (index == n) {
                doc_set_count(f, obj, n + 1);
                memset(obj + f->offset + n * f->size, 0, f->size);
            }
        }
        obj += f->offset + index * f->size;
        if (*rest == '\0') {
            *field = f;
            *place = obj;
            return 0;
        }
        if (f->kind != DOC_MAP) {
            return errmsg_invalid(errmsg, "%.64s: %s has no keys", path,
                                  step.key);
        }
        s = f->sub;
    }
    return errmsg_invalid(errmsg, "'%.64s' is not a path", path);
}

int doc_set(const struct doc_schema *s,
            void *obj,
            const char *path,
            const char *text,
            char *errmsg)
{
    const struct doc_field *f;
    uint8_t *p;
    int rv = walk(s, obj, path, true, &f, &p, errmsg);

    return rv != 0 ? rv : doc_parse_value(f, text, path, p, errmsg);
}

int doc_get(const struct doc_schema *s,
            const void *obj,
            const char *path,
            char out[DOC_TEXT_MAX],
            char *errmsg)
{
    const struct doc_field *f;
    uint8_t *p;
    /* walk() without grow writes nothing. */
    int rv = walk(s, (uint8_t *)(uintptr_t)obj, path, false, &f, &p, errmsg);

    if (rv != 0) {
        return rv;
    }
    if (f->kind == DOC_MAP) {
        return errmsg_invalid(errmsg, "%.64s: holds several keys", path);
    }
    doc_format_value(f, p, out);
    return 0;
}

static int check_map(const struct doc_schema *s,
                     const uint8_t *obj,
                     const char *prefix,
                     char *errmsg)
{
    char path[DOC_PATH_MAX];

    for (size_t i = 0; i < s->n_fields; i++) {
        const struct doc_field *f = &s->fields[i];
        uint32_t n = doc_absent(f, obj) ? 0 : doc_count(f, obj);

        if (n > f->max) {
            return errmsg_invalid(errmsg, "%s%s: too many", prefix, f->key);
        }
        for (uint32_t j = 0; j < n; j++) {
            const uint8_t *p = obj + f->offset + j * f->size;
            const char *dot = f->kind == DOC_MAP ? "." : "";
            int rv;

            if (f->list) {
                (void)snprintf(path, sizeof path, "%s%s[%u]%s", prefix, f->key,
                               (unsigned)j, dot);
            } else {
                (void)snprintf(path, sizeof path, "%s%s%s", prefix, f->key,
                               dot);
            }
            rv = f->kind == DOC_MAP ? check_map(f->sub, p, path, errmsg)
                                    : doc_check_value(f, path, p, errmsg);
            if (rv != 0) {
                return rv;
            }
        }
    }
    return 0;
}

int doc_check(const struct doc_schema *s, const void *obj, char *errmsg)
{
    return check_map(s, obj, "", errmsg);
}
