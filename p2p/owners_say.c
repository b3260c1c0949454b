/* owners_say.c - see owners.h: what members say to each other. */
#include "p2p/owners_internal.h"

#include "proto/base/err.h"

#define BIT OWNERS_BIT

/* ---- what others say -------------------------------------------------- */

static void on_ask(struct owners *o,
                   uint32_t from,
                   const struct owners_message *m,
                   struct owners_out *out)
{
    const struct owners_slice *s = &o->slice[m->slice];
    struct owners_message *r;

    if (from != s->owner) {
        o->malformed++;
        return;
    }
    r = owners_say(o, out, BIT(from), OWNERS_HOLDING, m->slice);
    r->held = s->held;
    r->generation = s->held ? s->at.generation : 0;
    r->position = s->held ? s->at.position : 0;
    r->read_generation = s->seen.generation;
    r->read_position = s->seen.position;
}

/* Whether that can be: a state of the last epoch has who was its owner or
 * backup. */
static bool could_hold(const struct owners *o,
                       uint32_t from,
                       const struct owners_message *m)
{
    const struct owners_slice *s = &o->slice[m->slice];

    return m->generation < o->epoch &&
           (m->generation == 0 || m->generation != o->before ||
            from == s->was_owner || from == s->was_backup);
}

static void on_holding(struct owners *o,
                       uint32_t from,
                       const struct owners_message *m,
                       struct owners_out *out)
{
    struct owners_slice *s = &o->slice[m->slice];

    if (s->phase != OWNERS_GATHER || (s->heard & BIT(from)) != 0) {
        return; /* again */
    }
    s->heard |= BIT(from);
    if (m->held && could_hold(o, from, m)) {
        owners_consider(s, from, false, m->generation, m->position);
    } else {
        o->malformed += m->held;
    }
    if (m->read_generation < o->epoch) {
        owners_consider(s, from, true, m->read_generation, m->read_position);
    } else {
        o->malformed++;
    }
    if (__builtin_popcountll(s->heard) == (int)o->n) {
        owners_choose(o, m->slice, out);
    }
}

static void say_held(struct owners *o, uint32_t i, struct owners_out *out)
{
    const struct owners_slice *s = &o->slice[i];

    owners_say(o, out, BIT(s->owner), OWNERS_HELD, i)->position =
        s->at.position;
}

static void on_follow(struct owners *o,
                      uint32_t from,
                      const struct owners_message *m,
                      struct owners_out *out)
{
    struct owners_slice *s = &o->slice[m->slice];

    if (from != s->owner || o->self != s->backup) {
        o->malformed++;
        return;
    }
    if (s->held && s->at.generation == o->epoch) {
        say_held(o, m->slice, out);
        return;
    }
    if (m->generation == 0 && m->position == 0) {
        owners_build(o, m->slice, out);
    } else if (!s->held || s->at.generation != m->generation ||
               s->at.position != m->position) {
        s->follow = true;
        s->said = *m;
        return; /* owners_pump() */
    }
    s->at.generation = o->epoch;
    say_held(o, m->slice, out);
}

static void on_log(struct owners *o,
                   uint32_t from,
                   const struct owners_message *m,
                   struct owners_out *out)
{
    struct owners_slice *s = &o->slice[m->slice];

    if (from != s->owner || o->self != s->backup || m->worker >= o->n ||
        m->task == 0 || m->size == 0 || m->size > VIEW_MEMBERS_MAX) {
        o->malformed++;
        return;
    }
    if (!s->held || s->at.generation != o->epoch ||
        m->position > s->at.position + 1) {
        return; /* it will say FOLLOW */
    }
    if (m->position <= s->at.position) {
        say_held(o, m->slice, out);
    } else if (!s->record) {
        s->record = true;
        s->said = *m;
    }
}

static void on_held(struct owners *o,
                    uint32_t from,
                    const struct owners_message *m,
                    struct owners_out *out)
{
    struct owners_slice *s = &o->slice[m->slice];

    if (s->owner != o->self || from != s->backup) {
        o->malformed++;
    } else if (s->phase == OWNERS_FEED && m->position == s->at.position) {
        owners_open(o, m->slice);
    } else if (s->phase == OWNERS_OPEN && s->shipped != OWNERS_NOBODY &&
               m->position == s->at.position + 1) {
        owners_shipped(o, m->slice, out);
    }
}

static void on_ack(struct owners *o,
                   uint32_t from,
                   const struct owners_message *m,
                   struct owners_out *out)
{
    struct owners_slice *s = &o->slice[m->slice];
    struct owners_action *a;
    uint32_t refused = 0;

    if (from != s->owner) {
        o->malformed++;
        return;
    }
    if (o->task == 0 || m->task != o->task || s->acked) {
        return; /* again */
    }
    s->acked = true;
    s->refused = m->refused;
    s->acked_task = m->refused ? s->acked_task : m->task;
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        if (!o->slice[i].acked) {
            return;
        }
        refused += o->slice[i].refused;
    }
    a = owners_add(out, OWNERS_SUBMITTED);
    a->task = o->task;
    a->refused = refused;
    o->task = 0;
}

static void say_ack(struct owners *o,
                    uint32_t i,
                    uint32_t to,
                    uint64_t task,
                    bool refused,
                    struct owners_out *out)
{
    struct owners_message own = {.slice = i, .task = task, .refused = refused};
    struct owners_message *m = &own;

    if (to != o->self) {
        m = owners_say(o, out, BIT(to), OWNERS_ACK, i);
        m->task = task;
        m->refused = refused;
    } else {
        on_ack(o, to, m, out);
    }
}

void owners_shipped(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    uint32_t slot = s->shipped;
    uint32_t worker = o->slot[slot].worker;
    uint64_t task = o->slot[slot].task;

    owners_append(o, i, slot, o->n, out);
    o->slot[slot].used = false;
    s->shipped = OWNERS_NOBODY;
    say_ack(o, i, worker, task, false, out);
}

void owners_refuse(struct owners *o, uint32_t slot, struct owners_out *out)
{
    struct owners_slot *t = &o->slot[slot];

    t->used = false;
    o->n_refused++;
    say_ack(o, t->slice, t->worker, t->task, true, out);
}

static void on_submit(struct owners *o,
                      uint32_t from,
                      const struct owners_message *m,
                      struct owners_out *out)
{
    struct owners_slice *s = &o->slice[m->slice];

    if (s->owner != o->self || m->task == 0) {
        o->malformed++;
        return;
    }
    if (s->phase != OWNERS_OPEN) {
        return; /* frozen: it comes again */
    }
    if (m->task <= s->at.task[from]) {
        o->n_again++;
        say_ack(o, m->slice, from, m->task, false, out);
        return;
    }
    if (o->opt.stale_most > 0 && m->position <= s->at.position &&
        s->at.position - m->position > o->opt.stale_most) {
        o->n_refused++;
        say_ack(o, m->slice, from, m->task, true, out);
        return;
    }
    for (uint32_t k = 0; k < o->n_slots; k++) {
        const struct owners_slot *t = &o->slot[k];

        if (t->used && t->what == OWNERS_PIECE && t->slice == m->slice &&
            t->worker == from) {
            return; /* it is on its way */
        }
    }
    s->asked[from] = m->task;
}

static void hear(struct owners *o,
                 uint32_t from,
                 const struct owners_message *m,
                 const uint64_t *task,
                 struct owners_out *out)
{
    switch (m->kind) {
    case OWNERS_ASK:
        on_ask(o, from, m, out);
        return;
    case OWNERS_HOLDING:
        on_holding(o, from, m, out);
        return;
    case OWNERS_FOLLOW:
        on_follow(o, from, m, out);
        return;
    case OWNERS_LOG:
        on_log(o, from, m, out);
        return;
    case OWNERS_HELD:
        on_held(o, from, m, out);
        return;
    case OWNERS_SUBMIT:
        on_submit(o, from, m, out);
        return;
    case OWNERS_WANT:
        owners_on_want(o, from, m, out);
        return;
    case OWNERS_HEAD:
        owners_on_head(o, from, m, task, out);
        return;
    case OWNERS_ACK:
        on_ack(o, from, m, out);
        return;
    default:
        o->malformed++;
    }
}

void owners_recv(struct owners *o,
                 const struct peer_id *from,
                 const struct owners_message *m,
                 const uint64_t *task,
                 uint64_t now_ms,
                 struct owners_out *out)
{
    int who = owners_member_of(o, from);

    if (m->epoch != o->epoch) {
        o->stale++;
        return;
    }
    if (who < 0 || (uint32_t)who == o->self || m->slice >= o->opt.slices) {
        o->malformed++;
        return;
    }
    o->now_ms = now_ms;
    hear(o, (uint32_t)who, m, task, out);
    owners_pump(o, out);
}

/* ---- the own task ----------------------------------------------------- */

static void say_submit(struct owners *o, struct owners_out *out)
{
    o->submit_ms = o->now_ms;
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        struct owners_slice *s = &o->slice[i];
        struct owners_message *m;

        if (s->acked || s->owner == o->self) {
            continue;
        }
        m = owners_say(o, out, BIT(s->owner), OWNERS_SUBMIT, i);
        m->task = o->task;
        m->generation = s->seen.generation;
        m->position = s->seen.position;
    }
}

static void submit_to_self(struct owners *o, struct owners_out *out)
{
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        struct owners_slice *s = &o->slice[i];
        struct owners_message m = {.slice = i,
                                   .task = o->task,
                                   .generation = s->seen.generation,
                                   .position = s->seen.position};

        if (!s->acked && s->owner == o->self) {
            on_submit(o, o->self, &m, out);
        }
    }
}

void owners_say_submit(struct owners *o, struct owners_out *out)
{
    say_submit(o, out);
    submit_to_self(o, out);
}

int owners_submit(struct owners *o,
                  uint64_t task,
                  uint64_t now_ms,
                  struct owners_out *out)
{
    if (o->epoch == 0 || o->task != 0 || task == 0) {
        return LOCO_EINVAL;
    }
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        if (task <= o->slice[i].acked_task) {
            return LOCO_EINVAL;
        }
    }
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        o->slice[i].acked = o->slice[i].refused = false;
    }
    o->now_ms = now_ms;
    o->task = task;
    owners_say_submit(o, out);
    owners_pump(o, out);
    return 0;
}

void owners_gather(struct owners *o, uint64_t now_ms, struct owners_out *out)
{
    o->now_ms = now_ms;
    o->gathering = true;
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        o->slice[i].wanted = true;
        o->slice[i].wanted_ms = now_ms;
    }
    owners_pump(o, out);
}
