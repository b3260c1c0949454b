/* judge.c - whether a commit made the model worse, and the way back.
 *
 * Where the run has sync.rollback, each member measures each new state
 * before it trains from it: the bits per byte of a few held-out windows, drawn
 * by the hash of the commit, so that nobody who contributed could know them. A
 * state is *bad* if the figure is no number, or more than sync.rollback above
 * the mean of those before. Who finds it bad contributes nothing: its READY
 * names the newest state that was good. Where a Byzantine quorum says the same
 * the next commit is a rollback (p2p/round/rollback.c), and each takes that
 * state from memory (the machine keeps the last two), or fetches it like a
 * newcomer. The inner optimizer begins anew: its moments may be the reason.
 *
 * The figures are not compared between peers: kernels differ, and anybody can
 * claim one. So two honest members may differ about a state at the bound. Who
 * is alone with its verdict is overruled: when the others commit without it, or
 * after a while, it takes the new level for its own and goes on. Nothing waits
 * for it but this peer.
 *
 * What it costs: EVAL_DRAWN tokens forward (train/replica/eval.h), a third of
 * what a step takes for as many. What it does not see: a loss that each round
 * makes a little worse than the mean forgets; a model that is bad at something
 * that the held-out text lacks; the last round of a run, after which there is
 * no other; and a state from disk: it is written before it is measured, and who
 * begins with it knows no figure of an earlier one. So where all members die in
 * that moment, they begin with the bad one.
 *
 * A trainer that fails with numbers that are none begins its task again from
 * the state in place, whatever sync.rollback says; JUDGE_TRIES times in a row,
 * then a person must look.
 */
#include "daemon/node/internal.h"

#include <stdio.h>

#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"

#define JUDGE_TRIES 3
#define MEAN_WEIGHT 0.25 /* of the newest figure */

bool node_judge_is_on(const struct node *n)
{
    return n->terms.rollback_microbits > 0 && n->inner->whole &&
           n->regime->has_views;
}

/* Never 0. */
static uint64_t draw_of(const struct node *n)
{
    uint64_t words[] = {hash32_u64(&n->held.applied.commit), 7};

    return rng_mix(words, 2) | 1;
}

static void stop_asking(struct node *n)
{
    n->judge.asks = false;
    node_forget_contribution(n);
    round_retract(&n->round);
}

/* The others went on: their level is ours. */
static void overruled(struct node *n)
{
    n->judge.has_good = false;
    n->judge.bits = 0;
    stop_asking(n);
}

void node_judge_look(struct node *n)
{
    struct node_judge *g = &n->judge;
    struct job *job;

    if (!node_judge_is_on(n) || !n->held.loaded) {
        return;
    }
    if (hash32_eq(&n->held.state_hash, &g->good.state)) {
        g->good.round = n->held.applied.round; /* it is back, as this round's */
        if (g->asks) {
            stop_asking(n);
        }
    } else if (g->asks) {
        overruled(n);
    }
    job = out_job(n->out, JOB_EVAL);
    if (job != NULL) {
        g->measuring = true;
        g->draw = draw_of(n);
        job->eval.round = n->held.applied.round;
        job->eval.draw = g->draw;
    }
}

static void ask(struct node *n)
{
    struct node_judge *g = &n->judge;
    const struct round_work work = {
        .first_step = n->training.first_step,
        .last_step = n->training.first_step,
        .asks_rollback = true,
        .rollback = g->good,
    };

    stop_asking(n); /* nor does older work go into a round now */
    g->asks = true;
    g->asks_ms = n->now;
    round_contribute(&n->round, &work, n->now, n->out);
}

static void found_bad(struct node *n, bool number, double bits)
{
    struct node_judge *g = &n->judge;
    bool earlier = g->has_good && g->good.round < n->held.applied.round;
    char now[32] = "is no number";

    if (number) {
        (void)snprintf(now, sizeof now, "is %.3f", bits);
    }
    out_log(n->out, LOG_WARN,
            "the model is worse after round %llu: its loss on drawn held-out "
            "text %s, %.3f bits per byte before; %s",
            (unsigned long long)n->held.applied.round, now, g->bits,
            earlier ? "asking the other members to go back"
                    : "no good state is known here to go back to");
    if (earlier) {
        ask(n);
    } else {
        g->has_good = false;
        g->bits = number ? bits : 0;
    }
}

static void found_good(struct node *n, double bits)
{
    struct node_judge *g = &n->judge;

    g->bits =
        g->bits == 0 ? bits : (1 - MEAN_WEIGHT) * g->bits + MEAN_WEIGHT * bits;
    g->has_good = true;
    g->good = (struct rollback){n->held.applied.round, n->held.state_hash};
}

bool node_judge_measured(struct node *n, const struct local_event *e)
{
    struct node_judge *g = &n->judge;
    double bits = e->evaluated.bits_per_byte;
    double most = g->bits + (double)n->terms.rollback_microbits / 1e6;
    bool number = e->rc == 0 && bits >= 0 && bits < 1e6;

    if (e->evaluated.draw == 0) {
        return false;
    }
    if (!g->measuring || e->evaluated.draw != g->draw) {
        return true; /* of a state before */
    }
    g->measuring = false;
    if (e->rc != 0 && e->rc != LOCO_ENUMERIC) {
        return true; /* it cannot be measured here */
    }
    if (!number || (g->bits > 0 && bits > most)) {
        found_bad(n, number, bits);
    } else {
        found_good(n, bits);
    }
    return true;
}

void node_judge_forget(struct node *n)
{
    n->judge = (struct node_judge){.n_rollback = n->judge.n_rollback};
}

bool node_judge_holds(const struct node *n)
{
    return n->judge.measuring || n->judge.asks;
}

/* Long enough for the slowest member to measure, and for two coordinators. */
static uint64_t patience_ms(const struct node *n)
{
    return 4ULL * n->terms.grace_ms +
           2ULL * (n->round.opt.plan_ms + n->round.opt.vote_ms);
}

void node_judge_tick(struct node *n)
{
    if (n->judge.asks && n->now >= n->judge.asks_ms + patience_ms(n)) {
        out_log(n->out, LOG_WARN,
                "round %llu stands: most members do not find it worse",
                (unsigned long long)n->held.applied.round);
        overruled(n);
    }
}

uint64_t node_judge_deadline(const struct node *n)
{
    return n->judge.asks ? n->judge.asks_ms + patience_ms(n) : CORE_NEVER;
}

/* The state `to` in memory becomes that of `target`. */
static void
load(struct node *n, const struct rollback *to, const struct node_point *target)
{
    struct job *job = out_job(n->out, JOB_LOAD);

    if (job == NULL) {
        return;
    }
    node_held_aim(&n->held, target);
    node_held_spend(&n->held, SPENT_NOT);
    job->load.round = target->round;
    job->load.from_kept = job->load.anew = true;
    job->load.kept_round = to->round;
    job->load.kept_name = hash32_u64(&to->state);
    n->judge.going_back = true;
    node_held_begin(&n->held, NULL);
    node_sync_loads(n);
}

void node_judge_back(struct node *n, const struct commit *c)
{
    const struct plan_body *p = &c->plan.body;
    struct node_point target = {.round = p->round, .tokens = p->tokens_before};

    message_commit_hash(p, &c->result, &target.commit);
    out_log(n->out, LOG_WARN,
            "round %llu takes back what came after round %llu: most members "
            "found the model worse",
            (unsigned long long)p->round,
            (unsigned long long)p->rollback[0].round);
    n->judge.n_rollback++;
    load(n, &p->rollback[0], &target);
}

bool node_judge_loaded(struct node *n, const struct local_event *e)
{
    bool was = n->judge.going_back;

    n->judge.going_back = false;
    if (was && e->rc != 0) {
        n->judge.fetches = true;
        node_sync_failed(n); /* somebody else has it */
    } else if (!was && e->rc == 0) {
        node_judge_forget(n); /* a state of others: maybe of another branch */
    }
    return was;
}

bool node_judge_again(struct node *n)
{
    struct rollback here = {n->held.applied.round, n->held.state_hash};
    struct node_point target = n->held.applied;

    if (!n->regime->has_views || !n->inner->whole ||
        n->judge.n_failed >= JUDGE_TRIES) {
        return false;
    }
    if (n->held.applying || n->sync.phase != SYNC_IDLE || n->regime->busy(n)) {
        return true; /* it fails once more when nothing else is under way */
    }
    n->judge.n_failed++;
    out_log(n->out, LOG_WARN,
            "training from the state of round %llu made numbers that are "
            "none; it begins again (%u of %u)",
            (unsigned long long)here.round, n->judge.n_failed, JUDGE_TRIES);
    load(n, &here, &target);
    return true;
}

void node_judge_trained(struct node *n)
{
    n->judge.n_failed = 0;
}
