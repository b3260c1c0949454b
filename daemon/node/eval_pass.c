/* eval_pass.c - held-out text through the stages of a model, while they train.
 *
 * After each k-th commit, before the first and after the last, one host of
 * stage 0 (their turns rotate) names one host of each stage and enters the
 * windows: micro-batches, in order, forward only, through the parameters of
 * that commit. The host at the end has the loss, signs and spreads it, as the
 * evaluating member of a run without stages does (eval.c).
 *
 *     first    windows -> EVAL_FORWARD -> segments to the next
 *     middle   EVAL_TAKE to the one before -> EVAL_FORWARD -> on
 *     last     EVAL_TAKE -> EVAL_SCORE; after the last one: EVALUATED
 *
 * STAGE_EVAL goes from host to host, EVAL_TAKE back: there is a place for that
 * micro-batch. Both are said again until what they ask for comes. A host has
 * EVAL_SLOTS places, so one micro-batch is computed while the next arrives.
 *
 * Training has the right of way. Windows are computed when the machine has no
 * micro-batch of a step to work on, or waited `resend_ms` for that; their
 * segments are of the last stream (p2p/uv sends those before it first). Nothing
 * of it is summed. The parameters of a commit are there until the next one is
 * applied: so who has made its steps, and is on the way of an evaluation, waits
 * for its end before it offers them, half of the grace at most.
 *
 * What can go wrong: a host dies, a connection breaks, the next commit comes
 * first, nothing moves for as long as a machine may work. Then it is given up,
 * by everybody for itself; nothing waits for it. The same commit is tried
 * again, over other hosts, while it is the newest one and EVAL_TRIES are not
 * used up; else the next evaluation comes with its turn. A tag (round, try, who
 * begins) only grows, so that what is late of an earlier try is nothing.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"

#define EVAL_TRIES 8 /* of one commit, by one host */

/* A tag: round, attempt. An attempt: try, position of the first host. */
#define ATTEMPT_BITS 16
#define RANK_BITS    8
#define ROUND_MAX    (1ULL << 46)

static uint32_t attempt_of(uint64_t tag)
{
    return (uint32_t)(tag & ((1U << ATTEMPT_BITS) - 1));
}

static bool is_first(const struct node *n)
{
    return n->stages.own == 0;
}

static bool is_last(const struct node *n)
{
    return n->stages.own + 1 == n->terms.stages;
}

/* ---- whether, and over whom --------------------------------------------- */

/* This commit is to be evaluated, and nobody has said how good it is. */
static bool is_due(const struct node *n)
{
    uint64_t every = n->terms.eval_every, round = n->held.applied.round;

    return n->pipe.open && every > 0 && n->terms.eval_micros > 0 &&
           (uint64_t)n->terms.eval_micros * node_cut_pieces(n) < UINT32_MAX &&
           n->held.loaded && n->ballot.have && !n->held.applying &&
           !n->training.paused && !n->draining && round < ROUND_MAX &&
           node_point_eq(&n->held.applied, &n->held.known) &&
           (round % every == 0 || node_run_over(n)) &&
           (!n->eval.has_bits || n->eval.bits_round < round);
}

/* In a view of a stage, as its heartbeats say. */
static bool is_host(const struct member *p)
{
    return p->used && p->has_beat && !p->lost && p->state <= PEER_SUSPECT &&
           p->beat.stage > 0 && p->beat.has_view &&
           p->beat.state != NODE_PAUSED && p->beat.state != NODE_DRAINING;
}

/* Those that hold our commit. */
static void find_hosts(const struct node *n, struct node_crew *c)
{
    bool open = node_crew_is_open(n);

    memset(c, 0, sizeof *c);
    node_crew_add(c, &n->opt.self, n->stages.own, 0);
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (!is_host(p) || p->beat.stage > n->terms.stages ||
            (!open && !node_crew_trusts(n, p))) {
            continue;
        }
        if (p->beat.ready && p->beat.round == n->held.applied.round &&
            members_linked(&n->members, (int)i)) {
            node_crew_add(c, &p->id, p->beat.stage - 1U, 0);
        } else {
            c->late = true;
        }
    }
}

static uint32_t hosts_of(const struct node_crew *c, uint32_t stage)
{
    uint32_t hosts = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        hosts += c->host[i].stage == stage;
    }
    return hosts;
}

/* The k-th host of that stage, in the order of ids. */
static const struct peer_id *
host_at(const struct node_crew *c, uint32_t stage, uint32_t k)
{
    uint32_t i = 0;

    while (c->host[i].stage != stage || k-- > 0) {
        i++;
    }
    return &c->host[i].id;
}

/* ---- its beginning and its end ------------------------------------------ */

static void give_up(struct node *n, const char *why)
{
    struct node_eval_pass *e = &n->eval.pass;

    if (!e->active) {
        return;
    }
    e->active = false;
    e->try_ms = n->now + n->t.dead_ms;
    node_cancel(n, STREAM_EVAL, e->tag);
    out_log(n->out, LOG_INFO, "round %llu: its evaluation was given up: %s",
            (unsigned long long)e->point.round, why);
}

void node_eval_forget(struct node *n)
{
    give_up(n, "this host leaves its stage");
}

static const struct member *member_of(const struct node *n, uint32_t stage)
{
    int row = members_find(&n->members, &n->eval.pass.hosts[stage]);

    return row == MEMBERS_NONE ? NULL : &n->members.peers[row];
}

/* Over e->hosts. */
static void begin(struct node *n, uint64_t tag)
{
    struct node_eval_pass *e = &n->eval.pass;

    give_up(n, "another one begins");
    e->active = true;
    e->tag = tag;
    e->point = n->held.applied;
    memset(e->slot, 0, sizeof e->slot);
    e->next = e->wanted = e->n_computed = e->n_done = 0;
    e->computing = e->unnamed = false;
    e->progress_ms = n->now;
    e->say_ms = 0;
    for (uint32_t s = 0; s < n->terms.stages; s++) {
        const struct member *p = s == n->stages.own ? NULL : member_of(n, s);

        e->life[s] = p == NULL ? n->life : p->life;
    }
}

/* Our turn to begin one: the host whose turn it is, of those of stage 0. */
static void lead(struct node *n)
{
    struct node_eval_pass *e = &n->eval.pass;
    struct node_crew c;
    uint64_t turn = n->held.applied.round / n->terms.eval_every;
    uint32_t rank, try;

    if (e->round_tried != n->held.applied.round || e->since_ms == 0) {
        e->round_tried = n->held.applied.round;
        e->since_ms = e->try_ms = n->now;
        e->tries = 0;
    }
    if (n->now < e->try_ms || e->tries == EVAL_TRIES) {
        return;
    }
    find_hosts(n, &c);
    if (c.level != node_all_stages(n) ||
        (c.late && n->now - e->since_ms < n->terms.grace_ms)) {
        return;
    }
    rank = (uint32_t)(turn % hosts_of(&c, 0));
    if (!id_eq(host_at(&c, 0, rank), &n->opt.self)) {
        return;
    }
    try = e->tag >> ATTEMPT_BITS == n->held.applied.round
              ? attempt_of(e->tag) >> RANK_BITS
              : 0;
    if (try + 1 >= 1U << (ATTEMPT_BITS - RANK_BITS)) {
        return;
    }
    e->hosts[0] = n->opt.self;
    for (uint32_t s = 1; s < n->terms.stages; s++) {
        e->hosts[s] =
            *host_at(&c, s, (uint32_t)((turn + try) % hosts_of(&c, s)));
    }
    e->tries++;
    begin(n, n->held.applied.round << ATTEMPT_BITS | (try + 1) << RANK_BITS |
                 rank);
}

/* Why it cannot go on; NULL: it can. */
static const char *trouble(const struct node *n)
{
    const struct node_eval_pass *e = &n->eval.pass;

    if (!node_point_eq(&e->point, &n->held.applied) || n->held.applying) {
        return "the next round came first";
    }
    if (n->eval.has_bits && n->eval.bits_round == e->point.round) {
        return "others have made it";
    }
    for (uint32_t s = 0; s < n->terms.stages; s++) {
        const struct member *p = s == n->stages.own ? NULL : member_of(n, s);

        if (s != n->stages.own &&
            (p == NULL || p->lost || p->state >= PEER_DEAD ||
             p->life != e->life[s])) {
            return "one of its hosts is gone";
        }
    }
    if (n->now - e->progress_ms >
        n->pipe.core.opt.stall_ms + 4 * n->pipe.core.longest_ms) {
        return "nothing moved";
    }
    return n->training.paused || n->draining ? "this host pauses" : NULL;
}

/* ---- what is said ------------------------------------------------------- */

static void
say(struct node *n, uint32_t stage, enum message_type type, const void *message)
{
    int row = members_find(&n->members, &n->eval.pass.hosts[stage]);

    if (row != MEMBERS_NONE) {
        (void)members_send(&n->members, n->out, row, type, message);
    }
}

static void say_begin(struct node *n)
{
    const struct node_eval_pass *e = &n->eval.pass;
    struct stage_eval m = {.round = e->point.round,
                           .attempt = attempt_of(e->tag),
                           .n_hosts = n->terms.stages};

    memcpy(m.hosts, e->hosts, n->terms.stages * sizeof m.hosts[0]);
    say(n, n->stages.own + 1, MESSAGE_STAGE_EVAL, &m);
}

static void say_take(struct node *n, uint32_t micro)
{
    const struct eval_take m = {.round = n->eval.pass.point.round,
                                .attempt = attempt_of(n->eval.pass.tag),
                                .micro = micro};

    say(n, n->stages.own - 1, MESSAGE_EVAL_TAKE, &m);
}

static void keep_bulk(struct node *n, uint32_t stage)
{
    int row = members_find(&n->members, &n->eval.pass.hosts[stage]);

    if (row != MEMBERS_NONE) {
        members_bulk_open(&n->members, n->out, row);
    }
}

/* Now and then: what may have been lost. */
static void say_again(struct node *n)
{
    struct node_eval_pass *e = &n->eval.pass;

    if (n->now < e->say_ms) {
        return;
    }
    e->say_ms = n->now + n->pipe.core.opt.resend_ms;
    if (!is_last(n)) {
        keep_bulk(n, n->stages.own + 1);
        if (e->wanted == 0) {
            say_begin(n);
        }
    }
    if (!is_first(n)) {
        keep_bulk(n, n->stages.own - 1);
        for (uint32_t k = 0; k < EVAL_SLOTS; k++) {
            if (e->slot[k].state == EVAL_POSTED) {
                say_take(n, e->slot[k].micro);
            }
        }
    }
}

/* That attempt may take the place of what is here. */
static bool
is_newer(const struct node *n, const struct stage_eval *m, uint32_t from)
{
    uint64_t tag = m->round << ATTEMPT_BITS | m->attempt;

    return is_due(n) && m->round == n->held.applied.round &&
           m->attempt < 1U << ATTEMPT_BITS && tag > n->eval.pass.tag &&
           m->n_hosts == n->terms.stages && !is_first(n) &&
           id_eq(&m->hosts[n->stages.own], &n->opt.self) &&
           id_eq(&m->hosts[n->stages.own - 1], &n->members.peers[from].id);
}

void node_on_stage_eval(struct node *n, int peer, const struct stage_eval *m)
{
    bool open = node_crew_is_open(n);

    if (!is_newer(n, m, (uint32_t)peer)) {
        return;
    }
    for (uint32_t s = 0; s < m->n_hosts; s++) {
        int row = members_find(&n->members, &m->hosts[s]);

        if (s != n->stages.own &&
            (row == MEMBERS_NONE ||
             (!open && !node_crew_trusts(n, &n->members.peers[row])))) {
            return;
        }
    }
    give_up(n, "another one begins");
    memcpy(n->eval.pass.hosts, m->hosts, m->n_hosts * sizeof m->hosts[0]);
    begin(n, m->round << ATTEMPT_BITS | m->attempt);
}

void node_on_eval_take(struct node *n, int peer, const struct eval_take *m)
{
    struct node_eval_pass *e = &n->eval.pass;

    if (e->active && !is_last(n) && m->attempt == attempt_of(e->tag) &&
        m->round == e->point.round && m->micro < n->terms.eval_micros &&
        id_eq(&e->hosts[n->stages.own + 1], &n->members.peers[peer].id) &&
        m->micro >= e->wanted) {
        e->wanted = m->micro + 1;
        e->progress_ms = n->now;
    }
}

/* ---- micro-batches of windows ------------------------------------------- */

static uint8_t place(const struct node *n, uint32_t k)
{
    return (uint8_t)(n->terms.pipe_slots + k);
}

/* Segments of slot k, in or out, as far as there is room in this `out`. */
static void name_segments(struct node *n, uint32_t k)
{
    struct node_eval_pass *e = &n->eval.pass;
    struct node_eval_slot *s = &e->slot[k];
    bool out = s->state == EVAL_LEAVES;
    const struct segment shared = {
        .peer = e->hosts[out ? n->stages.own + 1 : n->stages.own - 1],
        .attempt = e->tag,
        .stream = STREAM_EVAL,
        .seg = s->micro * node_cut_pieces(n),
        .buffer = BUFFER_FORTH,
        .index = s->micro,
        .slot = place(n, k),
    };

    if (!node_name_segments(n, out ? ACTION_SEND_SEG : ACTION_POST_RECV,
                            &shared, &s->named)) {
        e->unnamed = true;
    }
}

static void set_state(struct node *n, uint32_t k, enum node_eval_state state)
{
    struct node_eval_slot *s = &n->eval.pass.slot[k];

    s->state = state;
    s->since_ms = n->eval.pass.progress_ms = n->now;
    s->named = 0;
    s->left = node_cut_pieces(n);
}

static void fill(struct node *n, uint32_t k)
{
    struct node_eval_pass *e = &n->eval.pass;

    if (e->next == n->terms.eval_micros || e->next % EVAL_SLOTS != k) {
        return;
    }
    e->slot[k].micro = e->next++;
    if (is_first(n)) {
        set_state(n, k, EVAL_HERE);
    } else {
        set_state(n, k, EVAL_POSTED);
        say_take(n, e->slot[k].micro);
    }
}

/* Steps come first, but not for ever. */
static bool may_compute(const struct node *n, const struct node_eval_slot *s)
{
    bool busy = n->pipe.core.computing || n->pipe.core.stepping;

    return !n->eval.pass.computing &&
           (!busy || n->now - s->since_ms >= n->pipe.core.opt.resend_ms);
}

static void compute(struct node *n, uint32_t k)
{
    struct node_eval_pass *e = &n->eval.pass;
    struct job *job;

    if (e->slot[k].micro != e->n_computed || !may_compute(n, &e->slot[k])) {
        return;
    }
    job = out_job(n->out, JOB_PIPE);
    if (job == NULL) {
        return;
    }
    job->pipe.op = is_last(n) ? PIPE_EVAL_SCORE : PIPE_EVAL_FORWARD;
    job->pipe.attempt = e->tag;
    job->pipe.index = job->pipe.count = e->slot[k].micro;
    job->pipe.slot = place(n, k);
    job->pipe.round = e->point.round;
    e->computing = true;
    set_state(n, k, EVAL_FORTH);
}

static void run_slot(struct node *n, uint32_t k)
{
    struct node_eval_pass *e = &n->eval.pass;
    struct node_eval_slot *s = &e->slot[k];

    if (s->state == EVAL_FREE) {
        fill(n, k);
    }
    if (s->state == EVAL_HERE) {
        compute(n, k);
    }
    if (s->state == EVAL_READY && e->wanted > s->micro) {
        set_state(n, k, EVAL_LEAVES);
    }
    if (s->state == EVAL_POSTED || s->state == EVAL_LEAVES) {
        name_segments(n, k);
    }
}

static void slot_done(struct node *n, uint32_t k)
{
    struct node_eval_pass *e = &n->eval.pass;

    set_state(n, k, EVAL_FREE);
    if (++e->n_done == n->terms.eval_micros) {
        e->active = false; /* our part of it */
        e->try_ms = n->now + n->t.dead_ms + n->terms.grace_ms;
    }
}

void node_eval_piped(struct node *n, const struct local_event *ev)
{
    struct node_eval_pass *e = &n->eval.pass;
    uint32_t k = (uint32_t)ev->piped.index % EVAL_SLOTS;
    struct local_event figure = {.type = LOCAL_EVALUATED,
                                 .evaluated.bits_per_byte =
                                     ev->piped.bits_per_byte};

    if (!e->active || ev->piped.attempt != e->tag ||
        e->slot[k].state != EVAL_FORTH || e->slot[k].micro != ev->piped.index) {
        return;
    }
    e->computing = false;
    if (ev->rc != 0) {
        give_up(n, loco_strerror(ev->rc));
        return;
    }
    e->n_computed++;
    if (!is_last(n)) {
        set_state(n, k, EVAL_READY);
        return;
    }
    slot_done(n, k);
    if (!e->active) {
        n->eval.point = e->point;
        node_on_evaluated_own(n, &figure);
    }
}

void node_eval_seg_done(struct node *n, const struct event_seg_done *ev)
{
    struct node_eval_pass *e = &n->eval.pass;
    uint32_t k = (uint32_t)ev->segment.index % EVAL_SLOTS;
    struct node_eval_slot *s = &e->slot[k];
    enum node_eval_state state = ev->sent ? EVAL_LEAVES : EVAL_POSTED;

    if (!e->active || ev->segment.attempt != e->tag || s->state != state ||
        s->micro != ev->segment.index) {
        return;
    }
    if (ev->rc != 0) {
        give_up(n, loco_strerror(ev->rc));
        return;
    }
    e->progress_ms = n->now;
    if (--s->left > 0) {
        return;
    }
    if (ev->sent) {
        slot_done(n, k);
    } else {
        set_state(n, k, EVAL_HERE);
    }
}

/* ---- what follows ------------------------------------------------------- */

void node_eval_advance(struct node *n)
{
    struct node_eval_pass *e = &n->eval.pass;
    const char *why;

    why = e->active ? trouble(n) : NULL;
    if (why != NULL) {
        give_up(n, why);
    }
    if (!e->active && is_due(n) && is_first(n)) {
        lead(n);
    }
    if (!e->active) {
        return;
    }
    say_again(n);
    e->unnamed = false;
    for (uint32_t k = 0; k < EVAL_SLOTS && e->active; k++) {
        run_slot(n, k);
    }
}

bool node_eval_holds(const struct node *n, uint64_t since_ms)
{
    return n->eval.pass.active && n->now - since_ms < n->terms.grace_ms / 2;
}

uint64_t node_eval_deadline(const struct node *n)
{
    return n->eval.pass.active && n->eval.pass.unnamed ? n->now : CORE_NEVER;
}
