/* safetensors.c - see safetensors.h. */
#include "train/model/safetensors.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define METADATA "__metadata__"

static const struct {
    const char *name;
    unsigned bits;
} dtypes[ST_DTYPE_COUNT] = {
#define X(name, bits) [ST_##name] = {#name, bits},
    SAFETENSORS_DTYPES(X)
#undef X
};

const char *st_dtype_name(enum st_dtype dtype)
{
    return dtypes[dtype].name;
}

/* Bytes of a tensor; false when the product overflows or is not whole. */
static bool tensor_bytes(const struct st_tensor *t, uint64_t *out)
{
    uint64_t n = 1;

    for (unsigned i = 0; i < t->n_dims; i++) {
        if (__builtin_mul_overflow(n, t->shape[i], &n)) {
            return false;
        }
    }
    if (__builtin_mul_overflow(n, (uint64_t)dtypes[t->dtype].bits, &n)) {
        return false;
    }
    *out = n / 8;
    return n % 8 == 0;
}

/* ----------------------------------------------------------------- writer */

static int compare_for_file(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a;
    const struct st_tensor *y = *(const struct st_tensor *const *)b;

    if (x->dtype != y->dtype) {
        return x->dtype > y->dtype ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static json_t *shape_json(const struct st_tensor *t)
{
    json_t *shape = json_array();

    for (unsigned i = 0; shape != NULL && i < t->n_dims; i++) {
        if (json_array_append_new(shape,
                                  json_integer((json_int_t)t->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    }
    return shape;
}

static int add_tensor(json_t *root,
                      const struct st_tensor *t,
                      uint64_t *offset,
                      char *errmsg)
{
    uint64_t bytes;
    json_t *entry;

    if (t->n_dims > SAFETENSORS_DIMS_MAX || !tensor_bytes(t, &bytes) ||
        bytes != t->bytes || strcmp(t->name, METADATA) == 0 ||
        json_object_get(root, t->name) != NULL) {
        return errmsg_invalid(
            errmsg, "tensor \"%.80s\": shape, size or name is wrong", t->name);
    }
    entry = json_pack("{s:s, s:o*, s:[I, I]}", "dtype", st_dtype_name(t->dtype),
                      "shape", shape_json(t), "data_offsets",
                      (json_int_t)*offset, (json_int_t)(*offset + bytes));
    if (entry == NULL || json_object_get(entry, "shape") == NULL ||
        json_object_set(root, t->name, entry) != 0) {
        json_decref(entry);
        return errmsg_invalid(
            errmsg, "tensor \"%.80s\": the name is not UTF-8 text", t->name);
    }
    json_decref(entry);
    *offset += bytes;
    return 0;
}

static int
add_metadata(json_t *root, const struct st_meta *meta, size_t n, char *errmsg)
{
    json_t *object = json_pack("{s:s}", "format", "pt");

    if (object == NULL || json_object_set_new(root, METADATA, object) != 0) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for the header");
    }
    for (size_t i = 0; i < n; i++) {
        bool known = json_object_get(object, meta[i].key) != NULL;

        if (known && strcmp(meta[i].key, "format") != 0) {
            return errmsg_invalid(errmsg, "metadata \"%.80s\" is given twice",
                                  meta[i].key);
        }
        if (json_object_set_new(object, meta[i].key,
                                json_string(meta[i].value)) != 0) {
            return errmsg_invalid(
                errmsg, "metadata \"%.80s\" is not UTF-8 text", meta[i].key);
        }
    }
    return 0;
}

/* The size word, the JSON and its padding. */
static int write_header(struct file_out *f, const json_t *root, char *errmsg)
{
    static const char spaces[SAFETENSORS_ALIGN + 1] =
        "                                                                ";
    char *text = json_dumps(root, JSON_COMPACT);
    uint8_t size_word[8];
    size_t len;
    size_t pad;
    int rv;

    if (text == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for the header");
    }
    len = strlen(text);
    pad =
        (SAFETENSORS_ALIGN - (8 + len) % SAFETENSORS_ALIGN) % SAFETENSORS_ALIGN;
    put_u64(size_word, len + pad);
    if (len + pad > SAFETENSORS_HEADER_MAX) {
        free(text);
        return errmsg_invalid(errmsg, "the header is too large");
    }
    rv = file_out_write(f, size_word, sizeof size_word, errmsg);
    rv = rv == 0 ? file_out_write(f, text, len, errmsg) : rv;
    rv = rv == 0 ? file_out_write(f, spaces, pad, errmsg) : rv;
    free(text);
    return rv;
}

/* Where the bytes of tensors come from. */
struct origin {
    st_fill_fn fill; /* NULL: they lie in memory */
    void *data;
};

static int
write_memory(struct file_out *f, const struct st_tensor *t, char *errmsg)
{
    const uint8_t *p = t->data;
    int rv = 0;

    for (uint64_t at = 0; rv == 0 && at < t->bytes; at += FILE_PACE) {
        uint64_t left = t->bytes - at;

        rv = file_out_write(
            f, p + at, left < FILE_PACE ? (size_t)left : FILE_PACE, errmsg);
        if (rv == 0) {
            file_out_pace(f);
        }
    }
    return rv;
}

static int write_tensor(struct file_out *f,
                        const struct st_tensor *t,
                        const struct origin *from,
                        char *errmsg)
{
    uint8_t *chunk;
    int rv = 0;

    if (from->fill == NULL) {
        return write_memory(f, t, errmsg);
    }
    chunk = malloc(SAFETENSORS_CHUNK);
    if (chunk == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory to write with");
    }
    for (uint64_t at = 0; rv == 0 && at < t->bytes; at += SAFETENSORS_CHUNK) {
        uint64_t left = t->bytes - at;
        size_t n = left < SAFETENSORS_CHUNK ? (size_t)left : SAFETENSORS_CHUNK;

        rv = from->fill(from->data, t, at, chunk, n, errmsg);
        rv = rv == 0 ? file_out_write(f, chunk, n, errmsg) : rv;
        if (rv == 0) {
            file_out_pace(f);
        }
    }
    free(chunk);
    return rv;
}

static int write_file(const char *path,
                      const json_t *root,
                      const struct st_tensor *const *order,
                      size_t n,
                      const struct origin *from,
                      char *errmsg)
{
    struct file_out f;
    int rv = file_out_open(&f, path, errmsg);

    if (rv != 0) {
        return rv;
    }
    rv = write_header(&f, root, errmsg);
    for (size_t i = 0; rv == 0 && i < n; i++) {
        rv = write_tensor(&f, order[i], from, errmsg);
    }
    if (rv != 0) {
        file_out_abort(&f);
        return rv;
    }
    return file_out_commit(&f, errmsg);
}

static int stream(const char *path,
                  const struct st_tensor *tensors,
                  size_t n_tensors,
                  bool sorted,
                  const struct st_meta *meta,
                  size_t n_meta,
                  const struct origin *from,
                  char *errmsg)
{
    const struct st_tensor **order;
    json_t *root = json_object();
    uint64_t offset = 0;
    int rv;

    /* One more, so that the size is never 0. */
    order = malloc((n_tensors + 1) * sizeof(const struct st_tensor *));
    if (order == NULL || root == NULL) {
        rv = errmsg_fail(errmsg, LOCO_ENOMEM, "no memory for the header");
        goto out;
    }
    for (size_t i = 0; i < n_tensors; i++) {
        order[i] = &tensors[i];
    }
    if (sorted) {
        qsort(order, n_tensors, sizeof(const struct st_tensor *),
              compare_for_file);
    }
    rv = add_metadata(root, meta, n_meta, errmsg);
    for (size_t i = 0; rv == 0 && i < n_tensors; i++) {
        rv = add_tensor(root, order[i], &offset, errmsg);
    }
    rv = rv == 0 ? write_file(path, root, order, n_tensors, from, errmsg) : rv;
out:
    free(order);
    json_decref(root);
    return rv;
}

int safetensors_stream(const char *path,
                       const struct st_tensor *tensors,
                       size_t n_tensors,
                       const struct st_meta *meta,
                       size_t n_meta,
                       st_fill_fn fill,
                       void *data,
                       char *errmsg)
{
    const struct origin from = {fill, data};

    return stream(path, tensors, n_tensors, true, meta, n_meta, &from, errmsg);
}

int safetensors_stream_as_given(const char *path,
                                const struct st_tensor *tensors,
                                size_t n_tensors,
                                const struct st_meta *meta,
                                size_t n_meta,
                                st_fill_fn fill,
                                void *data,
                                char *errmsg)
{
    const struct origin from = {fill, data};

    return stream(path, tensors, n_tensors, false, meta, n_meta, &from, errmsg);
}

int safetensors_write(const char *path,
                      const struct st_tensor *tensors,
                      size_t n_tensors,
                      const struct st_meta *meta,
                      size_t n_meta,
                      char *errmsg)
{
    return safetensors_stream(path, tensors, n_tensors, meta, n_meta, NULL,
                              NULL, errmsg);
}

/* ----------------------------------------------------------------- reader */

static bool get_unsigned(const json_t *value, uint64_t *out)
{
    json_int_t n;

    if (!json_is_integer(value)) {
        return false;
    }
    n = json_integer_value(value);
    *out = (uint64_t)n;
    return n >= 0;
}

static bool get_dtype(const json_t *value, enum st_dtype *out)
{
    const char *name = json_string_value(value);

    for (unsigned i = 0; name != NULL && i < ST_DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (enum st_dtype)i;
            return true;
        }
    }
    return false;
}

static bool get_shape(const json_t *value, struct st_tensor *t)
{
    size_t n = json_array_size(value);

    if (!json_is_array(value) || n > SAFETENSORS_DIMS_MAX) {
        return false;
    }
    t->n_dims = (unsigned)n;
    for (size_t i = 0; i < n; i++) {
        if (!get_unsigned(json_array_get(value, i), &t->shape[i])) {
            return false;
        }
    }
    return true;
}

/* What is wrong with one entry, or NULL. */
static const char *parse_tensor(struct st_tensor *t,
                                const char *name,
                                const json_t *entry,
                                const uint8_t *data,
                                uint64_t data_size)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t begin;
    uint64_t end;
    uint64_t bytes;

    t->name = name;
    if (!get_dtype(json_object_get(entry, "dtype"), &t->dtype)) {
        return "unknown dtype";
    }
    if (!get_shape(json_object_get(entry, "shape"), t)) {
        return "bad shape";
    }
    if (json_array_size(offsets) != 2 ||
        !get_unsigned(json_array_get(offsets, 0), &begin) ||
        !get_unsigned(json_array_get(offsets, 1), &end) || begin > end ||
        end > data_size) {
        return "bad data_offsets";
    }
    if (!tensor_bytes(t, &bytes) || bytes != end - begin) {
        return "the size does not match the shape";
    }
    t->data = data == NULL ? NULL : data + begin;
    t->bytes = bytes;
    t->offset = begin;
    return NULL;
}

static int compare_by_offset(const void *a, const void *b)
{
    const struct st_tensor *x = a;
    const struct st_tensor *y = b;

    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    /* Empty tensors share their offset with what follows. */
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool is_string_map(json_t *object)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value)) {
            return false;
        }
    }
    return json_is_object(object);
}

/* No sum overflows: each end is at most what parse_tensor() allows. */
static bool covers(const struct safetensors *st, const uint64_t *size)
{
    uint64_t at = 0;

    for (size_t i = 0; i < st->n_tensors; i++) {
        if (st->tensors[i].offset != at) {
            return false;
        }
        at += st->tensors[i].bytes;
    }
    return size == NULL || at == *size;
}

/* `data` (*size) follows the header; both NULL: it is elsewhere. */
static int parse_entries(struct safetensors *st,
                         const uint8_t *data,
                         const uint64_t *size,
                         char *errmsg)
{
    uint64_t most = size == NULL ? INT64_MAX : *size;
    json_t *root = st->json;
    const char *name;
    json_t *entry;

    st->tensors = calloc(json_object_size(root) + 1, sizeof *st->tensors);
    if (st->tensors == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "safetensors: no memory");
    }
    json_object_foreach(root, name, entry)
    {
        const char *problem = NULL;

        if (strcmp(name, METADATA) == 0) {
            problem = is_string_map(entry) ? NULL : "not a map of strings";
        } else {
            struct st_tensor *t = &st->tensors[st->n_tensors++];
            problem = parse_tensor(t, name, entry, data, most);
        }
        if (problem != NULL) {
            return errmsg_fail(errmsg, LOCO_EFORMAT,
                               "safetensors: \"%.80s\": %s", name, problem);
        }
    }
    qsort(st->tensors, st->n_tensors, sizeof *st->tensors, compare_by_offset);
    if (!covers(st, size)) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "safetensors: the tensors leave holes, overlap or "
                           "do not reach the end");
    }
    return 0;
}

static int load_header(struct safetensors *st,
                       const uint8_t *json,
                       size_t size,
                       char *errmsg)
{
    json_error_t error;

    if (size == 0 || json[0] != '{') {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "safetensors: the header is not JSON");
    }
    st->json =
        json_loadb((const char *)json, size, JSON_REJECT_DUPLICATES, &error);
    return st->json != NULL
               ? 0
               : errmsg_fail(errmsg, LOCO_EFORMAT,
                             "safetensors: the header is not JSON: %.120s",
                             error.text);
}

static int parse_file(struct safetensors *st,
                      const uint8_t *file,
                      size_t size,
                      char *errmsg)
{
    uint64_t header, left;
    int rv;

    if (size < 8) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "safetensors: shorter than its size word");
    }
    header = get_u64(file);
    if (header > SAFETENSORS_HEADER_MAX || header > size - 8) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "safetensors: the header is too large: %llu bytes "
                           "in a file of %zu, at most %u are read",
                           (unsigned long long)header, size,
                           SAFETENSORS_HEADER_MAX);
    }
    left = size - 8 - header;
    rv = load_header(st, file + 8, (size_t)header, errmsg);
    return rv != 0 ? rv : parse_entries(st, file + 8 + header, &left, errmsg);
}

int safetensors_open_header(struct safetensors *st,
                            const uint8_t *json,
                            size_t size,
                            char *errmsg)
{
    int rv;

    memset(st, 0, sizeof *st);
    rv = size > SAFETENSORS_HEADER_MAX
             ? errmsg_fail(errmsg, LOCO_EFORMAT,
                           "safetensors: the header is too large: %zu bytes, "
                           "at most %u are read",
                           size, SAFETENSORS_HEADER_MAX)
             : load_header(st, json, size, errmsg);
    rv = rv != 0 ? rv : parse_entries(st, NULL, NULL, errmsg);
    if (rv != 0) {
        safetensors_close(st);
    }
    return rv;
}

int safetensors_open_memory(struct safetensors *st,
                            const uint8_t *file,
                            size_t size,
                            char *errmsg)
{
    int rv;

    memset(st, 0, sizeof *st);
    rv = parse_file(st, file, size, errmsg);
    if (rv != 0) {
        safetensors_close(st);
    }
    return rv;
}

int safetensors_open(struct safetensors *st, const char *path, char *errmsg)
{
    char problem[ERRMSG_SIZE];
    struct file_map map;
    int rv;

    memset(st, 0, sizeof *st);
    rv = file_map_open(&map, path, errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = safetensors_open_memory(st, map.data, map.size, problem);
    if (rv != 0) {
        file_map_close(&map);
        return errmsg_fail(errmsg, rv, "%s: %s", path, problem);
    }
    st->map = map;
    return 0;
}

void safetensors_close(struct safetensors *st)
{
    free(st->tensors);
    json_decref(st->json);
    file_map_close(&st->map);
    memset(st, 0, sizeof *st);
}

const struct st_tensor *safetensors_find(const struct safetensors *st,
                                         const char *name)
{
    for (size_t i = 0; i < st->n_tensors; i++) {
        if (strcmp(st->tensors[i].name, name) == 0) {
            return &st->tensors[i];
        }
    }
    return NULL;
}

const char *safetensors_meta(const struct safetensors *st, const char *key)
{
    const json_t *meta = json_object_get(st->json, METADATA);

    return json_string_value(json_object_get(meta, key));
}

int safetensors_meta_at(const struct safetensors *st,
                        size_t i,
                        struct st_meta *out)
{
    json_t *meta = json_object_get(st->json, METADATA);
    void *iter = json_object_iter(meta);

    for (; iter != NULL && i > 0; i--) {
        iter = json_object_iter_next(meta, iter);
    }
    if (iter == NULL) {
        return 0;
    }
    out->key = json_object_iter_key(iter);
    out->value = json_string_value(json_object_iter_value(iter));
    return 1;
}
