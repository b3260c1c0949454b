/* mp.h - msgpack by cursor, canonical form only, no allocation.
 *
 * A *writer* fills a buffer of the caller through msgpack-c's packer; a
 * *reader* walks bytes that came from outside. The reader is ours because
 * msgpack-c cannot decode in bounded memory: five bytes that announce an array
 * of 2^32 - 1 elements make it ask for 96 GB before the first element is seen.
 *
 * *Canonical*: unsigned integers, lengths and counts in their shortest form,
 * floats as float64 that are finite and not minus zero, str in UTF-8 without
 * NUL; no ext and no nil. Everything else is LOCO_EPROTO, as are bytes that end
 * early. Pointers that the reader hands out point into its input.
 */
#ifndef LOCO_PROTO_MP_H
#define LOCO_PROTO_MP_H

#include <msgpack/pack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mp_reader {
    const uint8_t *at;
    const uint8_t *end;
};

struct mp_writer {
    msgpack_packer packer; /* writes here: a writer is never copied */
    uint8_t *buf;
    size_t cap;
    size_t len;
    bool full; /* something did not fit; `buf` holds no whole message */
};

void mp_read_init(struct mp_reader *r, const uint8_t *bytes, size_t len);
int mp_read_uint(struct mp_reader *r, uint64_t *v);
int mp_read_bool(struct mp_reader *r, bool *v);
int mp_read_f64(struct mp_reader *r, double *v);
int mp_read_array(struct mp_reader *r, uint32_t *n);
int mp_read_map(struct mp_reader *r, uint32_t *n);
int mp_read_bin(struct mp_reader *r, const uint8_t **bytes, uint32_t *len);
int mp_read_str(struct mp_reader *r, const char **text, uint32_t *len);
/* Into char out[cap], which is zero: less than cap bytes. */
int mp_read_text(struct mp_reader *r, void *out, size_t cap);
/* 0 at the end of the input, LOCO_EPROTO before it. */
int mp_read_end(const struct mp_reader *r);

void mp_write_init(struct mp_writer *w, uint8_t *buf, size_t cap);
void mp_write_uint(struct mp_writer *w, uint64_t v);
void mp_write_bool(struct mp_writer *w, bool v);
void mp_write_f64(struct mp_writer *w, double v);
void mp_write_array(struct mp_writer *w, size_t n);
void mp_write_map(struct mp_writer *w, size_t n);
void mp_write_bin(struct mp_writer *w, const void *bytes, size_t len);
void mp_write_str(struct mp_writer *w, const char *text, size_t len);
/* LOCO_EINVAL: text[cap] has no end, or is not UTF-8. */
int mp_write_text(struct mp_writer *w, const void *text, size_t cap);

/* Whether text[len] is UTF-8 (RFC 3629: no surrogates, no overlong forms) and
 * holds no NUL. */
bool mp_utf8_ok(const char *text, size_t len);

#endif
