/* audit_fetch.c - the contributions to a block, and who does not serve his. See
 * audit.h.
 */
#include "p2p/round/audit_internal.h"

#define AGAIN_MAX 5 /* times that one draw is asked for again */

static void cancel(const struct audit *a, struct out *out)
{
    struct action *action = out_add(out, ACTION_CANCEL);

    if (action != NULL) {
        action->cancel.stream = STREAM_AUDIT;
        action->cancel.attempt = a->attempt;
    }
}

void audit_give_up(struct audit *a, struct out *out)
{
    if (a->phase == AUDIT_FETCHING) {
        cancel(a, out);
    }
    a->phase = AUDIT_IDLE;
}

/* ---- a sum that cannot be repeated ----------------------------------------
 */

/* An accuser whose line broke may say it once more. */
static void unanswered(struct audit *a)
{
    uint32_t i = a->block.source == MEMBERS_NONE
                     ? VIEW_MEMBERS_MAX
                     : audit_rank_of(a, a->block.source);

    a->n_unanswered++;
    if (i < a->commit.shape.cut.n && !(a->heard_twice & AUDIT_BIT(i))) {
        a->heard_twice |= AUDIT_BIT(i);
        a->wrong.heard &= ~AUDIT_BIT(i);
    }
}

/* The contributions in the mask cannot be had of those that made them. Where
 * they are more than half of all others, it is our line. */
static void unserved(struct audit *a, uint64_t mask)
{
    const struct audit_commit *c = &a->commit;
    uint32_t n = (uint32_t)__builtin_popcountll(mask);

    unanswered(a);
    if (a->block.source != MEMBERS_NONE || n == 0 ||
        2 * n > c->shape.cut.n - 1) {
        return;
    }
    a->silent |= mask;
    a->known |= mask;
    if (a->is_own && !a->was_word) {
        a->has_word = a->was_word = true;
        a->word = (struct accuse){
            .round = c->round,
            .commit = c->hash,
            .offset = a->block.offset,
            .silent = (uint8_t)(__builtin_ctzll(mask) + 1),
        };
    }
}

/* Nobody can repeat the sum now, for those in the mask: a draw later, an
 * accusation never. */
static void put_off(struct audit *a, uint64_t mask)
{
    if (a->block.source == MEMBERS_NONE && a->n_again < AGAIN_MAX) {
        a->again = true;
        a->again_ms = 0;
        a->n_again++;
    } else {
        unserved(a, mask);
    }
}

void audit_time_out(struct audit *a, struct out *out)
{
    unserved(a, a->missing);
    audit_give_up(a, out);
}

uint64_t audit_take_silent(struct audit *a, struct accuse *word, bool *says)
{
    uint64_t silent = a->silent;

    *says = a->has_word;
    *word = a->word;
    a->silent = 0;
    a->has_word = false;
    return silent;
}

/* ---- asking ---------------------------------------------------------------
 */

/* Ask for contribution i to the block. */
static void ask(struct audit *a, uint32_t i, int row, struct out *out)
{
    const struct audit_commit *c = &a->commit;
    struct action *action = out_add(out, ACTION_POST_RECV);
    struct fetch msg = {
        .buffer = BUFFER_OFFER,
        .index = c->round,
        .offset = a->block.offset,
        .len = a->block.len,
        .attempt = a->attempt,
        .seg = i,
        .stream = STREAM_AUDIT,
        .root = c->offer[i],
    };

    if (action == NULL) {
        return; /* it is silent, then */
    }
    action->segment = (struct segment){
        .peer = a->members->peers[row].id,
        .attempt = a->attempt,
        .stream = STREAM_AUDIT,
        .seg = i,
        .buffer = BUFFER_OFFER,
        .index = c->round,
        .offset = a->block.offset,
        .len = a->block.len,
        .op = SEGMENT_LANE,
        .scale = c->scale[i],
        .lane = (uint8_t)i,
        .lanes = (uint8_t)c->shape.cut.n,
        .proven = true,
        .maker = c->member[i],
        .offer = c->offer[i],
    };
    members_bulk_open(a->members, out, row);
    (void)members_send(a->members, out, row, MESSAGE_FETCH, &msg);
}

/* Rows of the sources of all contributions but ours. Returns those of which the
 * source is away (bits). */
static uint64_t find_sources(const struct audit *a, int rows[VIEW_MEMBERS_MAX])
{
    const struct audit_commit *c = &a->commit;
    uint64_t away = 0;

    for (uint32_t i = 0; i < c->shape.cut.n; i++) {
        rows[i] = a->block.source != MEMBERS_NONE
                      ? a->block.source
                      : members_find(a->members, &c->member[i]);
        if (i != c->rank &&
            (rows[i] == MEMBERS_NONE || !members_linked(a->members, rows[i]))) {
            away |= AUDIT_BIT(i);
        }
    }
    return away;
}

void audit_fetch(struct audit *a, uint64_t now_ms, struct out *out)
{
    uint32_t n = a->commit.shape.cut.n;
    int rows[VIEW_MEMBERS_MAX];
    uint64_t away = find_sources(a, rows);

    if (away != 0) {
        put_off(a, away);
        return;
    }
    a->attempt++;
    a->phase = AUDIT_FETCHING;
    a->due_ms = now_ms + a->patience_ms;
    a->missing = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i != a->commit.rank) {
            a->missing |= AUDIT_BIT(i);
            ask(a, i, rows[i], out);
        }
    }
}

/* ---- answers --------------------------------------------------------------
 */

/* All contributions are here. */
static void sum(struct audit *a, struct out *out)
{
    const struct audit_commit *c = &a->commit;
    struct job *job = out_job(out, JOB_AUDIT);

    a->phase = AUDIT_IDLE;
    if (job != NULL) {
        a->phase = AUDIT_SUMMING;
        job->audit = (struct job_audit){
            .round = c->round,
            .offset = a->block.offset,
            .len = a->block.len,
            .lanes = c->shape.cut.n,
            .lane = c->rank,
            .scale = c->scale[c->rank],
            .maker = c->member[c->rank],
            .offer = c->offer[c->rank],
        };
    }
}

void audit_seg_done(struct audit *a,
                    const struct event_seg_done *ev,
                    struct out *out)
{
    if (a->phase != AUDIT_FETCHING || ev->segment.attempt != a->attempt ||
        ev->segment.seg >= a->commit.shape.cut.n) {
        return;
    }
    if (ev->rc != 0) { /* not what was announced, or the line broke */
        audit_give_up(a, out);
        put_off(a, AUDIT_BIT(ev->segment.seg));
        return;
    }
    a->missing &= ~AUDIT_BIT(ev->segment.seg);
    if (a->missing == 0) {
        sum(a, out);
    }
}

/* Whether contribution i is to come from that peer. The accused has no say in
 * what its accuser sends, or a guessed attempt would save it. */
static bool was_asked(const struct audit *a, int peer, uint32_t i)
{
    return a->block.source != MEMBERS_NONE
               ? peer == a->block.source
               : id_eq(&a->members->peers[peer].id, &a->commit.member[i]);
}

void audit_refused(struct audit *a,
                   int peer,
                   const struct fetch_no *no,
                   struct out *out)
{
    uint32_t i = no->seg;

    if (a->phase == AUDIT_FETCHING && no->attempt == a->attempt &&
        i < a->commit.shape.cut.n && (a->missing & AUDIT_BIT(i)) &&
        was_asked(a, peer, i)) {
        audit_give_up(a, out);
        put_off(a, AUDIT_BIT(i));
    }
}

bool audit_summed(struct audit *a,
                  const struct local_event *e,
                  struct audit_block *b)
{
    if (a->phase != AUDIT_SUMMING || e->audited.round != a->commit.round ||
        e->audited.offset != a->block.offset) {
        return false;
    }
    a->phase = AUDIT_IDLE;
    *b = a->block;
    if (e->rc != 0) {
        unanswered(a);
        return false;
    }
    a->n_blocks++;
    a->n_wrong += e->audited.wrong;
    a->n_false += !e->audited.wrong && b->source != MEMBERS_NONE;
    if (!e->audited.wrong && b->source == MEMBERS_NONE && !a->is_own) {
        rests_add(&a->vain, &a->commit.member[a->sayer], a->commit.round);
    }
    if (e->audited.wrong) {
        a->has = false;
        a->wrong.waiting = a->unserved.waiting = 0;
    }
    return e->audited.wrong;
}
