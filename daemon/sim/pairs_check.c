/* pairs_check.c - what must hold, from what the machines really computed; see
 * pairs.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "daemon/sim/pairs.h"

#define ROUNDING    0.005 /* of two anchors below 1 on a bf16 wire */
#define START_TURNS 2     /* until then lists are still growing */
#define GAMMA       0.7
#define LR          0.7
#define EPS         1e-5 /* fp32 sums of numbers below 1 */

/* From packing to the decision: the grace period twice (once in the turn that
 * most others had left), once more for a confirmation, and hops. */
static uint64_t limit_ms(const struct pairs *s)
{
    uint64_t hop_ms = 2000 + s->terms.segment_wire_bytes * 1000ULL /
                                 s->terms.progress_floor_bytes_per_s;

    return 3ULL * s->opt.grace_ms + 6 * hop_ms;
}

void pairs_check_decided(struct pairs *s, uint32_t number)
{
    struct pairs_peer *p = &s->peers[number];
    uint64_t now = world_now(s->world), since = p->packed_ms;

    s->r->invariants_checked++;
    if (p->pair.turn <= p->decided_turn || p->pair.turn <= p->round) {
        sim_fail(s->r, "D: peer %u takes turn %" PRIu64 " after %" PRIu64,
                 number, p->pair.turn,
                 p->decided_turn > p->round ? p->decided_turn : p->round);
    }
    p->decided_turn = p->pair.turn;
    if (p->training) {
        sim_fail(s->r, "D: peer %u decided before it had packed", number);
    }
    if (p->froze_ms > since) {
        since = p->froze_ms;
    }
    if (now - since > s->longest_ms) {
        s->longest_ms = (uint32_t)(now - since);
    }
    if (now - since > limit_ms(s)) {
        sim_fail(s->r,
                 "E: peer %u waited %" PRIu64 " ms in turn %" PRIu64 " (%s)",
                 number, now - since, p->pair.turn, pair_end_text(p->pair.end));
    }
}

static const struct pairs_record *
record_of(const struct pairs_peer *p, const struct pairs_record *r, uint32_t by)
{
    uint32_t n = p->n_past < PAIRS_PAST ? p->n_past : PAIRS_PAST;

    for (uint32_t k = 0; k < n; k++) {
        const struct pairs_record *q = &p->past[k];

        if (q->turn == r->turn && q->epoch == r->epoch && q->partner == by) {
            return q;
        }
    }
    return NULL;
}

/* Both stepped with each other. */
static void check_both(struct pairs *s,
                       uint32_t a,
                       const struct pairs_record *ra,
                       uint32_t b,
                       const struct pairs_record *rb)
{
    s->n_checked++;
    if (memcmp(ra->own, rb->theirs, 2 * s->vector_bytes) != 0 ||
        memcmp(rb->own, ra->theirs, 2 * s->vector_bytes) != 0) {
        sim_fail(s->r,
                 "B: peers %u and %u stepped in turn %" PRIu64
                 " with other bytes than those of the partner",
                 a, b, ra->turn);
    }
    for (uint32_t i = 0; i < s->opt.n_params; i++) {
        double with = (double)ra->shift[i] + (double)rb->shift[i];
        double alone = (double)ra->alone[i] + (double)rb->alone[i];

        if (!(fabs(with - alone) <= EPS)) {
            sim_fail(s->r,
                     "C: peers %u and %u moved their sum by %g in turn "
                     "%" PRIu64 ", alone it would have been %g",
                     a, b, with, ra->turn, alone);
            return;
        }
    }
}

/* One stepped with the other's payload, and that one alone. */
static void check_one_sided(struct pairs *s,
                            uint32_t a,
                            const struct pairs_record *with,
                            const struct pairs_record *alone)
{
    s->n_one_sided++;
    (void)s->codec->decode(s->a, with->own + s->vector_bytes, s->opt.n_params);
    (void)s->codec->decode(s->b, with->theirs + s->vector_bytes,
                           s->opt.n_params);
    for (uint32_t i = 0; i < s->opt.n_params; i++) {
        double off = fabs((double)with->shift[i] - (double)with->alone[i]);
        double phi = fabs((double)with->before[i] - (double)alone->before[i]);
        double g = fabs((double)s->a[i] - (double)s->b[i]);
        double bound = phi * GAMMA / 2 + g * LR / 2;

        if (off > bound + ROUNDING) {
            sim_fail(s->r,
                     "C: peer %u alone moved by %g with another payload, the "
                     "bound is %g",
                     a, off, bound);
            return;
        }
        if (bound > 1e-6 && off / bound > s->worst_shift) {
            s->worst_shift = off / bound;
        }
    }
}

static bool lives_fit(const struct pairs *s, const struct pairs_record *r)
{
    return r->partner < s->opt.peers &&
           s->peers[r->partner].life == r->partner_life;
}

static void
check_partner(struct pairs *s, uint32_t a, const struct pairs_record *ra)
{
    const struct pairs_peer *b =
        ra->partner < s->opt.peers ? &s->peers[ra->partner] : NULL;
    const struct pairs_record *rb = b == NULL ? NULL : record_of(b, ra, a);

    if (rb == NULL || rb->life != b->life) {
        return; /* it has not decided yet, or is another process */
    }
    if (ra->with && rb->with) {
        if (lives_fit(s, ra) && rb->partner_life == ra->life) {
            check_both(s, a, ra, b->number, rb);
        }
        return;
    }
    if (!ra->with && !rb->with) {
        return;
    }
    if (!lives_fit(s, ra->with ? ra : rb)) {
        return;
    }
    if ((ra->with ? ra : rb)->end == PAIR_END_BOTH) {
        sim_fail(s->r,
                 "A: in turn %" PRIu64 " peer %u stepped with %u, which had "
                 "confirmed it and stepped alone (%s)",
                 ra->turn, ra->with ? a : b->number, ra->with ? b->number : a,
                 pair_end_text((ra->with ? rb : ra)->end));
        return;
    }
    check_one_sided(s, ra->with ? a : b->number, ra->with ? ra : rb,
                    ra->with ? rb : ra);
}

void pairs_check_taken(struct pairs *s,
                       uint32_t number,
                       const struct pairs_record *r)
{
    s->n_taken++;
    s->n_with += r->with;
    s->n_alone += !r->with;
    s->n_holder += r->end == PAIR_END_HOLDER;
    s->ends[r->end]++;
    check_partner(s, number, r);
    if (r->end == PAIR_END_MISMATCH) {
        sim_fail(s->r, "B: peer %u and its partner hashed different bytes",
                 number);
    }
    if (pairs_quiet(s) && r->end == PAIR_END_HOLDER) {
        sim_fail(s->r, "G: peer %u did not hear its partner in turn %" PRIu64,
                 number, r->turn);
    }
    if (r->turn > START_TURNS) {
        s->n_calm++;
        s->n_calm_alone += !r->with && r->end != PAIR_END_ODD;
    }
}

void pairs_check_end(struct pairs *s)
{
    if (s->opt.fault == PAIRS_PLAIN &&
        s->n_calm_alone * 10 > s->n_calm + 10ULL * s->opt.peers) {
        sim_fail(s->r,
                 "G: %" PRIu64 " of %" PRIu64
                 " steps were taken alone although nothing had happened",
                 s->n_calm_alone, s->n_calm);
    }
    for (uint32_t q = 0; q < s->opt.peers; q++) {
        const struct pairs_peer *p = &s->peers[q];

        if (world_alive(s->world, q) && p->round < s->opt.rounds) {
            sim_fail(s->r,
                     "F: peer %u is at turn %" PRIu64 " of %" PRIu64
                     " (phase %d, %s)",
                     q, p->round, s->opt.rounds, (int)p->pair.phase,
                     p->loaded ? "in the run" : "not in the run");
        }
        s->n_resumed += p->pair.n_resumed;
        s->n_moved_on += p->pair.n_moved_on;
    }
}
