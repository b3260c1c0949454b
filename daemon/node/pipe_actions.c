/* pipe_actions.c - what the pipeline wants, and what comes of it.
 *
 * Its messages go over our links, its moves are segments (STREAM_PIPE), its
 * work is JOB_PIPE; what others say, the machine and the segments report goes
 * back to it.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"

/* ---- what the pipeline wants -------------------------------------------- */

int node_pipe_row(const struct node *n, uint32_t host)
{
    return members_find(&n->members, &n->pipe.core.host[host].id);
}

static void
say(struct node *n, uint64_t hosts, enum message_type type, const void *msg)
{
    for (uint32_t k = 0; k < n->pipe.core.n; k++) {
        int row = hosts >> k & 1 ? node_pipe_row(n, k) : MEMBERS_NONE;

        if (row != MEMBERS_NONE) {
            (void)members_send(&n->members, n->out, row, type, msg);
        }
    }
}

static void say_hello(struct node *n, const struct pipeline_action *a)
{
    struct pipeline_hello h;
    struct stage_hello msg = {0};

    pipeline_hello_of(&n->pipe.core, a, &h);
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
        .round = n->pipe.core.round,
        .step = pipeline_tag_step(a->tag),
        .attempt = pipeline_tag_attempt(a->tag),
    };

    say(n, a->hosts, MESSAGE_STAGE_READY, &msg);
}

static void say_take(struct node *n, const struct pipeline_action *a)
{
    struct stage_take msg = {
        .round = n->pipe.core.round,
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

bool node_name_segments(struct node *n,
                        enum action_type type,
                        const struct segment *shared,
                        uint32_t *named)
{
    uint32_t count = node_cut_pieces(n);

    for (; *named < count && n->out->n + OUT_RESERVE < CORE_OUT_MAX; ++*named) {
        struct action *a = out_add(n->out, type);
        uint32_t at = *named * n->terms.cut_segment;
        uint32_t rest = n->terms.cut_elements - at;

        if (a == NULL) {
            break; /* cannot be: there is room */
        }
        a->segment = *shared;
        a->segment.seg += *named;
        a->segment.offset = at;
        a->segment.len =
            rest < n->terms.cut_segment ? rest : n->terms.cut_segment;
        a->segment.op = SEGMENT_COPY;
    }
    return *named == count;
}

/* True: all its segments are named. Else the next `out` has the rest
 * (node_pipe_tick). They are numbered so that the two directions of one
 * micro-batch differ. */
static bool name_segments(struct node *n, struct node_pipe_move *m)
{
    bool back = is_back(m->type);
    const struct segment shared = {
        .peer = n->pipe.core.host[m->host].id,
        .attempt = m->tag,
        .stream = STREAM_PIPE,
        .seg = (m->micro * 2 + back) * node_cut_pieces(n),
        .buffer = back ? BUFFER_BACK : BUFFER_FORTH,
        .index = m->micro,
        .slot = (uint8_t)m->slot,
    };

    return node_name_segments(
        n, is_given(m->type) ? ACTION_SEND_SEG : ACTION_POST_RECV, &shared,
        &m->named);
}

/* One micro-batch to or from another host. */
static void move(struct node *n, const struct pipeline_action *a)
{
    struct node_pipe_move *m = NULL;

    for (uint32_t i = 0; i < NODE_PIPE_MOVES; i++) {
        m = !n->pipe.moves[i].used ? &n->pipe.moves[i] : m;
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
    n->pipe.unnamed = !name_segments(n, m) || n->pipe.unnamed;
}

void node_pipe_name_rest(struct node *n)
{
    bool rest = n->pipe.unnamed;

    n->pipe.unnamed = false;
    for (uint32_t i = 0; rest && i < NODE_PIPE_MOVES; i++) {
        struct node_pipe_move *m = &n->pipe.moves[i];

        n->pipe.unnamed = (m->used && !name_segments(n, m)) || n->pipe.unnamed;
    }
}

static void cancel(struct node *n, uint64_t tag)
{
    node_cancel(n, STREAM_PIPE, tag);
    memset(n->pipe.moves, 0, sizeof n->pipe.moves);
    n->pipe.unnamed = false;
    /* What did not get through may do so in the next attempt. */
    memset(n->pipe.bad_ms, 0, sizeof n->pipe.bad_ms);
    n->pipe.void_tag = tag;
}

static const enum pipeline_action_type type_of[] = {
    [PIPE_FORWARD] = PIPELINE_FORWARD,   [PIPE_SCORE] = PIPELINE_SCORE,
    [PIPE_BACKWARD] = PIPELINE_BACKWARD, [PIPE_CLEAR] = PIPELINE_CLEAR,
    [PIPE_STEP] = PIPELINE_STEP,
};

static void work(struct node *n, const struct pipeline_action *p)
{
    struct job *job = out_job(n->out, JOB_PIPE);
    enum pipe_op op = PIPE_FORWARD;

    while (type_of[op] != p->type) {
        op++;
    }
    if (job != NULL) {
        job->pipe.op = op;
        /* A sum that was held is cleared in the attempt after its own. */
        job->pipe.attempt = op == PIPE_CLEAR ? n->pipe.void_tag : p->tag;
        job->pipe.index = p->micro;
        job->pipe.slot = p->slot;
        job->pipe.round = n->pipe.core.round;
        job->pipe.step = pipeline_tag_step(p->tag);
        job->pipe.count = op == PIPE_STEP ? p->count : p->draw;
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
    case PIPELINE_TAKE:
    case PIPELINE_TAKE_BACK:
    case PIPELINE_GIVE:
    case PIPELINE_GIVE_BACK:
        move(n, a);
        return;
    case PIPELINE_CLEAR:
    case PIPELINE_FORWARD:
    case PIPELINE_SCORE:
    case PIPELINE_BACKWARD:
    case PIPELINE_STEP:
        work(n, a);
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
    const struct pipeline *p = &n->pipe.core;

    n->pipe.queue.sum += n->pipe.queue.now * (n->now - n->pipe.queue.at_ms);
    n->pipe.busy_ms += n->pipe.busy ? n->now - n->pipe.queue.at_ms : 0;
    n->pipe.busy = p->computing || p->stepping;
    n->pipe.queue.at_ms = n->now;
    n->pipe.queue.now = 0;
    for (uint32_t i = p->first_undone; i < p->n_placed && i < p->n_micro; i++) {
        uint8_t state = p->micro[i].state;

        n->pipe.queue.now += state == MICRO_HERE || state == MICRO_FORTH ||
                             state == MICRO_BACK || state == MICRO_BACKWARD;
    }
}

void node_pipe_execute(struct node *n)
{
    weigh_queue(n);
    for (uint32_t i = 0; i < n->pipe.out.n; i++) {
        execute_one(n, &n->pipe.out.action[i]);
    }
    n->pipe.out.n = 0;
}

/* ---- what comes of it --------------------------------------------------- */

static void done(struct node *n,
                 enum pipeline_action_type type,
                 uint64_t tag,
                 uint32_t micro)
{
    pipeline_done(&n->pipe.core, type, tag, micro, n->now, &n->pipe.out);
    node_pipe_execute(n);
}

/* Somebody else can go on from the steps that this one cannot finish. */
static bool has_colleague(const struct node *n)
{
    const struct pipeline *p = &n->pipe.core;

    for (uint32_t k = 0; k < p->n; k++) {
        if (k != p->self && (p->layout >> k & 1) != 0 &&
            p->host[k].stage == n->stages.own) {
            return true;
        }
    }
    return false;
}

static void say_failed(struct node *n)
{
    out_log(n->out, LOG_ERROR,
            "round %llu: this machine cannot finish the step; %s",
            (unsigned long long)n->pipe.core.round,
            has_colleague(n) ? "the others continue without it"
                             : "its stage has no other host, and the others "
                               "wait until it can");
}

/* The machine lost what it had of the attempt, and has room for the next one.
 */
static void make_again(struct node *n)
{
    out_log(n->out, LOG_WARN,
            "round %llu: this machine had too little memory for the step, and "
            "made room; all make the step again",
            (unsigned long long)n->pipe.core.round);
    pipeline_again(&n->pipe.core, n->now, &n->pipe.out);
    node_pipe_execute(n);
}

/* The machine has nothing left to compute on, and said why: goodbye, and the
 * stage is free for others. */
void node_device_lost(struct node *n)
{
    if (!n->stopped) {
        if (n->inner->whole) {
            out_log(n->out, LOG_ERROR, "this machine leaves the run");
        } else {
            out_log(n->out, LOG_ERROR, "this machine leaves stage %u of %u",
                    n->stages.own + 1, n->terms.stages);
        }
        node_stop(n, LOCO_EXIT_DEVICE);
    }
}

void node_on_piped(struct node *n, const struct local_event *e)
{
    node_training_hang(n, n->training.hangs &&
                              e->rc == LOCO_EFULL); /* said without it */
    if (!n->pipe.open || e->piped.op >= PIPE_OP_COUNT ||
        e->piped.op == PIPE_CLEAR) {
        return;
    }
    /* A step is counted when it is given to the optimizer. */
    if (e->rc != 0 &&
        (e->piped.op == PIPE_STEP
             ? n->pipe.core.stepping
             : e->piped.attempt ==
                   pipeline_tag(n->pipe.core.attempt, n->pipe.core.step))) {
        if (e->rc == LOCO_EBUSY && e->piped.op != PIPE_STEP) {
            make_again(n);
            return;
        }
        say_failed(n);
        n->pipe.core.stepping = false;
        node_pipe_leave(n);
        return;
    }
    if (e->piped.op == PIPE_STEP) {
        node_training_at(n, e->piped.inner_step);
    }
    done(n, type_of[e->piped.op], e->piped.attempt, (uint32_t)e->piped.index);
}

void node_pipe_broken(struct node *n)
{
    const struct pipeline *p = &n->pipe.core;

    /* A STEP that waits behind it says so itself. */
    if (n->pipe.open && !p->stepping &&
        (p->state == PIPELINE_GATHER || p->state == PIPELINE_RUN ||
         p->state == PIPELINE_HELD)) {
        say_failed(n);
        node_pipe_leave(n);
    }
}

static uint32_t host_of(const struct node *n, const struct peer_id *id)
{
    for (uint32_t k = 0; k < n->pipe.core.n; k++) {
        if (id_eq(&n->pipe.core.host[k].id, id)) {
            return k;
        }
    }
    return ROUTE_NONE;
}

void node_pipe_drop(struct node *n, uint32_t k, const char *why)
{
    const struct pipeline_host host = n->pipe.core.host[k];
    char text[ID_SHORT_MAX];

    id_short(&host.id, text);
    out_log(n->out, LOG_WARN, "round %llu, step %u: host %s of stage %u %s",
            (unsigned long long)n->pipe.core.round, n->pipe.core.step, text,
            host.stage + 1, why);
    pipeline_lost(&n->pipe.core, &host.id, n->now, &n->pipe.out);
    node_pipe_execute(n);
}

/* What arrived whole and is no micro-batch is its sender's fault: it goes.
 * Anything else may be the line's. */
static void
segment_failed(struct node *n, uint32_t k, const struct event_seg_done *ev)
{
    if (k == ROUTE_NONE) {
        return;
    }
    if (!ev->sent && ev->rc == LOCO_EPROTO) {
        node_pipe_drop(n, k,
                       "sent bytes that are no micro-batch; the step runs "
                       "again without that host");
    } else if (n->pipe.bad_ms[k] == 0) {
        n->pipe.bad_ms[k] = n->now;
    }
}

void node_pipe_seg_done(struct node *n, const struct event_seg_done *ev)
{
    const struct segment *s = &ev->segment;
    enum pipeline_action_type type;
    uint32_t k = host_of(n, &s->peer);

    if (!n->pipe.open ||
        s->attempt != pipeline_tag(n->pipe.core.attempt, n->pipe.core.step)) {
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
        struct node_pipe_move *m = &n->pipe.moves[i];

        if (m->used && m->type == type && m->micro == s->index &&
            --m->left == 0) {
            m->used = false;
            done(n, type, s->attempt, m->micro);
            return;
        }
    }
}

/* Whether the core is to hear of the steps of others. */
static bool listens(const struct node *n)
{
    return n->pipe.open && !n->draining && !n->training.paused;
}

void node_on_stage_hello(struct node *n, int peer, const struct stage_hello *m)
{
    struct pipeline_hello h = {.round = m->round,
                               .step = m->step,
                               .attempt = m->attempt,
                               .cost_us = m->cost_us,
                               .n = m->n_hosts};

    if (!listens(n)) {
        return;
    }
    for (uint32_t k = 0; k < h.n; k++) {
        h.hosts[k].id = m->hosts[k].id;
        h.hosts[k].stage = m->hosts[k].stage;
    }
    pipeline_on_hello(&n->pipe.core, &n->members.peers[peer].id, &h, n->now,
                      &n->pipe.out);
    node_pipe_execute(n);
}

void node_on_stage_ready(struct node *n, int peer, const struct stage_ready *m)
{
    if (listens(n)) {
        pipeline_on_ready(&n->pipe.core, &n->members.peers[peer].id, m->round,
                          m->step, m->attempt, n->now, &n->pipe.out);
        node_pipe_execute(n);
    }
}

void node_on_stage_take(struct node *n, int peer, const struct stage_take *m)
{
    if (listens(n)) {
        pipeline_on_take(&n->pipe.core, &n->members.peers[peer].id, m->round,
                         m->step, m->attempt, m->micro, n->now, &n->pipe.out);
        node_pipe_execute(n);
    }
}

void node_pipe_link_up(struct node *n, const struct peer_id *id)
{
    if (n->pipe.open) {
        pipeline_linked(&n->pipe.core, id, &n->pipe.out);
        node_pipe_execute(n);
    }
}
