/* pipe.c - the inner steps of a run whose model is cut into stages.
 *
 * Drives p2p/pipeline/pipeline.h, with the hosts of crew.c; pipe_actions.c does
 * what it wants. Where a run without stages says TRAIN, one with stages does
 * this:
 *
 *     all hosts hold the newest commit of their stage, of the same number
 *       -> pipeline_begin .. END -> TRAIN(0): pack what the steps made
 *       -> READY, a round of the stage's own group, as ever
 *
 * Who could not stay to the end (OUT) packs what it has when another of its
 * group does, and takes part in the round. A stage without hosts starves the
 * others: they wait, say why, and go on from the same step when one is there. A
 * stage that came back from an older state is behind: when another stage holds
 * a later commit it makes rounds of no steps until it is level.
 *
 * What can go wrong
 *   1. a host dies or is silent: pipeline_lost() when members.h says so;
 *   2. bytes do not get through though both live: pipeline_cut(), but not
 *      before the host could have been found dead;
 *   3. the own machine fails, or hangs: pipeline_leave(), the others do
 *      without us; while it hangs we are in no view either, or the rounds of
 *      our group would wait for what we cannot give; one that has no device
 *      left to work on stops with goodbye;
 *   4. what a host sends is no micro-batch (labels, codec): it is lost at once.
 */
#include "daemon/node/internal.h"

#define LIVES 65521U /* a restarted process enters other tokens */

/* ---- a round ------------------------------------------------------------ */

void node_pipe_configured(struct node *n)
{
    uint32_t attempt = n->pipe.core.attempt;
    struct pipeline_options po = {
        .self = n->opt.self,
        .seed = n->terms.pipe_seed,
        .stages = n->terms.stages,
        .micro_batches = n->terms.micro_batches,
        .steps = n->terms.period,
        .slots = n->terms.pipe_slots,
        /* Others may wait for who is late before they begin. */
        .gather_ms = n->t.dead_ms + n->t.redial_ms + n->terms.grace_ms,
        .resend_ms = 2 * n->t.heartbeat_ms,
        .stall_ms = n->terms.grace_ms + UNPOSTED_MS * n->opt.time_scale,
        .first_redraw =
            n->ballot.restored ? 1 + (uint32_t)(n->life % LIVES) : 0,
    };

    n->pipe.open = n->terms.cut_elements > 0 && n->terms.cut_segment > 0 &&
                   pipeline_init(&n->pipe.core, &po) == 0;
    n->pipe.core.attempt = attempt; /* these only grow */
    if (!n->pipe.open) {
        n->reason =
            "the run's stages, micro-batches or segments are inconsistent";
    }
}

/* Even nothing is a contribution (node_on_trained). */
static void pack(struct node *n)
{
    uint64_t round = n->held.applied.round + 1;

    if (node_training_begin(n, round, 0) != NULL) {
        n->pipe.pack_round = round;
    }
}

static void begin(struct node *n, struct node_crew *c)
{
    if (node_crew_rebalance(n, c)) {
        return;
    }
    node_crew_begins(n, c);
    for (uint32_t k = 0; k < c->n; k++) {
        int row = members_find(&n->members, &c->host[k].id);

        n->pipe.life[k] =
            row == MEMBERS_NONE ? n->life : n->members.peers[row].life;
        n->pipe.bad_ms[k] = 0;
    }
    n->pipe.bulk_ms = 0;
    n->pipe.core.opt.steps = terms_steps(&n->terms, n->held.applied.round + 1);
    if (pipeline_begin(&n->pipe.core, n->held.applied.round + 1, c->host, c->n,
                       n->now, &n->pipe.out) != 0) {
        n->reason = "more micro-batches in a step than one host can take: "
                    "lower inner.batch, or raise inner.micro_batch";
        return;
    }
    n->pipe.queue.sum = n->pipe.queue.now = n->pipe.busy_ms = 0;
    n->pipe.queue.ms = n->pipe.queue.at_ms = n->now;
    n->pipe.wait_ms = n->pipe.steps_over_ms = 0;
    n->pipe.idle_ms = n->now; /* starved at once: not again at once */
    node_pipe_execute(n);
}

/* Whether the steps of the next round are under way, and not starved. */
static bool is_under_way(const struct node *n)
{
    const struct pipeline *p = &n->pipe.core;

    return p->round == n->held.applied.round + 1 &&
           (p->state == PIPELINE_GATHER || p->state == PIPELINE_RUN ||
            p->state == PIPELINE_HELD || p->stepping);
}

static bool is_finished(const struct node *n)
{
    return n->pipe.core.round == n->held.applied.round + 1 &&
           !n->pipe.core.stepping && n->pipe.core.state == PIPELINE_FINISHED;
}

/* The queue of the round that is over is published with it. */
static void publish_queue(struct node *n)
{
    uint64_t ms = n->pipe.queue.at_ms - n->pipe.queue.ms;
    uint64_t mean = ms == 0 ? 0 : n->pipe.queue.sum * NODE_QUEUE_UNIT / ms;

    n->pipe.queue.mean = mean > UINT16_MAX ? UINT16_MAX : (uint32_t)mean;
    n->pipe.idle_permille =
        ms == 0 ? 0 : (uint32_t)(1000 - 1000 * n->pipe.busy_ms / ms);
}

/* Another member of our group offers its part: the steps are over for it. */
static bool others_are_ready(const struct node *n)
{
    return (n->round.ready & ~(1ULL << n->ballot.self_index)) != 0;
}

void node_pipe_advance(struct node *n)
{
    bool again = n->pipe.core.round == n->held.applied.round + 1;
    struct node_crew c;

    if (!n->pipe.open || is_under_way(n)) {
        n->pipe.idle_ms = n->now;
        return;
    }
    if (is_finished(n)) {
        if (n->pipe.steps_over_ms == 0) {
            publish_queue(n);
            node_crew_is_done(n);
            n->pipe.steps_over_ms = n->now;
        }
        if (!node_eval_holds(n, n->pipe.steps_over_ms)) {
            pack(n);
        }
        return;
    }
    node_crew_gather(n, &c);
    if (node_crew_behind(n, &c) || others_are_ready(n)) {
        pack(n);
        return;
    }
    if (c.level != node_all_stages(n) ||
        (again && n->now - n->pipe.idle_ms < n->pipe.core.opt.resend_ms)) {
        n->pipe.wait_ms = 0;
        return;
    }
    n->pipe.wait_ms = n->pipe.wait_ms == 0 ? n->now : n->pipe.wait_ms;
    if (!c.late || n->now - n->pipe.wait_ms >= n->terms.grace_ms) {
        begin(n, &c);
    }
}

void node_pipe_leave(struct node *n)
{
    if (n->pipe.open) {
        pipeline_leave(&n->pipe.core, &n->pipe.out);
        node_pipe_execute(n);
    }
}

const char *node_pipe_wait(const struct node *n, uint32_t *stage)
{
    struct node_crew c;

    if (!n->pipe.open || !n->ballot.have || is_under_way(n) ||
        n->training.active || n->training.packed || n->held.applying) {
        return NULL;
    }
    node_crew_gather(n, &c);
    for (uint32_t s = 0; s < n->terms.stages; s++) {
        *stage = s;
        if ((c.served >> s & 1) == 0) {
            return "has no host: waiting for a peer that holds it";
        }
        if ((c.level >> s & 1) == 0) {
            return "has not committed the last round yet";
        }
    }
    *stage = UINT32_MAX;
    return c.late ? "waiting for hosts that have not committed the last round"
                  : NULL;
}

/* ---- losses ------------------------------------------------------------- */

static bool is_gone(const struct node *n, uint32_t k)
{
    int row = node_pipe_row(n, k);
    const struct member *p =
        row == MEMBERS_NONE ? NULL : &n->members.peers[row];

    return p == NULL || p->life != n->pipe.life[k] || node_is_silent(n, p);
}

/* Its connection broke so long ago that it would be known to be dead. */
static bool is_cut(const struct node *n, uint32_t k)
{
    return n->pipe.bad_ms[k] != 0 &&
           n->now - n->pipe.bad_ms[k] >= n->t.dead_ms + n->t.redial_ms;
}

/* Data connections to the stages beside ours, again where one broke. */
static void keep_bulk(struct node *n)
{
    if (!is_under_way(n) || n->now < n->pipe.bulk_ms) {
        return;
    }
    n->pipe.bulk_ms = n->now + n->pipe.core.opt.resend_ms;
    for (uint32_t k = 0; k < n->pipe.core.n; k++) {
        uint32_t stage = n->pipe.core.host[k].stage;
        int row = node_pipe_row(n, k);

        if ((n->pipe.core.layout >> k & 1) != 0 && row != MEMBERS_NONE &&
            (stage == n->stages.own + 1 || stage + 1 == n->stages.own)) {
            members_bulk_open(&n->members, n->out, row);
        }
    }
}

/* Somebody else is in our view, and not known to be lost. */
static bool has_others(const struct node *n)
{
    const struct ballot *b = &n->ballot;
    uint64_t gone = b->lost | b->departed.mask;

    for (uint32_t i = 0; b->have && i < b->cert.body.n_members; i++) {
        if ((int)i != b->self_index && !(gone >> i & 1)) {
            return true;
        }
    }
    return false;
}

/* The own work takes too long: the view goes on without us, which of two
 * members neither could do against the other. */
static void step_aside(struct node *n)
{
    node_training_hang(n, true);
    if (has_others(n)) {
        node_leave_view(n, "local trainer not responding");
    }
}

void node_pipe_tick(struct node *n)
{
    bool hangs;

    if (!n->pipe.open) {
        return;
    }
    keep_bulk(n);
    node_pipe_name_rest(n);
    for (uint32_t k = 0; k < n->pipe.core.n && is_under_way(n); k++) {
        const struct peer_id id = n->pipe.core.host[k].id;

        if (k == n->pipe.core.self || (n->pipe.core.layout >> k & 1) == 0) {
            continue;
        }
        if (is_gone(n, k)) {
            node_pipe_drop(n, k, "is gone; the step runs again without it");
        } else if (is_cut(n, k)) {
            pipeline_cut(&n->pipe.core, &id, n->now, &n->pipe.out);
            node_pipe_execute(n);
        }
    }
    hangs = pipeline_hangs(&n->pipe.core, n->now);
    pipeline_tick(&n->pipe.core, n->now, &n->pipe.out);
    node_pipe_execute(n);
    if (hangs) {
        step_aside(n);
    }
}

uint64_t node_pipe_deadline(const struct node *n)
{
    if (!n->pipe.open) {
        return CORE_NEVER;
    }
    return n->pipe.unnamed ? n->now : pipeline_deadline(&n->pipe.core);
}
