/* layout.c - see layout.h. */
#include "daemon/client/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/errmsg.h"
#include "proto/trainer_msg.h"

#define SHAPE_TEXT_MAX 180

static int bad(char *errmsg, uint32_t i, const char *what)
{
    return errmsg_fail(
        errmsg, LOCO_FAIL_PROTOCOL,
        "locod's list of tensors is malformed: tensor %" PRIu32 " %s", i, what);
}

/* The product of the shape; false where it does not fit 64 bits. */
static bool shape_numel(const struct trainer_tensor *t, uint64_t *numel)
{
    *numel = 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        if (t->shape[i] != 0 && *numel > UINT64_MAX / t->shape[i]) {
            return false;
        }
        *numel *= t->shape[i];
    }
    return true;
}

/* A name that people can read in a sentence, and zeros behind it. */
static bool name_ok(const uint8_t *name, uint32_t n, size_t room)
{
    for (size_t i = 0; i < n; i++) {
        if (name[i] < 0x20 || name[i] == 0x7f) {
            return false;
        }
    }
    for (size_t i = n; i < room; i++) {
        if (name[i] != 0) {
            return false;
        }
    }
    return true;
}

struct cursor {
    const uint8_t *at;
    size_t left;
    uint64_t offset; /* in theta, of the next tensor */
    char *names;     /* where its name goes */
};

static int read_tensor(struct cursor *c,
                       uint32_t i,
                       uint64_t n,
                       struct loco_tensor *out,
                       char *errmsg)
{
    struct trainer_tensor t;
    uint64_t numel;
    size_t room;

    if (c->left < sizeof t) {
        return bad(errmsg, i, "is not there");
    }
    memcpy(&t, c->at, sizeof t);
    room = trainer_name_room(t.name_bytes);
    if (t.n_dims > TRAINER_DIMS_MAX || !shape_numel(&t, &numel) ||
        numel != t.numel) {
        return bad(errmsg, i, "has a shape that is not its size");
    }
    if (t.offset != c->offset || t.numel > n - c->offset) {
        return bad(errmsg, i, "is not where the one before it ends");
    }
    if (t.name_bytes == 0 || t.name_bytes > LAYOUT_NAME_MAX ||
        room > c->left - sizeof t ||
        !name_ok(c->at + sizeof t, t.name_bytes, room)) {
        return bad(errmsg, i, "has a name that is none");
    }
    memcpy(c->names, c->at + sizeof t, t.name_bytes);
    *out = (struct loco_tensor){.name = c->names,
                                .n_dims = t.n_dims,
                                .offset = t.offset,
                                .numel = t.numel};
    memcpy(out->shape, t.shape, t.n_dims * sizeof t.shape[0]);
    c->names += t.name_bytes + 1; /* the memory was zero */
    c->at += sizeof t + room;
    c->left -= sizeof t + room;
    c->offset += t.numel;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct loco_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* (n) pointers in the order of names; NULL: out of memory. Caller frees. */
static const struct loco_tensor **sorted(const struct loco_tensor *t,
                                         uint32_t n)
{
    const struct loco_tensor **list = calloc((size_t)n + 1, sizeof *list);

    for (uint32_t i = 0; list != NULL && i < n; i++) {
        list[i] = &t[i];
    }
    if (list != NULL) {
        qsort(list, n, sizeof list[0], by_name);
    }
    return list;
}

/* The first name that two tensors have, or NULL. */
static const char *twice(const struct loco_tensor **list, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        if (by_name(&list[i - 1], &list[i]) == 0) {
            return list[i]->name;
        }
    }
    return NULL;
}

static int
read_all(struct layout *out, uint32_t n_tensors, uint64_t n, char *errmsg)
{
    struct cursor c = {
        .at = out->bytes, .left = out->n_bytes, .names = out->names};
    const struct loco_tensor **list;
    const char *name;
    int rv = 0;

    for (uint32_t i = 0; i < n_tensors; i++) {
        rv = read_tensor(&c, i, n, &out->tensors[i], errmsg);
        if (rv != 0) {
            return rv;
        }
    }
    out->n = n_tensors;
    if (c.left > 0 || c.offset != n) {
        return bad(errmsg, n_tensors, "should be the end, and is not");
    }
    list = sorted(out->tensors, n_tensors);
    if (list == NULL) {
        return errmsg_fail(errmsg, LOCO_FAIL_MEMORY, "out of memory");
    }
    name = twice(list, n_tensors);
    if (name != NULL) {
        rv = errmsg_fail(errmsg, LOCO_FAIL_PROTOCOL,
                         "locod's list of tensors has %.100s twice", name);
    }
    free(list);
    return rv;
}

int layout_read(struct layout *out,
                const uint8_t *bytes,
                size_t len,
                uint32_t n_tensors,
                uint64_t n,
                char *errmsg)
{
    int rv;

    memset(out, 0, sizeof *out);
    if (n_tensors == 0 || n_tensors > LAYOUT_TENSORS_MAX ||
        len > LAYOUT_BYTES_MAX ||
        len / sizeof(struct trainer_tensor) < n_tensors) {
        return errmsg_fail(errmsg, LOCO_FAIL_PROTOCOL,
                           "locod's list of tensors has an impossible size");
    }
    out->n_bytes = len;
    out->bytes = malloc(len);
    /* Names with their NULs are shorter than the entries that held them. */
    out->names = calloc(1, len);
    out->tensors = calloc(n_tensors, sizeof out->tensors[0]);
    if (out->bytes == NULL || out->names == NULL || out->tensors == NULL) {
        layout_free(out);
        return errmsg_fail(errmsg, LOCO_FAIL_MEMORY, "out of memory");
    }
    memcpy(out->bytes, bytes, len);
    rv = read_all(out, n_tensors, n, errmsg);
    if (rv != 0) {
        layout_free(out);
    }
    return rv;
}

bool layout_equal(const struct layout *a, const struct layout *b)
{
    return a->n == b->n && a->n_bytes == b->n_bytes &&
           memcmp(a->bytes, b->bytes, a->n_bytes) == 0;
}

/* "(2, 3)", as Python writes shapes. */
static const char *shape_text(const struct loco_tensor *t,
                              char out[SHAPE_TEXT_MAX])
{
    int at = snprintf(out, SHAPE_TEXT_MAX, "(");

    for (uint32_t i = 0; i < t->n_dims; i++) {
        at += snprintf(out + at, (size_t)(SHAPE_TEXT_MAX - at), "%s%" PRIu64,
                       i == 0 ? "" : ", ", t->shape[i]);
    }
    (void)snprintf(out + at, (size_t)(SHAPE_TEXT_MAX - at),
                   t->n_dims == 1 ? ",)" : ")");
    return out;
}

static int check_shape(const struct loco_tensor *run,
                       const struct loco_tensor *mine,
                       char *errmsg)
{
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];

    if (run->n_dims == mine->n_dims &&
        memcmp(run->shape, mine->shape, run->n_dims * sizeof run->shape[0]) ==
            0) {
        return 0;
    }
    return errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                       "the run's tensor %.80s has the shape %.70s, your "
                       "model's %.70s: join with the model of the run",
                       run->name, shape_text(run, a), shape_text(mine, b));
}

static int only_one(bool run_has, const char *name, char *errmsg)
{
    return run_has ? errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                                 "the run has a tensor %.100s, your model has "
                                 "not: join with the model of the run",
                                 name)
                   : errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                                 "your model has a tensor %.100s, the run has "
                                 "not: join with the model of the run",
                                 name);
}

static int compare(const struct loco_tensor **run,
                   uint32_t n_run,
                   const struct loco_tensor **mine,
                   uint32_t n_mine,
                   char *errmsg)
{
    for (uint32_t i = 0; i < n_run || i < n_mine; i++) {
        int order = i == n_run    ? 1
                    : i == n_mine ? -1
                                  : by_name(&run[i], &mine[i]);
        int rv = order != 0 ? only_one(order < 0,
                                       order < 0 ? run[i]->name : mine[i]->name,
                                       errmsg)
                            : check_shape(run[i], mine[i], errmsg);

        if (rv != 0) {
            return rv;
        }
    }
    return 0;
}

/* What the caller gives is checked before it is sorted. */
static int mine_ok(const struct loco_tensor *mine, uint32_t n, char *errmsg)
{
    for (uint32_t i = 0; i < n; i++) {
        if (mine[i].name == NULL || mine[i].n_dims > LOCO_DIMS_MAX) {
            return errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                               "tensor %" PRIu32 " of your model has no name, "
                               "or more than %d dimensions",
                               i, LOCO_DIMS_MAX);
        }
    }
    return 0;
}

int layout_check(const struct layout *layout,
                 const struct loco_tensor *mine,
                 uint32_t n,
                 char *errmsg)
{
    const struct loco_tensor **a, **b;
    const char *name;
    int rv = mine_ok(mine, n, errmsg);

    if (rv != 0) {
        return rv;
    }
    a = sorted(layout->tensors, layout->n);
    b = sorted(mine, n);
    name = a == NULL || b == NULL ? NULL : twice(b, n);
    if (a == NULL || b == NULL) {
        rv = errmsg_fail(errmsg, LOCO_FAIL_MEMORY, "out of memory");
    } else if (name != NULL) {
        rv = errmsg_fail(errmsg, LOCO_FAIL_VALUE,
                         "your model has a tensor %.100s twice", name);
    } else {
        rv = compare(a, layout->n, b, n, errmsg);
    }
    free(a);
    free(b);
    return rv;
}

void layout_free(struct layout *layout)
{
    free(layout->tensors);
    free(layout->names);
    free(layout->bytes);
    memset(layout, 0, sizeof *layout);
}
