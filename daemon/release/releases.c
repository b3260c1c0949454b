/* releases.c - see releases.h. */
#include "daemon/release/releases.h"

#include <jansson.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define BYTES_MAX (UINT64_C(1) << 40)

/* ---- versions ----------------------------------------------------------- */

/* `n` numbers with a dot between them, and nothing else. */
static bool numbers(const char *text, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t value = 0;
        size_t digits = 0;

        for (; *text >= '0' && *text <= '9' && digits < 6; digits++) {
            value = value * 10 + (uint32_t)(*text++ - '0');
        }
        if (digits == 0 || value > UINT16_MAX ||
            *text != (i + 1 < n ? '.' : '\0')) {
            return false;
        }
        out[i] = (uint16_t)value;
        text += i + 1 < n;
    }
    return true;
}

int version_parse(struct version *v, const char *text)
{
    return numbers(text, v->part, 3) ? 0 : LOCO_EFORMAT;
}

int version_compare(const struct version *a, const struct version *b)
{
    for (size_t i = 0; i < 3; i++) {
        if (a->part[i] != b->part[i]) {
            return a->part[i] < b->part[i] ? -1 : 1;
        }
    }
    return 0;
}

/* ---- the list ----------------------------------------------------------- */

/* A text of this object that has its NUL within `size` bytes. */
static bool text_of(const json_t *o, const char *key, char *out, size_t size)
{
    const json_t *value = json_object_get(o, key);
    size_t len = json_string_length(value);

    if (!json_is_string(value) || len == 0 || len >= size) {
        return false;
    }
    memcpy(out, json_string_value(value), len + 1);
    return strlen(out) == len;
}

static bool
count_of(const json_t *value, uint64_t least, uint64_t most, uint64_t *out)
{
    *out = (uint64_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           *out >= least && *out <= most;
}

/* It becomes a part of a path and of a URL. */
static bool is_name(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789._+-";

    return name[0] != '.' && name[0] != '-' &&
           strspn(name, allowed) == strlen(name);
}

static bool read_file(struct release_file *f, const json_t *o)
{
    char glibc[RELEASE_VERSION_MAX], hex[sizeof f->sha256 * 2 + 1];
    const char *end = NULL;
    size_t got = 0;

    return text_of(o, "arch", f->arch, sizeof f->arch) && is_name(f->arch) &&
           text_of(o, "glibc", glibc, sizeof glibc) &&
           numbers(glibc, f->glibc, 2) &&
           text_of(o, "name", f->name, sizeof f->name) && is_name(f->name) &&
           count_of(json_object_get(o, "bytes"), 1, BYTES_MAX, &f->bytes) &&
           text_of(o, "sha256", hex, sizeof hex) &&
           sodium_hex2bin(f->sha256, sizeof f->sha256, hex, strlen(hex), NULL,
                          &got, &end) == 0 &&
           got == sizeof f->sha256 && *end == '\0';
}

static bool read_release(struct release *r, const json_t *o)
{
    const json_t *files = json_object_get(o, "files");
    const json_t *protocols = json_object_get(o, "protocols");
    uint64_t oldest, newest;

    if (!text_of(o, "version", r->text, sizeof r->text) ||
        version_parse(&r->version, r->text) != 0 ||
        json_array_size(protocols) != 2 ||
        !count_of(json_array_get(protocols, 0), 0, UINT8_MAX, &oldest) ||
        !count_of(json_array_get(protocols, 1), oldest, UINT8_MAX, &newest) ||
        json_array_size(files) < 1 ||
        json_array_size(files) > RELEASE_FILES_MAX) {
        return false;
    }
    r->oldest = (uint32_t)oldest;
    r->newest = (uint32_t)newest;
    for (size_t i = 0; i < json_array_size(files); i++) {
        if (!read_file(&r->file[r->n_files++], json_array_get(files, i))) {
            return false;
        }
    }
    return true;
}

static int read_all(struct releases *r, const json_t *root, char *errmsg)
{
    const json_t *list = json_object_get(root, "releases");
    uint64_t form;

    if (!count_of(json_object_get(root, "loco_releases"), 0, UINT32_MAX,
                  &form)) {
        return errmsg_fail(errmsg, LOCO_EFORMAT, "this is no list of releases");
    }
    if (form != 1) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the list has form %llu, and this loco reads form "
                           "1: install a newer loco by hand",
                           (unsigned long long)form);
    }
    if (!count_of(json_object_get(root, "serial"), 1, INT64_MAX, &r->serial) ||
        json_array_size(list) > RELEASES_MAX || !json_is_array(list)) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the list has no serial, or not up to %d releases",
                           RELEASES_MAX);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (!read_release(&r->item[r->n++], json_array_get(list, i))) {
            return errmsg_fail(errmsg, LOCO_EFORMAT,
                               "release %zu of the list is not as "
                               "deploy/release.sh writes it",
                               i + 1);
        }
    }
    return 0;
}

int releases_read(struct releases *r,
                  const char *text,
                  size_t len,
                  char *errmsg)
{
    json_error_t why;
    json_t *root;
    int rv;

    memset(r, 0, sizeof *r);
    root = len > RELEASES_BYTES_MAX
               ? NULL
               : json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "the list of releases is no JSON of at most %zu "
                           "bytes",
                           RELEASES_BYTES_MAX);
    }
    rv = read_all(r, root, errmsg);
    json_decref(root);
    return rv;
}

/* ---- the choice --------------------------------------------------------- */

static bool runs_on(const struct release_file *f, const uint16_t glibc[2])
{
    return f->glibc[0] < glibc[0] ||
           (f->glibc[0] == glibc[0] && f->glibc[1] <= glibc[1]);
}

const struct release *releases_choose(const struct releases *r,
                                      const char *arch,
                                      const char *glibc,
                                      const struct release_file **file,
                                      char *errmsg)
{
    const struct release *best = NULL;
    bool arch_there = false;
    uint16_t have[2] = {0, 0};

    (void)numbers(glibc, have, 2);
    for (uint32_t i = 0; i < r->n; i++) {
        const struct release *x = &r->item[i];

        for (uint32_t k = 0; k < x->n_files; k++) {
            if (strcmp(x->file[k].arch, arch) != 0) {
                continue;
            }
            arch_there = true;
            if (runs_on(&x->file[k], have) &&
                (best == NULL ||
                 version_compare(&x->version, &best->version) > 0)) {
                best = x;
                *file = &x->file[k];
            }
        }
    }
    if (best == NULL) {
        (void)errmsg_fail(errmsg, LOCO_ENOENT,
                          arch_there
                              ? "the list has nothing for %s with glibc %s"
                              : "the list has nothing for %s",
                          arch, glibc);
    }
    return best;
}
