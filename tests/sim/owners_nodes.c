/* owners_nodes.c - whole nodes (daemon/node.h) in a run whose members own
 * slices, under faults (crew.h), until all hold the same result.
 *
 * What must hold beside what crew.h says; owners_world.h has A to E of members
 * alone:
 *   A  an arrival that is acknowledged is in owner and backup
 *   B  the bytes of an arrival are those that its maker had for that slice, and
 *      none is twice in one history of a slice
 *   C  a state is only made by an arrival, from the initial weights or out of
 *      bytes of a state or reading that there was; at the end owner and backup
 *      hold the same bits
 *   D  a slice is opened from less than all that was acknowledged only where no
 *      member has a state as new
 *   F  there is no second branch, unless processes came back and founded it
 *   I  after all have stopped each slice goes on from the newest state that the
 *      disks of the members of that view have
 *   H  at the end all have the same parameters, and the slices have all that
 * was acknowledged, but where D let some go
 *
 * States are known by their hashes: each has the one that it was made from, and
 * the arrival that made it. So what came over the wire is checked by its bytes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "p2p/owners.h"
#include "proto/base/err.h"
#include "tests/sim/crew.h"
#include "tests/sim/world_internal.h"
#include "train/sync/codec.h"

#define SLICES 8
#define NONE   UINT32_MAX

/* A state of a slice that there was. */
struct state {
    uint64_t hash, phi, reading;
    uint32_t from;  /* NONE: the initial weights */
    uint32_t maker; /* of the arrival; NONE: a reading was loaded */
    uint64_t task;
};

struct states {
    struct state *at;
    uint32_t n, room;
};

/* What a peer had for a slice in a task, and whether that was acknowledged. */
struct piece {
    uint32_t maker, slice;
    uint64_t task, hash;
    bool acked;
};

struct oracle {
    struct crew s;
    struct states slice[SLICES];
    struct piece *piece;
    uint32_t n_pieces, room;
    uint64_t opened[SLICES], fed[SLICES]; /* epochs */
    uint64_t epoch, stop_epoch;           /* newest; when all were stopped */
    bool knows_stop;
    struct slice_version acked_at[SLICES]; /* what is acknowledged is in it */
    bool anew[SLICES];         /* not all that was acknowledged is there */
    uint64_t (*acked)[SLICES]; /* (peers) of the process, as last seen */
    uint64_t n_resumed;        /* slices, after all had stopped */
    uint64_t n_applied, n_acked, n_copies, n_built, n_suspects;
};

static void *more(void *at, uint32_t n, uint32_t *room, size_t size)
{
    if (n < *room) {
        return at;
    }
    *room = *room == 0 ? 64 : 2 * *room;
    at = realloc(at, *room * size);
    if (at == NULL) {
        abort();
    }
    return at;
}

/* ---- states ----------------------------------------------------------- */

static uint32_t state_find(const struct states *t, uint64_t hash)
{
    for (uint32_t i = t->n; i-- > 0;) {
        if (t->at[i].hash == hash) {
            return i;
        }
    }
    return NONE;
}

static void state_add(struct states *t, struct state x)
{
    if (state_find(t, x.hash) == NONE) {
        t->at = more(t->at, t->n, &t->room, sizeof *t->at);
        t->at[t->n++] = x;
    }
}

static uint32_t state_read_as(const struct states *t, uint64_t reading)
{
    for (uint32_t i = t->n; i-- > 0;) {
        if (t->at[i].reading == reading) {
            return i;
        }
    }
    return NONE;
}

static bool
has(const struct states *t, uint32_t at, uint32_t maker, uint64_t task)
{
    while (at != NONE) {
        if (t->at[at].maker == maker && t->at[at].task == task) {
            return true;
        }
        at = t->at[at].from;
    }
    return false;
}

static struct piece *
piece_find(struct oracle *o, uint32_t maker, uint32_t slice, uint64_t task)
{
    for (uint32_t i = o->n_pieces; i-- > 0;) {
        struct piece *p = &o->piece[i];

        if (p->maker == maker && p->slice == slice && p->task == task) {
            return p;
        }
    }
    return NULL;
}

/* ---- what machines do -------------------------------------------------- */

static void made(struct oracle *o, uint32_t peer, const struct local_sliced *x)
{
    struct piece *p = piece_find(o, peer, x->job->slice, x->task);

    if (p != NULL && p->hash != x->piece) {
        crew_fail(&o->s, "B: peer %u has two pieces for one task", peer);
    } else if (p == NULL) {
        o->piece = more(o->piece, o->n_pieces, &o->room, sizeof *o->piece);
        o->piece[o->n_pieces++] = (struct piece){.maker = peer,
                                                 .slice = x->job->slice,
                                                 .task = x->task,
                                                 .hash = x->piece};
    }
}

static void
applied(struct oracle *o, uint32_t peer, const struct local_sliced *x)
{
    struct states *t = &o->slice[x->job->slice];
    uint32_t maker = world_find(o->s.world, &x->maker);
    uint32_t from = state_find(t, x->before);
    const struct piece *p = piece_find(o, maker, x->job->slice, x->task);

    o->n_applied++;
    if (p == NULL || p->hash != x->piece) {
        crew_fail(&o->s, "B: peer %u applies what peer %u never had", peer,
                  maker);
    } else if (from == NONE) {
        crew_fail(&o->s, "C: peer %u has a state that nobody made", peer);
    } else if (has(t, from, maker, x->task)) {
        crew_fail(&o->s, "B: peer %u applies a task of peer %u again", peer,
                  maker);
    } else {
        state_add(t, (struct state){x->after, x->phi, x->reading, from, maker,
                                    x->task});
    }
}

static void
loaded(struct oracle *o, uint32_t peer, const struct local_sliced *x)
{
    struct states *t = &o->slice[x->job->slice];
    uint32_t from;

    if (x->job->what == OWNERS_STATE) {
        if (state_find(t, x->after) == NONE) {
            crew_fail(&o->s, "C: peer %u takes a state that nobody made", peer);
        }
        return;
    }
    o->n_copies++;
    from = state_read_as(t, x->phi);
    if (from == NONE) {
        crew_fail(&o->s, "C: peer %u takes a reading that there was not", peer);
    }
    state_add(t, (struct state){x->after, x->phi, x->reading, from, NONE, 0});
}

static void on_sliced(void *self, uint32_t peer, const struct local_sliced *x)
{
    struct oracle *o = self;

    switch (x->job->op) {
    case SLICE_GIVE:
        if (x->job->what == OWNERS_PIECE) {
            made(o, peer, x);
        }
        return;
    case SLICE_FILL:
        made(o, peer, x);
        return;
    case SLICE_APPLY:
        applied(o, peer, x);
        return;
    case SLICE_BUILD:
        o->n_built++;
        state_add(&o->slice[x->job->slice],
                  (struct state){x->after, x->phi, x->reading, NONE, NONE, 0});
        return;
    case SLICE_LOAD:
        loaded(o, peer, x);
        return;
    default:
        return;
    }
}

/* ---- what nodes say --------------------------------------------------- */

static const struct owners *core_of(const struct oracle *o, uint32_t peer)
{
    return peer < o->s.n && o->s.peers[peer].node != NULL
               ? node_owners(o->s.peers[peer].node)
               : NULL;
}

/* Peer number of member k, as c has it; n: none. */
static uint32_t
number(const struct oracle *o, const struct owners *c, uint32_t k)
{
    return k < c->n ? world_find(o->s.world, &c->member[k].id) : o->s.n;
}

static bool is_newer(const struct slice_version *a,
                     const struct slice_version *b)
{
    return a->generation > b->generation ||
           (a->generation == b->generation && a->position > b->position);
}

/* What is acknowledged is in the beginning of the log that both have. */
static void
note_acked(struct oracle *o, const struct owners *worker, uint32_t i)
{
    const struct owners_slice *s = &worker->slice[i];
    struct slice_version at = {.generation = worker->epoch,
                               .position = UINT64_MAX};

    for (uint32_t k = 0; k < 2; k++) {
        uint32_t holder = k == 0 ? s->owner : s->backup;
        const struct owners *c = core_of(o, number(o, worker, holder));

        if (c != NULL && c->epoch == worker->epoch &&
            c->slice[i].at.position < at.position) {
            at.position = c->slice[i].at.position;
        }
    }
    if (at.position != UINT64_MAX && is_newer(&at, &o->acked_at[i])) {
        o->acked_at[i] = at;
    }
}

/* A: whoever of the two is in this view has that task. */
static void check_holder(struct oracle *o,
                         const struct owners *worker,
                         uint32_t i,
                         uint32_t holder,
                         const char *what)
{
    uint32_t q = number(o, worker, holder);
    const struct owners *c = core_of(o, q);

    if (c != NULL && c->epoch == worker->epoch &&
        c->slice[i].at.task[worker->self] < worker->slice[i].acked_task) {
        crew_fail(&o->s, "A: %s %u of slice %u has not what is acknowledged",
                  what, q, i);
    }
}

/* False: something is acknowledged that no machine had. A peer that owns a
 * slice without a backup is told before its machine has filled the slot. */
static bool check_acks(struct oracle *o, uint32_t peer, const struct owners *c)
{
    bool all = true;

    for (uint32_t i = 0; i < c->opt.slices; i++) {
        const struct owners_slice *s = &c->slice[i];
        struct piece *p;

        if (s->acked_task == 0) {
            continue;
        }
        if (s->acked_task != o->acked[peer][i]) {
            o->acked[peer][i] = s->acked_task;
            note_acked(o, c, i);
            check_holder(o, c, i, s->owner, "owner");
            check_holder(o, c, i, s->backup, "backup");
        }
        p = piece_find(o, peer, i, s->acked_task);
        all = all && p != NULL;
        o->n_acked += p != NULL && !p->acked;
        if (p != NULL) {
            p->acked = true;
        }
    }
    return all;
}

/* I: for the first time after all have stopped. */
static void check_resumed(struct oracle *o,
                          uint32_t peer,
                          const struct owners *c,
                          uint32_t i)
{
    const struct owners_slice *s = &c->slice[i];
    const struct slice_version at = {.generation = s->base,
                                     .position = s->position};
    struct slice_version newest = {0};

    for (uint32_t k = 0; k < c->n; k++) {
        uint32_t q = number(o, c, k);
        struct slice_version v =
            q < o->s.n ? local_slice_on_disk(o->s.local, q, i) : newest;

        newest = is_newer(&v, &newest) ? v : newest;
    }
    if (!s->is_reading && is_newer(&newest, &at)) {
        crew_fail(&o->s,
                  "I: peer %u begins slice %u at %" PRIu64 ".%" PRIu64
                  ", and a disk has %" PRIu64 ".%" PRIu64,
                  peer, i, at.generation, at.position, newest.generation,
                  newest.position);
    } else if (s->is_reading && newest.generation >= s->base) {
        crew_fail(&o->s, "I: peer %u begins slice %u with a reading", peer, i);
    } else if (s->base == 0 && o->acked_at[i].generation > 0) {
        crew_fail(&o->s, "I: peer %u begins slice %u from the seed", peer, i);
    }
    o->n_resumed++;
}

/* D. */
static void
check_base(struct oracle *o, uint32_t peer, const struct owners *c, uint32_t i)
{
    const struct owners_slice *s = &c->slice[i];
    /* Both that held it died, and one came back with its last mark. */
    const struct slice_version at = {.generation = s->base,
                                     .position = s->position};

    if (s->base >= o->opened[i] && !s->is_reading &&
        !is_newer(&o->acked_at[i], &at)) {
        return;
    }
    o->anew[i] = true;
    for (uint32_t k = 0; k < c->n; k++) {
        uint32_t q = number(o, c, k);
        const struct owners *d = core_of(o, q);

        if (q != peer && d != NULL && d->epoch == c->epoch &&
            d->slice[i].held && d->slice[i].at.generation >= o->opened[i] &&
            d->slice[i].at.generation < c->epoch &&
            (d->slice[i].at.generation > s->base ||
             (d->slice[i].at.generation == s->base &&
              (s->is_reading || d->slice[i].at.position > s->position)))) {
            crew_fail(&o->s,
                      "D: peer %u begins slice %u at %" PRIu64 ".%" PRIu64
                      "%s, and %u has %" PRIu64 ".%" PRIu64,
                      peer, i, s->base, s->position,
                      s->is_reading ? ", a reading" : "", q,
                      d->slice[i].at.generation, d->slice[i].at.position);
        }
    }
}

static void check_open(struct oracle *o, uint32_t peer, const struct owners *c)
{
    for (uint32_t i = 0; i < c->opt.slices; i++) {
        enum owners_phase phase = c->slice[i].phase;

        if ((phase == OWNERS_FEED || phase == OWNERS_OPEN) &&
            o->fed[i] < c->epoch) {
            if (o->stop_epoch > 0 && o->fed[i] <= o->stop_epoch &&
                c->epoch > o->stop_epoch) {
                check_resumed(o, peer, c, i);
                o->anew[i] = true; /* what no disk had is gone */
                o->opened[i] = 0;
            }
            o->fed[i] = c->epoch;
            check_base(o, peer, c, i);
        }
        if (phase == OWNERS_OPEN && o->opened[i] < c->epoch) {
            o->opened[i] = c->epoch;
        }
    }
}

static void on_logged(void *self, uint32_t peer, const char *text)
{
    struct oracle *o = self;
    bool comes_back = o->s.fault == CREW_KILL || o->s.fault == CREW_RESTART ||
                      o->s.fault == CREW_ALL || o->s.stop > 0;

    if (!comes_back && strstr(text, ", fork") != NULL) {
        crew_fail(&o->s, "F: peer %u goes on without the others", peer);
    }
    o->n_suspects += strstr(text, "does not do its part") != NULL;
}

static void on_after(struct crew *s, uint32_t peer, const struct event *event)
{
    struct oracle *o = s->self;
    const struct owners *c = core_of(o, peer);

    (void)event;
    if (s->stopped && !o->knows_stop) {
        o->knows_stop = true;
        o->stop_epoch = o->epoch; /* 0: before there was a view */
    }
    if (c != NULL && c->epoch > o->epoch) {
        o->epoch = c->epoch;
    }
    if (c == NULL || c->epoch == 0) {
        memset(o->acked[peer], 0, sizeof o->acked[peer]);
        return;
    }
    (void)check_acks(o, peer, c);
    check_open(o, peer, c);
}

/* ---- the end ---------------------------------------------------------- */

static void check_slice(struct oracle *o, const struct owners *c, uint32_t i)
{
    const struct owners_slice *s = &c->slice[i];
    uint32_t owner = number(o, c, s->owner), backup = number(o, c, s->backup);
    uint64_t hash = owner < o->s.n ? local_slice_hash(o->s.local, owner, i) : 0;
    uint32_t at = state_find(&o->slice[i], hash);

    if (at == NONE) {
        crew_fail(&o->s, "C: slice %u is a state that nobody made", i);
        return;
    }
    if (backup < o->s.n && local_slice_hash(o->s.local, backup, i) != hash) {
        crew_fail(&o->s, "C: owner and backup of slice %u differ", i);
    }
    for (uint32_t k = 0; k < o->n_pieces && !o->anew[i]; k++) {
        const struct piece *p = &o->piece[k];

        if (p->slice == i && p->acked &&
            !has(&o->slice[i], at, p->maker, p->task)) {
            crew_fail(&o->s,
                      "H: slice %u lacks an acknowledged task of peer %u", i,
                      p->maker);
        }
    }
}

static void judge(struct oracle *o)
{
    struct crew *s = &o->s;
    const struct owners *c = NULL;
    uint32_t anew = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        c = core_of(o, q) != NULL ? core_of(o, q) : c;
        if (core_of(o, q) != NULL && !check_acks(o, q, core_of(o, q))) {
            crew_fail(s, "A: what is acknowledged to peer %u is not its", q);
        }
    }
    for (uint32_t i = 0; c != NULL && i < c->opt.slices; i++) {
        if (s->r->violations == 0) {
            check_slice(o, c, i);
        }
        anew += o->anew[i];
    }
    if (s->r->violations == 0 && (o->n_acked == 0 || o->n_applied == 0)) {
        crew_fail(s, "nothing was trained");
    }
    if (s->r->violations == 0 && s->fault == CREW_PLAIN && s->mute_ms == 0 &&
        s->stop == 0 && (anew > 0 || o->n_copies > 0)) {
        crew_fail(s, "a slice began anew, and nothing had failed");
    }
    if (s->r->violations == 0 && o->stop_epoch > 0 && o->n_resumed < SLICES) {
        crew_fail(s, "only %" PRIu64 " slices went on after all had stopped",
                  o->n_resumed);
    }
    if (s->r->violations == 0 && s->mute_ms > 0 && o->n_suspects == 0) {
        crew_fail(s, "nobody waits in vain for who moves no data");
    }
    sim_figure(s->r, "resumed", (double)o->n_resumed, SIM_SUM);
    sim_figure(s->r, "suspects", (double)o->n_suspects, SIM_SUM);
    sim_figure(s->r, "acknowledged", (double)o->n_acked, SIM_SUM);
    sim_figure(s->r, "applied", (double)o->n_applied, SIM_SUM);
    sim_figure(s->r, "begun_anew", anew, SIM_SUM);
    sim_figure(s->r, "copies", (double)o->n_copies, SIM_SUM);
}

static void release(struct oracle *o)
{
    for (uint32_t i = 0; i < SLICES; i++) {
        free(o->slice[i].at);
    }
    free(o->piece);
    free(o->acked);
    crew_close(&o->s);
    free(o);
}

int sim_owners_nodes_run(const struct sim_options *opt,
                         struct sim_result *result)
{
    struct oracle *o = world_alloc(sizeof *o);
    int rc;

    o->acked = world_alloc(opt->peers * sizeof *o->acked);
    o->s = (struct crew){
        .name = "owners-nodes",
        .round_ms = 3000,
        .limit_ms = 600000,
        .found_least = 3,
        .alive_least = opt->peers / 2 + 1,
        .record = true,
        .beyond = true,
        .self = o,
        .after = on_after,
        .logged = on_logged,
        .sliced = on_sliced,
        .machines = {.piece_bytes = 512,
                     .n_params = 1003,
                     .slices = SLICES,
                     .codec = CODEC_BF16,
                     .block = 8,
                     .segment_elements = 64,
                     .period = 10,
                     .grace_ms = 3000,
                     .fork_after_ms = 120000,
                     .n_shards = 1,
                     .shard_bytes = 3000,
                     .step_ms = 100,
                     /* Odd seeds: jobs take longer than a message. */
                     .work_ms = opt->seed % 2 == 0 ? 5 : 60,
                     .tokens_per_step = 64,
                     .lr = 0.7F,
                     .mu = 0.5F},
    };
    rc = crew_open(&o->s, opt, result);
    if (rc != 0) {
        free(o->acked);
        free(o);
        return rc;
    }
    crew_run(&o->s);
    judge(o);
    release(o);
    return result->violations > 0;
}
