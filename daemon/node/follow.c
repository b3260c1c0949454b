/* follow.c - the commits behind a state, one by one: their reduced bytes,
 * the same bits that the members applied.
 *
 * The *way* leads from the state that is here, or on its way here, to the
 * newest commit. It is walked backwards: the newest one is trusted
 * (node/sync.c), and each record names the commit before by its hash, so what
 * holds for the newest holds for all. It is known while the state is still
 * being fetched, and only the record of the next commit is kept; who has the
 * bytes of a round keeps them for that long (machine/past.c).
 *
 * What arrives counts under the hash that it must have. Nobody answers, or the
 * way leads past our state: the state is fetched anew.
 */
#include "daemon/node/internal.h"

#include <string.h>

#define ASK_MS 1000 /* a record is asked for again after this ... */
#define ASKS   3    /* ... and taken for lost after so many */
/* Who saw that it cannot follow does not fetch a state again before this, twice
 * that, .., at most that. */
#define PAUSE_MS     60000
#define PAUSE_MAX_MS 1800000
/* Commits that somebody with work that is in none of them takes one by one:
 * p2p/round/lease.h counts on it. */
#define WORK_MAX 8

/* ---- the way ---------------------------------------------------------- */

static struct node_way_commit *step_at(struct node *n, uint64_t round)
{
    return &n->way.step[round % NODE_PAST_MAX];
}

static bool knows(struct node *n, uint64_t round)
{
    return step_at(n, round)->round == round && round > 0;
}

static void note(struct node *n, uint64_t round, const struct hash32 *commit)
{
    struct node_way_commit *s = step_at(n, round);

    if (s->round != round || !hash32_eq(&s->commit, commit)) {
        *s = (struct node_way_commit){.round = round, .commit = *commit};
    }
}

/* The round that the way begins behind: of the state that is here, or will be
 * when what is under way is done. */
static uint64_t way_from(const struct node *n)
{
    return n->sync.phase == SYNC_STATE || n->sync.phase == SYNC_REDUCED ||
                   n->sync.phase == SYNC_REDUCED_HASH ||
                   n->sync.phase == SYNC_LOAD
               ? n->held.target.round
               : n->held.applied.round;
}

/* How long the others take for a round: a mean that forgets. */
static void note_pace(struct node *n, uint64_t round)
{
    struct node_way *w = &n->way;
    uint64_t ms = n->now - w->seen_ms;

    if (round == w->seen_round && w->seen_ms != 0) {
        return;
    }
    if (w->seen_ms == 0 || round < w->seen_round) {
        w->round_ms = 0;
        w->began = false; /* it had begun before we heard of it */
    } else {
        ms /= round - w->seen_round;
        w->round_ms = !w->began          ? 0
                      : w->round_ms == 0 ? ms
                                         : (3 * w->round_ms + ms) / 4;
        w->began = true;
    }
    w->seen_round = round;
    w->seen_ms = n->now;
}

static bool is_past(const struct node *n, const struct member *p)
{
    return p->beat.ready && node_same_stage(n, p) &&
           p->beat.round >= n->way.asked;
}

static void ask(struct node *n, uint64_t round)
{
    struct get_commit msg = {.round = round};
    int peer;

    n->way.asked = round;
    n->way.ask_ms = n->now + ASK_MS;
    peer = node_pick(n, is_past);
    if (peer != MEMBERS_NONE) {
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_COMMIT, &msg);
    }
}

void node_follow_look(struct node *n, const struct node_point *tip)
{
    uint64_t from = way_from(n), round = tip->round;

    note_pace(n, round);
    if (round <= from || round - from > NODE_PAST_MAX) {
        return;
    }
    note(n, round, &tip->commit);
    while (round > from + 1 && step_at(n, round)->linked) {
        round--;
    }
    if (n->sync.phase != SYNC_COMMIT && round > from + 1 &&
        (n->way.asked != round || n->now >= n->way.ask_ms)) {
        ask(n, round);
    }
}

/* ---- how fast ---------------------------------------------------------- */

/* Bytes of the reduced vector of a round. */
static uint64_t wire_bytes(const struct node *n, uint64_t round)
{
    const struct run_terms *t = &n->terms;

    return t->segment_elements == 0
               ? 0
               : terms_elements(t, round) * t->segment_wire_bytes /
                     t->segment_elements;
}

uint64_t node_fetched_bytes(const struct node *n, uint64_t units)
{
    const struct transfer_object *o = &n->transfer.object;

    return o->buffer != BUFFER_REDUCED || o->total == 0
               ? units
               : units * wire_bytes(n, o->index) / o->total;
}

/* Of the fetch that is under way, when that much of it is here; 0: it is not.
 */
static uint64_t rate_now(const struct node *n, uint64_t part)
{
    const struct transfer *t = &n->transfer;
    uint64_t ms = n->now - t->started_ms;
    uint64_t units = transfer_units(t) - t->resumed_units;

    return !t->active || ms == 0 || t->object.buffer == BUFFER_SHARD ||
                   units < part
               ? 0
               : node_fetched_bytes(n, units) * 1000 / ms;
}

void node_follow_fetched(struct node *n)
{
    uint64_t rate = rate_now(n, 1), before = n->way.bytes_per_s;

    n->way.bytes_per_s = before == 0 || rate == 0 ? rate : (before + rate) / 2;
}

/* Who makes no round for longer than the last ones took is slower. */
static uint64_t pace_ms(const struct node *n)
{
    uint64_t since_ms = n->now - n->way.seen_ms;

    return n->way.round_ms == 0 || n->way.round_ms > since_ms ? n->way.round_ms
                                                              : since_ms;
}

/* Of one round's bytes at that rate. */
static uint64_t wire_ms(const struct node *n, uint64_t rate)
{
    return rate == 0 ? 0 : wire_bytes(n, n->way.seen_round + 1) * 1000 / rate;
}

void node_follow_speed(const struct node *n, struct node_follow_speed *s)
{
    const struct transfer *t = &n->transfer;
    bool on_way = t->active && t->object.buffer != BUFFER_SHARD;
    bool state = t->active && t->object.buffer == BUFFER_STATE;
    uint64_t rate = state ? rate_now(n, t->object.total / 2) : 0, behind, ms;
    uint64_t from = way_from(n);

    memset(s, 0, sizeof *s);
    if (n->ballot.have || !n->regime->has_views || !n->data.configured) {
        return;
    }
    behind = n->way.seen_round > from ? n->way.seen_round - from : 0;
    s->behind = behind > UINT32_MAX ? UINT32_MAX : (uint32_t)behind;
    s->round_ms = pace_ms(n);
    s->wire_ms = wire_ms(n, rate == 0 ? n->way.bytes_per_s : rate);
    s->slow = s->round_ms > 0 && s->wire_ms >= s->round_ms;
    rate = rate_now(n, 1);
    rate = rate == 0 ? n->way.bytes_per_s : rate;
    ms = wire_ms(n, rate);
    if (rate == 0 || s->slow || s->round_ms <= ms) {
        return;
    }
    /* While the bytes of one come in, ms / round_ms of another are made. */
    s->left_ms =
        behind * ms +
        (on_way ? node_fetched_bytes(n, t->object.total - transfer_units(t)) *
                      1000 / rate
                : 0);
    s->left_ms = s->left_ms * s->round_ms / (s->round_ms - ms);
}

/* ---- whether ----------------------------------------------------------- */

uint64_t node_follow_max(const struct node *n)
{
    uint64_t state = n->terms.state_bytes, most = WORK_MAX;
    uint64_t wire = wire_bytes(n, n->held.applied.round + 1);

    if (n->training.active || n->training.packed ||
        n->training.inner_step != n->training.first_step) {
        return WORK_MAX;
    }
    most = wire > 0 && state / wire > most ? state / wire : most;
    return most < NODE_PAST_MAX ? most : NODE_PAST_MAX;
}

bool node_follow_pauses(struct node *n)
{
    struct node_way *w = &n->way;
    struct node_follow_speed s;

    node_follow_speed(n, &s);
    if (!s.slow || !n->held.loaded) {
        w->pause_ms = w->paused_ms = 0;
        return false;
    }
    if (w->paused_ms == 0) {
        w->pause_ms = w->pause_ms == 0 ? PAUSE_MS : 2 * w->pause_ms;
        w->pause_ms = w->pause_ms < PAUSE_MAX_MS ? w->pause_ms : PAUSE_MAX_MS;
        w->paused_ms = n->now;
    }
    if (n->now - w->paused_ms < node_scaled(n, w->pause_ms)) {
        return true;
    }
    w->paused_ms = 0;
    return false;
}

/* ---- one commit ------------------------------------------------------- */

/* How much of our open contribution is in that commit: parts of it where an
 * attempt that we were in failed, and the next one inherited what was done. One
 * that was in no exchange is in none: the same steps in a range were made by
 * the process that this peer was before it restarted. What the record says of
 * who voted is not proven where a view decided the round, so it is not read. */
static enum node_spent spent_in(const struct node *n, const struct commit *c)
{
    const struct ready_body *mine = &n->round.mine;
    uint64_t all = terms_elements(&n->terms, c->plan.body.round);
    bool in_members = round_is_exposed_in(&n->round, &c->plan.body);
    uint64_t share;

    share = inherit_share(&c->plan.body, in_members, &n->opt.self,
                          mine->first_step, mine->last_step, all);
    if (!n->round.contributed || !n->round.exposed || share == 0 ||
        node_quorum_idle(n)) {
        /* What it was made from is gone: of no use to any other round. */
        return n->terms.single_round ? SPENT_PARTLY : SPENT_NOT;
    }
    return share == all ? SPENT_WHOLLY : SPENT_PARTLY;
}

/* The record of what follows our state: fetch its reduced bytes, and ask for
 * the record after it meanwhile. */
static void begin(struct node *n, const struct commit *c)
{
    const struct plan_body *p = &c->plan.body;
    enum node_spent spent;
    struct node_point target;

    if (!hash32_eq(&p->base, &n->held.applied.commit)) {
        n->sync.delta_failed = true; /* another branch: take the whole state */
        n->sync.phase = SYNC_IDLE;
        return;
    }
    target.round = p->round;
    target.tokens = p->tokens_before + plan_tokens(p);
    message_commit_hash(p, &c->result, &target.commit);
    node_held_aim(&n->held, &target);
    history_add(&n->history, c);
    if (p->n_rollback > 0) {
        node_judge_back(n, c);
        return;
    }
    n->sync.delta = *c;
    n->sync.expect = c->result;
    spent = spent_in(n, c);
    node_held_spend(&n->held, spent);
    if (spent == SPENT_WHOLLY) {
        node_audit_offered(n, p->round, &n->round.mine.offer);
    }
    n->sync.phase = SYNC_REDUCED;
    (void)node_fetch(
        n, &(struct transfer_object){
               .buffer = BUFFER_REDUCED,
               .leaves = BUFFER_KIND_COUNT,
               .index = n->held.target.round,
               .root = c->result,
               .total = terms_elements(&n->terms, n->held.target.round),
           });
    if (knows(n, p->round + 1)) {
        ask(n, p->round + 1);
    }
}

/* Whether a record is that of the way. */
static bool is_step(struct node *n, const struct commit *c)
{
    uint64_t round = c->plan.body.round;
    struct hash32 hash;

    message_commit_hash(&c->plan.body, &c->result, &hash);
    return knows(n, round) && hash32_eq(&hash, &step_at(n, round)->commit);
}

void node_follow_record(struct node *n, const struct commit *c)
{
    const struct plan_body *p = &c->plan.body;

    if (!is_step(n, c)) {
        return;
    }
    if (p->round > way_from(n) + 1) {
        note(n, p->round - 1, &p->base);
        step_at(n, p->round)->linked = true;
        if (n->sync.phase == SYNC_WALK) {
            n->sync.since_ms = n->now;
        }
    } else if (p->round == way_from(n) + 1) {
        n->way.next = *c;
        n->way.has_next = true;
    }
    if ((n->sync.phase == SYNC_WALK || n->sync.phase == SYNC_COMMIT) &&
        p->round == n->held.applied.round + 1) {
        begin(n, c);
    }
}

/* The record of the next commit, where we have it. */
static const struct commit *next_record(struct node *n)
{
    const struct commit *own = &n->round.last, *next = &n->way.next;
    uint64_t round = n->held.applied.round + 1;

    if (n->round.has_last && own->plan.body.round == round && is_step(n, own)) {
        return own;
    }
    return n->way.has_next && next->plan.body.round == round && is_step(n, next)
               ? next
               : NULL;
}

void node_follow_next(struct node *n)
{
    const struct commit *c = next_record(n);

    n->sync.since_ms = n->now;
    if (c != NULL) {
        begin(n, c);
    } else if (knows(n, n->held.applied.round + 1)) {
        n->sync.phase = SYNC_COMMIT;
        ask(n, n->held.applied.round + 1);
    } else {
        n->sync.phase = SYNC_WALK;
    }
}

void node_follow_forget(struct node *n)
{
    memset(&n->way, 0, sizeof n->way);
}

void node_follow_wait(struct node *n)
{
    uint64_t round = n->held.applied.round + 1;

    if (n->now - n->sync.since_ms > ASKS * (uint64_t)ASK_MS) {
        n->sync.phase = SYNC_IDLE;
        n->sync.delta_failed = node_pick(n, is_past) != MEMBERS_NONE;
    } else if (knows(n, round) &&
               (n->sync.phase == SYNC_WALK || n->now >= n->way.ask_ms)) {
        n->sync.phase = SYNC_COMMIT;
        ask(n, round);
    }
}
