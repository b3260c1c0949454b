/* rounds.c - the regime of rounds: training, commits, the end of a run.
 *
 * TRAIN(period) -> TRAINED -> round_contribute .. committed -> APPLY ->
 * APPLIED -> next. Where the trainer says PLACED before that, the next TRAIN
 * begins at once: only READY and heartbeats need the hashes. A peer that was
 * late finds the round committed without it: it fetches the reduced bytes,
 * applies them under its live parameters (rebase) and its contribution, still
 * open, enters the next round.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "proto/base/log.h"

static bool ends_at(const struct node *n, const struct node_point *p)
{
    return n->data.configured && n->held.loaded &&
           ((n->terms.stop_rounds > 0 && p->round >= n->terms.stop_rounds) ||
            (n->terms.stop_tokens > 0 && p->tokens >= n->terms.stop_tokens));
}

bool node_run_over(const struct node *n)
{
    return ends_at(n, &n->held.applied);
}

const struct hash32 *node_base(const struct node *n)
{
    bool here =
        node_point_eq(&n->held.known, &n->held.applied) && !n->held.applying;

    return here && !node_run_over(n) && node_lease_known(n)
               ? &n->held.state_hash
               : NULL;
}

void node_next_round(struct node *n)
{
    round_begin(&n->round, n->held.known.round + 1, &n->held.known.commit,
                node_base(n), n->held.known.tokens, n->now, n->out);
}

static void note_commit(struct node *n)
{
    const struct round *r = &n->round;
    const struct plan_body *p = &r->last.plan.body;
    struct node_commit *c = &n->rounds.last;

    memset(c, 0, sizeof *c);
    c->round = p->round;
    c->epoch = p->epoch;
    c->plan_hash = r->plan_hash;
    c->result_hash = r->last.result;
    c->kind = round_kind(p);
    c->n = p->n_members;
    for (uint32_t k = 0; k < p->n_members; k++) {
        c->member[k] = id_of_public(r->plan_keys[k]);
        c->weight[k] = p->members[k].tokens;
        c->first_step[k] = p->members[k].first_step;
        c->last_step[k] = p->members[k].last_step;
        c->lease[k] = p->members[k].lease;
    }
    c->n_ranges = p->n_ranges;
    memcpy(c->ranges, p->ranges, sizeof c->ranges);
    c->has_ledger = p->n_ledgers > 0;
    c->ledger = p->ledgers[0];
    c->takes_back = p->n_rollback > 0;
    c->rollback = p->rollback[0];
    n->rounds.has_last = true;
    n->rounds.round_ms =
        n->rounds.commit_ms != 0 ? n->now - n->rounds.commit_ms : 0;
    n->rounds.commit_ms = n->now;
}

void node_rounds_count(struct node *n, bool counts, uint64_t took_ms)
{
    n->rounds.n_committed += counts;
    n->rounds.round_ms = took_ms;
}

void node_rounds_forget(struct node *n)
{
    n->rounds.has_last = false;
    n->rounds.commit_ms = 0;
}

/* Weight of the open contribution in a mean that has some of it. */
static double own_share(const struct node *n, const struct plan_body *p)
{
    uint64_t all = plan_tokens(p);

    return all > n->round.mine.tokens && n->round.mine.tokens > 0
               ? (double)n->round.mine.tokens / (double)all
               : 1.0;
}

static void count_arrivals(const struct plan_body *p, struct job_apply *apply)
{
    for (uint32_t k = 0; k < p->n_members; k++) {
        apply->arrivals += p->members[k].tokens > 0;
        apply->members++;
    }
}

/* Start APPLY of the commit in `target` (or, from the ring, `known`). */
void node_apply(struct node *n, enum buffer_kind buffer, enum node_spent spent)
{
    struct job *job = out_job(n->out, JOB_APPLY);
    const struct plan_body *plan = buffer == BUFFER_RING
                                       ? &n->round.last.plan.body
                                       : &n->sync.delta.plan.body;

    if (job == NULL) {
        return;
    }
    if (buffer == BUFFER_RING) {
        node_held_aim(&n->held, &n->held.known);
    }
    if (node_quorum_idle(n)) {
        /* A gradient under way is of the parameters before. */
        spent = n->terms.single_round ? SPENT_PARTLY : SPENT_NOT;
        node_quorum_withdraw(n);
    }
    node_held_spend(&n->held, spent);
    count_arrivals(plan, &job->apply);
    job->apply.round = n->held.target.round;
    job->apply.buffer = buffer;
    job->apply.rebase = spent == SPENT_NOT;
    job->apply.share = job->apply.rebase ? 0.0 : own_share(n, plan);
    job->apply.ours = buffer == BUFFER_RING ||
                      (spent == SPENT_WHOLLY && n->round.contributed);
    job->apply.undo = spent == SPENT_PARTLY ? node_work_undo(n) : 0;
    node_held_begin(&n->held, buffer == BUFFER_RING ? &n->round.last.result
                                                    : &n->sync.expect);
    node_sync_busy(n, job->apply.rebase);
}

void node_on_committed(struct node *n)
{
    struct round *r = &n->round;
    const struct plan_body *p = &r->last.plan.body;

    if (p->round != n->held.known.round + 1) {
        return; /* the view that decided it said so before */
    }
    node_held_know(&n->held, &(struct node_point){
                                 p->round, p->tokens_before + plan_tokens(p),
                                 r->last_hash});
    history_add(&n->history, &r->last);
    node_joiners_follow(n, &p->base);
    note_commit(n);
    node_timeline_committed(n);
    out_log(n->out, LOG_INFO,
            "round %llu committed: %u of %u peers, %llu tokens",
            (unsigned long long)p->round, p->n_members,
            n->ballot.cert.body.n_members,
            (unsigned long long)(n->held.known.tokens - p->tokens_before));
    node_sync_reset(n);
    node_audit_committed(n);
    node_work_committed(n, true);
    node_strays_committed(n);
    if (r->in_plan) {
        n->rounds.n_committed++;
        if (p->n_rollback > 0) {
            node_judge_back(n, &r->last);
        } else {
            node_apply(n, BUFFER_RING, SPENT_WHOLLY);
        }
    }
    node_next_round(n);
}

/* The state in place has changed; if it is the newest we know of, the next
 * attempt starts from it. */
static void take_over(struct node *n)
{
    if (n->held.known.round <= n->held.applied.round || !n->ballot.have) {
        node_held_know(&n->held, &n->held.applied);
        if (n->ballot.have) {
            node_next_round(n);
        }
    }
}

void node_step_taken(struct node *n)
{
    struct job *job;

    node_evaluate(n);
    job = out_job(n->out, JOB_CHECKPOINT);
    if (job != NULL) {
        job->checkpoint.round = n->held.applied.round;
    }
    if (n->opt.rounds > 0 && n->held.applied.round >= n->opt.rounds &&
        !n->draining) {
        n->draining = true;
        n->drain_ms = n->now;
    }
}

/* What was done after the packing is in no commit, unless the method overlaps
 * and keeps it: then it is of the next contribution. */
static uint64_t next_first_step(const struct node *n, uint64_t replaced)
{
    bool kept = n->round.contributed && replaced <= n->round.mine.tokens;

    return kept ? n->round.mine.last_step : n->training.inner_step;
}

/* The commit has our contribution, or a part of it, or nothing. `replaced`:
 * tokens that the state before was trained with, up to that step. */
static void spend_contribution(struct node *n, uint64_t replaced, uint64_t step)
{
    enum node_spent spent = n->held.target_spent;
    uint64_t in_it = spent == SPENT_WHOLLY ? n->round.mine.tokens : 0;

    if (spent != SPENT_NOT) {
        node_training_drop(n, replaced > in_it ? replaced - in_it : 0);
        node_training_first(n, next_first_step(n, replaced));
    }
    if (spent == SPENT_PARTLY && node_work_undo(n) != 0) {
        node_training_end(n); /* another lease is to be trained */
        node_training_restart(n, step);
    }
    if (spent != SPENT_NOT || !n->inner->whole) {
        node_forget_contribution(n); /* stages pack again after each step */
    }
}

/* Whoever is to measure that state measures it before it trains on. */
static void rounds_placed(struct node *n, const struct local_event *e)
{
    if (n->inner->whole && !node_judge_is_on(n) &&
        !n->regime->evaluates(n, &n->held.target)) {
        spend_contribution(n, e->placed.tokens, e->placed.inner_step);
        node_held_place(&n->held);
        node_lease_find(n);
    }
}

static void rounds_applied(struct node *n, const struct local_event *e)
{
    if (e->rc != 0) {
        n->reason = "cannot apply a committed round";
        node_sync_failed(n);
        return;
    }
    if (!n->held.placed) {
        spend_contribution(n, e->applied.tokens, e->applied.inner_step);
    }
    node_work_announce(n, &e->applied, n->held.target_spent == SPENT_NOT);
    node_held_take(&n->held, &e->applied);
    node_sync_taken(n);
    node_lease_find(n);
    timeline_applied(&n->timeline.core, n->held.applied.round, n->now);
    node_note_state(n, &n->held.target_result);
    node_judge_look(n);
    node_audit_applied(n);
    node_work_applied(n);
    take_over(n);
    node_step_taken(n);
}

static void rounds_loaded(struct node *n)
{
    node_audit_stop(n);
    node_work_stop(n);
    node_note_state(n, NULL);
    node_judge_look(n);
    take_over(n);
}

static void rounds_trained(struct node *n, const struct local_event *e)
{
    uint64_t tokens = e->trained.tokens;

    if (!n->inner->whole) {
        if (n->pipe.pack_round != n->held.known.round + 1) {
            return; /* that round is over: it stays open, for the next one */
        }
        if (tokens == 0) {
            tokens = 1; /* a round of no weight at all is none */
        }
    }
    if (node_judge_holds(n)) {
        return; /* made from a state that may be taken back; trained on later */
    }
    node_training_packed(n);
    node_work_trained(n, &e->trained.ends);
    if (node_quorum_defer(n, e)) {
        return;
    }
    round_contribute(&n->round,
                     &(struct round_work){.tokens = tokens,
                                          .first_step = n->training.first_step,
                                          .last_step = n->training.inner_step,
                                          .lease = n->text.under_way,
                                          .blocks = e->trained.blocks,
                                          .ends = e->trained.ends,
                                          .begun_anew = e->trained.broken},
                     n->now, n->out);
}

/* The state in place is to be another one. */
static bool is_moving(const struct node *n)
{
    return n->held.applying && !n->held.placed;
}

/* The state that is only placed is this peer's last: nobody has said so yet. */
static bool ends_placed(const struct node *n)
{
    const struct node_point *p = &n->held.target;

    return n->held.applying && n->held.placed &&
           (ends_at(n, p) || (n->opt.rounds > 0 && p->round >= n->opt.rounds));
}

/* Train, offer, wait: what the state asks for. */
static void train_advance(struct node *n)
{
    const struct node_point *stand = node_held_stand(&n->held);

    if (n->stopped) {
        return;
    }
    node_quorum_advance(n);
    node_training_finish(n, node_run_over(n) && !n->draining);
    if (n->finished || n->draining || n->training.paused || !n->ballot.have ||
        is_moving(n) || n->training.active || n->training.packed ||
        !n->held.loaded || !node_point_eq(stand, &n->held.known) ||
        ends_placed(n) || !node_lease_known(n) || node_judge_holds(n)) {
        return;
    }
    if (!n->eval.has_before && stand->round == 0) {
        node_evaluate(n);
    }
    if (!node_work_leaves_out(n)) {
        n->inner->train(n);
    }
}

/* ---- the regime -------------------------------------------------------- */

/* What member i of our view says, if it is in it; NULL: it is not. */
static const struct heartbeat *said_by(const struct node *n, uint32_t i)
{
    int row = n->ballot.rows[i];
    const struct member *p =
        row == MEMBERS_NONE ? NULL : &n->members.peers[row];

    return p != NULL && p->has_beat && p->beat.has_view &&
                   hash32_eq(&p->beat.view, &n->ballot.hash)
               ? &p->beat
               : NULL;
}

/* The newest commit from that round on which more than half of our view say
 * that they hold, each over its own link. One of them could say so of any
 * state, and of a true one any tokens. */
static const struct heartbeat *most_hold(const struct node *n, uint64_t round)
{
    const struct view_body *v = &n->ballot.cert.body;
    const struct heartbeat *best = NULL;

    for (uint32_t i = 0; i < v->n_members; i++) {
        const struct heartbeat *b = said_by(n, i), *c;
        uint64_t mask = 0;

        if (b == NULL || b->round < round ||
            (best != NULL && b->round <= best->round)) {
            continue;
        }
        for (uint32_t k = 0; k < v->n_members; k++) {
            c = said_by(n, k);
            mask |= c != NULL && c->round == b->round &&
                            c->tokens == b->tokens &&
                            hash32_eq(&c->commit, &b->commit)
                        ? 1ULL << k
                        : 0;
        }
        if (view_quorum(v, mask, n->ballot.departed.mask)) {
            best = b;
        }
    }
    return best;
}

/* The commit that our view is bound by, or one that its members say they are
 * past; without a view the newest one of the best branch. */
static bool rounds_target(const struct node *n, struct node_point *target)
{
    const struct heartbeat *best = NULL;

    if (!n->ballot.have) {
        int peer = node_best_peer(n);
        const struct node_proven *v =
            peer == MEMBERS_NONE ? NULL : node_proven_of(n, peer);
        struct hash32 state;

        if (v != NULL) {
            return node_tip(n, v, target, &state) &&
                   (!n->finished || node_tip_ahead(n, v, target));
        }
        best = peer == MEMBERS_NONE ? NULL : &n->members.peers[peer].beat;
        if (best != NULL && n->finished && !node_beat_ahead(n, best)) {
            best = NULL; /* our end of the run is the better one */
        }
    } else {
        *target = n->held.known;
        best = most_hold(n, target->round + 2);
    }
    if (best != NULL) {
        *target = node_point_of(best);
    }
    return n->ballot.have || best != NULL;
}

/* Take in a commit and a view as soon as they are made: whoever speaks next
 * for this node (ballot.c with our closing statement) must know of them. */
static bool settle(struct node *n)
{
    bool committed = round_take_commit(&n->round), adopted;

    if (committed) {
        node_on_committed(n);
    }
    adopted = ballot_take_view(&n->ballot);
    if (adopted) {
        node_on_adopted(n);
    }
    return committed || adopted;
}

static void ask_for_change(struct node *n)
{
    const char *why = round_take_trouble(&n->round);

    if (why == NULL) {
        return;
    }
    if (n->ballot.have && n->ballot.want != BALLOT_WANT_CHANGE) {
        out_log(n->out, LOG_WARN, "round %llu: %s; asking for a new view",
                (unsigned long long)n->round.round, why);
    }
    node_timeline_trouble(n, why);
    ballot_want(&n->ballot, BALLOT_WANT_CHANGE, n->now);
}

/* Everything that follows from the state as it is now. A view adopted or a
 * commit made on the way starts the next turn; three turns always suffice for
 * one event, and what is left has a deadline. */
static void rounds_advance(struct node *n)
{
    bool again = true;

    for (int turn = 0; turn < 3 && again; turn++) {
        struct ballot_context c;
        struct members_lost lost;

        (void)settle(n);
        while (members_next_lost(&n->members, &lost)) {
            node_on_lost(n, &lost);
        }
        n->inner->choose(n);
        node_sync_advance(n);
        node_view_advance(n);
        n->inner->tick(n);
        node_judge_tick(n);
        node_audit_tick(n);
        node_work_tick(n);
        train_advance(n);
        round_tick(&n->round, n->now, n->out);
        ask_for_change(n);
        again = settle(n);
        if (!n->finished) {
            c = node_context(n);
            ballot_tick(&n->ballot, &c);
        }
        if (n->ballot.frozen) {
            round_freeze(&n->round, n->out);
        }
        again = settle(n) || again;
    }
    node_proof_advance(n);
}

static uint64_t rounds_deadline(const struct node *n)
{
    const uint64_t due[] = {
        n->finished ? CORE_NEVER : ballot_deadline(&n->ballot),
        round_deadline(&n->round),
        node_quorum_deadline(n),
        node_pipe_deadline(n),
        node_eval_deadline(n),
        node_judge_deadline(n),
        node_audit_deadline(n),
        node_work_deadline(n),
    };
    uint64_t first = CORE_NEVER;

    for (uint32_t i = 0; i < sizeof due / sizeof due[0]; i++) {
        first = due[i] < first ? due[i] : first;
    }
    return first;
}

static bool rounds_evaluates(const struct node *n, const struct node_point *p)
{
    const struct view_body *v = &n->ballot.cert.body;
    uint64_t every = n->terms.eval_every;

    return n->ballot.have && every != 0 &&
           (p->round % every == 0 || ends_at(n, p)) &&
           (p->round / every) % v->n_members == (uint64_t)n->ballot.self_index;
}

static bool rounds_busy(const struct node *n)
{
    return n->round.has_plan && n->round.in_plan &&
           n->round.phase != ROUND_COMMITTED;
}

static bool rounds_takes_part(const struct node *n)
{
    return n->ballot.have;
}

static uint32_t rounds_n_members(const struct node *n)
{
    return n->ballot.have ? n->ballot.cert.body.n_members : 0;
}

static enum node_state rounds_state(const struct node *n)
{
    uint32_t stage;

    if (!n->ballot.have) {
        return node_sees_view(n) ? NODE_JOINING : NODE_WAITING;
    }
    if (n->round.phase != ROUND_TRAINING || is_moving(n)) {
        return NODE_AVERAGING;
    }
    return node_pipe_wait(n, &stage) != NULL ? NODE_WAITING : NODE_TRAINING;
}

const struct regime regime_rounds = {
    .has_views = true,
    .advance = rounds_advance,
    .deadline = rounds_deadline,
    .trained = rounds_trained,
    .placed = rounds_placed,
    .applied = rounds_applied,
    .loaded = rounds_loaded,
    .target = rounds_target,
    .name_state = node_sync_name_state,
    .may_have = node_sync_is_past,
    .evaluates = rounds_evaluates,
    .busy = rounds_busy,
    .takes_part = rounds_takes_part,
    .n_members = rounds_n_members,
    .state = rounds_state,
};
