/* node_round.c - training, commits, evaluation, and the end of a run.
 *
 * TRAIN(period) -> TRAINED -> round_contribute .. committed -> APPLY ->
 * APPLIED -> next. A peer that was late finds the round committed without it:
 * it fetches the reduced bytes, applies them under its live parameters
 * (rebase) and its contribution, still open, enters the next round.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "proto/base/log.h"

bool node_run_over(const struct node *n)
{
    return n->configured && n->loaded &&
           ((n->terms.stop_rounds > 0 &&
             n->applied.round >= n->terms.stop_rounds) ||
            (n->terms.stop_tokens > 0 &&
             n->applied.tokens >= n->terms.stop_tokens));
}

const struct hash32 *node_base(const struct node *n)
{
    bool here = node_point_eq(&n->known, &n->applied) && !n->applying;

    return here && !node_run_over(n) && node_lease_known(n) ? &n->state_hash
                                                            : NULL;
}

/* Offer it no more. Its tokens are counted by whom it is lost to: the event
 * that says which state came in its place. */
void node_forget_contribution(struct node *n)
{
    n->packed = n->task.waits = false;
    round_contribution_clear(&n->round);
}

static void note_commit(struct node *n)
{
    const struct round *r = &n->round;
    const struct plan_body *p = &r->last.plan.body;
    struct node_commit *c = &n->last_commit;

    memset(c, 0, sizeof *c);
    c->round = p->round;
    c->epoch = p->epoch;
    c->plan_hash = r->plan_hash;
    c->result_hash = r->last.result;
    c->kind = round_kind(&r->terms, p);
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
    n->has_commit = true;
    n->round_ms = n->commit_ms != 0 ? n->now - n->commit_ms : 0;
    n->commit_ms = n->now;
}

/* Weight of the open contribution in a mean that has some of it. */
static double own_share(const struct node *n, const struct plan_body *p)
{
    uint64_t all = plan_tokens(p);

    return all > n->round.mine.tokens && n->round.mine.tokens > 0
               ? (double)n->round.mine.tokens / (double)all
               : 1.0;
}

static void count_arrivals(const struct plan_body *p, struct action *a)
{
    for (uint32_t k = 0; k < p->n_members; k++) {
        a->arrivals += p->members[k].tokens > 0;
        a->members++;
    }
}

/* Start APPLY of the commit in `target` (or, from the ring, `known`). */
void node_apply(struct node *n, enum buffer_kind buffer, enum node_spent spent)
{
    struct action *a = out_add(n->out, ACTION_APPLY);
    const struct plan_body *plan =
        buffer == BUFFER_RING ? &n->round.last.plan.body : &n->delta.plan.body;

    if (a == NULL) {
        return;
    }
    n->target_result = n->expect;
    if (buffer == BUFFER_RING) {
        n->target = n->known;
        n->target_result = n->round.last.result;
    }
    if (node_quorum_idle(n)) {
        /* A gradient under way is of the parameters before. */
        spent = n->terms.fleeting ? SPENT_PARTLY : SPENT_NOT;
        node_quorum_withdraw(n);
    }
    n->target_spent = spent;
    count_arrivals(plan, a);
    a->round = n->target.round;
    a->buffer = buffer;
    a->rebase = spent == SPENT_NOT;
    a->share = a->rebase ? 0.0 : own_share(n, plan);
    n->rebase = a->rebase;
    n->applying = true;
    n->sync = SYNC_LOAD;
}

void node_on_committed(struct node *n)
{
    struct round *r = &n->round;
    const struct plan_body *p = &r->last.plan.body;

    if (p->round != n->known.round + 1) {
        return; /* the view that decided it said so before */
    }
    n->known.round = p->round;
    n->known.commit = r->last_hash;
    n->known.tokens = p->tokens_before + plan_tokens(p);
    history_add(&n->history, &r->last);
    node_joiners_follow(n, &p->base);
    note_commit(n);
    node_timeline_committed(n);
    out_log(n->out, LOG_INFO,
            "round %llu committed: %u of %u peers, %llu tokens",
            (unsigned long long)p->round, p->n_members,
            n->ballot.cert.body.n_members,
            (unsigned long long)(n->known.tokens - p->tokens_before));
    node_sync_reset(n);
    if (r->in_plan) {
        n->n_committed++;
        node_apply(n, BUFFER_RING, SPENT_WHOLLY);
    }
    round_begin(r, n->known.round + 1, &n->known.commit, NULL, n->known.tokens,
                n->now, n->out);
}

static bool our_turn_to_evaluate(const struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;
    uint64_t every = n->terms.eval_every;

    if (n->terms.pairs) {
        return node_pair_evaluates(n);
    }
    if (terms_staged(&n->terms)) {
        return false; /* node_eval.c: no host has all of the model */
    }
    if (!n->ballot.have || every == 0 ||
        (n->applied.round % every != 0 && !node_run_over(n))) {
        return false;
    }
    return (n->applied.round / every) % v->n_members ==
           (uint64_t)n->ballot.self_index;
}

static void evaluate(struct node *n)
{
    if (!n->evaluating && !n->draining && our_turn_to_evaluate(n)) {
        n->evaluating = true;
        n->eval_point = n->applied;
        node_local_action(n, ACTION_EVAL, n->applied.round);
    }
}

void node_evaluate(struct node *n)
{
    evaluate(n);
}

/* The state in place has changed; if it is the newest we know of, the next
 * attempt starts from it. */
void node_in_step(struct node *n)
{
    if (n->known.round <= n->applied.round || !n->ballot.have) {
        n->known = n->applied;
        if (n->ballot.have) {
            round_begin(&n->round, n->known.round + 1, &n->known.commit,
                        node_base(n), n->known.tokens, n->now, n->out);
        }
    }
}

void node_step_taken(struct node *n)
{
    evaluate(n);
    node_local_action(n, ACTION_CHECKPOINT, n->applied.round);
    if (n->opt.rounds > 0 && n->applied.round >= n->opt.rounds &&
        !n->draining) {
        n->draining = true;
        n->drain_ms = n->now;
    }
}

/* What was done after the packing is in no commit, unless the method overlaps
 * and keeps it: then it is of the next contribution. */
static uint64_t next_first_step(const struct node *n,
                                const struct local_event *e)
{
    bool kept = n->round.contributed && e->tokens <= n->round.mine.tokens;

    return kept ? n->round.mine.last_step : n->inner_step;
}

void node_on_applied(struct node *n, const struct local_event *e)
{
    n->applying = false;
    n->sync = SYNC_IDLE;
    if (n->terms.pairs) {
        node_pair_applied(n, e);
        return;
    }
    if (e->rc != 0) {
        n->reason = "cannot apply a committed round";
        n->delta_failed = true;
        return;
    }
    if (n->target_spent == SPENT_WHOLLY) {
        if (e->tokens > n->round.mine.tokens) {
            n->tokens_dropped += e->tokens - n->round.mine.tokens;
        }
        n->first_step = next_first_step(n, e);
        node_forget_contribution(n);
    } else if (n->target_spent == SPENT_PARTLY) {
        n->tokens_dropped += e->tokens;
        n->first_step = next_first_step(n, e);
        node_forget_contribution(n);
    } else if (terms_staged(&n->terms)) {
        node_forget_contribution(n); /* packed again after the next steps */
    }
    n->applied = n->target;
    node_lease_find(n);
    timeline_applied(&n->timeline, n->applied.round, n->now);
    n->delta_failed = false;
    n->params_hash = e->params_hash;
    n->momentum_hash = e->momentum_hash;
    n->state_hash = node_state_hash(&e->params_hash, &e->momentum_hash);
    node_note_state(n, &n->target_result);
    node_in_step(n);
    node_step_taken(n);
}

/* A pause in the middle of a task only makes it shorter. */
static void note_steps(struct node *n)
{
    uint32_t steps = n->train_steps > 0 ? n->train_steps : 1;
    uint64_t step_ms = (n->now - n->train_since_ms + steps - 1) / steps;

    if (step_ms > n->train_step_ms) {
        n->train_step_ms = step_ms;
    }
}

void node_on_trained(struct node *n, const struct local_event *e)
{
    uint64_t tokens = e->tokens;

    if (!n->training) {
        return; /* not asked for */
    }
    n->training = n->hangs = false;
    note_steps(n);
    n->inner_step = e->inner_step;
    if (e->rc != 0 || e->tokens > ROUND_TOKENS_MAX) {
        n->reason = "the trainer failed";
        return;
    }
    if (n->terms.pairs) {
        node_pair_trained(n, e);
        return;
    }
    if (terms_owned(&n->terms)) {
        node_owners_trained(n, e);
        return;
    }
    if (terms_staged(&n->terms)) {
        if (n->pack_round != n->known.round + 1) {
            return; /* that round is over: it stays open, for the next one */
        }
        if (tokens == 0) {
            tokens = 1; /* a round of no weight at all is none */
        }
    }
    n->packed = true;
    if (node_quorum_defer(n, e)) {
        return;
    }
    round_contribute(&n->round,
                     &(struct round_work){.tokens = tokens,
                                          .first_step = n->first_step,
                                          .last_step = n->inner_step,
                                          .lease = n->lease},
                     n->now, n->out);
}

void node_on_evaluated_own(struct node *n, const struct local_event *e)
{
    struct evaluated msg = {0};

    n->evaluating = false;
    if (e->rc != 0 || !(e->bits_per_byte >= 0 && e->bits_per_byte < 1e6)) {
        return;
    }
    msg.body.commit = n->eval_point.commit;
    msg.body.round = n->eval_point.round;
    msg.body.microbits = (uint64_t)(e->bits_per_byte * 1e6);
    node_on_evaluated(n, MEMBERS_NONE, &msg);
    if (message_sign(&n->opt.signer, &evaluated_body_schema, &msg.body,
                     msg.sig) == 0) {
        members_tell_all(&n->members, n->out, MESSAGE_EVALUATED, &msg);
    }
}

void node_on_evaluated(struct node *n, int peer, const struct evaluated *m)
{
    if (peer != MEMBERS_NONE &&
        !message_verify(&n->opt.signer, n->members.peers[peer].public_key,
                        &evaluated_body_schema, &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    if (n->ballot.have && m->body.round > node_known_round(n) + 1) {
        return; /* no such round yet */
    }
    if (m->body.round == 0) {
        n->bits_before = (double)m->body.microbits / 1e6;
        n->has_before = true;
    }
    if (!n->has_bits || m->body.round >= n->bits_round) {
        n->bits = (double)m->body.microbits / 1e6;
        n->bits_round = m->body.round;
        n->has_bits = true;
    }
}

/* In a view of two neither can make a round without the other; in larger ones
 * the others go on after the grace. So whose trainer takes so much longer for a
 * step than it ever did that it must hang, while the other waits, leaves by
 * itself. What the first task of a process may take nobody knows. */
static bool hangs_alone(const struct node *n)
{
    uint64_t limit_ms = n->terms.grace_ms +
                        (uint64_t)UNPOSTED_MS * n->opt.time_scale +
                        8 * n->train_step_ms * n->train_steps;

    return n->training && n->train_step_ms > 0 && n->ballot.have &&
           !terms_staged(&n->terms) && !n->terms.pairs &&
           !terms_owned(&n->terms) && !n->paused &&
           n->ballot.cert.body.n_members == 2 &&
           (n->round.ready & ~(1ULL << n->ballot.self_index)) != 0 &&
           n->now - n->train_since_ms >= limit_ms;
}

void node_round_advance(struct node *n)
{
    struct action *a;
    uint32_t steps;

    if (n->stopped) {
        return;
    }
    if (hangs_alone(n)) {
        n->hangs = true;
        node_leave_view(n, "this machine does not answer; back when it does");
    }
    node_quorum_advance(n);
    n->finished = node_run_over(n) && !n->draining;
    if (n->finished || n->draining || n->paused || !n->ballot.have ||
        n->applying || n->training || n->packed || !n->loaded ||
        !node_point_eq(&n->applied, &n->known) || !node_lease_known(n)) {
        return;
    }
    if (!n->has_before && n->applied.round == 0) {
        evaluate(n);
    }
    if (terms_staged(&n->terms)) {
        node_pipe_advance(n);
        return;
    }
    steps = n->terms.quorum ? node_quorum_steps(n)
                            : terms_steps(&n->terms, n->applied.round + 1);
    if (!node_text_allows(n, &steps)) {
        return;
    }
    a = out_add(n->out, ACTION_TRAIN);
    if (a != NULL) {
        a->round = n->applied.round + 1;
        a->steps = steps;
        a->members = n->ballot.cert.body.n_members;
        a->rank = (uint32_t)n->ballot.self_index;
        node_lease_name(n, a);
        n->training = true;
        n->train_since_ms = n->now;
        n->train_steps = steps;
    }
}
