/* owners_move.c - see owners.h: what is asked for, and what comes of it.
 *
 * A slot is asked for anew, under the next attempt, when nothing of it has come
 * for quiet_ms: the question, its answer or the bytes may be lost. Pieces and
 * readings are given up after a while, and the slot is another's: who submits
 * says so again, and what is to be read is asked for in turn. */
#include "p2p/owners_internal.h"

#include <string.h>

#include "proto/base/err.h"

#define BIT           OWNERS_BIT
#define PIECE_TRIES   8
#define READING_TRIES 2

/* ---- slots ------------------------------------------------------------ */

static void slots_of(const struct owners *o,
                     enum owners_what what,
                     uint32_t *first,
                     uint32_t *end)
{
    uint32_t records = o->opt.records, readings = o->opt.readings;

    if (what == OWNERS_PIECE) {
        *first = records + readings;
        *end = o->n_slots;
    } else if (what == OWNERS_READING) {
        *first = records;
        *end = records + readings;
    } else {
        *first = 0;
        *end = records;
    }
}

/* A free one; OWNERS_NOBODY. */
static uint32_t slot_free(const struct owners *o, enum owners_what what)
{
    uint32_t first, end;

    slots_of(o, what, &first, &end);
    while (first < end && o->slot[first].used) {
        first++;
    }
    return first < end ? first : OWNERS_NOBODY;
}

/* Where this of slice i is on its way or here; OWNERS_NOBODY. */
static uint32_t
slot_of(const struct owners *o, enum owners_what what, uint32_t i)
{
    for (uint32_t k = 0; k < o->n_slots; k++) {
        const struct owners_slot *t = &o->slot[k];

        if (t->used && t->what == what && t->slice == i) {
            return k;
        }
    }
    return OWNERS_NOBODY;
}

static void say_want(struct owners *o, uint32_t slot, struct owners_out *out)
{
    struct owners_slot *t = &o->slot[slot];
    struct owners_action *a = owners_add(out, OWNERS_TAKE);
    struct owners_message *m;

    t->attempt++;
    t->asked_ms = o->now_ms;
    t->has_head = t->has_bytes = false;
    a->peer = t->peer;
    a->slot = slot;
    a->attempt = t->attempt;
    a->what = t->what;
    a->slice = t->slice;
    m = owners_say(o, out, BIT(t->peer), OWNERS_WANT, t->slice);
    m->what = t->what;
    m->slot = slot;
    m->attempt = t->attempt;
    m->task = t->task;
    m->position = t->position;
}

/* The caller names worker, task and position where there are such. */
static struct owners_slot *slot_take(struct owners *o,
                                     uint32_t slot,
                                     enum owners_what what,
                                     uint32_t i,
                                     uint32_t peer)
{
    struct owners_slot *t = &o->slot[slot];
    uint64_t attempt = t->attempt;

    *t = (struct owners_slot){.used = true,
                              .what = what,
                              .slice = i,
                              .peer = peer,
                              .worker = OWNERS_NOBODY,
                              .attempt = attempt};
    return t;
}

static void slot_drop(struct owners *o, uint32_t slot, struct owners_out *out)
{
    struct owners_slot *t = &o->slot[slot];
    struct owners_action *a;

    if (t->used && !t->here) {
        a = owners_add(out, OWNERS_DROP);
        a->slot = slot;
        a->attempt = t->attempt;
    }
    t->used = false;
}

void owners_drop(struct owners *o, uint32_t slot, struct owners_out *out)
{
    slot_drop(o, slot, out);
}

/* ---- asking ----------------------------------------------------------- */

static void want(struct owners *o,
                 enum owners_what what,
                 uint32_t i,
                 uint32_t peer,
                 struct owners_out *out)
{
    uint32_t slot = slot_free(o, what);
    const struct owners_slice *s = &o->slice[i];
    struct owners_slot *t;

    if (slot == OWNERS_NOBODY || slot_of(o, what, i) != OWNERS_NOBODY) {
        return;
    }
    t = slot_take(o, slot, what, i, peer);
    if (what == OWNERS_RECORD) {
        t->worker = s->said.worker;
        t->task = s->said.task;
        t->position = s->said.position;
    }
    say_want(o, slot, out);
}

/* Ship the piece that has waited longest. */
static void ship(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    uint32_t first = OWNERS_NOBODY;

    if (s->phase != OWNERS_OPEN || s->shipped != OWNERS_NOBODY) {
        return;
    }
    for (uint32_t k = 0; k < o->n_slots; k++) {
        const struct owners_slot *t = &o->slot[k];

        if (t->used && t->here && t->what == OWNERS_PIECE && t->slice == i &&
            (first == OWNERS_NOBODY || t->order < o->slot[first].order)) {
            first = k;
        }
    }
    if (first == OWNERS_NOBODY) {
        return;
    }
    s->shipped = first;
    s->since_ms = o->now_ms;
    if (s->backup == OWNERS_NOBODY) {
        owners_shipped(o, i, out);
        ship(o, i, out);
    } else {
        owners_say_log(o, i, out);
    }
}

void owners_say_log(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    const struct owners_slot *t = &o->slot[s->shipped];
    struct owners_message *m =
        owners_say(o, out, BIT(s->backup), OWNERS_LOG, i);

    m->position = s->at.position + 1;
    m->worker = t->worker;
    m->task = t->task;
    m->size = o->n;
    s->said_ms = o->now_ms;
}

/* One piece of those that were submitted, the workers in turn. */
static bool want_piece(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    uint32_t slot = slot_free(o, OWNERS_PIECE);

    for (uint32_t k = 0; k < o->n && slot != OWNERS_NOBODY; k++) {
        uint32_t who = (s->turn + k) % o->n;
        struct owners_slot *t;

        if (s->asked[who] == 0) {
            continue;
        }
        t = slot_take(o, slot, OWNERS_PIECE, i, who);
        t->worker = who;
        t->task = s->asked[who];
        s->asked[who] = 0;
        s->turn = who + 1;
        if (who != o->self) {
            say_want(o, slot, out);
        } else {
            struct owners_action *a = owners_add(out, OWNERS_FILL);

            a->slice = i;
            a->slot = slot;
            a->task = t->task;
            t->here = true;
            t->order = ++o->order;
        }
        return true;
    }
    return false;
}

/* Slices take turns, so that each gets on. */
static void want_pieces(struct owners *o, struct owners_out *out)
{
    bool any = true;

    while (any) {
        any = false;
        for (uint32_t k = 0; k < o->opt.slices; k++) {
            uint32_t i = (o->piece_turn + k) % o->opt.slices;

            if (o->slice[i].phase == OWNERS_OPEN && want_piece(o, i, out)) {
                o->piece_turn = i + 1;
                any = true;
            }
        }
    }
}

/* A slice was read. */
static void was_read(struct owners *o,
                     uint32_t i,
                     uint32_t slot,
                     const struct owners_version *v,
                     struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    struct owners_action *a = owners_add(out, OWNERS_KEEP);

    a->slice = i;
    a->slot = slot;
    s->seen = *v;
    s->wanted = false;
    if (s->acked_task > v->task[o->self]) {
        a = owners_add(out, OWNERS_LOST);
        a->slice = i;
        a->task = s->acked_task;
        s->acked_task = v->task[o->self];
    }
    if (s->held && s->owner != o->self && s->backup != o->self) {
        s->held = false; /* it is open: both have it */
        owners_add(out, OWNERS_FORGET)->slice = i;
    }
    for (uint32_t k = 0; k < o->opt.slices; k++) {
        if (o->slice[k].wanted) {
            return;
        }
    }
    o->gathering = false;
    (void)owners_add(out, OWNERS_GATHERED);
}

static void want_readings(struct owners *o, struct owners_out *out)
{
    uint32_t from = o->read_turn;

    for (uint32_t k = 0; k < o->opt.slices && o->gathering; k++) {
        uint32_t i = (from + k) % o->opt.slices;
        struct owners_slice *s = &o->slice[i];

        if (!s->wanted) {
            continue;
        }
        if (s->owner != o->self) {
            want(o, OWNERS_READING, i, s->owner, out);
        } else if (s->phase == OWNERS_OPEN) {
            was_read(o, i, OWNERS_NOBODY, &s->at, out);
        }
    }
}

void owners_pump(struct owners *o, struct owners_out *out)
{
    if (o->epoch == 0) {
        return;
    }
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        const struct owners_slice *s = &o->slice[i];

        if (s->phase == OWNERS_FETCH) {
            want(o, s->is_reading ? OWNERS_COPY : OWNERS_STATE, i, s->source,
                 out);
        }
        if (s->follow) {
            want(o, OWNERS_STATE, i, s->owner, out);
        } else if (s->record) {
            want(o, OWNERS_RECORD, i, s->owner, out);
        }
    }
    want_pieces(o, out);
    want_readings(o, out);
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        ship(o, i, out);
    }
}

uint64_t owners_patience_ms(const struct owners *o, const struct owners_slot *t)
{
    uint64_t answer_ms = 2ULL * o->opt.resend_ms;
    bool asks = t->what != OWNERS_PIECE && t->what != OWNERS_RECORD;

    /* A slice that is not open yet is not read, and nobody says so. */
    return asks && !t->has_head && !t->has_bytes && answer_ms < o->opt.quiet_ms
               ? answer_ms
               : o->opt.quiet_ms;
}

void owners_retry(struct owners *o, struct owners_out *out)
{
    for (uint32_t k = 0; k < o->n_slots; k++) {
        struct owners_slot *t = &o->slot[k];

        if (!t->used || t->here ||
            o->now_ms < t->asked_ms + owners_patience_ms(o, t)) {
            continue;
        }
        slot_drop(o, k, out);
        t->tries++;
        if (t->what == OWNERS_READING && t->tries >= READING_TRIES) {
            o->read_turn = t->slice + 1; /* another one first */
        } else if (t->what != OWNERS_PIECE || t->tries < PIECE_TRIES) {
            t->used = true;
            say_want(o, k, out);
        } else { /* it submits, and nothing comes of it */
            owners_add(out, OWNERS_SUSPECT)->to = BIT(t->peer);
        }
    }
}

/* ---- giving ----------------------------------------------------------- */

static void give(struct owners *o,
                 uint32_t to,
                 const struct owners_message *m,
                 const struct owners_version *v,
                 struct owners_out *out)
{
    struct owners_action *a;

    if (v != NULL) {
        struct owners_message *h =
            owners_say(o, out, BIT(to), OWNERS_HEAD, m->slice);

        h->slot = m->slot;
        h->attempt = m->attempt;
        h->generation = v->generation;
        h->position = v->position;
        h->flush = v->flush;
        h->size = v->size;
        h->count = v->count;
        memcpy(out->task, v->task, sizeof out->task);
    }
    a = owners_add(out, OWNERS_GIVE);
    a->peer = to;
    a->slice = m->slice;
    a->what = m->what;
    a->slot = m->slot;
    a->attempt = m->attempt;
    a->task = m->task;
    a->from =
        m->what == OWNERS_RECORD ? o->slice[m->slice].shipped : OWNERS_NOBODY;
}

void owners_on_want(struct owners *o,
                    uint32_t from,
                    const struct owners_message *m,
                    struct owners_out *out)
{
    const struct owners_slice *s = &o->slice[m->slice];
    bool ours = s->owner == o->self;

    if (m->slot >= OWNERS_SLOTS_MAX || m->what >= OWNERS_WHAT_COUNT ||
        (m->what == OWNERS_RECORD && from != s->backup) ||
        (m->what == OWNERS_STATE && from != s->owner && from != s->backup) ||
        ((m->what == OWNERS_PIECE || m->what == OWNERS_COPY) &&
         from != s->owner)) {
        o->malformed++;
    } else if (m->what == OWNERS_PIECE) {
        if (o->task != 0 && m->task == o->task) {
            give(o, from, m, NULL, out);
        }
    } else if (m->what == OWNERS_RECORD) {
        if (s->phase == OWNERS_OPEN && s->shipped != OWNERS_NOBODY &&
            m->position == s->at.position + 1) {
            give(o, from, m, NULL, out);
        }
    } else if (m->what == OWNERS_STATE) {
        if (s->held && (!ours || s->phase == OWNERS_FEED)) {
            give(o, from, m, &s->at, out);
        }
    } else if (m->what == OWNERS_COPY) {
        give(o, from, m, &s->seen, out);
    } else if (ours && s->phase == OWNERS_OPEN) {
        give(o, from, m, &s->at, out);
    }
}

/* ---- what came -------------------------------------------------------- */

static void load(struct owners *o, uint32_t slot, struct owners_out *out)
{
    const struct owners_slot *t = &o->slot[slot];
    struct owners_slice *s = &o->slice[t->slice];
    struct owners_action *a = owners_add(out, OWNERS_LOAD);

    a->slice = t->slice;
    a->slot = slot;
    a->what = t->what;
    a->generation = t->head.generation;
    s->at = t->head;
    s->held = true;
    if (t->what == OWNERS_COPY) {
        s->at.count = 0;
    }
}

/* A state is here, whole. */
static void state_here(struct owners *o, uint32_t slot, struct owners_out *out)
{
    struct owners_slot *t = &o->slot[slot];
    struct owners_slice *s = &o->slice[t->slice];

    t->used = false;
    if (s->phase == OWNERS_FETCH) {
        if (t->head.generation != s->generation ||
            t->head.position < s->position) {
            o->malformed++; /* not what it said: the others */
            s->shunned |= BIT(s->source);
            owners_ask(o, t->slice, out);
            return;
        }
        load(o, slot, out);
        owners_feed(o, t->slice, out);
    } else if (s->follow && t->head.generation == o->epoch &&
               t->head.position == s->said.position) {
        load(o, slot, out);
        s->follow = false;
        owners_say(o, out, BIT(s->owner), OWNERS_HELD, t->slice)->position =
            s->at.position;
    }
}

static void record_here(struct owners *o, uint32_t slot, struct owners_out *out)
{
    struct owners_slot *t = &o->slot[slot];
    struct owners_slice *s = &o->slice[t->slice];

    t->used = false;
    if (!s->record || s->said.position != t->position ||
        t->position != s->at.position + 1) {
        return;
    }
    owners_append(o, t->slice, slot, s->said.size, out);
    s->record = false;
    owners_say(o, out, BIT(s->owner), OWNERS_HELD, t->slice)->position =
        s->at.position;
}

static void arrived(struct owners *o, uint32_t slot, struct owners_out *out)
{
    struct owners_slot *t = &o->slot[slot];

    switch (t->what) {
    case OWNERS_PIECE:
        t->here = true;
        t->order = ++o->order;
        return;
    case OWNERS_RECORD:
        record_here(o, slot, out);
        return;
    case OWNERS_READING:
        t->used = false;
        was_read(o, t->slice, slot, &t->head, out);
        return;
    default:
        state_here(o, slot, out);
    }
}

static bool is_whole(const struct owners_slot *t)
{
    return t->has_bytes &&
           (t->has_head || t->what == OWNERS_PIECE || t->what == OWNERS_RECORD);
}

void owners_on_head(struct owners *o,
                    uint32_t from,
                    const struct owners_message *m,
                    const uint64_t *task,
                    struct owners_out *out)
{
    struct owners_slot *t = m->slot < o->n_slots ? &o->slot[m->slot] : NULL;

    if (t == NULL || task == NULL || m->size > VIEW_MEMBERS_MAX ||
        m->count >= m->size) {
        o->malformed++;
        return;
    }
    if (!t->used || t->here || t->has_head || t->attempt != m->attempt ||
        t->peer != from || t->slice != m->slice || t->what == OWNERS_PIECE ||
        t->what == OWNERS_RECORD) {
        return; /* late */
    }
    t->head = (struct owners_version){.generation = m->generation,
                                      .position = m->position,
                                      .flush = m->flush,
                                      .size = m->size,
                                      .count = m->count};
    memcpy(t->head.task, task, o->n * sizeof task[0]);
    t->has_head = true;
    if (is_whole(t)) {
        arrived(o, m->slot, out);
    }
}

void owners_taken(struct owners *o,
                  uint32_t slot,
                  uint64_t attempt,
                  int rc,
                  uint64_t now_ms,
                  struct owners_out *out)
{
    struct owners_slot *t = slot < o->n_slots ? &o->slot[slot] : NULL;

    if (t == NULL || !t->used || t->here || t->has_bytes ||
        t->attempt != attempt) {
        return;
    }
    o->now_ms = now_ms;
    if (rc == LOCO_ENUMERIC && t->what == OWNERS_PIECE) {
        owners_refuse(o, slot, out);
    } else if (rc == 0) {
        t->has_bytes = true;
        t->asked_ms = now_ms;
        if (is_whole(t)) {
            arrived(o, slot, out);
        }
    } /* else it is asked for again in its time */
    owners_pump(o, out);
}

void owners_moved(struct owners *o,
                  uint32_t slot,
                  uint64_t attempt,
                  uint64_t now_ms)
{
    struct owners_slot *t = slot < o->n_slots ? &o->slot[slot] : NULL;

    if (t == NULL || !t->used || t->attempt != attempt) {
        return;
    }
    t->asked_ms = now_ms;
    if (t->what == OWNERS_READING) {
        o->slice[t->slice].wanted_ms = now_ms;
    }
    if (o->slice[t->slice].phase == OWNERS_FETCH) {
        o->slice[t->slice].since_ms = now_ms;
    }
}
