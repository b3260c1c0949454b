/* owners_world.c - see owners_world.h. */
#include "tests/sim/owners_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "train/sync/slices.h"

#define DOUBT_US 20000000

enum what {
    MESSAGE,
    MOVED,
    BYTES,
    TRAINED,
    GATHER,
    VIEW,
    NOTICE,
    TICK,
    STRIKE,
    BACK
};

struct ow_event {
    struct agenda_key key;
    enum what what;
    uint32_t peer, from;
    uint64_t arg; /* STRIKE: comes back after; VIEW: epoch; others: life */
    bool freeze;
    struct owners_message message;
    uint64_t *tasks; /* of a HEAD */
    uint32_t slot;
    uint64_t attempt;
    enum owners_what kind;
    float piece[OW_VALUES];
    struct ow_slice state;
    uint64_t members; /* VIEW */
    uint32_t life;    /* of who gets it: a link ends with it */
};

void ow_fail(struct owners_world *w, const char *fmt, ...)
{
    va_list args;

    if (w->why[0] != '\0') {
        return;
    }
    va_start(args, fmt);
    (void)vsnprintf(w->why, sizeof w->why, fmt, args);
    va_end(args);
}

uint64_t ow_below(struct owners_world *w, uint64_t n)
{
    return n == 0 ? 0 : rng_below(&w->rng, n);
}

static void note(struct owners_world *w, uint64_t x)
{
    uint64_t words[2] = {w->hash, x};

    w->hash = rng_mix(words, 2);
}

/* ---- the queue -------------------------------------------------------- */

static void spill(struct ow_event *e)
{
    free(e->tasks);
    free(e->state.log);
}

static bool is_fault(const struct ow_event *e)
{
    return e->what == STRIKE || e->what == BACK || e->what == NOTICE;
}

static void push(struct owners_world *w, struct ow_event e)
{
    e.life = w->peer[e.peer].life;
    if (!agenda_put(&w->agenda, &e)) {
        ow_fail(w, "out of memory");
        spill(&e);
        return;
    }
    w->faults_left += is_fault(&e);
}

static void after(struct owners_world *w, struct ow_event e, uint64_t us)
{
    e.key.at_us = w->now_us + us;
    push(w, e);
}

/* ---- slices ----------------------------------------------------------- */

void ow_piece(uint32_t peer, uint64_t task, uint32_t slice, float *out)
{
    uint64_t words[3] = {peer, task, slice};
    uint64_t rng = rng_mix(words, 3);

    for (uint32_t i = 0; i < OW_VALUES; i++) {
        out[i] = rng_float(&rng) - 0.5F;
    }
}

bool ow_has(const struct ow_slice *s, uint32_t peer, uint64_t task)
{
    for (uint32_t i = s->n; i-- > 0;) {
        if (s->log[i].peer == peer && s->log[i].task == task) {
            return true;
        }
    }
    return false;
}

void ow_build(struct ow_slice *s, uint32_t slice, uint32_t size)
{
    for (uint32_t i = 0; i < OW_VALUES; i++) {
        s->phi[i] = (float)(slice + 1) + (float)i / 8.0F;
        s->m[i] = s->sum[i] = 0.0F;
    }
    s->size = s->first_size = size;
    s->count = s->n = 0;
    s->whole = true;
}

bool ow_step(struct ow_slice *s, const float *piece, uint32_t next)
{
    const struct method method = {.group = METHOD_OWNERS,
                                  .delayed = true,
                                  .rule = {.lr = 0.7F, .mu = 0.9F}};
    struct delayed_state d = {.phi = s->phi,
                              .m = s->m,
                              .sum = s->sum,
                              .size = s->size,
                              .next = next,
                              .count = s->count};
    int rv = slices_arrive(&method, &d, piece, 1, OW_VALUES);

    s->size = d.size;
    s->count = d.count;
    return rv == 0;
}

bool ow_same(const struct ow_slice *a, const struct ow_slice *b)
{
    return memcmp(a->phi, b->phi, sizeof a->phi) == 0 &&
           memcmp(a->m, b->m, sizeof a->m) == 0 &&
           memcmp(a->sum, b->sum, sizeof a->sum) == 0 && a->n == b->n &&
           a->size == b->size && a->count == b->count &&
           (a->n == 0 || memcmp(a->log, b->log, a->n * sizeof a->log[0]) == 0);
}

/* Copies share no log. */
static void
copy(struct owners_world *w, struct ow_slice *to, const struct ow_slice *from)
{
    struct ow_arrival *log = to->log;
    uint32_t room = to->room;

    if (room < from->n) {
        room = from->n + 16;
        log = realloc(log, room * sizeof *log);
        if (log == NULL) {
            ow_fail(w, "out of memory");
            return;
        }
    }
    *to = *from;
    to->log = log;
    to->room = room;
    if (from->n > 0) {
        memcpy(log, from->log, from->n * sizeof *log);
    }
}

static void
record(struct owners_world *w, struct ow_slice *s, struct ow_arrival a)
{
    if (s->n == s->room) {
        uint32_t room = s->room == 0 ? 16 : 2 * s->room;
        struct ow_arrival *more = realloc(s->log, room * sizeof *more);

        if (more == NULL) {
            ow_fail(w, "out of memory");
            return;
        }
        s->log = more;
        s->room = room;
    }
    s->log[s->n++] = a;
}

/* ---- what peers do ---------------------------------------------------- */

static uint64_t
arrival(struct owners_world *w, uint32_t from, uint32_t to, uint64_t us)
{
    uint64_t *last = &w->peer[from].last_us[to];
    uint64_t at = us + 1 + 500ULL * w->opt.link_ms +
                  ow_below(w, 1000ULL * w->opt.link_ms);

    *last = at > *last ? at : *last;
    return *last;
}

uint32_t ow_number(const struct owners_world *w, uint32_t me, uint32_t k)
{
    const struct owners *c = &w->peer[me].c;

    for (uint32_t i = 0; k < c->n && i < w->opt.peers; i++) {
        if (id_eq(&w->id[i], &c->member[k].id)) {
            return i;
        }
    }
    return OWNERS_NOBODY;
}

uint64_t *ow_acked(const struct owners_world *w,
                   uint32_t slice,
                   uint32_t peer,
                   uint32_t k)
{
    return &w->acked[((uint64_t)slice * w->opt.peers + peer) * w->opt.tasks +
                     k - 1];
}

/* Peer `me` says that slice i has that task. */
static void check_ack(struct owners_world *w,
                      uint32_t me,
                      uint32_t worker,
                      uint32_t i,
                      uint64_t task)
{
    const struct owners *c = &w->peer[me].c;
    uint32_t b = ow_number(w, me, c->slice[i].backup);
    uint64_t *acked = ow_acked(w, i, worker, (uint32_t)task);

    w->checked++;
    w->n_acked += *acked == 0;
    *acked = task;
    if (!ow_has(&w->peer[me].held[i], worker, task)) {
        ow_fail(w, "A: peer %u acknowledges what it has not applied", me);
    }
    if (b != OWNERS_NOBODY && w->peer[b].c.epoch == c->epoch &&
        !ow_has(&w->peer[b].held[i], worker, task)) {
        ow_fail(w, "A: peer %u acknowledges what backup %u has not", me, b);
    }
}

/* What a slice goes on from is older than what it was opened with last: nobody
 * who takes part has the newer state. */
static void check_base(struct owners_world *w, uint32_t me, uint32_t i)
{
    const struct owners *c = &w->peer[me].c;
    const struct owners_slice *s = &c->slice[i];

    w->checked++;
    if (s->base >= w->opened[i] && !s->is_reading) {
        return;
    }
    w->anew[i] = true;
    for (uint32_t k = 0; k < c->n; k++) {
        uint32_t q = ow_number(w, me, k);
        const struct owners_slice *t = &w->peer[q].c.slice[i];

        if (q != me && w->peer[q].alive && w->peer[q].c.epoch == c->epoch &&
            t->held && t->at.generation >= w->opened[i] &&
            t->at.generation < c->epoch) {
            ow_fail(w, "D: peer %u begins slice %u, and %u has a newer state",
                    me, i, q);
        }
    }
}

/* The first that a slice is after all began anew. */
static void check_restart(struct owners_world *w, uint32_t me, uint32_t i)
{
    const struct owners_slice *s = &w->peer[me].c.slice[i];
    const struct owners_version *v = &s->at;

    w->checked++;
    if (w->calm && s->base < w->restart_before && v->flush > w->from_before) {
        ow_fail(w, "F: peer %u begins slice %u with a mark that was given up",
                me, i);
    }
    if (w->calm && v->flush != w->from) {
        ow_fail(w, "F: peer %u begins slice %u at %llu and not at mark %llu",
                me, i, (unsigned long long)v->flush,
                (unsigned long long)w->from);
    }
}

static void check_opened(struct owners_world *w, uint32_t me)
{
    const struct owners *c = &w->peer[me].c;

    for (uint32_t i = 0; i < w->opt.slices && c->epoch != 0; i++) {
        enum owners_phase phase = c->slice[i].phase;

        if ((phase == OWNERS_FEED || phase == OWNERS_OPEN) &&
            w->fed[i] < c->epoch) {
            if (w->restart > 0 && w->fed[i] < w->restart) {
                check_restart(w, me, i);
            }
            w->fed[i] = c->epoch;
            check_base(w, me, i);
        }
        if (phase == OWNERS_OPEN && w->opened[i] < c->epoch) {
            w->opened[i] = c->epoch;
        }
    }
}

/* To itself a peer says nothing. */
static void check_own(struct owners_world *w, uint32_t me)
{
    const struct owners *c = &w->peer[me].c;

    for (uint32_t i = 0; i < w->opt.slices && c->epoch != 0; i++) {
        const struct owners_slice *s = &c->slice[i];

        if (s->owner == c->self && s->acked_task != 0 &&
            *ow_acked(w, i, me, (uint32_t)s->acked_task) == 0) {
            check_ack(w, me, me, i, s->acked_task);
        }
    }
}

static void say(struct owners_world *w,
                uint32_t me,
                const struct owners_action *a,
                const struct owners_out *out)
{
    for (uint32_t k = 0; k < w->peer[me].c.n; k++) {
        uint32_t to = ow_number(w, me, k);
        struct ow_event e = {
            .what = MESSAGE, .peer = to, .from = me, .message = a->message};
        uint32_t times = 1;

        if ((a->to >> k & 1) == 0) {
            continue;
        }
        if (a->message.kind == OWNERS_ACK && a->message.refused) {
            w->n_refused++;
        } else if (a->message.kind == OWNERS_ACK) {
            check_ack(w, me, to, a->message.slice, a->message.task);
        }
        times -= ow_below(w, 1000) < w->opt.lose;
        times += times > 0 && ow_below(w, 1000) < w->opt.repeat;
        while (times-- > 0) {
            e.tasks = NULL;
            if (a->message.kind == OWNERS_HEAD) {
                e.tasks = malloc(sizeof out->task);
                if (e.tasks == NULL) {
                    ow_fail(w, "out of memory");
                    return;
                }
                memcpy(e.tasks, out->task, sizeof out->task);
            }
            e.key.at_us = arrival(w, me, to, w->now_us);
            push(w, e);
        }
    }
}

/* As it is now. */
static void
give(struct owners_world *w, uint32_t me, const struct owners_action *a)
{
    struct ow_peer *p = &w->peer[me];
    struct ow_event e = {.what = BYTES,
                         .peer = ow_number(w, me, a->peer),
                         .from = me,
                         .slot = a->slot,
                         .attempt = a->attempt,
                         .kind = a->what};
    uint64_t us = 1000ULL * w->opt.piece_ms;

    if (e.peer == OWNERS_NOBODY || ow_below(w, 1000) < w->opt.breaks) {
        return;
    }
    switch (a->what) {
    case OWNERS_PIECE:
        ow_piece(me, a->task, a->slice, e.piece);
        break;
    case OWNERS_RECORD:
        memcpy(e.piece, p->slot[a->from].piece, sizeof e.piece);
        break;
    case OWNERS_COPY:
        copy(w, &e.state, &p->read[a->slice]);
        break;
    default:
        us *= a->what == OWNERS_STATE ? 3 : 1;
        copy(w, &e.state, &p->held[a->slice]);
    }
    w->n_bytes += us;
    e.key.at_us = arrival(w, me, e.peer, w->now_us + us / 2);
    push(w, (struct ow_event){.what = MOVED,
                              .key.at_us = e.key.at_us,
                              .peer = e.peer,
                              .slot = e.slot,
                              .attempt = e.attempt});
    e.key.at_us += us / 2;
    push(w, e);
}

/* A step must be made once, with what its worker submitted, and as all make
 * it. */
static void
apply(struct owners_world *w, uint32_t me, const struct owners_action *a)
{
    struct ow_peer *p = &w->peer[me];
    struct ow_slice *s = &p->held[a->slice];
    uint32_t who = ow_number(w, me, a->peer);
    float piece[OW_VALUES];

    w->checked++;
    if (who == OWNERS_NOBODY) {
        ow_fail(w, "B: peer %u applies what is nobody's", me);
        return;
    }
    ow_piece(who, a->task, a->slice, piece);
    if (ow_has(s, who, a->task)) {
        ow_fail(w, "B: peer %u applies task %llx of %u to slice %u twice", me,
                (unsigned long long)a->task, who, a->slice);
    }
    if (memcmp(piece, p->slot[a->slot].piece, sizeof piece) != 0) {
        ow_fail(w, "B: peer %u applies what %u has not submitted", me, who);
    }
    if (s->size != a->size || s->count != a->count) {
        ow_fail(w, "C: peer %u slice %u is at %u of %u, not %u of %u", me,
                a->slice, s->count, s->size, a->count, a->size);
    }
    if (!ow_step(s, p->slot[a->slot].piece, a->next)) {
        ow_fail(w, "C: a step is not finite");
    }
    record(w, s, (struct ow_arrival){who, a->next, a->task});
}

static void
load(struct owners_world *w, uint32_t me, const struct owners_action *a)
{
    struct ow_peer *p = &w->peer[me];
    struct ow_slice *s = &p->held[a->slice];

    copy(w, s,
         a->slot == OWNERS_NOBODY ? &p->read[a->slice]
                                  : &p->slot[a->slot].state);
    if (a->what == OWNERS_COPY) {
        w->n_copies++;
        memset(s->m, 0, sizeof s->m);
        memset(s->sum, 0, sizeof s->sum);
        s->count = 0;
        s->whole = false;
    }
}

/* Its disk has it from now on. */
static void keep_mark(struct owners_world *w, uint32_t me, uint32_t slice)
{
    struct ow_peer *p = &w->peer[me];
    struct ow_kept k = {.slice = slice, .at = p->c.slice[slice].at};

    if (p->n_kept == p->room_kept) {
        uint32_t room = p->room_kept == 0 ? 16 : 2 * p->room_kept;
        struct ow_kept *more = realloc(p->kept, room * sizeof *more);

        if (more == NULL) {
            ow_fail(w, "out of memory");
            return;
        }
        p->kept = more;
        p->room_kept = room;
    }
    copy(w, &k.state, &p->held[slice]);
    p->kept[p->n_kept++] = k;
}

/* Of a time that was given up when all began anew from an earlier mark. */
static bool is_void(const struct owners_world *w, const struct ow_kept *k)
{
    return k->at.generation < w->restart && k->at.flush > w->from;
}

static void forget_void(struct owners_world *w, struct ow_peer *p)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_kept; i++) {
        if (is_void(w, &p->kept[i])) {
            free(p->kept[i].state.log);
        } else {
            p->kept[n++] = p->kept[i];
        }
    }
    p->n_kept = n;
}

/* The last of that number; NULL: none. */
static const struct ow_kept *kept_mark(const struct owners_world *w,
                                       const struct ow_peer *p,
                                       uint32_t slice,
                                       uint64_t flush)
{
    const struct ow_kept *best = NULL;

    for (uint32_t i = 0; i < p->n_kept; i++) {
        const struct ow_kept *k = &p->kept[i];

        if (k->slice == slice && k->at.flush == flush && !is_void(w, k) &&
            (best == NULL || k->at.generation > best->at.generation)) {
            best = k;
        }
    }
    return best;
}

static bool is_whole(const struct owners_world *w, uint64_t in, uint64_t flush)
{
    for (uint32_t s = 0; s < w->opt.slices; s++) {
        bool found = false;

        for (uint32_t i = 0; i < w->opt.peers && !found; i++) {
            found = (in >> i & 1) != 0 &&
                    kept_mark(w, &w->peer[i], s, flush) != NULL;
        }
        if (!found) {
            return false;
        }
    }
    return true;
}

/* All members begin a life: what do they go on from? */
static void begin_anew(struct owners_world *w, uint64_t in)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < w->opt.peers; i++) {
        for (uint32_t k = 0; k < w->peer[i].n_kept; k++) {
            uint64_t flush = w->peer[i].kept[k].at.flush;

            most = flush > most ? flush : most;
        }
    }
    while (most > 0 && !is_whole(w, in, most)) {
        most--;
    }
    w->from_before = w->from;
    w->restart_before = w->restart;
    w->from = most;
    w->restart = w->epoch;
    w->n_restarts++;
    w->calm = true; /* but one that sleeps may bring a newer state */
    for (uint32_t i = 0; i < w->opt.peers; i++) {
        w->calm = w->calm && !w->peer[i].frozen;
    }
    for (uint32_t s = 0; s < w->opt.slices; s++) {
        w->anew[s] = true; /* what came after that mark is gone */
    }
}

static void restore(struct owners_world *w, uint32_t me)
{
    struct ow_peer *p = &w->peer[me];

    for (uint32_t s = 0; s < w->opt.slices; s++) {
        const struct ow_kept *k = kept_mark(w, p, s, w->from);

        if (k == NULL) {
            continue;
        }
        copy(w, &p->held[s], &k->state);
        if (owners_restore(&p->c, s, &k->at) != 0) {
            ow_fail(w, "peer %u cannot go on from mark %llu of slice %u", me,
                    (unsigned long long)w->from, s);
        }
    }
}

static void
mark(struct owners_world *w, uint32_t me, const struct owners_action *a)
{
    const struct ow_slice *s = &w->peer[me].held[a->slice];
    const struct owners_version *v = &w->peer[me].c.slice[a->slice].at;
    uint64_t words[2 * OW_VALUES] = {0};
    struct ow_mark m = {a->slice, a->flush, v->generation, 0};

    memcpy(words, s->phi, sizeof s->phi);
    memcpy(words + OW_VALUES, s->m, sizeof s->m);
    m.hash = rng_mix(words, 2 * OW_VALUES);
    w->checked++;
    if (v->flush != a->flush || v->count != 0) {
        ow_fail(w, "C: peer %u marks slice %u in the middle of a cycle", me,
                a->slice);
    }
    keep_mark(w, me, a->slice);
    for (uint32_t i = 0; i < w->n_marks; i++) {
        const struct ow_mark *q = &w->marks[i];

        if (q->slice == m.slice && q->flush == m.flush &&
            q->generation == m.generation) {
            if (q->hash != m.hash) {
                ow_fail(w, "C: two marks %llu of slice %u",
                        (unsigned long long)m.flush, m.slice);
            }
            return;
        }
    }
    if (w->n_marks == w->room_marks) {
        uint32_t room = w->room_marks == 0 ? 64 : 2 * w->room_marks;
        struct ow_mark *more = realloc(w->marks, room * sizeof *more);

        if (more == NULL) {
            ow_fail(w, "out of memory");
            return;
        }
        w->marks = more;
        w->room_marks = room;
    }
    w->marks[w->n_marks++] = m;
}

static void train(struct owners_world *w, uint32_t me)
{
    struct ow_peer *p = &w->peer[me];

    if (p->n_tasks == w->opt.tasks) {
        p->done = true;
        return;
    }
    p->n_tasks++;
    p->task = p->c.epoch << 32 | p->n_tasks;
    p->training = true;
    after(w, (struct ow_event){.what = TRAINED, .peer = me, .arg = p->task},
          1000ULL * w->opt.train_ms * p->slowness / 2 +
              ow_below(w, 1000ULL * w->opt.train_ms * p->slowness));
}

/* Read all slices, when this call's actions are done. */
static void gather(struct owners_world *w, uint32_t me)
{
    after(w, (struct ow_event){.what = GATHER, .peer = me}, 1);
}

static void
act_slice(struct owners_world *w, uint32_t me, const struct owners_action *a)
{
    struct ow_peer *p = &w->peer[me];

    switch (a->type) {
    case OWNERS_FILL:
        ow_piece(me, a->task, a->slice, p->slot[a->slot].piece);
        return;
    case OWNERS_APPLY:
        apply(w, me, a);
        return;
    case OWNERS_BUILD:
        ow_build(&p->held[a->slice], a->slice, p->c.n);
        return;
    case OWNERS_LOAD:
        load(w, me, a);
        return;
    case OWNERS_MARK:
        mark(w, me, a);
        return;
    case OWNERS_KEEP:
        copy(w, &p->read[a->slice],
             a->slot == OWNERS_NOBODY ? &p->held[a->slice]
                                      : &p->slot[a->slot].state);
        return;
    case OWNERS_LOST:
        w->n_lost++;
        if (!w->anew[a->slice] || ow_has(&p->read[a->slice], me, a->task)) {
            ow_fail(w, "D: peer %u misses what slice %u has", me, a->slice);
        }
        return;
    default:
        return;
    }
}

static void act(struct owners_world *w,
                uint32_t me,
                const struct owners_action *a,
                const struct owners_out *out)
{
    struct ow_peer *p = &w->peer[me];

    note(w, (uint64_t)a->type << 40 | (uint64_t)me << 32 | a->slice);
    switch (a->type) {
    case OWNERS_SAY:
        say(w, me, a, out);
        return;
    case OWNERS_TAKE:
        p->slot[a->slot].attempt = a->attempt;
        return;
    case OWNERS_DROP:
        p->slot[a->slot].attempt = 0;
        return;
    case OWNERS_GIVE:
        give(w, me, a);
        return;
    case OWNERS_SUBMITTED:
        p->task = 0;
        gather(w, me);
        return;
    case OWNERS_GATHERED:
        if (!p->training && p->task == 0) {
            train(w, me);
        }
        return;
    case OWNERS_VOID:
        p->task = 0;
        gather(w, me);
        return;
    case OWNERS_SUSPECT:
        w->n_suspects++;
        return;
    default:
        act_slice(w, me, a);
    }
}

static void tick_later(struct owners_world *w, uint32_t me)
{
    struct ow_peer *p = &w->peer[me];
    uint64_t due = owners_deadline(&p->c);

    if (due == UINT64_MAX || due == p->ticked) {
        return;
    }
    p->ticked = due;
    due *= 1000;
    push(w,
         (struct ow_event){.what = TICK,
                           .peer = me,
                           .key.at_us = due > w->now_us ? due : w->now_us + 1});
}

static void run(struct owners_world *w, uint32_t me, struct owners_out *out)
{
    if (out->n > OWNERS_OUT_MAX) {
        ow_fail(w, "E: peer %u has %u actions at once", me, out->n);
        return;
    }
    check_opened(w, me);
    for (uint32_t i = 0; i < out->n; i++) {
        act(w, me, &out->action[i], out);
    }
    check_own(w, me);
    tick_later(w, me);
}

/* ---- views ------------------------------------------------------------ */

/* It takes half of the last view to found one, or a long time. */
static bool waits_for_half(struct owners_world *w, uint64_t in)
{
    if (2 * __builtin_popcountll(in & w->in) >= __builtin_popcountll(w->in) ||
        (w->doubt_us > 0 && w->now_us >= w->doubt_us + DOUBT_US)) {
        w->doubt_us = 0;
        return false;
    }
    w->doubt_us = w->doubt_us > 0 ? w->doubt_us : w->now_us;
    after(w, (struct ow_event){.what = NOTICE}, 1000000);
    return true;
}

/* Members that the service sees; who came back or was out has the epoch as its
 * joining. */
static void change_view(struct owners_world *w)
{
    bool anew = w->epoch > 0;
    uint64_t in = 0;

    for (uint32_t i = 0; i < w->opt.peers; i++) {
        if (w->peer[i].alive && !w->peer[i].frozen) {
            in |= 1ULL << i;
        }
    }
    if (in == 0) {
        return;
    }
    for (uint32_t i = 0; i < w->opt.peers; i++) {
        anew = anew && ((in >> i & 1) == 0 || !w->peer[i].joined);
    }
    if (anew && waits_for_half(w, in)) {
        return;
    }
    w->epoch++;
    if (anew) {
        begin_anew(w, in);
    }
    for (uint32_t i = 0; i < w->opt.peers; i++) {
        struct ow_peer *p = &w->peer[i];

        if ((in >> i & 1) != 0 && ((w->in >> i & 1) == 0 || !p->joined)) {
            p->epoch_in = w->epoch;
            p->joined = true;
        }
    }
    w->in = in;
    for (uint32_t i = 0; i < w->opt.peers; i++) {
        if ((in >> i & 1) != 0) {
            after(w,
                  (struct ow_event){
                      .what = VIEW, .peer = i, .arg = w->epoch, .members = in},
                  1 + ow_below(w, 1000ULL * w->opt.resend_ms));
        }
    }
}

static void
enter(struct owners_world *w, const struct ow_event *e, struct owners_out *out)
{
    struct ow_peer *p = &w->peer[e->peer];
    struct owners_member m[OW_PEERS_MAX];
    uint32_t n = 0;
    bool first = p->c.epoch == 0;

    if (e->arg != w->epoch) {
        return; /* there is a later one already */
    }
    for (uint32_t i = 0; i < w->opt.peers; i++) {
        if ((e->members >> i & 1) != 0) {
            m[n++] = (struct owners_member){w->id[i], w->peer[i].epoch_in};
        }
    }
    forget_void(w, p);
    if (first && w->from > 0) {
        restore(w, e->peer);
    }
    if (owners_view(&p->c, e->arg, m, n, w->now_us / 1000, out) != 0) {
        ow_fail(w, "peer %u refuses view %llu", e->peer,
                (unsigned long long)e->arg);
    }
    if (first) {
        gather(w, e->peer);
    }
}

static int begin(struct owners_world *w, uint32_t me)
{
    struct ow_peer *p = &w->peer[me];
    struct owners_options o = {.self = w->id[me],
                               .seed = w->opt.seed,
                               .slices = w->opt.slices,
                               .records = w->opt.records,
                               .readings = w->opt.readings,
                               .pieces = w->opt.pieces,
                               .mark_every = w->opt.mark_every,
                               .stale_most = w->opt.stale_most,
                               .resend_ms = w->opt.resend_ms,
                               .stuck_ms = w->opt.stuck_ms};

    p->alive = true;
    p->life++;
    p->joined = p->training = p->done = false;
    p->task = 0;
    p->ticked = 0;
    for (uint32_t i = 0; i < OWNERS_SLOTS_MAX; i++) {
        p->slot[i].attempt = 0;
    }
    return owners_init(&p->c, &o);
}

/* ---- events ----------------------------------------------------------- */

static void
bytes(struct owners_world *w, struct ow_event *e, struct owners_out *out)
{
    struct ow_peer *p = &w->peer[e->peer];
    struct ow_slot *s = &p->slot[e->slot];

    if (s->attempt != e->attempt) {
        return; /* nobody expects it */
    }
    s->attempt = 0;
    memcpy(s->piece, e->piece, sizeof s->piece);
    copy(w, &s->state, &e->state);
    owners_taken(&p->c, e->slot, e->attempt, 0, w->now_us / 1000, out);
}

static void trained(struct owners_world *w,
                    const struct ow_event *e,
                    struct owners_out *out)
{
    struct ow_peer *p = &w->peer[e->peer];

    if (!p->training || p->task != e->arg) {
        return; /* of an earlier life */
    }
    p->training = false;
    if (owners_submit(&p->c, p->task, w->now_us / 1000, out) != 0) {
        ow_fail(w, "peer %u cannot submit", e->peer);
    }
}

static void back(struct owners_world *w, uint32_t me)
{
    struct ow_peer *p = &w->peer[me];

    if (p->frozen) {
        p->frozen = false;
    } else if (!p->alive && begin(w, me) != 0) {
        ow_fail(w, "peer %u cannot begin", me);
    }
    after(w, (struct ow_event){.what = NOTICE}, 1000);
}

static void strike(struct owners_world *w, const struct ow_event *e)
{
    struct ow_peer *p = &w->peer[e->peer];

    if (!p->alive || p->frozen) {
        return;
    }
    w->calm = false;
    p->frozen = e->freeze;
    p->alive = e->freeze;
    after(w, (struct ow_event){.what = NOTICE},
          1 + ow_below(w, 1000ULL * w->opt.notice_ms));
    if (e->arg > 0) {
        after(w, (struct ow_event){.what = BACK, .peer = e->peer},
              1000 * e->arg);
    }
}

/* Who dies forgets what came; who is frozen finds it later. */
static void step(struct owners_world *w, struct ow_event *e)
{
    struct ow_peer *p = &w->peer[e->peer];
    struct owners_out *out = w->out;

    if (e->what == NOTICE) {
        change_view(w);
        return;
    }
    if (e->what == STRIKE) {
        strike(w, e);
        return;
    }
    if (e->what == BACK) {
        back(w, e->peer);
        return;
    }
    if (!p->alive || e->life != p->life) {
        return;
    }
    if (p->frozen) {
        struct ow_event later = *e;

        e->tasks = NULL;
        e->state.log = NULL;
        after(w, later, 50000);
        return;
    }
    out->n = 0;
    if (e->what == MESSAGE) {
        owners_recv(&p->c, &w->id[e->from], &e->message, e->tasks,
                    w->now_us / 1000, out);
    } else if (e->what == MOVED) {
        owners_moved(&p->c, e->slot, e->attempt, w->now_us / 1000);
    } else if (e->what == BYTES) {
        bytes(w, e, out);
    } else if (e->what == GATHER) {
        owners_gather(&p->c, w->now_us / 1000, out);
    } else if (e->what == VIEW) {
        enter(w, e, out);
    } else if (e->what == TRAINED) {
        trained(w, e, out);
    } else {
        p->ticked = 0;
        owners_tick(&p->c, w->now_us / 1000, out);
    }
    run(w, e->peer, out);
}

static bool at_rest(const struct owners_world *w)
{
    for (uint32_t i = 0; i < w->opt.peers; i++) {
        const struct ow_peer *p = &w->peer[i];

        if (p->frozen || (p->alive && (!p->done || p->c.task != 0 ||
                                       p->c.epoch != w->epoch))) {
            return false;
        }
        for (uint32_t k = 0; p->alive && k < w->opt.slices; k++) {
            const struct owners_slice *s = &p->c.slice[k];

            if (p->c.n > 0 && s->owner == p->c.self &&
                (s->phase != OWNERS_OPEN || s->shipped != OWNERS_NOBODY)) {
                return false;
            }
        }
    }
    return true;
}

void ow_run(struct owners_world *w)
{
    uint64_t end_us = 1000 * w->opt.end_ms;
    struct ow_event e;

    change_view(w);
    while (w->why[0] == '\0' && agenda_take(&w->agenda, &e)) {
        w->now_us = e.key.at_us > w->now_us ? e.key.at_us : w->now_us;
        w->faults_left -= is_fault(&e);
        if (w->now_us > end_us) {
            ow_fail(w, "no rest after %llu ms",
                    (unsigned long long)w->opt.end_ms);
        } else {
            step(w, &e);
        }
        spill(&e);
        if (w->faults_left == 0 && at_rest(w)) {
            return;
        }
    }
}

void ow_strike(struct owners_world *w,
               uint32_t peer,
               uint64_t at_ms,
               bool freeze,
               uint64_t back_ms)
{
    push(w, (struct ow_event){.what = STRIKE,
                              .key.at_us = 1000 * at_ms,
                              .peer = peer,
                              .freeze = freeze,
                              .arg = back_ms});
}

/* ---- open, close ------------------------------------------------------ */

struct owners_world *ow_open(const struct ow_options *opt)
{
    struct owners_world *w = calloc(1, sizeof *w);
    uint64_t words[2] = {opt->seed, 0x4f574e};

    if (w == NULL) {
        return NULL;
    }
    w->opt = *opt;
    w->agenda.size = sizeof(struct ow_event);
    w->rng = rng_mix(words, 2);
    w->peer = calloc(opt->peers, sizeof w->peer[0]);
    w->out = calloc(1, sizeof *w->out);
    w->acked = calloc((size_t)opt->slices * opt->peers * opt->tasks,
                      sizeof w->acked[0]);
    if (w->peer == NULL || w->acked == NULL || w->out == NULL) {
        ow_close(w);
        return NULL;
    }
    for (uint32_t i = 0; i < opt->peers; i++) {
        uint64_t x[4];

        for (uint32_t k = 0; k < 4; k++) {
            x[k] = rng_next(&w->rng);
        }
        memcpy(w->id[i].b, x, sizeof x);
        w->id[i].b[0] = (uint8_t)(i + 1); /* ascending */
        w->peer[i].slowness = 1 + (uint32_t)ow_below(w, opt->unequal);
        if (begin(w, i) != 0) {
            ow_close(w);
            return NULL;
        }
        for (uint32_t k = 0; k < opt->slices; k++) {
            ow_build(&w->peer[i].read[k], k, opt->peers);
        }
    }
    return w;
}

void ow_close(struct owners_world *w)
{
    struct ow_event e;

    while (agenda_take(&w->agenda, &e)) {
        spill(&e);
    }
    agenda_free(&w->agenda);
    for (uint32_t i = 0; w->peer != NULL && i < w->opt.peers; i++) {
        for (uint32_t k = 0; k < w->peer[i].n_kept; k++) {
            free(w->peer[i].kept[k].state.log);
        }
        free(w->peer[i].kept);
        for (uint32_t k = 0; k < OWNERS_SLICES_MAX; k++) {
            free(w->peer[i].held[k].log);
            free(w->peer[i].read[k].log);
        }
        for (uint32_t k = 0; k < OWNERS_SLOTS_MAX; k++) {
            free(w->peer[i].slot[k].state.log);
        }
    }
    free(w->peer);
    free(w->marks);
    free(w->acked);
    free(w->out);
    free(w);
}
