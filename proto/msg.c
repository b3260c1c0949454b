/* msg.c - see msg.h. */
#include "proto/msg.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/mp.h"
#include "proto/word.h"

/* Of an array's elements, or of the bytes of BYTES. */
static uint32_t count_get(const struct msg_field *f, const uint8_t *obj)
{
    return (uint32_t)word_load(obj + f->count_offset, f->count_size);
}

static int write_struct(struct mp_writer *w,
                        const struct msg_schema *s,
                        const uint8_t *obj,
                        unsigned depth);

/* One element at p; obj is the struct around it, for the length of BYTES. */
static int write_value(struct mp_writer *w,
                       const struct msg_field *f,
                       const uint8_t *obj,
                       const uint8_t *p,
                       unsigned depth)
{
    bool b;

    switch (f->kind) {
    case MSG_U8:
    case MSG_U16:
    case MSG_U32:
    case MSG_U64:
        mp_write_uint(w, word_load(p, f->size));
        return 0;
    case MSG_BOOL:
        memcpy(&b, p, sizeof b);
        mp_write_bool(w, b);
        return 0;
    case MSG_FIXED:
        mp_write_bin(w, p, f->size);
        return 0;
    case MSG_BYTES:
        if (count_get(f, obj) > f->size) {
            return LOCO_ERANGE;
        }
        mp_write_bin(w, p, count_get(f, obj));
        return 0;
    case MSG_STRUCT:
        return write_struct(w, f->sub, p, depth + 1);
    case MSG_KIND_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

static int write_struct(struct mp_writer *w,
                        const struct msg_schema *s,
                        const uint8_t *obj,
                        unsigned depth)
{
    assert(depth < MSG_DEPTH_MAX);
    mp_write_array(w, s->n_fields);
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct msg_field *f = &s->fields[i];
        size_t n = f->array ? count_get(f, obj) : 1;

        if (n > f->max) {
            return LOCO_ERANGE;
        }
        if (f->array) {
            mp_write_array(w, n);
        }
        for (size_t j = 0; j < n; j++) {
            const uint8_t *p = obj + f->offset + j * f->size;
            int rv = write_value(w, f, obj, p, depth);

            if (rv != 0) {
                return rv;
            }
        }
        if (w->full) {
            return LOCO_ERANGE;
        }
    }
    return w->full ? LOCO_ERANGE : 0;
}

int msg_encode(const struct msg_schema *s,
               const void *obj,
               uint8_t *out,
               size_t cap)
{
    struct mp_writer w;
    int rv;

    mp_write_init(&w, out, cap > INT32_MAX ? INT32_MAX : cap);
    rv = write_struct(&w, s, obj, 0);
    return rv != 0 ? rv : (int)w.len;
}

static int read_struct(struct mp_reader *r,
                       const struct msg_schema *s,
                       uint8_t *obj,
                       unsigned depth);

static int read_uint(struct mp_reader *r, uint8_t *p, size_t size)
{
    uint64_t v;

    if (mp_read_uint(r, &v) != 0) {
        return LOCO_EPROTO;
    }
    return word_store(p, size, v);
}

static int read_bin(struct mp_reader *r,
                    const struct msg_field *f,
                    uint8_t *obj,
                    uint8_t *p)
{
    const uint8_t *bytes;
    uint32_t len;

    if (mp_read_bin(r, &bytes, &len) != 0 || len > f->size ||
        (f->kind == MSG_FIXED && len != f->size)) {
        return LOCO_EPROTO;
    }
    memcpy(p, bytes, len);
    if (f->kind == MSG_BYTES) {
        (void)word_store(obj + f->count_offset, f->count_size, len);
    }
    return 0;
}

static int read_value(struct mp_reader *r,
                      const struct msg_field *f,
                      uint8_t *obj,
                      uint8_t *p,
                      unsigned depth)
{
    bool b = false;
    int rv;

    switch (f->kind) {
    case MSG_U8:
    case MSG_U16:
    case MSG_U32:
    case MSG_U64:
        return read_uint(r, p, f->size);
    case MSG_BOOL:
        rv = mp_read_bool(r, &b);
        memcpy(p, &b, sizeof b);
        return rv;
    case MSG_FIXED:
    case MSG_BYTES:
        return read_bin(r, f, obj, p);
    case MSG_STRUCT:
        return read_struct(r, f->sub, p, depth + 1);
    case MSG_KIND_COUNT:
        break;
    }
    return LOCO_EPROTO;
}

static int read_struct(struct mp_reader *r,
                       const struct msg_schema *s,
                       uint8_t *obj,
                       unsigned depth)
{
    uint32_t n;

    assert(depth < MSG_DEPTH_MAX);
    if (mp_read_array(r, &n) != 0 || n != s->n_fields) {
        return LOCO_EPROTO;
    }
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct msg_field *f = &s->fields[i];

        n = 1;
        if (f->array) {
            if (mp_read_array(r, &n) != 0 || n > f->max) {
                return LOCO_EPROTO;
            }
            (void)word_store(obj + f->count_offset, f->count_size, n);
        }
        for (uint32_t j = 0; j < n; j++) {
            uint8_t *p = obj + f->offset + j * f->size;

            if (read_value(r, f, obj, p, depth) != 0) {
                return LOCO_EPROTO;
            }
        }
    }
    return 0;
}

int msg_decode(const struct msg_schema *s,
               const uint8_t *in,
               size_t len,
               void *obj)
{
    struct mp_reader r;

    memset(obj, 0, s->size);
    mp_read_init(&r, in, len);
    if (read_struct(&r, s, obj, 0) != 0 || mp_read_end(&r) != 0) {
        memset(obj, 0, s->size);
        return LOCO_EPROTO;
    }
    return 0;
}

/* Bytes of the header of an array of `n` elements. */
static size_t array_head_bytes(size_t n)
{
    if (n <= 15) {
        return 1;
    }
    return n < 65536 ? 3 : 5;
}

static size_t value_max(const struct msg_field *f)
{
    switch (f->kind) {
    case MSG_U8:
    case MSG_U16:
    case MSG_U32:
    case MSG_U64:
        return 1 + f->size;
    case MSG_BOOL:
        return 1;
    case MSG_FIXED:
    case MSG_BYTES: /* no short form: 2, 3 or 5 bytes of header */
        return (f->size < 256 ? 2 : array_head_bytes(f->size)) + f->size;
    case MSG_STRUCT:
        return msg_bytes_max(f->sub);
    case MSG_KIND_COUNT:
        break;
    }
    return 0;
}

size_t msg_bytes_max(const struct msg_schema *s)
{
    size_t sum = array_head_bytes(s->n_fields);

    for (size_t i = 0; i < s->n_fields; i++) {
        const struct msg_field *f = &s->fields[i];

        sum += f->max * value_max(f);
        if (f->array) {
            sum += array_head_bytes(f->max);
        }
    }
    return sum;
}

static bool
field_ok(const struct msg_schema *s, const struct msg_field *f, unsigned depth);

static bool schema_ok(const struct msg_schema *s, unsigned depth)
{
    if (depth >= MSG_DEPTH_MAX || s->n_fields == 0) {
        return false;
    }
    for (size_t i = 0; i < s->n_fields; i++) {
        if (!field_ok(s, &s->fields[i], depth)) {
            return false;
        }
    }
    return true;
}

static bool
field_ok(const struct msg_schema *s, const struct msg_field *f, unsigned depth)
{
    bool counted = f->array || f->kind == MSG_BYTES;
    size_t most = f->kind == MSG_BYTES ? f->size : f->max;

    if (f->name == NULL || f->kind >= MSG_KIND_COUNT || f->size == 0 ||
        f->max == 0 || f->offset + f->max * f->size > s->size ||
        (f->array && f->kind == MSG_BYTES)) {
        return false;
    }
    if (counted &&
        (f->count_size == 0 || f->count_offset + f->count_size > s->size ||
         (f->count_size < 4 && most >> (8U * f->count_size) != 0))) {
        return false;
    }
    if (f->kind == MSG_STRUCT) {
        return f->sub != NULL && f->sub->size == f->size &&
               schema_ok(f->sub, depth + 1);
    }
    return true;
}

bool msg_schema_ok(const struct msg_schema *s)
{
    return schema_ok(s, 0);
}
