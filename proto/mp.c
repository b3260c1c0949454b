/* mp.c - see mp.h. Format: github.com/msgpack/msgpack/blob/master/spec.md. */
#include "proto/mp.h"

#include <math.h>
#include <string.h>

#include "proto/base/err.h"

/* First bytes of the forms that the reader knows. */
enum {
    MP_FIXMAP = 0x80,
    MP_FIXARRAY = 0x90,
    MP_FIXSTR = 0xa0,
    MP_FALSE = 0xc2,
    MP_TRUE = 0xc3,
    MP_BIN8 = 0xc4,
    MP_FLOAT64 = 0xcb,
    MP_UINT8 = 0xcc,
    MP_STR8 = 0xd9,
    MP_ARRAY16 = 0xdc,
    MP_MAP16 = 0xde
};

void mp_read_init(struct mp_reader *r, const uint8_t *bytes, size_t len)
{
    r->at = bytes;
    r->end = len == 0 ? bytes : bytes + len;
}

int mp_read_end(const struct mp_reader *r)
{
    return r->at == r->end ? 0 : LOCO_EPROTO;
}

static int take_byte(struct mp_reader *r, uint8_t *b)
{
    if (r->at == r->end) {
        return LOCO_EPROTO;
    }
    *b = *r->at++;
    return 0;
}

/* A big-endian word of n bytes. */
static int take_word(struct mp_reader *r, unsigned n, uint64_t *v)
{
    uint64_t x = 0;

    if ((size_t)(r->end - r->at) < n) {
        return LOCO_EPROTO;
    }
    for (unsigned i = 0; i < n; i++) {
        x = x << 8 | r->at[i];
    }
    r->at += n;
    *v = x;
    return 0;
}

/* A word of 1 << log2 bytes that needs all of them: above `below` where it has
 * one byte, else with a bit in its upper half. */
static int
take_shortest(struct mp_reader *r, unsigned log2, uint64_t below, uint64_t *v)
{
    uint64_t least = log2 == 0 ? below : (uint64_t)1 << (4U << log2);

    if (take_word(r, 1U << log2, v) != 0 || *v < least) {
        return LOCO_EPROTO;
    }
    return 0;
}

int mp_read_uint(struct mp_reader *r, uint64_t *v)
{
    uint8_t b;

    if (take_byte(r, &b) != 0) {
        return LOCO_EPROTO;
    }
    if (b < 0x80) {
        *v = b;
        return 0;
    }
    if (b >= MP_UINT8 && b <= MP_UINT8 + 3) {
        return take_shortest(r, (unsigned)b - MP_UINT8, 128, v);
    }
    return LOCO_EPROTO;
}

int mp_read_bool(struct mp_reader *r, bool *v)
{
    uint8_t b;

    if (take_byte(r, &b) != 0 || (b != MP_FALSE && b != MP_TRUE)) {
        return LOCO_EPROTO;
    }
    *v = b == MP_TRUE;
    return 0;
}

int mp_read_f64(struct mp_reader *r, double *v)
{
    uint64_t bits;
    uint8_t b;

    if (take_byte(r, &b) != 0 || b != MP_FLOAT64 ||
        take_word(r, 8, &bits) != 0) {
        return LOCO_EPROTO;
    }
    memcpy(v, &bits, sizeof *v);
    return isfinite(*v) && !(*v == 0 && signbit(*v)) ? 0 : LOCO_EPROTO;
}

/* A count or length: `fix` | 0..fix_max in the first byte, or a word whose size
 * the first byte says: `form` is 1 << log2 bytes, each next one the double. */
static int take_count(struct mp_reader *r,
                      uint8_t fix,
                      uint8_t fix_max,
                      uint8_t form,
                      unsigned log2,
                      uint32_t *n)
{
    uint64_t v;
    uint64_t below = fix == 0 ? 0 : (uint64_t)fix_max + 1;
    uint8_t b;
    int rv;

    if (take_byte(r, &b) != 0) {
        return LOCO_EPROTO;
    }
    if (fix != 0 && b >= fix && b <= fix + fix_max) {
        *n = (uint32_t)(b - fix);
        return 0;
    }
    if (b < form || b > form + (2 - log2)) {
        return LOCO_EPROTO;
    }
    if (b == form && log2 > 0) { /* the first word form follows the fix form */
        rv = take_word(r, 1U << log2, &v) != 0 || v < below ? LOCO_EPROTO : 0;
    } else {
        rv = take_shortest(r, log2 + b - form, below, &v);
    }
    *n = rv == 0 ? (uint32_t)v : 0;
    return rv;
}

int mp_read_array(struct mp_reader *r, uint32_t *n)
{
    return take_count(r, MP_FIXARRAY, 15, MP_ARRAY16, 1, n);
}

int mp_read_map(struct mp_reader *r, uint32_t *n)
{
    return take_count(r, MP_FIXMAP, 15, MP_MAP16, 1, n);
}

int mp_read_bin(struct mp_reader *r, const uint8_t **bytes, uint32_t *len)
{
    if (take_count(r, 0, 0, MP_BIN8, 0, len) != 0 ||
        (size_t)(r->end - r->at) < *len) {
        return LOCO_EPROTO;
    }
    *bytes = r->at;
    r->at += *len;
    return 0;
}

int mp_read_str(struct mp_reader *r, const char **text, uint32_t *len)
{
    if (take_count(r, MP_FIXSTR, 31, MP_STR8, 0, len) != 0 ||
        (size_t)(r->end - r->at) < *len ||
        !mp_utf8_ok((const char *)r->at, *len)) {
        return LOCO_EPROTO;
    }
    *text = (const char *)r->at;
    r->at += *len;
    return 0;
}

int mp_read_text(struct mp_reader *r, void *out, size_t cap)
{
    const char *text;
    uint32_t len;

    if (mp_read_str(r, &text, &len) != 0 || len >= cap) {
        return LOCO_EPROTO;
    }
    memcpy(out, text, len);
    return 0;
}

bool mp_utf8_ok(const char *text, size_t len)
{
    /* Per number of continuation bytes: the least code point. */
    static const uint32_t least[4] = {1, 0x80, 0x800, 0x10000};
    const uint8_t *p = (const uint8_t *)text;

    for (size_t i = 0; i < len; i++) {
        uint32_t c = p[i];
        unsigned more = c < 0x80   ? 0
                        : c < 0xc0 ? 4
                        : c < 0xe0 ? 1
                        : c < 0xf0 ? 2
                        : c < 0xf8 ? 3
                                   : 4;

        if (more == 4 || len - i <= more) {
            return false;
        }
        if (more > 0) {
            c &= 0x3fU >> more;
        }
        for (unsigned j = 0; j < more; j++) {
            uint8_t b = p[++i];

            if ((b & 0xc0) != 0x80) {
                return false;
            }
            c = c << 6 | (b & 0x3fU);
        }
        if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
            return false;
        }
    }
    return true;
}

/* msgpack-c's sink: msgpack_packer_write. */
static int put(void *data, const char *bytes, size_t len)
{
    struct mp_writer *w = data;

    if (w->full || len > w->cap - w->len) {
        w->full = true;
        return -1;
    }
    if (len > 0) {
        memcpy(w->buf + w->len, bytes, len);
        w->len += len;
    }
    return 0;
}

void mp_write_init(struct mp_writer *w, uint8_t *buf, size_t cap)
{
    w->buf = buf;
    w->cap = cap;
    w->len = 0;
    w->full = false;
    msgpack_packer_init(&w->packer, w, put);
}

void mp_write_uint(struct mp_writer *w, uint64_t v)
{
    (void)msgpack_pack_uint64(&w->packer, v);
}

void mp_write_bool(struct mp_writer *w, bool v)
{
    (void)(v ? msgpack_pack_true(&w->packer) : msgpack_pack_false(&w->packer));
}

void mp_write_f64(struct mp_writer *w, double v)
{
    (void)msgpack_pack_double(&w->packer, v == 0 ? 0.0 : v); /* no minus zero */
}

void mp_write_array(struct mp_writer *w, size_t n)
{
    (void)msgpack_pack_array(&w->packer, n);
}

void mp_write_map(struct mp_writer *w, size_t n)
{
    (void)msgpack_pack_map(&w->packer, n);
}

void mp_write_bin(struct mp_writer *w, const void *bytes, size_t len)
{
    (void)msgpack_pack_bin(&w->packer, len);
    (void)msgpack_pack_bin_body(&w->packer, bytes, len);
}

void mp_write_str(struct mp_writer *w, const char *text, size_t len)
{
    (void)msgpack_pack_str(&w->packer, len);
    (void)msgpack_pack_str_body(&w->packer, text, len);
}

int mp_write_text(struct mp_writer *w, const void *text, size_t cap)
{
    size_t len = strnlen(text, cap);

    if (len == cap || !mp_utf8_ok(text, len)) {
        return LOCO_EINVAL;
    }
    mp_write_str(w, text, len);
    return 0;
}
