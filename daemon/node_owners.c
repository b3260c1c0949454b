/* node_owners.c - runs whose members own slices of the parameters
 * (p2p/owners.h; p2p/OWNERS.md).
 *
 * Views as in rounds, nothing else of them: no plans, no commits, no state to
 * be fetched. A member of a view reads all slices, trains a task, submits it,
 * and reads again:
 *
 *   REST -> READS -> BEGINS -> TRAINS -> SUBMITS -> REST ..
 *                 -> ENDED -> LAST -> DONE     cycles >= stop.rounds
 *
 * ENDED and DONE go into the heartbeat (`muster`). When all members of a view
 * say that they have ended, in it, no task is under way and none will be: what
 * is read then is the same for all. A new view begins with REST.
 *
 * A member that one of us waits for in vain (SUSPECT) is named in the statement
 * for the next view, which it is not left in; it comes back by itself.
 */
#include "daemon/node_owners.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/base/rng.h"

#define RECORDS  4 /* slots; all told STREAM_SLOTS */
#define READINGS 4
#define PIECES   8
#define STUCK_MS 20000

enum { END_NONE, END_READY, END_WHOLE }; /* heartbeat.muster */

int node_owners_open(struct node *n)
{
    n->owners = calloc(1, sizeof *n->owners);
    return n->owners == NULL ? LOCO_ENOMEM : 0;
}

size_t node_owners_bytes(void)
{
    return sizeof(struct node_owners);
}

/* The time of so many bytes at the floor rate. */
static uint32_t floor_ms(const struct node *n, uint64_t bytes)
{
    uint64_t floor = n->terms.progress_floor_bytes_per_s;
    uint64_t ms = floor > 0 ? bytes * 1000U / floor : 0;

    return ms < 3600000 ? (uint32_t)ms : 3600000;
}

static struct slice_version version_of(const struct owners_version *v)
{
    return (struct slice_version){.generation = v->generation,
                                  .position = v->position,
                                  .flush = v->flush,
                                  .size = v->size,
                                  .count = v->count};
}

static struct owners_version version_from(const struct slice_version *v)
{
    return (struct owners_version){.generation = v->generation,
                                   .position = v->position,
                                   .flush = v->flush,
                                   .size = v->size,
                                   .count = v->count};
}

/* What the disk has of an earlier life. */
static void restore(struct node *n)
{
    struct owners *c = &n->owners->core;

    for (uint32_t i = 0; i < n->terms.n_slices; i++) {
        const struct slice_version *held = &n->terms.slice_held[i];
        const struct slice_version *read = &n->terms.slice_read[i];
        struct owners_version at = version_from(held);

        if (held->generation != 0 && owners_restore(c, i, &at) != 0) {
            n->malformed++;
        }
        at = version_from(read);
        if (read->generation != 0 && owners_restore_reading(c, i, &at) != 0) {
            n->malformed++;
        }
    }
}

void node_owners_configured(struct node *n)
{
    const struct run_terms *t = &n->terms;
    struct owners_options o = {
        .self = n->opt.self,
        .seed = t->slice_seed,
        .slices = t->n_slices,
        .records = RECORDS,
        .readings = READINGS,
        .pieces = PIECES,
        .stale_most = t->stale_most,
        .resend_ms = n->t.hop_ms / 2,
        .quiet_ms = n->t.hop_ms + floor_ms(n, t->segment_wire_bytes),
        .first_attempt = (rng_next(&n->rng) >> 24) << 20,
        .stuck_ms =
            STUCK_MS * n->opt.time_scale + floor_ms(n, 12 * t->slice_elements),
    };

    n->ballot.opt.owners = terms_owned(t);
    if (!terms_owned(t)) {
        return;
    }
    if (owners_init(&n->owners->core, &o) != 0) {
        n->reason = "the parameters are cut into more slices than can be";
        return;
    }
    restore(n);
}

/* ---- what the core says ----------------------------------------------- */

static struct owners_said said_of(const struct owners_message *m)
{
    return (struct owners_said){
        .kind = (uint8_t)m->kind,
        .epoch = m->epoch,
        .slice = m->slice,
        .what = (uint8_t)m->what,
        .slot = m->slot,
        .attempt = m->attempt,
        .held = m->held,
        .refused = m->refused,
        .worker = m->worker,
        .task = m->task,
        .generation = m->generation,
        .position = m->position,
        .read_generation = m->read_generation,
        .read_position = m->read_position,
        .flush = m->flush,
        .size = m->size,
        .count = m->count,
    };
}

static struct owners_message message_of(const struct owners_said *m)
{
    return (struct owners_message){
        .kind = (enum owners_kind)m->kind,
        .epoch = m->epoch,
        .slice = m->slice,
        .what = (enum owners_what)m->what,
        .slot = m->slot,
        .attempt = m->attempt,
        .held = m->held,
        .refused = m->refused,
        .worker = m->worker,
        .task = m->task,
        .generation = m->generation,
        .position = m->position,
        .read_generation = m->read_generation,
        .read_position = m->read_position,
        .flush = m->flush,
        .size = m->size,
        .count = m->count,
    };
}

static void say(struct node *n, const struct owners_action *a)
{
    const struct owners *c = &n->owners->core;
    struct owners_head head = {.said = said_of(&a->message), .n_tasks = c->n};
    bool is_head = a->message.kind == OWNERS_HEAD;
    int rows[VIEW_MEMBERS_MAX];
    uint32_t n_rows = 0;

    memcpy(head.tasks, n->owners->out.task, c->n * sizeof head.tasks[0]);
    for (uint32_t k = 0; k < c->n; k++) {
        if ((a->to >> k & 1) != 0) {
            rows[n_rows++] = members_find(&n->members, &c->member[k].id);
        }
    }
    members_broadcast(&n->members, n->out, rows, n_rows,
                      is_head ? MESSAGE_OWNERS_HEAD : MESSAGE_OWNERS,
                      is_head ? (const void *)&head : &head.said);
}

static void suspect(struct node *n, const struct owners_action *a)
{
    struct node_owners *s = n->owners;
    char name[ID_SHORT_MAX];

    for (uint32_t k = 0; k < s->core.n; k++) {
        if ((a->to >> k & 1) != 0 && k != s->core.self) {
            s->has_suspect = true;
            s->suspect = s->core.member[k].id;
            id_short(&s->suspect, name);
            out_log(n->out, LOG_WARN,
                    "peer %s does not do its part of a slice: asking for a "
                    "view without it",
                    name);
            ballot_want(&n->ballot, BALLOT_WANT_CHANGE, n->now);
            return;
        }
    }
}

/* States that have another name in this view, or have ended a cycle. */
static void mark(struct node *n)
{
    struct node_owners *s = n->owners;

    for (uint32_t i = 0; i < s->core.opt.slices; i++) {
        const struct owners_slice *x = &s->core.slice[i];
        struct slice_job job = {.op = SLICE_MARK,
                                .slice = i,
                                .slot = SLICE_NO_SLOT,
                                .at = version_of(&x->at)};

        if (x->held && x->at.generation == s->core.epoch &&
            (x->at.generation != s->marked[i].generation ||
             x->at.flush != s->marked[i].flush)) {
            s->marked[i] = job.at;
            (void)node_owners_job(n, &job, 0, NULL, 0);
        }
    }
}

static void work(struct node *n, const struct owners_action *a)
{
    static const enum slice_op op[OWNERS_ACTION_COUNT] = {
        [OWNERS_FILL] = SLICE_FILL,     [OWNERS_APPLY] = SLICE_APPLY,
        [OWNERS_BUILD] = SLICE_BUILD,   [OWNERS_LOAD] = SLICE_LOAD,
        [OWNERS_FORGET] = SLICE_FORGET, [OWNERS_KEEP] = SLICE_KEEP,
    };
    const struct owners *c = &n->owners->core;
    struct slice_job job = {.op = op[a->type],
                            .what = a->what,
                            .slice = a->slice,
                            .slot = a->slot,
                            .size = a->size,
                            .count = a->count,
                            .next = a->next,
                            .at = version_of(&c->slice[a->slice].seen)};

    (void)node_owners_job(
        n, &job, 0, a->peer < c->n ? &c->member[a->peer].id : NULL, a->task);
}

/* The next task begins from what was read, or the result is here. */
static void gathered(struct node *n)
{
    struct node_owners *s = n->owners;
    const struct slice_job job = {.op = SLICE_READ, .slot = SLICE_NO_SLOT};
    bool over = n->terms.stop_rounds > 0 &&
                owners_round(&s->core) >= n->terms.stop_rounds;

    if (s->life == OWNERS_READS && over) {
        s->life = OWNERS_ENDED;
    } else if (s->life == OWNERS_READS && (n->paused || n->draining)) {
        s->life = OWNERS_REST;
    } else if (s->life == OWNERS_READS || s->life == OWNERS_LAST) {
        s->life = s->life == OWNERS_LAST ? OWNERS_LAST_BEGINS : OWNERS_BEGINS;
        s->reading = true;
        s->read_round = owners_round(&s->core);
        (void)node_owners_job(n, &job, 0, NULL, 0);
    }
}

static void dropped(struct node *n, const char *why)
{
    struct node_owners *s = n->owners;

    out_log(n->out, LOG_WARN, "a task of %llu tokens %s",
            (unsigned long long)s->task_tokens, why);
    n->tokens_dropped += s->task_tokens;
}

/* SUBMITTED, VOID: of the task that was submitted last. */
static void task_over(struct node *n, const struct owners_action *a)
{
    struct node_owners *s = n->owners;

    if (a->type == OWNERS_VOID) {
        dropped(n, "is of no use: this peer came back as another one");
    } else if (a->refused > 0) {
        dropped(n, "came too late for some slices");
    } else {
        n->n_committed++;
    }
    s->life = s->life == OWNERS_SUBMITS ? OWNERS_REST : s->life;
}

static void execute_one(struct node *n, const struct owners_action *a)
{
    switch (a->type) {
    case OWNERS_SAY:
        say(n, a);
        return;
    case OWNERS_TAKE:
        node_owners_take(n, a);
        return;
    case OWNERS_DROP:
        node_owners_drop(n, a);
        return;
    case OWNERS_GIVE:
        node_owners_give(n, a);
        return;
    case OWNERS_FILL:
    case OWNERS_APPLY:
    case OWNERS_BUILD:
    case OWNERS_LOAD:
    case OWNERS_FORGET:
    case OWNERS_KEEP:
        work(n, a);
        return;
    case OWNERS_SUBMITTED:
    case OWNERS_VOID:
        task_over(n, a);
        return;
    case OWNERS_GATHERED:
        gathered(n);
        return;
    case OWNERS_LOST:
        n->owners->n_lost++;
        return;
    case OWNERS_SUSPECT:
        suspect(n, a);
        return;
    case OWNERS_MARK: /* there are none: mark_every is 0 */
    case OWNERS_ACTION_COUNT:
        return;
    }
}

void node_owners_execute(struct node *n)
{
    struct owners_out *out = &n->owners->out;

    for (uint32_t k = 0; k < out->n; k++) {
        execute_one(n, &out->action[k]);
    }
    if (n->owners->core.epoch != 0 && out->n > 0) {
        mark(n);
    }
    out->n = 0;
}

/* ---- events ----------------------------------------------------------- */

void node_on_owners_message(struct node *n,
                            int peer,
                            enum message_type type,
                            const void *msg)
{
    struct node_owners *s = n->owners;
    const struct owners_head *head = msg; /* its first field is the other */
    struct owners_message m = message_of(&head->said);
    bool is_head = type == MESSAGE_OWNERS_HEAD;
    uint64_t task[VIEW_MEMBERS_MAX] = {0};

    if (!terms_owned(&n->terms)) {
        return;
    }
    if (is_head != (m.kind == OWNERS_HEAD) ||
        (is_head && m.epoch == s->core.epoch && head->n_tasks != s->core.n)) {
        n->malformed++;
        return;
    }
    if (is_head) {
        memcpy(task, head->tasks, head->n_tasks * sizeof task[0]);
    }
    owners_recv(&s->core, &n->members.peers[peer].id, &m, is_head ? task : NULL,
                n->now, &s->out);
    node_owners_execute(n);
}

static void train(struct node *n)
{
    struct action *a = out_add(n->out, ACTION_TRAIN);

    if (a != NULL) {
        a->round = node_owners_round(n) + 1;
        a->steps = node_quorum_steps(n);
        a->members = n->owners->core.n;
        a->rank = n->owners->core.self;
        n->training = true;
        n->owners->life = OWNERS_TRAINS;
    }
}

/* One after the other of the members measures what it has read, before the
 * first cycle, after each eval_every-th, and at the end. */
static void evaluate(struct node *n)
{
    struct node_owners *s = n->owners;
    uint64_t every = n->terms.eval_every;
    uint64_t turn;

    if (every == 0 || n->evaluating || n->draining) {
        return;
    }
    turn = 1 + s->read_round / every + (s->life == OWNERS_LAST_BEGINS);
    if (turn <= s->eval_turn) {
        return;
    }
    s->eval_turn = turn;
    if (turn % s->core.n == s->core.self) {
        n->evaluating = true;
        n->eval_point = (struct node_point){.round = s->read_round};
        node_local_action(n, ACTION_EVAL, s->read_round);
    }
}

static void begun(struct node *n, const struct local_event *e)
{
    struct node_owners *s = n->owners;

    s->reading = false;
    if (s->life != OWNERS_BEGINS && s->life != OWNERS_LAST_BEGINS) {
        return; /* all is to be read again */
    }
    if (e->rc != 0) {
        n->reason = "what the owners of slices sent is not finite, or cannot "
                    "be taken over";
        s->life = OWNERS_REST;
        return;
    }
    n->params_hash = e->params_hash;
    n->first_step = n->inner_step = e->inner_step;
    if (s->read_round >= s->saved || s->life == OWNERS_LAST_BEGINS) {
        s->saved = s->read_round + 1;
        node_local_action(n, ACTION_CHECKPOINT, s->read_round);
    }
    evaluate(n);
    if (s->life == OWNERS_BEGINS) {
        train(n);
    } else if (s->life == OWNERS_LAST_BEGINS) {
        out_log(n->out, LOG_INFO, "the run has ended: all slices are here");
        s->life = OWNERS_DONE;
    }
}

void node_on_sliced(struct node *n, const struct local_event *e)
{
    struct node_owners *s = n->owners;

    node_owners_job_done(n, &e->job, e->rc);
    if (e->job.op == SLICE_CHECK) {
        owners_taken(&s->core, e->job.slot, e->attempt, e->rc, n->now, &s->out);
        node_owners_execute(n);
    } else if (e->job.op == SLICE_READ) {
        begun(n, e);
    } else if (e->rc != 0 && e->job.op == SLICE_APPLY) {
        n->reason = "a step of a slice is not finite";
    }
}

void node_owners_trained(struct node *n, const struct local_event *e)
{
    struct node_owners *s = n->owners;

    if (s->life != OWNERS_TRAINS) { /* it began in a branch that was left */
        n->tokens_dropped += e->tokens;
        return;
    }
    s->task = s->core.epoch << 32 | ++s->n_tasks;
    s->task_tokens = e->tokens;
    s->life = OWNERS_SUBMITS;
    if (owners_submit(&s->core, s->task, n->now, &s->out) != 0) {
        dropped(n, "cannot be submitted: there is no view");
        s->life = OWNERS_REST;
    }
    node_owners_execute(n);
}

void node_owners_gap(struct node *n)
{
    if (terms_owned(&n->terms)) {
        owners_gap(&n->owners->core, n->now);
    }
}

/* ---- views ------------------------------------------------------------ */

void node_owners_adopted(struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;
    struct node_owners *s = n->owners;
    struct owners_member members[VIEW_MEMBERS_MAX];

    for (uint32_t i = 0; i < v->n_members; i++) {
        members[i].id = n->ballot.ids[i];
        members[i].joined = v->members[i].joined;
    }
    s->has_suspect = false;
    s->bulk_ms = 0;
    if (s->life >= OWNERS_ENDED) {
        s->life = OWNERS_REST; /* somebody may have to train again */
    }
    if (s->core.epoch == 0 && v->epoch <= s->core.restored) {
        node_owners_reset(n); /* our disk is of a branch that has lost */
    }
    if (owners_view(&s->core, v->epoch, members, v->n_members, n->now,
                    &s->out) != 0) {
        out_log(n->out, LOG_ERROR, "view %llu is no view of owners",
                (unsigned long long)v->epoch);
    }
    node_owners_execute(n);
}

void node_owners_reset(struct node *n)
{
    struct node_owners *s = n->owners;

    if (!terms_owned(&n->terms)) {
        return;
    }
    owners_reset(&s->core, &s->out);
    node_owners_execute(n);
    memset(s->marked, 0, sizeof s->marked);
    s->life = OWNERS_REST;
}

void node_owners_closing(const struct node *n, struct ballot_context *c)
{
    const struct view_body *v = &n->ballot.cert.body;
    const struct node_owners *s = n->owners;

    c->in_flight = false;
    c->coordinates = false;
    for (uint32_t i = 0; n->ballot.have && i < v->n_members; i++) {
        bool self = (int)i == n->ballot.self_index;

        if (self || (members_reaches(&n->members, n->ballot.rows[i]) &&
                     !(n->ballot.lost >> i & 1))) {
            c->coordinates = self; /* the first that lives lets others in */
            break;
        }
    }
    if (s->has_suspect) {
        c->closing.has_broken = true;
        c->closing.broken = s->suspect;
    }
}

/* All other members of our view say, in it, that they have ended. */
static bool all_ended(const struct node *n)
{
    const struct view_body *v = &n->ballot.cert.body;

    for (uint32_t i = 0; i < v->n_members; i++) {
        int row = n->ballot.rows[i];
        const struct member *p;

        if ((int)i == n->ballot.self_index) {
            continue;
        }
        p = row == MEMBERS_NONE ? NULL : &n->members.peers[row];
        if (p == NULL || !p->has_beat || !p->beat.has_view ||
            !hash32_eq(&p->beat.view, &n->ballot.hash) ||
            p->beat.muster < END_READY) {
            return false;
        }
    }
    return true;
}

uint64_t node_owners_round(const struct node *n)
{
    return n->owners->core.epoch == 0 ? 0 : owners_round(&n->owners->core);
}

uint64_t node_known_round(const struct node *n)
{
    uint64_t round;

    if (!terms_owned(&n->terms)) {
        return n->known.round;
    }
    round = node_owners_round(n);
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        if (p->used && p->has_beat && p->beat.round > round) {
            round = p->beat.round;
        }
    }
    return round;
}

uint64_t node_owners_tokens(const struct node *n)
{
    uint64_t tokens = n->own_tokens;

    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];

        tokens += p->used && p->has_beat ? p->beat.own_tokens : 0;
    }
    return tokens;
}

bool node_owners_ended(const struct node *n)
{
    return terms_owned(&n->terms) && n->owners->life == OWNERS_DONE;
}

bool node_owners_averages(const struct node *n)
{
    return n->owners->life != OWNERS_TRAINS;
}

const struct owners *node_owners(const struct node *n)
{
    return terms_owned(&n->terms) ? &n->owners->core : NULL;
}

/* Leaving together would take owner and backup of a slice away: one after the
 * other, each when all its slices have a backup in this view. */
bool node_owners_busy(const struct node *n)
{
    const struct owners *c = &n->owners->core;

    if (!terms_owned(&n->terms) || !n->ballot.have) {
        return false;
    }
    for (int i = 0; i < n->ballot.self_index; i++) {
        int row = n->ballot.rows[i];

        if (members_linked(&n->members, row) &&
            n->members.peers[row].has_beat &&
            n->members.peers[row].beat.state == NODE_DRAINING) {
            return true;
        }
    }
    for (uint32_t i = 0; i < c->opt.slices; i++) {
        if (c->slice[i].phase != OWNERS_AWAY &&
            c->slice[i].phase != OWNERS_OPEN) {
            return true;
        }
    }
    return c->task != 0;
}

/* ---- time ------------------------------------------------------------- */

static void keep_bulk(struct node *n)
{
    struct node_owners *s = n->owners;

    if (!n->ballot.have || n->now < s->bulk_ms) {
        return;
    }
    s->bulk_ms = n->now + n->t.hop_ms;
    for (uint32_t i = 0; i < n->ballot.cert.body.n_members; i++) {
        if (members_linked(&n->members, n->ballot.rows[i])) {
            members_bulk_open(&n->members, n->out, n->ballot.rows[i]);
        }
    }
}

void node_owners_advance(struct node *n)
{
    struct node_owners *s = n->owners;

    if (n->stopped || s->core.epoch == 0) {
        return;
    }
    keep_bulk(n);
    if (n->now >= owners_deadline(&s->core)) {
        owners_tick(&s->core, n->now, &s->out);
        node_owners_execute(n);
    }
    if (n->ballot.have && s->life == OWNERS_REST && !n->training &&
        !s->reading && !n->paused && !n->draining) {
        s->life = OWNERS_READS;
        owners_gather(&s->core, n->now, &s->out);
        node_owners_execute(n);
    }
    if (n->ballot.have && s->life == OWNERS_ENDED && all_ended(n)) {
        s->life = OWNERS_LAST;
        owners_gather(&s->core, n->now, &s->out);
        node_owners_execute(n);
    }
    if (n->ballot.have) {
        n->muster = s->life == OWNERS_DONE    ? END_WHOLE
                    : s->life >= OWNERS_ENDED ? END_READY
                                              : END_NONE;
    }
    if (n->opt.rounds > 0 && node_owners_round(n) >= n->opt.rounds &&
        !n->draining) {
        n->draining = true;
        n->drain_ms = n->now;
    }
    node_owners_name(n);
}

uint64_t node_owners_deadline(const struct node *n)
{
    return terms_owned(&n->terms) && n->owners->core.epoch != 0
               ? owners_deadline(&n->owners->core)
               : CORE_NEVER;
}
