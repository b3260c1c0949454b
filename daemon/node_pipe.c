/* node_pipe.c - the inner steps of a run whose model is cut into stages.
 *
 * Drives p2p/pipeline.h: whom it runs with, its messages over our links, its
 * moves as segments (STREAM_PIPE), its work as ACTION_PIPE. Where a run without
 * stages says TRAIN, one with stages does this:
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
 * Once in a while, between two rounds, a host moves to the stage that has most
 * work waiting (route_moves()): all see the same heartbeats of the same round,
 * so all agree who.
 *
 * What can go wrong
 *   1. a host dies or is silent: pipeline_lost() when members.h says so;
 *   2. bytes do not get through though both live: pipeline_cut(), but not
 *      before the host could have been found dead;
 *   3. the own machine fails, or hangs: pipeline_leave(), the others do
 *      without us; while it hangs we are in no view either, or the rounds of
 *      our group would wait for what we cannot give;
 *   4. what a host sends is no micro-batch (labels, codec): it is lost at once.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"

#define REBALANCE_ROUNDS 8 /* a host moves after every so many, at most */
#define NOBODY           UINT32_MAX
#define LIVES            65521U /* a restarted process enters other tokens */

static void execute(struct node *n);

/* ---- hosts -------------------------------------------------------------- */

static bool takes_part(const struct member *p)
{
    return p->beat.has_view && p->beat.state != NODE_PAUSED &&
           p->beat.state != NODE_DRAINING && p->beat.state != NODE_FINISHED;
}

static bool is_level(const struct node *n, const struct member *p)
{
    return p->beat.ready && p->beat.round == n->applied.round;
}

/* Would be left out of the steps at once, or is: who is counted before a round
 * must be one that is not, or rounds begin and end with every message. */
static bool is_silent(const struct node *n, const struct member *p)
{
    return p->lost || p->state >= PEER_DEAD ||
           (p->n_links == 0 && n->now - p->down_ms >= n->t.redial_ms) ||
           n->now - p->heard_ms >= n->t.dead_ms;
}

/* Of a stage, linked, and in a view of it. */
static bool is_host(const struct node *n, int row)
{
    const struct member *p = &n->members.peers[row];

    return p->used && p->has_beat && !is_silent(n, p) && p->beat.stage > 0 &&
           p->beat.stage <= n->terms.stages && members_linked(&n->members, row);
}

/* Takes part, as far as rumours and the first heartbeats say; or `soon` will.
 */
static bool is_expected(const struct member *p, bool soon)
{
    bool here = p->used && p->confirmed && !p->lost && p->state <= PEER_SUSPECT;

    return here && p->info.stage != 0 &&
           ((p->info.features & PEER_IN_VIEW) != 0 || soon);
}

/* What is seen of the swarm before a round. */
struct crew {
    struct pipeline_host host[PIPELINE_HOSTS_MAX]; /* by id; those who are
                                                      level with us */
    uint32_t queue[PIPELINE_HOSTS_MAX];
    uint32_t n;
    bool late;              /* somebody is not level yet */
    uint64_t ahead;         /* bit s: stage s holds a later commit */
    uint64_t served, level; /* bit s: it has hosts; that are level */
};

static void crew_add(struct crew *c,
                     const struct peer_id *id,
                     uint32_t stage,
                     uint32_t queue)
{
    uint32_t at = c->n;

    if (c->n == PIPELINE_HOSTS_MAX) {
        return;
    }
    while (at > 0 && id_cmp(&c->host[at - 1].id, id) > 0) {
        c->host[at] = c->host[at - 1];
        c->queue[at] = c->queue[at - 1];
        at--;
    }
    c->host[at] = (struct pipeline_host){.id = *id, .stage = stage};
    c->queue[at] = queue;
    c->n++;
    c->level |= 1ULL << stage;
}

/* Stages of which more than half of the hosts name a later round than ours: one
 * of them could say anything. */
static void note_ahead(const struct node *n, struct crew *c)
{
    uint32_t here[ROUTE_STAGES_MAX] = {0}, later[ROUTE_STAGES_MAX] = {0};

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct heartbeat *b = &n->members.peers[i].beat;

        if (is_host(n, (int)i) && b->has_view) {
            here[b->stage - 1]++;
            later[b->stage - 1] += b->round > n->applied.round;
        }
    }
    for (uint32_t s = 0; s < n->terms.stages; s++) {
        c->ahead |= (uint64_t)(2 * later[s] > here[s]) << s;
    }
}

static void muster(const struct node *n, struct crew *c)
{
    memset(c, 0, sizeof *c);
    crew_add(c, &n->opt.self, n->stage, n->queue);
    c->served |= 1ULL << n->stage;
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];
        uint32_t stage;

        if (!is_host(n, (int)i) || !takes_part(p)) {
            c->late =
                c->late || (is_expected(p, n->applied.round == 0) &&
                            (!p->has_beat || p->beat.state < NODE_PAUSED));
            continue;
        }
        stage = p->beat.stage - 1U;
        c->served |= 1ULL << stage;
        if (is_level(n, p)) {
            crew_add(c, &p->id, stage, p->beat.queue);
        } else {
            c->late = true;
        }
    }
    note_ahead(n, c);
}

static uint64_t all_stages(const struct node *n)
{
    return n->terms.stages == 64 ? UINT64_MAX : (1ULL << n->terms.stages) - 1;
}

/* Another stage has committed this round: its steps are over. */
static bool is_behind(const struct node *n, const struct crew *c)
{
    return (c->ahead & ~(1ULL << n->stage)) != 0;
}

/* ---- moving ------------------------------------------------------------- */

/* Somebody is on its way to a stage: who sees it gone from its old one has
 * another table than it had. */
static bool somebody_moves(const struct node *n)
{
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (is_expected(p, true) && p->has_beat && !p->beat.has_view) {
            return true;
        }
    }
    return false;
}

/* Who goes to another stage before this round; NOBODY. It is worth it where a
 * host of the other stage has twice the work of one of this, and half a
 * micro-batch more. */
static uint32_t mover(const struct node *n, const struct crew *c, uint32_t *to)
{
    struct route_queue q[PIPELINE_HOSTS_MAX];
    uint64_t work[ROUTE_STAGES_MAX] = {0}, hosts[ROUTE_STAGES_MAX] = {0};
    uint32_t who, from;

    for (uint32_t k = 0; k < c->n; k++) {
        q[k].stage = c->host[k].stage;
        q[k].waiting = c->queue[k];
        work[q[k].stage] += q[k].waiting;
        hosts[q[k].stage]++;
    }
    who = route_moves(q, c->n, n->terms.stages, to);
    if (who == ROUTE_NONE) {
        return NOBODY;
    }
    from = q[who].stage;
    return work[*to] / hosts[*to] >=
                   2 * work[from] / hosts[from] + NODE_QUEUE_UNIT / 2
               ? who
               : NOBODY;
}

/* True: it is us, and we go. */
static bool rebalance(struct node *n, struct crew *c)
{
    uint32_t to = 0, who;

    if (n->applied.round == 0 || n->applied.round % REBALANCE_ROUNDS != 0 ||
        n->balanced_round == n->applied.round || c->level != all_stages(n)) {
        return false;
    }
    n->balanced_round = n->applied.round; /* once */
    who = somebody_moves(n) ? NOBODY : mover(n, c, &to);
    if (who == NOBODY) {
        return false;
    }
    if (id_eq(&c->host[who].id, &n->opt.self)) {
        if ((n->terms.stage_fits >> to & 1) == 0) {
            return false;
        }
        node_stage_move(n, to);
        return true;
    }
    c->n--;
    memmove(c->host + who, c->host + who + 1, (c->n - who) * sizeof c->host[0]);
    return false;
}

/* ---- a round ------------------------------------------------------------ */

void node_pipe_configured(struct node *n)
{
    uint32_t attempt = n->pipe.attempt;
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

    n->pipe_open = n->terms.cut_elements > 0 && n->terms.cut_segment > 0 &&
                   pipeline_init(&n->pipe, &po) == 0;
    n->pipe.attempt = attempt; /* these only grow */
    if (!n->pipe_open) {
        n->reason = "the run's stages, micro-batches or segments make no sense";
    }
}

/* Even nothing is a contribution (node_on_trained). */
static void pack(struct node *n)
{
    struct action *a = out_add(n->out, ACTION_TRAIN);

    if (a != NULL) {
        a->round = n->applied.round + 1;
        a->steps = 0;
        n->training = true;
        n->pack_round = a->round;
    }
}

static void begin(struct node *n, struct crew *c)
{
    if (rebalance(n, c)) {
        return;
    }
    for (uint32_t k = 0; k < c->n; k++) {
        int row = members_find(&n->members, &c->host[k].id);

        n->pipe_life[k] =
            row == MEMBERS_NONE ? n->life : n->members.peers[row].life;
        n->pipe_bad_ms[k] = 0;
    }
    n->pipe_bulk_ms = 0;
    n->pipe.opt.steps = terms_steps(&n->terms, n->applied.round + 1);
    n->pipe_out.n = 0;
    if (pipeline_begin(&n->pipe, n->applied.round + 1, c->host, c->n, n->now,
                       &n->pipe_out) != 0) {
        n->reason = "more micro-batches in a step than one host can take: "
                    "lower inner.batch, or raise inner.micro_batch";
        return;
    }
    n->queue_sum = n->queue_now = n->busy_ms = 0;
    n->queue_ms = n->queue_at_ms = n->now;
    n->pipe_wait_ms = n->steps_over_ms = 0;
    n->pipe_idle_ms = n->now; /* starved at once: not again at once */
    execute(n);
}

/* Whether the steps of the next round are under way, and not starved. */
static bool is_under_way(const struct node *n)
{
    const struct pipeline *p = &n->pipe;

    return p->round == n->applied.round + 1 &&
           (p->state == PIPELINE_GATHER || p->state == PIPELINE_RUN ||
            p->state == PIPELINE_HELD || p->stepping);
}

static bool is_finished(const struct node *n)
{
    return n->pipe.round == n->applied.round + 1 && !n->pipe.stepping &&
           n->pipe.state == PIPELINE_FINISHED;
}

/* The queue of the round that is over is published with it. */
static void publish_queue(struct node *n)
{
    uint64_t ms = n->queue_at_ms - n->queue_ms;
    uint64_t mean = ms == 0 ? 0 : n->queue_sum * NODE_QUEUE_UNIT / ms;

    n->queue = mean > UINT16_MAX ? UINT16_MAX : (uint32_t)mean;
    n->idle_permille = ms == 0 ? 0 : (uint32_t)(1000 - 1000 * n->busy_ms / ms);
}

/* Another member of our group offers its part: the steps are over for it. */
static bool others_are_ready(const struct node *n)
{
    return (n->round.ready & ~(1ULL << n->ballot.self_index)) != 0;
}

void node_pipe_advance(struct node *n)
{
    bool again = n->pipe.round == n->applied.round + 1;
    struct crew c;

    if (!n->pipe_open || is_under_way(n)) {
        n->pipe_idle_ms = n->now;
        return;
    }
    if (is_finished(n)) {
        if (n->steps_over_ms == 0) {
            publish_queue(n);
            n->steps_over_ms = n->now;
        }
        if (!node_eval_holds(n, n->steps_over_ms)) {
            pack(n);
        }
        return;
    }
    muster(n, &c);
    if (is_behind(n, &c) || others_are_ready(n)) {
        pack(n);
        return;
    }
    if (c.level != all_stages(n) ||
        (again && n->now - n->pipe_idle_ms < n->pipe.opt.resend_ms)) {
        n->pipe_wait_ms = 0;
        return;
    }
    n->pipe_wait_ms = n->pipe_wait_ms == 0 ? n->now : n->pipe_wait_ms;
    if (!c.late || n->now - n->pipe_wait_ms >= n->terms.grace_ms) {
        begin(n, &c);
    }
}

void node_pipe_leave(struct node *n)
{
    if (n->pipe_open) {
        n->pipe_out.n = 0;
        pipeline_leave(&n->pipe, &n->pipe_out);
        execute(n);
    }
}

bool node_pipe_runs(const struct node *n)
{
    return n->pipe_open && is_under_way(n);
}

const char *node_pipe_wait(const struct node *n, uint32_t *stage)
{
    struct crew c;

    if (!n->pipe_open || !n->ballot.have || is_under_way(n) || n->training ||
        n->packed || n->applying) {
        return NULL;
    }
    muster(n, &c);
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

/* ---- what the pipeline wants -------------------------------------------- */

static int row_of(const struct node *n, uint32_t host)
{
    return members_find(&n->members, &n->pipe.host[host].id);
}

static void
say(struct node *n, uint64_t hosts, enum message_type type, const void *msg)
{
    for (uint32_t k = 0; k < n->pipe.n; k++) {
        int row = hosts >> k & 1 ? row_of(n, k) : MEMBERS_NONE;

        if (row != MEMBERS_NONE) {
            (void)members_send(&n->members, n->out, row, type, msg);
        }
    }
}

static void say_hello(struct node *n, const struct pipeline_action *a)
{
    struct pipeline_hello h;
    struct stage_hello msg = {0};

    pipeline_hello_of(&n->pipe, a, &h);
    msg.round = h.round;
    msg.step = h.step;
    msg.attempt = h.attempt;
    msg.cost_us = h.cost_us;
    for (uint32_t k = 0; k < h.n; k++) {
        msg.hosts[k].id = h.hosts[k].id;
        msg.hosts[k].stage = (uint16_t)h.hosts[k].stage;
    }
    msg.n_hosts = h.n;
    say(n, a->hosts | a->gone, MESSAGE_STAGE_HELLO, &msg);
}

static void say_ready(struct node *n, const struct pipeline_action *a)
{
    struct stage_ready msg = {
        .round = n->pipe.round,
        .step = pipeline_tag_step(a->tag),
        .attempt = pipeline_tag_attempt(a->tag),
    };

    say(n, a->hosts, MESSAGE_STAGE_READY, &msg);
}

static void say_take(struct node *n, const struct pipeline_action *a)
{
    struct stage_take msg = {
        .round = n->pipe.round,
        .step = pipeline_tag_step(a->tag),
        .attempt = pipeline_tag_attempt(a->tag),
        .micro = a->micro,
    };

    say(n, a->hosts, MESSAGE_STAGE_TAKE, &msg);
}

uint32_t node_cut_pieces(const struct node *n)
{
    return (n->terms.cut_elements + n->terms.cut_segment - 1) /
           n->terms.cut_segment;
}

static bool is_back(enum pipeline_action_type type)
{
    return type == PIPELINE_TAKE_BACK || type == PIPELINE_GIVE_BACK;
}

static bool is_given(enum pipeline_action_type type)
{
    return type == PIPELINE_GIVE || type == PIPELINE_GIVE_BACK;
}

/* What is left for the rest of a step when segments fill it. */
#define OUT_RESERVE (CORE_OUT_MAX / 4)

bool node_has_room(const struct node *n)
{
    return n->out->n + OUT_RESERVE < CORE_OUT_MAX;
}

/* Segment i of a move. They are numbered so that the two directions of one
 * micro-batch differ. */
static void
name_segment(struct node *n, const struct node_pipe_move *m, uint32_t i)
{
    struct action *s =
        out_add(n->out, is_given(m->type) ? ACTION_SEND_SEG : ACTION_POST_RECV);
    uint32_t at = i * n->terms.cut_segment;
    uint32_t rest = n->terms.cut_elements - at;
    bool back = is_back(m->type);

    if (s == NULL) {
        return; /* cannot be: node_has_room() */
    }
    s->segment = (struct segment){
        .peer = n->pipe.host[m->host].id,
        .attempt = m->tag,
        .stream = STREAM_PIPE,
        .seg = (m->micro * 2 + back) * node_cut_pieces(n) + i,
        .buffer = back ? BUFFER_BACK : BUFFER_FORTH,
        .index = m->micro,
        .offset = at,
        .len = rest < n->terms.cut_segment ? rest : n->terms.cut_segment,
        .op = SEGMENT_COPY,
        .slot = (uint8_t)m->slot,
    };
}

/* True: all its segments are named. Else there is no room for the rest in this
 * `out`; the next one has it (node_pipe_tick). */
static bool name_segments(struct node *n, struct node_pipe_move *m)
{
    uint32_t count = node_cut_pieces(n);

    while (m->named < count && node_has_room(n)) {
        name_segment(n, m, m->named++);
    }
    return m->named == count;
}

/* One micro-batch to or from another host. */
static void move(struct node *n, const struct pipeline_action *a)
{
    struct node_pipe_move *m = NULL;

    for (uint32_t i = 0; i < NODE_PIPE_MOVES; i++) {
        m = !n->pipe_moves[i].used ? &n->pipe_moves[i] : m;
    }
    if (m == NULL) {
        return; /* cannot be: four for each slot */
    }
    *m = (struct node_pipe_move){.used = true,
                                 .type = a->type,
                                 .tag = a->tag,
                                 .micro = a->micro,
                                 .host = a->host,
                                 .slot = a->slot,
                                 .left = node_cut_pieces(n)};
    n->pipe_unnamed = !name_segments(n, m) || n->pipe_unnamed;
}

static void name_the_rest(struct node *n)
{
    n->pipe_unnamed = false;
    for (uint32_t i = 0; i < NODE_PIPE_MOVES; i++) {
        struct node_pipe_move *m = &n->pipe_moves[i];

        n->pipe_unnamed = (m->used && !name_segments(n, m)) || n->pipe_unnamed;
    }
}

static void cancel(struct node *n, uint64_t tag)
{
    struct action *a = out_add(n->out, ACTION_CANCEL);

    if (a != NULL) {
        a->stream = STREAM_PIPE;
        a->attempt = tag;
    }
    memset(n->pipe_moves, 0, sizeof n->pipe_moves);
    n->pipe_unnamed = false;
    /* What did not get through may do so in the next attempt. */
    memset(n->pipe_bad_ms, 0, sizeof n->pipe_bad_ms);
    n->pipe_void = tag;
}

static void
work(struct node *n, const struct pipeline_action *p, enum pipe_op op)
{
    struct action *a = out_add(n->out, ACTION_PIPE);

    if (a != NULL) {
        a->op = op;
        /* A sum that was held is cleared in the attempt after its own. */
        a->attempt = op == PIPE_CLEAR ? n->pipe_void : p->tag;
        a->index = p->micro;
        a->slot = p->slot;
        a->round = n->pipe.round;
        a->steps = pipeline_tag_step(p->tag);
        a->count = op == PIPE_STEP ? p->count : p->draw;
    }
}

static void execute_one(struct node *n, const struct pipeline_action *a)
{
    switch (a->type) {
    case PIPELINE_SAY_HELLO:
        say_hello(n, a);
        return;
    case PIPELINE_SAY_READY:
        say_ready(n, a);
        return;
    case PIPELINE_SAY_TAKE:
        say_take(n, a);
        return;
    case PIPELINE_CANCEL:
        cancel(n, a->tag);
        return;
    case PIPELINE_CLEAR:
        work(n, a, PIPE_CLEAR);
        return;
    case PIPELINE_TAKE:
    case PIPELINE_TAKE_BACK:
    case PIPELINE_GIVE:
    case PIPELINE_GIVE_BACK:
        move(n, a);
        return;
    case PIPELINE_FORWARD:
        work(n, a, PIPE_FORWARD);
        return;
    case PIPELINE_SCORE:
        work(n, a, PIPE_SCORE);
        return;
    case PIPELINE_BACKWARD:
        work(n, a, PIPE_BACKWARD);
        return;
    case PIPELINE_STEP:
        work(n, a, PIPE_STEP);
        return;
    case PIPELINE_END: /* seen by is_finished() */
    case PIPELINE_ACTION_COUNT:
        return;
    }
}

/* Micro-batches that wait for this machine or are computed by it: a mean over
 * the time. */
static void weigh_queue(struct node *n)
{
    const struct pipeline *p = &n->pipe;

    n->queue_sum += n->queue_now * (n->now - n->queue_at_ms);
    n->busy_ms += n->busy ? n->now - n->queue_at_ms : 0;
    n->busy = p->computing || p->stepping;
    n->queue_at_ms = n->now;
    n->queue_now = 0;
    for (uint32_t i = p->first_undone; i < p->n_placed && i < p->n_micro; i++) {
        uint8_t state = p->micro[i].state;

        n->queue_now += state == MICRO_HERE || state == MICRO_FORTH ||
                        state == MICRO_BACK || state == MICRO_BACKWARD;
    }
}

static void execute(struct node *n)
{
    weigh_queue(n);
    for (uint32_t i = 0; i < n->pipe_out.n; i++) {
        execute_one(n, &n->pipe_out.action[i]);
    }
    n->pipe_out.n = 0;
}

/* ---- what comes of it --------------------------------------------------- */

static void done(struct node *n,
                 enum pipeline_action_type type,
                 uint64_t tag,
                 uint32_t micro)
{
    n->pipe_out.n = 0;
    pipeline_done(&n->pipe, type, tag, micro, n->now, &n->pipe_out);
    execute(n);
}

void node_on_piped(struct node *n, const struct local_event *e)
{
    static const enum pipeline_action_type type_of[] = {
        [PIPE_FORWARD] = PIPELINE_FORWARD,   [PIPE_SCORE] = PIPELINE_SCORE,
        [PIPE_BACKWARD] = PIPELINE_BACKWARD, [PIPE_CLEAR] = PIPELINE_CLEAR,
        [PIPE_STEP] = PIPELINE_STEP,
    };

    n->hangs = n->hangs && e->rc == LOCO_EFULL; /* said without it */
    if (!n->pipe_open || e->op >= PIPE_OP_COUNT || e->op == PIPE_CLEAR) {
        return;
    }
    /* A step is counted when it is given to the optimizer. */
    if (e->rc != 0 &&
        (e->op == PIPE_STEP
             ? n->pipe.stepping
             : e->attempt == pipeline_tag(n->pipe.attempt, n->pipe.step))) {
        out_log(n->out, LOG_ERROR,
                "round %llu: this machine cannot go on with the step; the "
                "others do without it",
                (unsigned long long)n->pipe.round);
        n->pipe.stepping = false;
        node_pipe_leave(n);
        return;
    }
    if (e->op == PIPE_STEP && e->inner_step > n->inner_step) {
        n->inner_step = e->inner_step;
    }
    done(n, type_of[e->op], e->attempt, (uint32_t)e->index);
}

static uint32_t host_of(const struct node *n, const struct peer_id *id)
{
    for (uint32_t k = 0; k < n->pipe.n; k++) {
        if (id_eq(&n->pipe.host[k].id, id)) {
            return k;
        }
    }
    return NOBODY;
}

/* What arrived whole and is no micro-batch is its sender's fault: it goes.
 * Anything else may be the line's. */
static void segment_failed(struct node *n, uint32_t k, const struct event *ev)
{
    if (k == NOBODY) {
        return;
    }
    if (!ev->sent && ev->rc == LOCO_EPROTO) {
        char text[ID_SHORT_MAX];

        id_short(&ev->segment.peer, text);
        out_log(n->out, LOG_WARN,
                "round %llu, step %u: host %s of stage %u sent what is no "
                "micro-batch; the step runs again without it",
                (unsigned long long)n->pipe.round, n->pipe.step, text,
                n->pipe.host[k].stage + 1);
        n->pipe_out.n = 0;
        pipeline_lost(&n->pipe, &ev->segment.peer, n->now, &n->pipe_out);
        execute(n);
    } else if (n->pipe_bad_ms[k] == 0) {
        n->pipe_bad_ms[k] = n->now;
    }
}

void node_pipe_seg_done(struct node *n, const struct event *ev)
{
    const struct segment *s = &ev->segment;
    enum pipeline_action_type type;
    uint32_t k = host_of(n, &s->peer);

    if (!n->pipe_open ||
        s->attempt != pipeline_tag(n->pipe.attempt, n->pipe.step)) {
        return;
    }
    if (ev->rc != 0) {
        segment_failed(n, k, ev);
        return;
    }
    if (s->buffer == BUFFER_FORTH) {
        type = ev->sent ? PIPELINE_GIVE : PIPELINE_TAKE;
    } else {
        type = ev->sent ? PIPELINE_GIVE_BACK : PIPELINE_TAKE_BACK;
    }
    for (uint32_t i = 0; i < NODE_PIPE_MOVES; i++) {
        struct node_pipe_move *m = &n->pipe_moves[i];

        if (m->used && m->type == type && m->micro == s->index &&
            --m->left == 0) {
            m->used = false;
            done(n, type, s->attempt, m->micro);
            return;
        }
    }
}

void node_on_stage_message(struct node *n,
                           int peer,
                           enum message_type type,
                           const void *msg)
{
    const struct peer_id id = n->members.peers[peer].id;
    const struct stage_hello *hello = msg;
    const struct stage_ready *ready = msg;
    const struct stage_take *take = msg;
    struct pipeline_hello h;

    if (!n->pipe_open || n->draining || n->paused) {
        return;
    }
    n->pipe_out.n = 0;
    if (type == MESSAGE_STAGE_HELLO) {
        h.round = hello->round;
        h.step = hello->step;
        h.attempt = hello->attempt;
        h.cost_us = hello->cost_us;
        h.n = hello->n_hosts;
        for (uint32_t k = 0; k < h.n; k++) {
            h.hosts[k].id = hello->hosts[k].id;
            h.hosts[k].stage = hello->hosts[k].stage;
        }
        pipeline_on_hello(&n->pipe, &id, &h, n->now, &n->pipe_out);
    } else if (type == MESSAGE_STAGE_READY) {
        pipeline_on_ready(&n->pipe, &id, ready->round, ready->step,
                          ready->attempt, n->now, &n->pipe_out);
    } else {
        pipeline_on_take(&n->pipe, &id, take->round, take->step, take->attempt,
                         take->micro, n->now, &n->pipe_out);
    }
    execute(n);
}

void node_pipe_link_up(struct node *n, const struct peer_id *id)
{
    if (n->pipe_open) {
        n->pipe_out.n = 0;
        pipeline_linked(&n->pipe, id, &n->pipe_out);
        execute(n);
    }
}

/* ---- losses ------------------------------------------------------------- */

static bool is_gone(const struct node *n, uint32_t k)
{
    int row = row_of(n, k);
    const struct member *p =
        row == MEMBERS_NONE ? NULL : &n->members.peers[row];

    return p == NULL || p->life != n->pipe_life[k] || is_silent(n, p);
}

/* Its connection broke so long ago that it would be known to be dead. */
static bool is_cut(const struct node *n, uint32_t k)
{
    return n->pipe_bad_ms[k] != 0 &&
           n->now - n->pipe_bad_ms[k] >= n->t.dead_ms + n->t.redial_ms;
}

/* Data connections to the stages beside ours, again where one broke. */
static void keep_bulk(struct node *n)
{
    if (!is_under_way(n) || n->now < n->pipe_bulk_ms) {
        return;
    }
    n->pipe_bulk_ms = n->now + n->pipe.opt.resend_ms;
    for (uint32_t k = 0; k < n->pipe.n; k++) {
        uint32_t stage = n->pipe.host[k].stage;
        int row = row_of(n, k);

        if ((n->pipe.layout >> k & 1) != 0 && row != MEMBERS_NONE &&
            (stage == n->stage + 1 || stage + 1 == n->stage)) {
            members_bulk_open(&n->members, n->out, row);
        }
    }
}

/* Somebody else is in our view, and not known to be lost. */
static bool has_others(const struct node *n)
{
    const struct ballot *b = &n->ballot;
    uint64_t gone = b->lost | b->departed;

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
    n->hangs = true;
    if (has_others(n)) {
        node_leave_view(n, "this machine does not answer; back when it does");
    }
}

void node_pipe_tick(struct node *n)
{
    bool hangs;

    if (!n->pipe_open) {
        return;
    }
    keep_bulk(n);
    if (n->pipe_unnamed) {
        name_the_rest(n);
    }
    for (uint32_t k = 0; k < n->pipe.n && is_under_way(n); k++) {
        const struct peer_id id = n->pipe.host[k].id;

        if (k == n->pipe.self || (n->pipe.layout >> k & 1) == 0) {
            continue;
        }
        n->pipe_out.n = 0;
        if (is_gone(n, k)) {
            char text[ID_SHORT_MAX];

            id_short(&id, text);
            out_log(n->out, LOG_WARN,
                    "round %llu, step %u: host %s of stage %u is gone; the "
                    "step runs again without it",
                    (unsigned long long)n->pipe.round, n->pipe.step, text,
                    n->pipe.host[k].stage + 1);
            pipeline_lost(&n->pipe, &id, n->now, &n->pipe_out);
        } else if (is_cut(n, k)) {
            pipeline_cut(&n->pipe, &id, n->now, &n->pipe_out);
        }
        execute(n);
    }
    n->pipe_out.n = 0;
    hangs = pipeline_hangs(&n->pipe, n->now);
    pipeline_tick(&n->pipe, n->now, &n->pipe_out);
    execute(n);
    if (hangs) {
        step_aside(n);
    }
}

uint64_t node_pipe_deadline(const struct node *n)
{
    uint64_t due = n->pipe_open ? pipeline_deadline(&n->pipe) : UINT64_MAX;

    if (n->pipe_open && n->pipe_unnamed) {
        return n->now;
    }
    return due == UINT64_MAX ? CORE_NEVER : due;
}
