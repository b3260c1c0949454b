/* tensor_list.c - see tensor_list.h. */
#include "train/model/tensor_list.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define F32_BYTES 4

void tensor_list_free(struct tensor_list *l)
{
    free(l->at);
    free(l->names);
    memset(l, 0, sizeof *l);
}

static bool name_shows(const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < n; i++) {
        if (name[i] < ' ' || name[i] > '~') {
            return false;
        }
    }
    return n > 0 && n < TENSOR_NAME_MAX;
}

/* Elements of a shape; 0: a dimension is 0, or there are more than a list may
 * have. */
static uint64_t shape_numel(const uint64_t *shape, unsigned n_dims)
{
    uint64_t n = 1;

    for (unsigned i = 0; i < n_dims; i++) {
        if (shape[i] == 0 || shape[i] > TENSOR_NUMEL_MAX / n) {
            return 0;
        }
        n *= shape[i];
    }
    return n;
}

/* Room for n entries and `bytes` of names. */
static int take_memory(struct tensor_list *l, size_t n, size_t bytes)
{
    l->at = calloc(n, sizeof *l->at);
    l->names = malloc(bytes);
    return l->at == NULL || l->names == NULL ? LOCO_ENOMEM : 0;
}

/* The next entry; `at`: where its name goes. Returns what follows the name. */
static char *
add(struct tensor_list *l, char *at, const char *name, uint64_t numel)
{
    size_t bytes = strlen(name) + 1;

    memcpy(at, name, bytes);
    l->at[l->n].name = at;
    l->at[l->n].offset = l->numel;
    l->at[l->n].numel = numel;
    l->numel += numel;
    l->n++;
    return at + bytes;
}

/* The name of a file is a stranger's: it is shown only where it can be. */
static int check(const struct st_tensor *t, size_t i, char *errmsg)
{
    if (!name_shows(t->name)) {
        return errmsg_invalid(errmsg,
                              "the name of tensor %zu is not 1 to %d "
                              "characters of printable ASCII",
                              i, TENSOR_NAME_MAX - 1);
    }
    for (unsigned k = 0; k < t->n_dims; k++) {
        if (t->shape[k] == 0) {
            return errmsg_invalid(
                errmsg,
                "tensor %.120s is empty: one of its dimensions "
                "is 0",
                t->name);
        }
    }
    return shape_numel(t->shape, t->n_dims) > 0
               ? 0
               : errmsg_invalid(errmsg,
                                "tensor %.120s has more than %llu elements",
                                t->name, TENSOR_NUMEL_MAX);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* JSON objects have a name once; other lists may not. */
static int check_twice(const struct tensor_list *l, char *errmsg)
{
    const char **names = malloc(l->n * sizeof(const char *));
    int rv = 0;

    if (names == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < l->n; i++) {
        names[i] = l->at[i].name;
    }
    qsort(names, l->n, sizeof(const char *), compare_names);
    for (size_t i = 1; rv == 0 && i < l->n; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            rv = errmsg_invalid(errmsg, "tensor %.120s is there twice",
                                names[i]);
        }
    }
    free(names);
    return rv;
}

static int fill(struct tensor_list *l,
                const struct st_tensor *tensors,
                size_t n,
                char *errmsg)
{
    char *at = l->names;

    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *t = &tensors[i];
        struct tensor_entry *e = &l->at[i];

        at = add(l, at, t->name, shape_numel(t->shape, t->n_dims));
        e->n_dims = t->n_dims;
        memcpy(e->shape, t->shape, t->n_dims * sizeof t->shape[0]);
        if (l->numel > TENSOR_NUMEL_MAX) {
            return errmsg_invalid(
                errmsg,
                "up to tensor %.120s there are more than %llu "
                "elements",
                t->name, TENSOR_NUMEL_MAX);
        }
    }
    return check_twice(l, errmsg);
}

int tensor_list_of_tensors(struct tensor_list *l,
                           const struct st_tensor *tensors,
                           size_t n,
                           char *errmsg)
{
    size_t bytes = 0;
    int rv = 0;

    memset(l, 0, sizeof *l);
    if (n == 0 || n > TENSOR_LIST_MAX) {
        return errmsg_invalid(errmsg,
                              "there are %zu tensors; a model has 1 to %d", n,
                              TENSOR_LIST_MAX);
    }
    for (size_t i = 0; i < n && rv == 0; i++) {
        rv = check(&tensors[i], i, errmsg);
        bytes += strlen(tensors[i].name) + 1;
    }
    if (rv == 0 && take_memory(l, n, bytes) != 0) {
        rv = errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    return rv != 0 ? rv : fill(l, tensors, n, errmsg);
}

int tensor_list_of_file(struct tensor_list *l,
                        const struct safetensors *st,
                        char *errmsg)
{
    int rv = tensor_list_of_tensors(l, st->tensors, st->n_tensors, errmsg);

    for (size_t i = 0; i < st->n_tensors && rv == 0; i++) {
        if (st->tensors[i].dtype != ST_F32) {
            rv = errmsg_invalid(
                errmsg, "tensor %.120s is %s, and F32 is needed",
                st->tensors[i].name, st_dtype_name(st->tensors[i].dtype));
        }
    }
    return rv;
}

int tensor_list_parse(struct tensor_list *l,
                      const uint8_t *text,
                      size_t len,
                      char *errmsg)
{
    struct safetensors st;
    int rv;

    memset(l, 0, sizeof *l);
    rv = safetensors_open_header(&st, text, len, errmsg);
    if (rv == 0) {
        rv = tensor_list_of_file(l, &st, errmsg);
        safetensors_close(&st);
    }
    return rv;
}

int tensor_list_of_llama(struct tensor_list *l, const struct llama_config *c)
{
    size_t n = (size_t)llama_tensor_count(c);
    char *at;

    memset(l, 0, sizeof *l);
    if (take_memory(l, n, n * LLAMA_NAME_MAX) != 0) {
        return LOCO_ENOMEM;
    }
    at = l->names;
    for (size_t i = 0; i < n; i++) {
        struct tensor_entry *e = &l->at[i];
        struct llama_view v;

        llama_tensor(c, (int)i, &v);
        at = add(l, at, v.name, (uint64_t)v.numel);
        e->n_dims = (unsigned)v.ndim;
        e->shape[0] = (uint64_t)v.shape[0];
        e->shape[1] = v.ndim == 2 ? (uint64_t)v.shape[1] : 0;
    }
    return 0;
}

/* ---- comparing, showing -------------------------------------------------- */

void tensor_shape_text(const struct tensor_entry *t, char *out)
{
    size_t n = 0;

    (void)snprintf(out, TENSOR_SHAPE_TEXT, "a scalar");
    for (unsigned i = 0; i < t->n_dims; i++) {
        n += (size_t)snprintf(out + n, TENSOR_SHAPE_TEXT - n, "%s%llu",
                              i == 0 ? "" : " x ",
                              (unsigned long long)t->shape[i]);
    }
}

static bool same_shape(const struct tensor_entry *x,
                       const struct tensor_entry *y)
{
    return x->n_dims == y->n_dims &&
           memcmp(x->shape, y->shape, x->n_dims * sizeof x->shape[0]) == 0;
}

int tensor_list_same(const struct tensor_list *l,
                     const char *a,
                     const struct tensor_list *other,
                     const char *b,
                     char *errmsg)
{
    size_t n = l->n < other->n ? l->n : other->n;
    char one[TENSOR_SHAPE_TEXT], two[TENSOR_SHAPE_TEXT];

    for (size_t i = 0; i < n; i++) {
        const struct tensor_entry *x = &l->at[i], *y = &other->at[i];

        if (strcmp(x->name, y->name) != 0) {
            return errmsg_invalid(
                errmsg, "tensor %zu is %.80s in %.40s and %.80s in %.40s", i,
                x->name, a, y->name, b);
        }
        if (!same_shape(x, y)) {
            tensor_shape_text(x, one);
            tensor_shape_text(y, two);
            return errmsg_invalid(
                errmsg, "tensor %.80s is %.50s in %.40s and %.50s in %.40s",
                x->name, one, a, two, b);
        }
    }
    if (l->n != other->n) {
        bool more = l->n > other->n;

        return errmsg_invalid(errmsg, "tensor %.80s is in %.40s only",
                              more ? l->at[n].name : other->at[n].name,
                              more ? a : b);
    }
    return 0;
}

static json_t *entry_json(const struct tensor_entry *t)
{
    json_t *shape = json_array();

    for (unsigned i = 0; i < t->n_dims; i++) {
        json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
                     "data_offsets", (json_int_t)(t->offset * F32_BYTES),
                     (json_int_t)((t->offset + t->numel) * F32_BYTES));
}

char *tensor_list_text(const struct tensor_list *l)
{
    json_t *root = json_object();
    char *text = NULL;
    bool whole = root != NULL;

    for (size_t i = 0; i < l->n && whole; i++) {
        whole = json_object_set_new(root, l->at[i].name,
                                    entry_json(&l->at[i])) == 0;
    }
    if (whole) {
        text = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER);
    }
    json_decref(root);
    return text;
}
