/* lanes.c - see lanes.h. */
#include "train/sync/codec/lanes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

int lanes_fit(struct lanes *l,
              const struct codec *codec,
              size_t segment_elements,
              uint32_t n_lanes,
              uint32_t n_slots)
{
    size_t slot_bytes = codec->bytes(segment_elements), size;

    if (l->codec == codec && l->n_lanes == n_lanes && l->n_slots == n_slots &&
        l->slot_bytes == slot_bytes) {
        return 0;
    }
    if (n_lanes == 0 || n_lanes > CODEC_TERMS_MAX || n_slots == 0) {
        return LOCO_EINVAL;
    }
    size = slot_bytes * n_lanes * n_slots;
    free(l->slots);
    l->n_lanes = 0;
    l->slots = calloc((size_t)n_lanes * n_slots, sizeof *l->slots);
    if (size > l->size) {
        free(l->bytes);
        l->bytes = malloc(size);
        l->size = l->bytes == NULL ? 0 : size;
    }
    if (l->slots == NULL || l->bytes == NULL) {
        return LOCO_ENOMEM;
    }
    l->codec = codec;
    l->n_lanes = n_lanes;
    l->n_slots = n_slots;
    l->slot_bytes = slot_bytes;
    return 0;
}

void lanes_free(struct lanes *l)
{
    free(l->bytes);
    free(l->slots);
    *l = (struct lanes){0};
}

uint8_t *lanes_at(struct lanes *l, uint32_t lane, uint32_t slot)
{
    if (lane >= l->n_lanes || slot >= l->n_slots) {
        return NULL;
    }
    return l->bytes + ((size_t)lane * l->n_slots + slot) * l->slot_bytes;
}

void lanes_keep(struct lanes *l,
                uint64_t attempt,
                uint32_t lane,
                uint32_t slot,
                uint32_t n,
                float scale)
{
    l->slots[(size_t)lane * l->n_slots + slot] =
        (struct lane_slot){.attempt = attempt, .n = n, .scale = scale};
}

/* It goes into the sum as it is: nothing is taken from it before. */
static int raw_own(const struct lanes_sum *s)
{
    if (s->next != NULL) {
        memset(s->next, 0, s->n * sizeof *s->next);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (!isfinite(s->own[i])) {
            return LOCO_ENUMERIC;
        }
    }
    return 0;
}

/* The own contribution takes the same way through the codec as the others, so
 * the result does not depend on who owns the slice and others can make it
 * again; but for `raw`. */
static int encode_own(struct lanes *l, struct lanes_sum *s)
{
    struct codec_op op = {
        .own = s->own, .n = s->n, .scale = 1, .next = s->next};
    uint8_t *to = lanes_at(l, s->lane, s->slot);
    int rv = 0;

    if (s->raw) {
        rv = raw_own(s);
    } else if (s->encoded != NULL) {
        memcpy(to, s->encoded, l->codec->bytes(s->n));
    } else {
        rv = l->codec->encode_op(to, &op);
    }
    if (rv == 0) {
        lanes_keep(l, s->attempt, s->lane, s->slot, s->n, s->scale);
    } else {
        s->bad = s->lane;
    }
    return rv;
}

int lanes_sum(struct lanes *l, struct lanes_sum *s)
{
    const uint8_t *terms[CODEC_TERMS_MAX];
    float scale[CODEC_TERMS_MAX];
    struct codec_sum sum = {
        .terms = terms,
        .scale = scale,
        .n_terms = l->n_lanes,
        .n = s->n,
        .own = s->raw ? s->own : NULL,
        .own_term = s->lane,
        .clip = s->clip,
        .centred = s->centred,
        .next = s->scale > 0 ? s->next : NULL,
        .next_scale = s->scale > 0 ? 1 / s->scale : 0,
        .result = s->result,
    };
    int rv;

    s->bad = l->n_lanes;
    if (s->lane >= l->n_lanes || s->slot >= l->n_slots ||
        l->codec->bytes(s->n) > l->slot_bytes) {
        return LOCO_EINVAL;
    }
    rv = encode_own(l, s);
    for (uint32_t i = 0; i < l->n_lanes && rv == 0; i++) {
        const struct lane_slot *slot =
            &l->slots[(size_t)i * l->n_slots + s->slot];

        terms[i] = lanes_at(l, i, s->slot);
        scale[i] = slot->scale;
        rv = slot->attempt == s->attempt && slot->n == s->n ? 0 : LOCO_ENOENT;
    }
    if (rv == 0) {
        rv = l->codec->sum(s->dst, &sum);
        s->bad = rv != 0 ? sum.bad : s->bad;
    }
    for (uint32_t i = 0; i < l->n_lanes; i++) { /* used once */
        l->slots[(size_t)i * l->n_slots + s->slot].attempt = 0;
    }
    return rv;
}

bool lanes_raw(enum codec_id type, bool audits)
{
    return codec_types[type].holds == CODEC_PARTS && !audits;
}
