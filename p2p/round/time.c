/* time.c - deadlines and repetition. See round.h. */
#include "p2p/round/internal.h"

/* hop_ms and the time of so many segments at the floor rate. */
static uint64_t limit_ms(const struct round *r, uint64_t segments)
{
    uint64_t floor = r->terms.progress_floor_bytes_per_s;
    uint64_t bytes = segments * r->terms.segment_wire_bytes;

    return r->opt.hop_ms + (floor > 0 ? bytes * 1000U / floor : 0);
}

/* The longest that may pass until a segment is through. In a butterfly a
 * member sends to all others at a time, a gateway to two: their segments share
 * its line. */
static uint64_t hop_limit_ms(const struct round *r)
{
    const struct plan_body *p = &r->plan.body;

    switch (round_kind(p)) {
    case EXCHANGE_BUTTERFLY:
        return limit_ms(r, p->n_members > 2 ? p->n_members - 1 : 1);
    case EXCHANGE_SITES:
        return limit_ms(r, SITES_EDGES);
    case EXCHANGE_RING:
        break;
    }
    return limit_ms(r, 1);
}

/* The longest that no byte may move: a line that several segments share is
 * slow, but not silent. */
static uint64_t still_limit_ms(const struct round *r)
{
    return limit_ms(r, 1);
}

/* When the exchange stands still, as far as is known. */
static uint64_t still_at_ms(const struct round *r)
{
    uint64_t moved =
        r->moved_ms > r->progress_ms ? r->moved_ms : r->progress_ms;
    uint64_t hop = r->progress_ms + hop_limit_ms(r);
    uint64_t still = moved + still_limit_ms(r);

    return hop < still ? hop : still;
}

/* A byte that moved proves less than a segment that is done: a member that
 * hangs may still take some. Only where a hop may take long does it count. */
void round_moved(struct round *r, uint64_t now_ms)
{
    if (r->phase == ROUND_REDUCING) {
        r->moved_ms = now_ms;
    }
}

/* Nothing moved for half of what may pass. */
static bool is_quiet(const struct round *r, uint64_t now_ms)
{
    return now_ms >= r->progress_ms + still_limit_ms(r) / 2 &&
           now_ms + still_limit_ms(r) / 2 >= still_at_ms(r);
}

static void note_progress(struct round *r, uint64_t now_ms)
{
    if (exchange_progress(&r->exchange) != r->exchange_progress) {
        r->exchange_progress = exchange_progress(&r->exchange);
        r->progress_ms = now_ms;
    }
    if (!r->overdue) {
        r->quiet = is_quiet(r, now_ms);
    }
}

/* Where the attempt is given up for another reason, others are only in the
 * middle of it. */
static void note_late(struct round *r, uint64_t now_ms)
{
    if (r->phase == ROUND_REDUCING && !r->frozen) {
        note_progress(r, now_ms);
        r->idle.late = is_quiet(r, now_ms);
    }
}

/* Who has all votes soon while another member still gets what it lacked of the
 * inherited part: so long that may take. */
uint64_t round_fill_limit_ms(const struct round *r)
{
    const struct plan_body *p = &r->plan.body;
    uint64_t total = inherit_total(p), most = 0;

    for (uint32_t k = 0; k < p->n_members; k++) {
        uint64_t lacks = total - p->members[k].holds;

        most = lacks > most ? lacks : most;
    }
    return (most + r->terms.segment_elements - 1) / r->terms.segment_elements *
           hop_limit_ms(r);
}

/* An exchange that others are in may take the whole vector twice at the floor
 * rate; they watch it hop by hop, this is the last resort of all others. */
static uint64_t exchange_limit_ms(const struct round *r)
{
    uint64_t floor = r->terms.progress_floor_bytes_per_s;
    uint64_t segments =
        terms_elements(&r->terms, r->round) / r->terms.segment_elements + 1;

    return 4ULL * r->opt.vote_ms + r->terms.grace_ms +
           (floor > 0
                ? 2 * segments * (r->terms.segment_wire_bytes * 1000ULL / floor)
                : 0);
}

/* Who may not have the plan, as far as we are to tell it: all, if we made it,
 * else for whom we wait. */
static uint64_t without_plan(struct round *r)
{
    return view_coordinator(round_view(r), r->round) == round_self(r)
               ? ~r->voted
               : round_idle_untold(r);
}

static void resend(struct round *r, uint64_t now_ms, struct out *out)
{
    if (now_ms < r->resend_ms || r->frozen || r->phase == ROUND_COMMITTED) {
        return;
    }
    r->resend_ms = now_ms + RESEND_MS;
    if ((r->phase == ROUND_READY && !r->has_plan) ||
        (r->contributed && r->mine.n_rollback > 0)) { /* rollback.c: all ask */
        round_ready_send(r, UINT64_MAX, out);
    }
    if (r->has_plan) {
        round_broadcast(r, out, without_plan(r), MESSAGE_PLAN, &r->plan);
        round_ready_ask(r, out);
    }
    if (r->voted >> round_self(r) & 1) {
        round_broadcast(r, out, ~r->voted, MESSAGE_VOTE,
                        &r->votes[round_self(r)]);
    }
}

void round_tick(struct round *r, uint64_t now_ms, struct out *out)
{
    if (!r->ballot->have || r->round == 0) {
        return;
    }
    note_late(r, now_ms);
    resend(r, now_ms, out);
    if (r->frozen || r->overdue) {
        return; /* the next view ends this attempt */
    }
    round_watch_ready(r, now_ms);
    if (r->possible_ms != 0 && !r->has_plan) {
        if (view_coordinator(round_view(r), r->round) == round_self(r)) {
            round_make_plan(r, now_ms, out);
        } else if (now_ms - r->possible_ms >= r->opt.plan_ms) {
            round_change(r, "the coordinator made no plan");
        }
    }
    if (r->phase == ROUND_REDUCING) {
        if (now_ms >= still_at_ms(r)) {
            round_change(r, "the exchange stands still");
        }
    } else if (r->phase == ROUND_VOTED && now_ms >= r->vote_due_ms) {
        round_change(r, "votes are missing");
    } else if (r->has_plan && !r->in_plan && r->phase != ROUND_COMMITTED &&
               now_ms - r->started_ms >= exchange_limit_ms(r)) {
        round_change(r, "the round of the other members does not end");
    }
}

/* Whether the next view would commit this round with the votes that are here:
 * who still waits for inherited bytes may as well ask for it. */
static bool is_decided(const struct round *r)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        n += round_voted_alike(r, k);
    }
    return n >= view_deciders(round_view(r), r->ballot->departed.mask);
}

bool round_is_late(const struct round *r, uint64_t now_ms)
{
    if (!r->ballot->have || r->round == 0 || r->phase == ROUND_COMMITTED) {
        return false;
    }
    if (r->overdue || !r->has_plan) {
        return r->overdue || (r->possible_ms != 0 &&
                              now_ms - r->possible_ms >= r->opt.plan_ms / 2);
    }
    if (r->phase == ROUND_REDUCING) {
        return is_quiet(r, now_ms);
    }
    if (r->phase == ROUND_VOTED) { /* the time of the fill, where it needs it */
        return now_ms + r->opt.vote_ms / 2 +
                   (is_decided(r) ? round_fill_limit_ms(r) : 0) >=
               r->vote_due_ms;
    }
    return !r->in_plan && now_ms - r->started_ms >= exchange_limit_ms(r) / 2;
}

uint64_t round_deadline(const struct round *r)
{
    uint64_t due = CORE_NEVER, at = CORE_NEVER;

    if (!r->ballot->have || r->round == 0 || r->frozen) {
        return due;
    }
    if (r->phase == ROUND_READY || r->phase == ROUND_REDUCING ||
        r->phase == ROUND_VOTED ||
        (r->phase == ROUND_TRAINING && r->has_plan)) {
        due = r->resend_ms;
    }
    if (r->overdue) {
        return due;
    }
    if (!r->has_plan && r->possible_ms != 0) {
        at = r->possible_ms + r->opt.plan_ms;
        if (view_coordinator(round_view(r), r->round) == round_self(r)) {
            at = r->possible_ms;
        }
    } else if (!r->has_plan && r->half_ready_ms != 0) {
        at = r->half_ready_ms + r->terms.grace_ms;
    } else if (r->phase == ROUND_REDUCING) {
        at = still_at_ms(r);
    } else if (r->phase == ROUND_VOTED) {
        at = r->vote_due_ms;
    }
    return at < due ? at : due;
}
