/* move.c - the payloads: segments in both directions, and their hash.
 *
 * Each side receives under an attempt of its own, which it names; so frames to
 * a process that is gone, or of a transfer that broke, are known and dropped. A
 * transfer that breaks goes on from the first segment that is not here, under
 * the next attempt. Nothing of what a partner sends is used before all of it is
 * here and hashed.
 */
#include "p2p/pair/internal.h"

static uint32_t elements_of(const struct pair *p, uint32_t k)
{
    uint64_t at = (uint64_t)k * p->terms.segment_elements;
    uint64_t rest = p->terms.n_params - at;

    return rest < p->terms.segment_elements ? (uint32_t)rest
                                            : p->terms.segment_elements;
}

/* Segment `seg` of a payload: anchor first. */
static struct segment segment_of(const struct pair *p, uint32_t seg)
{
    bool step = seg >= p->n_segments;
    uint32_t k = step ? seg - p->n_segments : seg;

    return (struct segment){
        .peer = p->peer,
        .stream = STREAM_PAIR,
        .seg = seg,
        .buffer = step ? BUFFER_STEP : BUFFER_ANCHOR,
        .index = p->turn,
        .offset = (uint64_t)k * p->terms.segment_elements,
        .len = elements_of(p, k),
        .op = SEGMENT_COPY,
    };
}

static void post(struct pair *p, struct out *out)
{
    while (p->posted < 2 * p->n_segments && p->posted - p->got < PAIR_WINDOW) {
        struct action *a = out_add(out, ACTION_POST_RECV);

        if (a == NULL) {
            return; /* the next event posts on */
        }
        a->segment = segment_of(p, p->posted);
        a->segment.attempt = p->attempt;
        p->posted++;
    }
}

static void send(struct pair *p, struct out *out)
{
    uint32_t end = p->packed ? 2 * p->n_segments : p->n_segments;

    while (p->to_attempt != 0 && !p->to_broken && p->to_next < end &&
           p->to_flying < PAIR_WINDOW) {
        struct action *a = out_add(out, ACTION_SEND_SEG);

        if (a == NULL) {
            return;
        }
        a->segment = segment_of(p, p->to_next);
        a->segment.attempt = p->to_attempt;
        p->to_next++;
        p->to_flying++;
    }
}

void pair_pump(struct pair *p, struct out *out)
{
    if (p->phase >= PAIR_MOVING && p->phase <= PAIR_HOLDING) {
        if (!p->broken) {
            post(p, out);
        }
        send(p, out);
    }
}

static void cancel(struct pair *p, struct out *out)
{
    struct action *a = out_add(out, ACTION_CANCEL);

    if (a != NULL) {
        a->cancel.stream = STREAM_PAIR;
        a->cancel.attempt = p->attempt;
    }
}

void pair_move_begin(struct pair *p, uint64_t now_ms, struct out *out)
{
    cancel(p, out); /* of the turn before, or of another partner */
    p->attempt++;
    p->posted = p->got = 0;
    p->broken = false;
    p->to_attempt = 0;
    p->to_next = p->to_flying = 0;
    p->to_broken = false;
    p->progress_ms = p->renewed_ms = now_ms;
    members_bulk_open(p->members, out, p->row);
    pair_pump(p, out);
}

void pair_move_to(struct pair *p,
                  uint64_t attempt,
                  uint32_t from,
                  struct out *out)
{
    if (attempt <= p->to_attempt || from > 2 * p->n_segments) {
        return; /* said before */
    }
    if (p->to_attempt != 0) {
        members_bulk_open(p->members, out, p->row);
    }
    p->to_attempt = attempt;
    p->to_next = from;
    p->to_flying = 0;
    p->to_broken = false;
    pair_pump(p, out);
}

void pair_move_renew(struct pair *p, uint64_t now_ms, struct out *out)
{
    cancel(p, out);
    p->attempt++;
    p->posted = p->got;
    p->broken = false;
    p->renewed_ms = now_ms;
    p->n_resumed++;
    members_bulk_open(p->members, out, p->row);
    pair_pump(p, out);
    p->resend_ms = now_ms; /* name it */
}

void pair_move_end(struct pair *p, struct out *out)
{
    if (p->phase >= PAIR_MOVING) {
        cancel(p, out);
    }
    p->to_attempt = 0;
}

bool pair_holds(const struct pair *p)
{
    return p->phase >= PAIR_MOVING && p->got == 2 * p->n_segments;
}

void pair_try_hash(struct pair *p, struct out *out)
{
    struct job *job;

    if (p->phase != PAIR_MOVING || !p->packed || !pair_holds(p)) {
        return;
    }
    job = out_job(out, JOB_HASH);
    if (job != NULL) {
        job->hash.buffer = BUFFER_STEP;
        job->hash.index = p->turn;
        job->hash.request = p->attempt;
        job->hash.first = id_cmp(&p->opt.self, &p->peer) < 0;
        p->phase = PAIR_HASHING;
    }
}

/* ---- what ended ------------------------------------------------------- */

static void
sent(struct pair *p, const struct event_seg_done *ev, uint64_t now_ms)
{
    if (p->to_attempt == 0 || ev->segment.attempt != p->to_attempt ||
        p->to_flying == 0) {
        return; /* of a transfer that was given up */
    }
    p->to_flying--;
    if (ev->rc != 0) {
        p->to_broken = true; /* it will name another attempt */
    } else {
        p->progress_ms = now_ms;
    }
}

static void
received(struct pair *p, const struct event_seg_done *ev, uint64_t now_ms)
{
    if (ev->segment.attempt != p->attempt || p->phase != PAIR_MOVING) {
        return;
    }
    if (ev->rc != 0 || ev->segment.seg != p->got) {
        p->broken = true;
        return;
    }
    p->got++;
    p->progress_ms = now_ms;
}

void pair_seg_done(struct pair *p,
                   const struct event_seg_done *ev,
                   uint64_t now_ms,
                   struct out *out)
{
    if (p->phase < PAIR_MOVING || p->phase == PAIR_DECIDED ||
        !id_eq(&ev->segment.peer, &p->peer)) {
        return;
    }
    if (ev->sent) {
        sent(p, ev, now_ms);
    } else {
        received(p, ev, now_ms);
    }
    pair_pump(p, out);
    pair_tick(p, now_ms, out);
}

void pair_hashed(struct pair *p,
                 uint64_t request,
                 int rc,
                 const struct hash32 *hash,
                 uint64_t now_ms,
                 struct out *out)
{
    if (p->phase != PAIR_HASHING || request != p->attempt) {
        return;
    }
    if (rc != 0) {
        pair_decide(p, PAIR_END_LATE, out);
        return;
    }
    p->hash = *hash;
    p->phase = PAIR_HOLDING;
    p->progress_ms = now_ms;
    p->resend_ms = now_ms; /* say HAVE */
    pair_tick(p, now_ms, out);
}
