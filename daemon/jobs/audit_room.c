/* audit_room.c - see audit_room.h. */
#include "daemon/jobs/audit_room.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"

static bool is_of(const struct audit_room *r, uint64_t round, uint64_t offset)
{
    return r->lanes > 0 && r->round == round && r->offset == offset;
}

/* Empty, for the block of that segment. */
static int
begin(struct audit_room *r, const struct segment *s, size_t lane_bytes)
{
    size_t size = lane_bytes * s->lanes;

    r->have = 0;
    r->lanes = 0;
    if (size > r->size) {
        free(r->bytes);
        r->bytes = malloc(size);
        r->size = r->bytes == NULL ? 0 : size;
    }
    if (r->size < size) {
        return LOCO_ENOMEM;
    }
    r->lane_bytes = lane_bytes;
    r->round = s->index;
    r->offset = s->offset;
    r->len = s->len;
    r->lanes = s->lanes;
    return 0;
}

/* Where a lane of that block goes. */
static int lane_for(struct audit_room *r,
                    const struct offer_cut *cut,
                    const struct segment *s,
                    uint8_t **lane)
{
    size_t lane_bytes = cut->codec->bytes(s->len) + offer_proof_bytes(cut, s);
    int rv = 0;

    if (!is_of(r, s->index, s->offset) || r->len != s->len ||
        r->lanes != s->lanes) {
        rv = begin(r, s, lane_bytes);
    }
    *lane = rv == 0 ? r->bytes + s->lane * lane_bytes : NULL;
    return rv;
}

static void keep(struct audit_room *r, const struct segment *s)
{
    r->scale[s->lane] = (float)s->scale;
    r->have |= 1ULL << s->lane;
}

int audit_room_take(struct audit_room *r,
                    const struct offer_cut *cut,
                    const struct segment *s,
                    const uint8_t *src)
{
    uint8_t *lane;
    int rv;

    if (s->lane >= s->lanes || s->lanes > CODEC_TERMS_MAX) {
        return LOCO_EINVAL;
    }
    rv = offer_check(cut, s, s->index, src);
    rv = rv == 0 ? lane_for(r, cut, s, &lane) : rv;
    if (rv == 0) {
        memcpy(lane, src, r->lane_bytes);
        keep(r, s);
    }
    return rv;
}

int audit_room_own(struct audit_room *r,
                   const struct offer_cut *cut,
                   const struct offers *offers,
                   const struct segment *s)
{
    const struct offer *o = offers_find(offers, s->index);
    uint8_t *lane;
    int rv;

    if (o == NULL || s->lane >= s->lanes || s->lanes > CODEC_TERMS_MAX) {
        return o == NULL ? LOCO_ENOENT : LOCO_EINVAL;
    }
    rv = lane_for(r, cut, s, &lane);
    if (rv != 0) {
        return rv;
    }
    r->have &= ~(1ULL << s->lane);
    rv = offer_fill(o, cut, s, lane);
    rv = rv == 0 ? offer_check(cut, s, s->index, lane) : rv;
    if (rv == 0) {
        keep(r, s);
    }
    return rv;
}

const uint8_t *audit_room_at(const struct audit_room *r,
                             uint64_t round,
                             uint64_t offset,
                             uint32_t lane)
{
    if (!is_of(r, round, offset) || lane >= r->lanes ||
        !(r->have >> lane & 1)) {
        return NULL;
    }
    return r->bytes + lane * r->lane_bytes;
}

int audit_room_sum(const struct audit_room *r,
                   const struct audit_sum *sum,
                   bool *wrong)
{
    const uint8_t *terms[CODEC_TERMS_MAX];
    struct codec_sum s = {
        .terms = terms,
        .scale = r->scale,
        .n_terms = r->lanes,
        .n = r->len,
        .clip = sum->clip,
        .centred = sum->centred,
    };
    uint64_t all = r->lanes == 64 ? UINT64_MAX : (1ULL << r->lanes) - 1;
    size_t len = sum->codec->bytes(r->len);
    uint8_t *again;

    if (r->lanes == 0 || r->have != all) {
        return LOCO_ENOENT;
    }
    again = malloc(len);
    if (again == NULL) {
        return LOCO_ENOMEM;
    }
    for (uint32_t i = 0; i < r->lanes; i++) {
        terms[i] = r->bytes + i * r->lane_bytes;
    }
    *wrong =
        sum->codec->sum(again, &s) != 0 || memcmp(again, sum->result, len) != 0;
    free(again);
    return 0;
}

void audit_room_free(struct audit_room *r)
{
    free(r->bytes);
    *r = (struct audit_room){0};
}
