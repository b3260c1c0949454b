/* round.c - see round.h: the life of an attempt, from round_begin on.
 *
 * Happy path: round_begin -> round_contribute -> (coordinator) round_make_plan
 * -> round_on_plan -> round_reduce -> HASH -> vote -> round_on_vote* ->
 * round_try_commit.
 *
 * What can go wrong
 *   1. a member is late: round_make_plan leaves it out after grace_ms;
 *   2. the coordinator dies: plan_ms, then a change of view;
 *   3. a hop stalls or breaks: hop_ms or SEG_DONE with an error, the same;
 *   4. a vote is missing or differs: vote_ms, the same;
 *   5. a message is lost: READY, PLAN and VOTE are repeated every second.
 */
#include <string.h>

#include "p2p/round/internal.h"

void round_init(struct round *r,
                const struct round_options *opt,
                struct members *members,
                struct ballot *ballot)
{
    memset(r, 0, sizeof *r);
    r->opt = *opt;
    r->members = members;
    r->ballot = ballot;
    r->broken = MEMBERS_NONE;
    r->idle.rests.most_log2 = IDLE_MOST_LOG2;
    r->idle.drawn.more_log2 = DRAWN_LEAST_LOG2 - 1;
    r->idle.drawn.most_log2 = IDLE_MOST_LOG2 - DRAWN_LEAST_LOG2 + 1;
}

void round_restart(struct round *r)
{
    struct round_options opt = r->opt;
    uint64_t n_aborted = r->n_aborted, n_inherited = r->n_inherited;
    uint32_t malformed = r->malformed;

    round_init(r, &opt, r->members, r->ballot);
    r->n_aborted = n_aborted;
    r->n_inherited = n_inherited;
    r->malformed = malformed;
}

bool round_take_commit(struct round *r)
{
    bool was = r->committed;

    r->committed = false;
    return was;
}

const char *round_take_trouble(struct round *r)
{
    const char *why = r->want_change ? r->why : NULL;

    r->want_change = false;
    return why;
}

void round_gap(struct round *r, uint64_t now_ms)
{
    r->progress_ms = now_ms;
}

void round_learn(struct round *r,
                 const struct commit *c,
                 const struct hash32 *hash)
{
    r->last = *c;
    r->last_hash = *hash;
    r->has_last = true;
    round_note_astray(r);
}

void round_leave(struct round *r, struct out *out)
{
    round_freeze(r, out);
    r->has_plan = false;
    r->phase = ROUND_TRAINING;
    r->cancelled_up_to = 0;
    r->kept.n = 0;
}

void round_withdraw(struct round *r)
{
    round_contribution_clear(r);
    r->kept.n = 0;
}

void round_configure(struct round *r, const struct run_terms *terms)
{
    r->terms = *terms;
}

void round_broadcast(struct round *r,
                     struct out *out,
                     uint64_t mask,
                     enum message_type type,
                     const void *msg)
{
    int rows[VIEW_MEMBERS_MAX];

    for (uint32_t i = 0; i < round_view(r)->n_members; i++) {
        rows[i] = mask >> i & 1 ? r->ballot->rows[i] : MEMBERS_NONE;
    }
    members_broadcast(r->members, out, rows, round_view(r)->n_members, type,
                      msg);
}

int round_member(const struct round *r, int peer)
{
    for (uint32_t i = 0; r->ballot->have && i < round_view(r)->n_members; i++) {
        if (r->ballot->rows[i] == peer) {
            return (int)i;
        }
    }
    return -1;
}

void round_change(struct round *r, const char *why)
{
    r->want_change = r->overdue = true;
    r->why = why;
}

/* End all attempts up to this one. */
void round_cancel(uint64_t attempt, struct out *out)
{
    struct action *a = out_add(out, ACTION_CANCEL);

    if (a != NULL) {
        a->cancel.stream = STREAM_RING;
        a->cancel.attempt = attempt;
    }
}

void round_cancel_epoch(struct round *r, uint64_t epoch, struct out *out)
{
    r->cancelled_up_to = round_attempt(epoch, UINT32_MAX);
    round_cancel(r->cancelled_up_to, out);
}

/* This attempt again, now that its base is in place. What others said of it in
 * the meantime stands. */
static void resume(struct round *r,
                   const struct hash32 *state,
                   uint64_t now_ms,
                   struct out *out)
{
    if (state != NULL) {
        r->has_state = true;
        r->state = *state;
    }
    if (r->contributed && r->has_state && r->phase == ROUND_TRAINING &&
        !r->frozen) {
        round_offer(r, now_ms, out);
    }
}

/* Whether the attempt failed and nothing tells why: nobody of the plan died,
 * was restarted or left, and its exchange ended, or stood still in a butterfly,
 * with nobody to be named for it. */
static bool is_unexplained(const struct round *r)
{
    uint64_t gone = r->ballot->lost | r->ballot->departed.mask;

    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        const struct peer_id id = id_of_public(r->plan_keys[k]);
        int at = view_index(round_view(r), &id);

        if (at < 0 || (gone >> at & 1)) {
            return false;
        }
    }
    return r->in_plan && !r->idle.two_plans && round_idle(r) == 0 &&
           (r->phase > ROUND_REDUCING ||
            (r->idle.late && round_kind(&r->plan.body) == EXCHANGE_BUTTERFLY));
}

/* End the attempt under way, and every earlier one than `attempt`. `round`:
 * what comes next. Where that is a later round this one was committed, and we
 * have heard of it by somebody's COMMIT. */
static void
leave(struct round *r, uint64_t round, uint64_t attempt, struct out *out)
{
    if (r->has_plan && r->phase != ROUND_COMMITTED) {
        if (round <= r->round) {
            r->n_aborted++;
            r->n_tries++;
            r->n_unexplained += is_unexplained(r);
            r->n_failed = r->plan.body.n_members;
            round_note_idle(r, out);
        }
        round_keep(r);
        if (r->phase == ROUND_REDUCING && !r->frozen) {
            round_cancel(r->exchange.attempt, out); /* our own sends, too */
        }
    }
    /* Also those that we took no part in: a frame of one of them must not
     * block a data connection for ever. */
    if (attempt <= r->cancelled_up_to) {
        round_cancel(0, out); /* another branch counts its epochs from lower */
        r->cancelled_up_to = 0;
    }
    round_cancel(attempt - 1, out);
}

/* Nothing has been said in this attempt. `ready`: who is in readies[]. */
static void forget(struct round *r, uint64_t ready)
{
    r->phase = ROUND_TRAINING;
    r->frozen = r->has_plan = r->in_plan = r->spoiled = false;
    r->ready = ready;
    memcpy(r->readies, r->earlies, sizeof r->readies);
    memcpy(r->ready_sig, r->early_sig, sizeof r->ready_sig);
    r->early = r->voted = r->plan_mask = 0;
    r->possible_ms = r->half_ready_ms = r->quorum_ms = 0;
    r->committed = r->want_change = r->overdue = r->idle.late = false;
}

void round_begin(struct round *r,
                 uint64_t round,
                 const struct hash32 *base,
                 const struct hash32 *state,
                 uint64_t tokens_before,
                 uint64_t now_ms,
                 struct out *out)
{
    bool same, next;

    same = r->epoch == round_view(r)->epoch &&
           hash32_eq(&r->view, &r->ballot->hash);
    if (r->phase != ROUND_COMMITTED && same && r->round == round &&
        hash32_eq(&r->base, base)) {
        r->tokens_before = tokens_before; /* the view may have had it wrong */
        resume(r, state, now_ms, out);
        return;
    }
    leave(r, round, round_attempt(round_view(r)->epoch, round), out);
    if (r->phase == ROUND_COMMITTED || r->round != round ||
        !hash32_eq(&r->base, base)) {
        r->kept.n = 0; /* of another round */
        r->n_tries = r->n_unexplained = r->idle.n_unheard = 0;
        r->has_rejected = false;
    }
    next = same && r->round + 1 == round;
    r->epoch = round_view(r)->epoch;
    r->view = r->ballot->hash;
    r->round = round;
    r->base = *base;
    r->has_state = state != NULL;
    if (state != NULL) {
        r->state = *state;
    }
    r->tokens_before = tokens_before;
    forget(r, next ? r->early : 0);
    round_count_early(r);
    if (r->contributed && r->has_state) {
        round_offer(r, now_ms, out);
    }
}

void round_moments(struct round *r,
                   const struct moments *m,
                   const struct hash32 *state)
{
    r->has_moments = m != NULL;
    if (m != NULL) {
        r->moments = *m;
        r->moments_state = *state;
    }
}

void round_contribute(struct round *r,
                      const struct round_work *work,
                      uint64_t now_ms,
                      struct out *out)
{
    r->contributed = true;
    r->mine.tokens = work->tokens;
    r->mine.first_step = work->first_step;
    r->mine.last_step = work->last_step;
    r->mine.lease = work->lease;
    r->blocks = work->blocks;
    r->ends = work->ends;
    r->begun_anew = work->begun_anew;
    r->mine.n_rollback = work->asks_rollback;
    r->mine.rollback[0] = work->rollback;
    if (r->ballot->have && r->has_state && r->phase == ROUND_TRAINING &&
        !r->frozen) {
        round_offer(r, now_ms, out);
    }
}

void round_contribution_clear(struct round *r)
{
    r->contributed = false;
    r->exposed = false;
    r->n_exposed = 0;
    memset(&r->mine, 0, sizeof r->mine);
}

void round_retract(struct round *r)
{
    round_contribution_clear(r);
    if (r->ballot->have && r->phase == ROUND_READY && !r->has_plan) {
        r->phase = ROUND_TRAINING;
        r->ready &= ~BIT(round_self(r));
    }
}

void round_freeze(struct round *r, struct out *out)
{
    if (r->frozen) {
        return;
    }
    r->frozen = true;
    if (r->phase == ROUND_REDUCING) {
        round_cancel(r->exchange.attempt, out);
    }
}
