/* safetensors.h - named tensors in the file format of Hugging Face.
 *
 * Layout (github.com/huggingface/safetensors, README): u64 LE header size N,
 * N bytes of JSON, then the data; the JSON maps each name to {dtype, shape,
 * data_offsets} and "__metadata__" to an object of strings. Little-endian,
 * row-major, no holes.
 *
 * The writer's bytes are a function of its arguments: tensors by alignment of
 * their dtype (widest first), then by name; metadata in the caller's order
 * behind "format": "pt"; the header is padded with spaces so that the data
 * starts at a multiple of 64. It goes to a temporary name, is flushed and
 * renamed (file.h).
 *
 * The reader maps the file and refuses whatever the format forbids: N over
 * SAFETENSORS_HEADER_MAX or beyond the file, JSON that does not start with
 * '{', duplicate keys, unknown dtypes, a size that is not product(shape) *
 * width, products that overflow, holes, overlaps, trailing bytes. Our own
 * limit beside them: SAFETENSORS_DIMS_MAX dimensions.
 *
 * How it fails: LOCO_EFORMAT for bad bytes, LOCO_EINVAL for bad arguments,
 * the codes of file.h. Blocking; an open file is immutable: any number of
 * threads. It must not shrink while it is open.
 */
#ifndef LOCO_TRAIN_MODEL_SAFETENSORS_H
#define LOCO_TRAIN_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/file.h"

/* The format allows 100 MB; parsed, that would be gigabytes, and a model of
 * 100,000 tensors needs 12 MB. */
#define SAFETENSORS_HEADER_MAX (16U << 20)
#define SAFETENSORS_DIMS_MAX   8
#define SAFETENSORS_ALIGN      64
#define SAFETENSORS_CHUNK      ((size_t)1 << 20)

/* In order of alignment, narrow to wide: the official writer's order. */
/* clang-format off */
#define SAFETENSORS_DTYPES(X)                                                  \
    X(BOOL, 8)        X(F4, 4)          X(F6_E2M3, 6)     X(F6_E3M2, 6)        \
    X(U8, 8)          X(I8, 8)          X(F8_E5M2, 8)     X(F8_E4M3, 8)        \
    X(F8_E8M0, 8)     X(F8_E4M3FNUZ, 8) X(F8_E5M2FNUZ, 8) X(I16, 16)           \
    X(U16, 16)        X(F16, 16)        X(BF16, 16)       X(I32, 32)           \
    X(U32, 32)        X(F32, 32)        X(C64, 64)        X(F64, 64)           \
    X(I64, 64)        X(U64, 64)
/* clang-format on */

enum st_dtype {
#define X(name, bits) ST_##name,
    SAFETENSORS_DTYPES(X)
#undef X
        ST_DTYPE_COUNT
};

const char *st_dtype_name(enum st_dtype dtype);

struct st_tensor {
    const char *name;
    enum st_dtype dtype;
    unsigned n_dims; /* 0: a scalar */
    uint64_t shape[SAFETENSORS_DIMS_MAX];
    const void *data; /* NULL where only the header was read */
    uint64_t bytes;
    uint64_t offset; /* reader: of the first byte, behind the header */
};

struct st_meta {
    const char *key;
    const char *value;
};

/* "format": "pt" need not be among the metadata: it is always written. */
int safetensors_write(const char *path,
                      const struct st_tensor *tensors,
                      size_t n_tensors,
                      const struct st_meta *meta,
                      size_t n_meta,
                      char *errmsg);

/* out (bytes) = what stands at `offset` in a tensor; 0 or an error with its
 * sentence. */
typedef int (*st_fill_fn)(void *data,
                          const struct st_tensor *t,
                          uint64_t offset,
                          void *out,
                          size_t bytes,
                          char *errmsg);

/* The same file without having the tensors in memory: `fill` is asked for
 * each tensor's bytes in order, some SAFETENSORS_CHUNK at a time, where a
 * tensor begins a multiple of it. What t->data points to is fill's business. */
int safetensors_stream(const char *path,
                       const struct st_tensor *tensors,
                       size_t n_tensors,
                       const struct st_meta *meta,
                       size_t n_meta,
                       st_fill_fn fill,
                       void *data,
                       char *errmsg);

/* The same with the tensors in the order that they are given in. */
int safetensors_stream_as_given(const char *path,
                                const struct st_tensor *tensors,
                                size_t n_tensors,
                                const struct st_meta *meta,
                                size_t n_meta,
                                st_fill_fn fill,
                                void *data,
                                char *errmsg);

struct safetensors {
    struct st_tensor *tensors; /* by offset; names and data borrowed from us */
    size_t n_tensors;
    void *json; /* owns the names and the metadata */
    struct file_map map;
};

/* safetensors_close afterwards, whatever the result. */
int safetensors_open(struct safetensors *st, const char *path, char *errmsg);

/* The same over a file's bytes in memory, which must outlive `st`. */
int safetensors_open_memory(struct safetensors *st,
                            const uint8_t *file,
                            size_t size,
                            char *errmsg);

/* A header alone, without its size word: names, dtypes, shapes and places of
 * tensors whose data is elsewhere. `json` may be freed afterwards. */
int safetensors_open_header(struct safetensors *st,
                            const uint8_t *json,
                            size_t size,
                            char *errmsg);

void safetensors_close(struct safetensors *st); /* idempotent */

/* NULL when there is none of that name. */
const struct st_tensor *safetensors_find(const struct safetensors *st,
                                         const char *name);
const char *safetensors_meta(const struct safetensors *st, const char *key);

/* The i-th metadata pair in file order; 0 at the end, else 1. */
int safetensors_meta_at(const struct safetensors *st,
                        size_t i,
                        struct st_meta *out);

#endif
