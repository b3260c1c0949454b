/* doc.h - documents: structs whose values have names, for people and hashes.
 *
 * A *document* is a C struct of fixed size described by a *schema*: a const
 * table of keys with kind, place, allowed range and help text. One table gives
 * the canonical bytes (msgpack map), the setting and reading of a value by its
 * *path* ("inner.lr", "data.shards[0].urls[1]"), the check of every value, and
 * what a YAML reader or writer needs. Messages between peers are msg.h; this
 * is for what people write and read: the run manifest.
 *
 * Canonical bytes: a map holds every key of the schema exactly once, sorted by
 * byte order, but an *optional* one only where its value is not zero or empty:
 * so a key that is added later leaves the bytes of older documents as they are;
 * integers shortest; floats float64; lists arrays; byte strings bin. Decoding
 * refuses everything else with LOCO_EPROTO, so equal documents and equal bytes
 * are the same thing.
 *
 * No allocation; depth bounded by DOC_DEPTH_MAX. Values that are wrong are
 * LOCO_EINVAL with a sentence in errmsg (LOCO_ERRMSG_MAX bytes, may be NULL)
 * that begins with the path.
 */
#ifndef LOCO_PROTO_DOC_H
#define LOCO_PROTO_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

#define DOC_DEPTH_MAX 6
#define DOC_PATH_MAX  128
#define DOC_TEXT_MAX  320 /* any one value as text, with its final zero */

enum doc_kind {
    DOC_U32,
    DOC_U64,
    DOC_F64,
    DOC_BOOL,
    DOC_STR, /* char[size] with its final zero, UTF-8 */
    DOC_HEX, /* uint8_t[size]; hex as text, bin as bytes */
    DOC_MAP, /* struct with a schema of its own */
    DOC_KIND_COUNT
};

struct doc_schema;

struct doc_field {
    const char *key;
    enum doc_kind kind;
    bool list;     /* member[max] with a uint32_t count */
    bool optional; /* absent where it is all zero; no list */
    size_t offset;
    size_t count_offset;
    size_t size;              /* bytes of one element */
    size_t max;               /* elements at most, 1 without list */
    double least, most;       /* numbers; both 0: any */
    const char *const *words; /* DOC_STR: allowed values, NULL-ended, or NULL */
    const struct doc_schema *sub;
    const char *help;
};

struct doc_schema {
    const struct doc_field *fields; /* sorted by key */
    size_t n_fields;
    size_t size;
};

/* Canonical bytes of *obj: their number, or LOCO_ERANGE (does not fit) or
 * LOCO_EINVAL (a float that is not finite, a string that is not UTF-8). */
int doc_encode(const struct doc_schema *s,
               const void *obj,
               uint8_t *out,
               size_t cap);

/* All of in[len] into *obj, zeroed first: 0 or LOCO_EPROTO. Ranges are not
 * looked at here. */
int doc_decode(const struct doc_schema *s,
               const uint8_t *in,
               size_t len,
               void *obj);

/* Set one value by path. Index n of a list with n elements appends. */
int doc_set(const struct doc_schema *s,
            void *obj,
            const char *path,
            const char *text,
            char *errmsg);

/* One value as text; LOCO_EINVAL where the path names none. */
int doc_get(const struct doc_schema *s,
            const void *obj,
            const char *path,
            char out[DOC_TEXT_MAX],
            char *errmsg);

/* Every value against its range and words. */
int doc_check(const struct doc_schema *s, const void *obj, char *errmsg);

/* One element at p against a field's range and words; `path` is for the
 * sentence. */
int doc_check_value(const struct doc_field *f,
                    const char *path,
                    const void *p,
                    char *errmsg);

/* The field of `key`, or NULL and a sentence that names the nearest key. */
const struct doc_field *
doc_find(const struct doc_schema *s, const char *key, char *errmsg);

/* One element at p from text, checked; `path` is for the sentence. */
int doc_parse_value(const struct doc_field *f,
                    const char *text,
                    const char *path,
                    void *p,
                    char *errmsg);

/* One element at p as text, which doc_parse_value() reads back bit for bit. */
void doc_format_value(const struct doc_field *f,
                      const void *p,
                      char out[DOC_TEXT_MAX]);

uint32_t doc_count(const struct doc_field *f, const void *obj);
void doc_set_count(const struct doc_field *f, void *obj, uint32_t n);

/* Whether a key is left out of the canonical bytes. */
bool doc_absent(const struct doc_field *f, const void *obj);

/* Whether keys are sorted and places lie inside the struct: for unit tests. */
bool doc_schema_ok(const struct doc_schema *s);

/* Longest canonical bytes that the schema allows. */
size_t doc_bytes_max(const struct doc_schema *s);

/* clang-format off */
#define DOC_PLACE_(t, m, k)                                                    \
    .key = #m, .kind = (k), .offset = offsetof(t, m), .max = 1,                \
    .size = sizeof(((t *)0)->m)
#define DOC_NUMBER_(t, m, k, ctype, lo, hi, text)                              \
    {DOC_PLACE_(t, m, k), .least = (lo), .most = (hi),                         \
     .help = _Generic(((t *)0)->m, ctype: text)}

#define DOC_FIELD_U32(t, m, lo, hi, text)                                      \
    DOC_NUMBER_(t, m, DOC_U32, uint32_t, lo, hi, text)
#define DOC_FIELD_U64(t, m, lo, hi, text)                                      \
    DOC_NUMBER_(t, m, DOC_U64, uint64_t, lo, hi, text)
#define DOC_FIELD_F64(t, m, lo, hi, text)                                      \
    DOC_NUMBER_(t, m, DOC_F64, double, lo, hi, text)
#define DOC_FIELD_BOOL(t, m, text)                                             \
    DOC_NUMBER_(t, m, DOC_BOOL, bool, 0, 0, text)
#define DOC_OPTIONAL_BOOL(t, m, text)                                          \
    {DOC_PLACE_(t, m, DOC_BOOL), .optional = true,                             \
     .help = _Generic(((t *)0)->m, bool: text)}
#define DOC_OPTIONAL_U32(t, m, lo, hi, text)                                   \
    {DOC_PLACE_(t, m, DOC_U32), .optional = true, .least = (lo),               \
     .most = (hi), .help = _Generic(((t *)0)->m, uint32_t: text)}
#define DOC_OPTIONAL_U64(t, m, lo, hi, text)                                   \
    {DOC_PLACE_(t, m, DOC_U64), .optional = true, .least = (lo),               \
     .most = (hi), .help = _Generic(((t *)0)->m, uint64_t: text)}
#define DOC_OPTIONAL_F64(t, m, lo, hi, text)                                   \
    {DOC_PLACE_(t, m, DOC_F64), .optional = true, .least = (lo),               \
     .most = (hi), .help = _Generic(((t *)0)->m, double: text)}
#define DOC_OPTIONAL_STR(t, m, choice, text)                                   \
    {DOC_PLACE_(t, m, DOC_STR), .optional = true, .words = (choice),           \
     .help = (text)}
#define DOC_FIELD_STR(t, m, choice, text)                                      \
    {DOC_PLACE_(t, m, DOC_STR), .words = (choice), .help = (text)}
#define DOC_FIELD_HEX(t, m, text)                                              \
    {DOC_PLACE_(t, m, DOC_HEX), .help = (text)}
#define DOC_FIELD_MAP(t, m, schema, text)                                      \
    {DOC_PLACE_(t, m, DOC_MAP), .sub = &(schema), .help = (text)}
#define DOC_LIST_(t, m, c, k, schema, text)                                    \
    {.key = #m, .kind = (k), .list = true, .offset = offsetof(t, m),           \
     .count_offset = offsetof(t, c), .size = sizeof(((t *)0)->m[0]),           \
     .max = sizeof(((t *)0)->m) / sizeof(((t *)0)->m[0]), .sub = (schema),     \
     .help = _Generic(((t *)0)->c, uint32_t: text)}
#define DOC_LIST_STR(t, m, c, text) DOC_LIST_(t, m, c, DOC_STR, NULL, text)
#define DOC_LIST_MAP(t, m, c, schema, text)                                    \
    DOC_LIST_(t, m, c, DOC_MAP, &(schema), text)

#define DOC_SCHEMA(t, f)                                                       \
    {.fields = (f), .n_fields = sizeof(f) / sizeof((f)[0]), .size = sizeof(t)}

/* The schema of struct NAME with these fields, as NAME_schema of this file. */
#define DOC_PART(name, ...)                                                    \
    static const struct doc_field name##_fields[] = {__VA_ARGS__};             \
    static const struct doc_schema name##_schema =                             \
        DOC_SCHEMA(struct name, name##_fields)
/* clang-format on */

#endif
