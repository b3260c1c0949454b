/* audit.c - announced contributions, and sums that are repeated; as
 * daemon/machine/audit.c. */
#include "daemon/sim/machine/internal.h"

#include <string.h>

#include "proto/base/err.h"

int local_announce(const struct local *l,
                   struct machine *m,
                   struct hash32 *blocks)
{
    const struct offer_cut cut = {m->reduce.codec, m->terms->block,
                                  local_elements(l, m->round + 1, NULL)};
    struct offer o;
    int rc;

    if (!m->terms->audits) {
        return 0;
    }
    rc = offer_make(&o, &cut, m->contribution);
    if (rc == 0) {
        *blocks = *offer_root(&o);
        offers_open(&m->offers, &o);
    }
    return rc;
}

int local_offer_fill(const struct local *l,
                     struct machine *m,
                     const struct segment *s,
                     uint8_t *dst)
{
    const struct offer_cut cut = segment_cut(m->terms, l->codec, s);
    const struct offer *o = offers_find(&m->offers, s->index);
    const uint8_t *lane;

    if (s->op != SEGMENT_LANE) {
        return o == NULL ? LOCO_ENOENT : offer_fill(o, &cut, s, dst);
    }
    lane = audit_room_at(&m->audit, s->index, s->offset, s->lane);
    if (lane == NULL || m->audit.len != s->len) {
        return LOCO_ENOENT;
    }
    memcpy(dst, lane, m->audit.lane_bytes);
    return 0;
}

int local_audit(struct local *l,
                struct machine *m,
                const struct job_audit *job,
                struct report_audited *report)
{
    const struct segment own = {
        .buffer = BUFFER_OFFER,
        .index = job->round,
        .offset = job->offset,
        .len = job->len,
        .scale = job->scale,
        .lane = (uint8_t)job->lane,
        .lanes = (uint8_t)job->lanes,
        .maker = job->maker,
        .offer = job->offer,
    };
    const struct offer_cut cut = segment_cut(m->terms, l->codec, &own);
    const struct local_reduced *r = local_reduced_at(l, m, job->round, false);
    struct audit_sum sum = {m->reduce.codec, m->reduce.clip, m->reduce.centred,
                            NULL};
    int rc;

    if (r == NULL || !r->complete) {
        return LOCO_ENOENT;
    }
    sum.result = r->bytes + l->codec->bytes(job->offset);
    rc = audit_room_own(&m->audit, &cut, &m->offers, &own);
    return rc == 0 ? audit_room_sum(&m->audit, &sum, &report->wrong) : rc;
}
