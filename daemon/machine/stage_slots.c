/* stage_slots.c - see stage_slots.h. */
#include "daemon/machine/stage_slots.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

static size_t matrix_numel(const struct stage_slots *s)
{
    return (size_t)s->rows * s->wire.dim;
}

static float *
matrix(const struct stage_slots *s, uint32_t slot, enum stage_side side)
{
    return s->matrices + ((size_t)slot * 2 + side) * matrix_numel(s);
}

static uint32_t *labels_of(const struct stage_slots *s, uint32_t slot)
{
    return s->labels + (size_t)slot * s->rows;
}

size_t stage_slots_bytes(uint32_t n, uint32_t rows, uint32_t dim)
{
    return (size_t)n * rows * (2 * (size_t)dim + 1) * sizeof(float);
}

int stage_slots_open(struct stage_slots *s,
                     const struct stage_wire *wire,
                     uint32_t n,
                     uint32_t rows)
{
    memset(s, 0, sizeof *s);
    if (n == 0 || rows == 0 || wire->dim == 0) {
        return LOCO_EINVAL;
    }
    s->wire = *wire;
    s->n = n;
    s->rows = rows;
    s->tags = calloc(n, sizeof *s->tags);
    s->matrices = calloc((size_t)n * 2 * matrix_numel(s), sizeof(float));
    s->labels = calloc((size_t)n * rows, sizeof *s->labels);
    if (s->tags == NULL || s->matrices == NULL || s->labels == NULL) {
        free(s->tags);
        free(s->matrices);
        free(s->labels);
        memset(s, 0, sizeof *s);
        return LOCO_ENOMEM;
    }
    (void)pthread_mutex_init(&s->lock, NULL);
    return 0;
}

void stage_slots_close(struct stage_slots *s)
{
    if (s->tags != NULL) {
        (void)pthread_mutex_destroy(&s->lock);
    }
    free(s->tags);
    free(s->matrices);
    free(s->labels);
    memset(s, 0, sizeof *s);
}

bool stage_slots_has(const struct stage_slots *s, const struct stage_piece *p)
{
    return p->slot < s->n && p->rows > 0 && p->first <= s->rows &&
           p->rows <= s->rows - p->first;
}

size_t stage_slots_len(const struct stage_slots *s, const struct stage_piece *p)
{
    return p->forth ? stage_wire_forth_bytes(&s->wire, p->rows)
                    : stage_wire_back_bytes(&s->wire, p->rows);
}

static float *
piece_at(const struct stage_slots *s, const struct stage_piece *p, bool high)
{
    return matrix(s, p->slot, high ? STAGE_HIGH : STAGE_LOW) +
           (size_t)p->first * s->wire.dim;
}

int stage_slots_fill(struct stage_slots *s,
                     const struct stage_piece *p,
                     uint8_t *dst)
{
    int rv = LOCO_ESTALE;

    if (!stage_slots_has(s, p)) {
        return LOCO_ERANGE;
    }
    (void)pthread_mutex_lock(&s->lock);
    if (s->tags[p->slot] == p->tag) {
        const float *x = piece_at(s, p, p->forth);

        rv = p->forth ? stage_wire_put_forth(&s->wire, dst, x,
                                             labels_of(s, p->slot) + p->first,
                                             p->rows)
                      : stage_wire_put_back(&s->wire, dst, x, p->rows);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rv;
}

/* Under the lock. A later attempt takes the slot over. */
static bool claim(struct stage_slots *s, uint32_t slot, uint64_t tag)
{
    if (tag > s->tags[slot]) {
        s->tags[slot] = tag;
    }
    return tag == s->tags[slot];
}

int stage_slots_take(struct stage_slots *s,
                     const struct stage_piece *p,
                     const uint8_t *src)
{
    int rv = LOCO_ESTALE;

    if (!stage_slots_has(s, p)) {
        return LOCO_ERANGE;
    }
    (void)pthread_mutex_lock(&s->lock);
    if (p->forth ? claim(s, p->slot, p->tag) : s->tags[p->slot] == p->tag) {
        float *x = piece_at(s, p, !p->forth);

        rv = p->forth ? stage_wire_get_forth(&s->wire, src, x,
                                             labels_of(s, p->slot) + p->first,
                                             p->rows)
                      : stage_wire_get_back(&s->wire, src, x, p->rows);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rv;
}

int stage_slots_begin(struct stage_slots *s, uint32_t slot, uint64_t tag)
{
    bool ours;

    if (slot >= s->n) {
        return LOCO_ERANGE;
    }
    (void)pthread_mutex_lock(&s->lock);
    ours = claim(s, slot, tag);
    (void)pthread_mutex_unlock(&s->lock);
    return ours ? 0 : LOCO_ESTALE;
}

int stage_slots_read(struct stage_slots *s,
                     uint32_t slot,
                     uint64_t tag,
                     enum stage_side side,
                     float *x,
                     uint32_t *labels)
{
    int rv = slot < s->n ? 0 : LOCO_ERANGE;

    (void)pthread_mutex_lock(&s->lock);
    rv = rv == 0 && s->tags[slot] != tag ? LOCO_ESTALE : rv;
    if (rv == 0) {
        memcpy(x, matrix(s, slot, side), matrix_numel(s) * sizeof *x);
    }
    if (rv == 0 && labels != NULL) {
        memcpy(labels, labels_of(s, slot), s->rows * sizeof *labels);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rv;
}

int stage_slots_write(struct stage_slots *s,
                      uint32_t slot,
                      uint64_t tag,
                      enum stage_side side,
                      const float *x,
                      const uint32_t *labels)
{
    int rv = slot < s->n ? 0 : LOCO_ERANGE;

    (void)pthread_mutex_lock(&s->lock);
    rv = rv == 0 && s->tags[slot] != tag ? LOCO_ESTALE : rv;
    if (rv == 0) {
        memcpy(matrix(s, slot, side), x, matrix_numel(s) * sizeof *x);
    }
    if (rv == 0 && labels != NULL) {
        memcpy(labels_of(s, slot), labels, s->rows * sizeof *labels);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rv;
}
