/* pair.c - the life of a turn, and its deadlines. See pair.h. */
#include "p2p/pair/pair.h"

#include <string.h>

#include "p2p/pair/internal.h"

void pair_init(struct pair *p,
               const struct pair_options *opt,
               struct members *members)
{
    memset(p, 0, sizeof *p);
    p->opt = *opt;
    p->members = members;
    p->row = MEMBERS_NONE;
    p->attempt = opt->first_attempt;
}

void pair_configure(struct pair *p, const struct run_terms *terms)
{
    uint64_t n = terms->segment_elements;

    p->terms = *terms;
    p->n_segments = (uint32_t)((terms->n_params + n - 1) / n);
}

const char *pair_end_text(enum pair_end end)
{
    static const char *const text[PAIR_END_COUNT] = {
        [PAIR_END_NONE] = "not over",
        [PAIR_END_BOTH] = "with a partner",
        [PAIR_END_HOLDER] = "with a partner that could not confirm it",
        [PAIR_END_ODD] = "alone: no partner was left over",
        [PAIR_END_UNMET] = "alone: the partner was not ready in time",
        [PAIR_END_PASSED] = "alone: the partner gave up or was taken",
        [PAIR_END_LATE] = "alone: the partner's data was not here in time",
        [PAIR_END_MISMATCH] = "alone: the partner holds other data",
    };

    return text[end];
}

/* ---- a turn ----------------------------------------------------------- */

/* Whom the list draws for p->turn. */
static void draw_anew(struct pair *p, uint64_t now_ms, struct out *out)
{
    if (p->row != MEMBERS_NONE) {
        members_guest(p->members, p->row, false);
    }
    p->row = MEMBERS_NONE;
    p->n_offered = 0;
    p->drawn = false;
    p->look_ms = 0;
    p->linked = false;
    p->down_ms = now_ms;
    memset(&p->refused, 0, sizeof p->refused);
    pair_seek(p, now_ms, out);
}

void pair_begin(struct pair *p,
                uint64_t turn,
                uint64_t last,
                uint64_t now_ms,
                struct out *out)
{
    uint64_t others = pair_turn_of_others(p);

    others = last != 0 && others > last ? last : others;
    p->n_moved_on += others > turn;
    p->turn = others > turn ? others : turn;
    p->now_ms = now_ms;
    p->phase = PAIR_OPEN;
    p->packed = p->moved_on = p->peer_packed = false;
    p->peer_has = false;
    p->last = last;
    p->end = PAIR_END_NONE;
    draw_anew(p, now_ms, out);
}

void pair_pack(struct pair *p, uint64_t now_ms, struct out *out)
{
    if (p->phase == PAIR_IDLE || p->phase == PAIR_DECIDED || p->packed) {
        return;
    }
    p->packed = true;
    p->packed_ms = p->progress_ms = now_ms;
    p->resend_ms = now_ms; /* say so */
    pair_pump(p, out);
    pair_tick(p, now_ms, out);
}

static void remember(struct pair *p, bool with)
{
    p->past[p->n_past++ % PAIR_PAST] = (struct pair_past){
        .turn = p->turn,
        .epoch = p->epoch,
        .peer = p->peer,
        .hash = p->hash,
        .with = with,
    };
}

static bool is_with(enum pair_end end)
{
    return end == PAIR_END_BOTH || end == PAIR_END_HOLDER;
}

void pair_decide(struct pair *p, enum pair_end end, struct out *out)
{
    if (!is_with(end) && p->row != MEMBERS_NONE) {
        pair_say(p, PAIR_PASS, out);
    }
    remember(p, is_with(end));
    pair_move_end(p, out);
    if (p->row != MEMBERS_NONE) {
        members_guest(p->members, p->row, false);
    }
    p->end = end;
    p->ends[end]++;
    p->phase = PAIR_DECIDED;
}

void pair_part(struct pair *p, struct out *out)
{
    pair_move_end(p, out);
    p->refused = (struct pair_offered){.epoch = p->epoch, .peer = p->peer};
    p->phase = PAIR_OPEN;
    p->drawn = false; /* the list may know by now that it is gone */
    p->peer_packed = p->peer_has = false;
}

bool pair_with_partner(const struct pair *p)
{
    return p->phase == PAIR_DECIDED && is_with(p->end);
}

void pair_finish(struct pair *p, struct out *out)
{
    if (p->phase != PAIR_IDLE && p->phase != PAIR_DECIDED) {
        pair_move_end(p, out);
        if (p->row != MEMBERS_NONE) {
            pair_say(p, PAIR_PASS, out);
            members_guest(p->members, p->row, false);
        }
    }
    p->row = MEMBERS_NONE;
    p->phase = PAIR_IDLE;
}

/* ---- deadlines -------------------------------------------------------- */

static uint64_t hop_limit_ms(const struct pair *p)
{
    uint64_t floor = p->terms.progress_floor_bytes_per_s;
    uint64_t bytes = p->terms.segment_wire_bytes;

    return p->opt.hop_ms + (floor > 0 ? bytes * 1000ULL / floor : 0);
}

/* Asked for the same segment again and again, a partner would never be late:
 * what an honest one needs at the slowest is the end of it. */
static bool is_over(const struct pair *p, uint64_t now_ms)
{
    uint64_t limit = 2ULL * p->n_segments * hop_limit_ms(p);

    return now_ms - p->packed_ms >= p->terms.grace_ms + limit;
}

/* Whether the partner is gone for longer than it may. */
static bool is_gone(const struct pair *p, uint64_t now_ms, bool for_good)
{
    const struct member *q = &p->members->peers[p->row];

    return !p->linked && (now_ms - p->down_ms >= p->terms.grace_ms ||
                          (for_good && q->state >= PEER_DEAD));
}

/* Waiting at the end of the local phase for a partner to agree. */
static void open_tick(struct pair *p, uint64_t now_ms, struct out *out)
{
    uint64_t others;

    pair_seek(p, now_ms, out);
    if (p->phase != PAIR_OPEN || !p->packed) {
        return;
    }
    others = pair_turn_of_others(p);
    others = p->last != 0 && others > p->last ? p->last : others;
    if (others > p->turn && !p->moved_on) {
        p->moved_on = true; /* nobody is left in ours: who is in theirs? */
        p->n_moved_on++;
        p->turn = others;
        p->packed_ms = now_ms;
        draw_anew(p, now_ms, out);
    }
    if (p->row == MEMBERS_NONE) {
        pair_decide(p, PAIR_END_ODD, out);
    } else if (p->refused.epoch == p->epoch &&
               id_eq(&p->refused.peer, &p->peer)) {
        pair_decide(p, PAIR_END_PASSED, out);
    } else if (now_ms - p->packed_ms >= p->terms.grace_ms) {
        pair_decide(p, PAIR_END_UNMET, out);
    }
}

/* Receives broke, or nothing comes: ask for the rest once more. */
static void mend(struct pair *p, uint64_t now_ms, struct out *out)
{
    bool stalled = p->peer_packed && !pair_holds(p) &&
                   now_ms - p->progress_ms >= hop_limit_ms(p) / 2;

    if ((p->broken || stalled) && p->linked &&
        now_ms - p->renewed_ms >= PAIR_RESEND_MS) {
        pair_move_renew(p, now_ms, out);
    }
}

static void moving_tick(struct pair *p, uint64_t now_ms, struct out *out)
{
    uint64_t from =
        p->packed_ms > p->progress_ms ? p->packed_ms : p->progress_ms;

    mend(p, now_ms, out);
    pair_try_hash(p, out);
    if (p->phase != PAIR_MOVING) {
        return;
    }
    if (is_gone(p, now_ms, true)) {
        if (p->packed) {
            pair_decide(p, PAIR_END_LATE, out);
        } else {
            pair_part(p, out);
        }
        return;
    }
    if (!p->packed) {
        return; /* we have work to do */
    }
    if (!p->peer_packed && now_ms - p->packed_ms >= p->terms.grace_ms) {
        pair_decide(p, PAIR_END_UNMET, out);
    } else if ((p->peer_packed && now_ms - from >= hop_limit_ms(p)) ||
               is_over(p, now_ms)) {
        pair_decide(p, PAIR_END_LATE, out);
    }
}

static void holding_tick(struct pair *p, uint64_t now_ms, struct out *out)
{
    uint64_t limit = p->terms.grace_ms + hop_limit_ms(p);

    if (p->peer_has) {
        pair_decide(p,
                    hash32_eq(&p->hash, &p->peer_hash) ? PAIR_END_BOTH
                                                       : PAIR_END_MISMATCH,
                    out);
    } else if (is_gone(p, now_ms, false) || now_ms - p->progress_ms >= limit ||
               is_over(p, now_ms)) {
        pair_decide(p, PAIR_END_HOLDER, out);
    }
}

static void look_at_link(struct pair *p, uint64_t now_ms)
{
    bool linked = p->row != MEMBERS_NONE && members_linked(p->members, p->row);

    if (linked != p->linked) {
        p->linked = linked;
        p->down_ms = now_ms;
        p->resend_ms = linked ? now_ms : p->resend_ms;
    }
}

void pair_tick(struct pair *p, uint64_t now_ms, struct out *out)
{
    if (p->phase == PAIR_IDLE || p->phase == PAIR_DECIDED) {
        return;
    }
    p->now_ms = now_ms;
    look_at_link(p, now_ms);
    pair_resend(p, now_ms, out);
    if (p->phase == PAIR_HOLDING && p->row != MEMBERS_NONE) {
        holding_tick(p, now_ms, out);
    } else if (p->phase == PAIR_MOVING) {
        moving_tick(p, now_ms, out);
    } else if (p->phase == PAIR_OPEN) {
        open_tick(p, now_ms, out);
    }
}

void pair_gap(struct pair *p, uint64_t now_ms)
{
    p->packed_ms = p->packed ? now_ms : p->packed_ms;
    p->progress_ms = now_ms;
    p->down_ms = now_ms;
}

/* Looking often is cheap, but only as long as somebody is waited for. */
uint64_t pair_deadline(const struct pair *p)
{
    uint64_t look = p->now_ms + PAIR_LOOK_MS;

    if (p->phase == PAIR_IDLE || p->phase == PAIR_DECIDED) {
        return CORE_NEVER;
    }
    return p->resend_ms > p->now_ms && p->resend_ms < look ? p->resend_ms
                                                           : look;
}
