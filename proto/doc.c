/* doc.c - documents as canonical bytes; see doc.h. Text is in doc_text.c. */
#include "proto/doc.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/mp.h"
#include "proto/word.h"

uint32_t doc_count(const struct doc_field *f, const void *obj)
{
    uint32_t n = 1;

    if (f->list) {
        memcpy(&n, (const uint8_t *)obj + f->count_offset, sizeof n);
    }
    return n;
}

void doc_set_count(const struct doc_field *f, void *obj, uint32_t n)
{
    assert(f->list && n <= f->max);
    memcpy((uint8_t *)obj + f->count_offset, &n, sizeof n);
}

bool doc_absent(const struct doc_field *f, const void *obj)
{
    const uint8_t *p = (const uint8_t *)obj + f->offset;

    for (size_t i = 0; f->optional && i < f->size; i++) {
        if (p[i] != 0) {
            return false;
        }
    }
    return f->optional;
}

static int write_map(struct mp_writer *w,
                     const struct doc_schema *s,
                     const uint8_t *obj,
                     unsigned depth);

static int write_value(struct mp_writer *w,
                       const struct doc_field *f,
                       const uint8_t *p,
                       unsigned depth)
{
    double d;
    bool b;

    switch (f->kind) {
    case DOC_U32:
    case DOC_U64:
        mp_write_uint(w, word_load(p, f->size));
        return 0;
    case DOC_F64:
        memcpy(&d, p, sizeof d);
        mp_write_f64(w, d);
        return isfinite(d) ? 0 : LOCO_EINVAL;
    case DOC_BOOL:
        memcpy(&b, p, sizeof b);
        mp_write_bool(w, b);
        return 0;
    case DOC_STR:
        return mp_write_text(w, p, f->size);
    case DOC_HEX:
        mp_write_bin(w, p, f->size);
        return 0;
    case DOC_MAP:
        return write_map(w, f->sub, p, depth + 1);
    case DOC_KIND_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

static int write_map(struct mp_writer *w,
                     const struct doc_schema *s,
                     const uint8_t *obj,
                     unsigned depth)
{
    size_t n_keys = 0;

    assert(depth < DOC_DEPTH_MAX);
    for (size_t i = 0; i < s->n_fields; i++) {
        n_keys += !doc_absent(&s->fields[i], obj);
    }
    mp_write_map(w, n_keys);
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct doc_field *f = &s->fields[i];
        uint32_t n = doc_count(f, obj);

        if (doc_absent(f, obj)) {
            continue;
        }
        if (n > f->max) {
            return LOCO_ERANGE;
        }
        mp_write_str(w, f->key, strlen(f->key));
        if (f->list) {
            mp_write_array(w, n);
        }
        for (uint32_t j = 0; j < n; j++) {
            int rv = write_value(w, f, obj + f->offset + j * f->size, depth);

            if (rv != 0) {
                return rv;
            }
        }
    }
    return w->full ? LOCO_ERANGE : 0;
}

int doc_encode(const struct doc_schema *s,
               const void *obj,
               uint8_t *out,
               size_t cap)
{
    struct mp_writer w;
    int rv;

    mp_write_init(&w, out, cap > INT32_MAX ? INT32_MAX : cap);
    rv = write_map(&w, s, obj, 0);
    return rv != 0 ? rv : (int)w.len;
}

static int read_map(struct mp_reader *r,
                    const struct doc_schema *s,
                    uint8_t *obj,
                    unsigned depth);

static int read_value(struct mp_reader *r,
                      const struct doc_field *f,
                      uint8_t *p,
                      unsigned depth)
{
    const uint8_t *bytes;
    uint64_t u = 0;
    uint32_t len;
    double d = 0;
    bool b = false;
    int rv;

    switch (f->kind) {
    case DOC_U32:
    case DOC_U64:
        rv = mp_read_uint(r, &u);
        return rv != 0 ? rv : word_store(p, f->size, u);
    case DOC_F64:
        rv = mp_read_f64(r, &d);
        memcpy(p, &d, sizeof d);
        return rv;
    case DOC_BOOL:
        rv = mp_read_bool(r, &b);
        memcpy(p, &b, sizeof b);
        return rv;
    case DOC_STR:
        return mp_read_text(r, p, f->size);
    case DOC_HEX:
        if (mp_read_bin(r, &bytes, &len) != 0 || len != f->size) {
            return LOCO_EPROTO;
        }
        memcpy(p, bytes, len);
        return 0;
    case DOC_MAP:
        return read_map(r, f->sub, p, depth + 1);
    case DOC_KIND_COUNT:
        break;
    }
    return LOCO_EPROTO;
}

static int read_field(struct mp_reader *r,
                      const struct doc_field *f,
                      uint8_t *obj,
                      unsigned depth)
{
    uint32_t n = 1;

    if (f->list) {
        if (mp_read_array(r, &n) != 0 || n > f->max) {
            return LOCO_EPROTO;
        }
        doc_set_count(f, obj, n);
    }
    for (uint32_t j = 0; j < n; j++) {
        uint8_t *p = obj + f->offset + j * f->size;

        if (read_value(r, f, p, depth) != 0) {
            return LOCO_EPROTO;
        }
    }
    return doc_absent(f, obj) ? LOCO_EPROTO : 0;
}

static int read_map(struct mp_reader *r,
                    const struct doc_schema *s,
                    uint8_t *obj,
                    unsigned depth)
{
    const char *key = NULL; /* read, and not met yet */
    uint32_t left, len = 0;

    assert(depth < DOC_DEPTH_MAX);
    if (mp_read_map(r, &left) != 0) {
        return LOCO_EPROTO;
    }
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct doc_field *f = &s->fields[i];

        if (key == NULL && left > 0) {
            if (mp_read_str(r, &key, &len) != 0) {
                return LOCO_EPROTO;
            }
            left--;
        }
        if (key == NULL || len != strlen(f->key) ||
            memcmp(key, f->key, len) != 0) {
            if (f->optional) {
                continue;
            }
            return LOCO_EPROTO;
        }
        key = NULL;
        if (read_field(r, f, obj, depth) != 0) {
            return LOCO_EPROTO;
        }
    }
    return key == NULL && left == 0 ? 0 : LOCO_EPROTO;
}

int doc_decode(const struct doc_schema *s,
               const uint8_t *in,
               size_t len,
               void *obj)
{
    struct mp_reader r;

    memset(obj, 0, s->size);
    mp_read_init(&r, in, len);
    if (read_map(&r, s, obj, 0) != 0 || mp_read_end(&r) != 0) {
        memset(obj, 0, s->size);
        return LOCO_EPROTO;
    }
    return 0;
}

size_t doc_bytes_max(const struct doc_schema *s)
{
    size_t sum = 5;

    for (size_t i = 0; i < s->n_fields; i++) {
        const struct doc_field *f = &s->fields[i];
        size_t one = f->kind == DOC_MAP ? doc_bytes_max(f->sub) : f->size + 5;

        sum += 5 + strlen(f->key) + 5 + f->max * one;
    }
    return sum;
}

bool doc_schema_ok(const struct doc_schema *s)
{
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct doc_field *f = &s->fields[i];

        if ((i > 0 && strcmp(s->fields[i - 1].key, f->key) >= 0) ||
            f->max == 0 || f->offset + f->max * f->size > s->size ||
            (f->list && f->count_offset + sizeof(uint32_t) > s->size) ||
            f->help == NULL || (f->optional && f->list)) {
            return false;
        }
        if (f->kind == DOC_MAP && (f->sub == NULL || f->sub->size != f->size ||
                                   !doc_schema_ok(f->sub))) {
            return false;
        }
    }
    return s->n_fields > 0;
}
