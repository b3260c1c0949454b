/* audit.c - announced contributions, and sums that are repeated.
 *
 * The trainer encodes and hashes each contribution when it packs it
 * (daemon/jobs/offers.h); proofs are read from that while it is in flight, and
 * for two rounds after its commit. Whoever repeats a sum collects the
 * contributions to a block in one room (daemon/jobs/audit_room.h). All of it is
 * small or a copy, so it is done on the thread of the loop.
 */
#include <stdlib.h>

#include "daemon/machine/internal.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

void machine_take_offer(void *self, struct offer *o)
{
    struct machine *m = self;

    (void)pthread_mutex_lock(&m->mutex);
    offer_free(&m->wire.made);
    m->wire.made = *o;
    (void)pthread_mutex_unlock(&m->mutex);
    *o = (struct offer){0};
}

/* With the one that the trainer made since. */
static struct offers *offers(struct machine *m)
{
    (void)pthread_mutex_lock(&m->mutex);
    if (m->wire.made.n > 0) {
        offers_open(&m->wire.offers, &m->wire.made);
    }
    (void)pthread_mutex_unlock(&m->mutex);
    return &m->wire.offers;
}

void machine_spend_offer(struct machine *m, uint64_t round)
{
    offers_spend(offers(m), round);
}

int machine_prove(struct machine *m, const struct segment *s, uint8_t *proof)
{
    const struct offer *o = offers_find(offers(m), 0);
    const struct offer_cut cut = segment_cut(&m->terms, m->codec, s);

    return o == NULL ? LOCO_ENOENT : offer_prove(o, &cut, s, proof);
}

bool machine_sends_offer(const struct machine *m)
{
    return m->terms.audits && m->wire.error == NULL;
}

const uint8_t *
machine_own_encoded(struct machine *m, uint64_t offset, uint64_t len)
{
    const struct offer *o = offers_find(offers(m), 0);
    const struct offer_cut cut = {
        .codec = m->codec,
        .block = m->terms.block,
        .elements = o == NULL ? 0 : o->elements,
    };

    return o == NULL ? NULL : offer_at(o, &cut, offset, len);
}

int machine_summed_own(struct machine *m, const struct segment *s)
{
    const struct offer *o = offers_find(offers(m), 0);
    const struct offer_cut cut = segment_cut(&m->terms, m->codec, s);
    const uint8_t *lane = reduce_lane(&m->wire.reduce, s);

    return o == NULL || lane == NULL     ? LOCO_ENOENT
           : offer_has(o, &cut, s, lane) ? 0
                                         : LOCO_EHASH;
}

int machine_offer_fill(struct machine *m, const struct segment *s, uint8_t *dst)
{
    const struct offer_cut cut = segment_cut(&m->terms, m->codec, s);
    const struct audit_room *room = &m->wire.audit;
    const struct offer *o;
    const uint8_t *lane;

    if (s->op != SEGMENT_LANE) {
        o = offers_find(offers(m), s->index);
        return o == NULL ? LOCO_ENOENT : offer_fill(o, &cut, s, dst);
    }
    lane = audit_room_at(room, s->index, s->offset, s->lane);
    if (lane == NULL || room->len != s->len) {
        return LOCO_ENOENT;
    }
    memcpy(dst, lane, room->lane_bytes);
    return 0;
}

int machine_offer_take(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src)
{
    const struct offer_cut cut = segment_cut(&m->terms, m->codec, s);

    return audit_room_take(&m->wire.audit, &cut, s, src);
}

/* The block of the commit's result; for free(). */
static uint8_t *result_of(struct machine *m, const struct job_audit *job)
{
    const struct segment s = {
        .buffer = BUFFER_REDUCED,
        .index = job->round,
        .offset = job->offset,
        .len = job->len,
    };
    uint8_t *bytes = malloc(m->codec->bytes(job->len));

    if (bytes != NULL && machine_fill(m, &s, bytes) != 0) {
        free(bytes);
        bytes = NULL;
    }
    return bytes;
}

int machine_audit(struct machine *m, const struct job *job)
{
    const struct job_audit *a = &job->audit;
    const struct segment own = {
        .buffer = BUFFER_OFFER,
        .index = a->round,
        .offset = a->offset,
        .len = a->len,
        .scale = a->scale,
        .lane = (uint8_t)a->lane,
        .lanes = (uint8_t)a->lanes,
        .maker = a->maker,
        .offer = a->offer,
    };
    const struct offer_cut cut = segment_cut(&m->terms, m->codec, &own);
    struct audit_sum sum = {m->codec, m->wire.reduce.clip,
                            m->wire.reduce.centred, NULL};
    struct local_event e = job_answer(job, 0);
    uint8_t *result = result_of(m, a);
    int rv = result == NULL ? LOCO_ENOENT : 0;

    sum.result = result;
    rv = rv == 0 ? audit_room_own(&m->wire.audit, &cut, offers(m), &own) : rv;
    rv = rv == 0 ? audit_room_sum(&m->wire.audit, &sum, &e.audited.wrong) : rv;
    free(result);
    if (rv == 0) {
        machine_post(m, &e);
    }
    return rv;
}

void machine_audit_free(struct machine *m)
{
    offers_free(&m->wire.offers);
    offer_free(&m->wire.made);
    audit_room_free(&m->wire.audit);
}
