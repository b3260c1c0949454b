/* owners.c - see owners.h: who holds a slice, what is agreed, what is said. The
 * ways of bytes are in owners_move.c. */
#include "p2p/owners_internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

#define BIT OWNERS_BIT
#define TAG 0x4f574e455253U /* "OWNERS" */

struct owners_action *owners_add(struct owners_out *out,
                                 enum owners_action_type type)
{
    struct owners_action *a = &out->action[out->n++];

    *a = (struct owners_action){.type = type,
                                .peer = OWNERS_NOBODY,
                                .slot = OWNERS_NOBODY,
                                .from = OWNERS_NOBODY};
    return a;
}

struct owners_message *owners_say(const struct owners *o,
                                  struct owners_out *out,
                                  uint64_t to,
                                  enum owners_kind kind,
                                  uint32_t i)
{
    struct owners_action *a = owners_add(out, OWNERS_SAY);

    a->to = to;
    a->message = (struct owners_message){
        .kind = kind, .epoch = o->epoch, .slice = i, .slot = OWNERS_NOBODY};
    return &a->message;
}

int owners_init(struct owners *o, const struct owners_options *opt)
{
    uint64_t slots =
        (uint64_t)opt->records + opt->readings + (uint64_t)opt->pieces;

    if (opt->slices == 0 || opt->slices > OWNERS_SLICES_MAX ||
        opt->records == 0 || opt->readings == 0 || opt->pieces == 0 ||
        slots > OWNERS_SLOTS_MAX || opt->resend_ms == 0 || opt->stuck_ms == 0) {
        return LOCO_EINVAL;
    }
    memset(o, 0, sizeof *o);
    o->opt = *opt;
    o->opt.quiet_ms = opt->quiet_ms > 0 ? opt->quiet_ms : opt->resend_ms;
    o->n_slots = (uint32_t)slots;
    for (uint32_t k = 0; k < o->n_slots; k++) {
        o->slot[k].attempt = opt->first_attempt;
    }
    return 0;
}

/* ---- who -------------------------------------------------------------- */

static uint64_t
weight(uint64_t seed, uint32_t slice, const struct owners_member *m)
{
    uint64_t words[7] = {seed, TAG, slice};

    memcpy(words + 3, m->id.b, sizeof m->id.b); /* a hash: any byte order */
    return rng_mix(words, sizeof words / sizeof words[0]);
}

void owners_holders(uint64_t seed,
                    uint32_t slice,
                    const struct owners_member *members,
                    uint32_t n,
                    uint32_t *owner,
                    uint32_t *backup)
{
    uint64_t first = 0, second = 0;

    *owner = OWNERS_NOBODY;
    *backup = OWNERS_NOBODY;
    for (uint32_t k = 0; k < n; k++) {
        uint64_t w = weight(seed, slice, &members[k]);

        if (*owner == OWNERS_NOBODY || w > first) {
            *backup = *owner;
            second = first;
            *owner = k;
            first = w;
        } else if (*backup == OWNERS_NOBODY || w > second) {
            *backup = k;
            second = w;
        }
    }
}

int owners_member_of(const struct owners *o, const struct peer_id *id)
{
    for (uint32_t k = 0; k < o->n; k++) {
        if (id_eq(&o->member[k].id, id)) {
            return (int)k;
        }
    }
    return -1;
}

/* ---- opening a slice -------------------------------------------------- */

void owners_open(struct owners *o, uint32_t i)
{
    o->slice[i].phase = OWNERS_OPEN;
    o->slice[i].since_ms = o->now_ms;
}

static void say_follow(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    struct owners_message *m =
        owners_say(o, out, BIT(s->backup), OWNERS_FOLLOW, i);

    m->generation = s->generation;
    m->position = s->at.position;
    s->said_ms = o->now_ms;
}

void owners_feed(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];

    /* A copy has no momentum: it is not what others call by that name. */
    s->base = s->at.generation;
    s->generation = s->is_reading ? UINT64_MAX : s->base;
    s->at.generation = o->epoch;
    s->held = true;
    if (s->backup == OWNERS_NOBODY) {
        owners_open(o, i);
        return;
    }
    s->phase = OWNERS_FEED;
    s->since_ms = o->now_ms;
    say_follow(o, i, out);
}

void owners_build(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];

    owners_add(out, OWNERS_BUILD)->slice = i;
    s->at = (struct owners_version){.size = o->n};
    s->held = true;
}

/* All have said what they hold. */
void owners_choose(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];

    s->since_ms = o->now_ms;
    o->n_rebuilt += s->is_reading;
    if (s->source == OWNERS_NOBODY) {
        owners_build(o, i, out);
    } else if (s->source != o->self) {
        s->phase = OWNERS_FETCH; /* owners_pump() */
        return;
    } else if (s->is_reading) {
        struct owners_action *a = owners_add(out, OWNERS_LOAD);

        a->slice = i;
        a->what = OWNERS_COPY;
        a->generation = s->seen.generation;
        s->at = s->seen;
        s->at.count = 0;
    }
    owners_feed(o, i, out);
}

/* Newer: of a later generation; of one and the same, a state before what
 * somebody read of it; then the longer log. */
void owners_consider(
    struct owners_slice *s, uint32_t who, bool reading, uint64_t g, uint64_t p)
{
    bool newer;

    if (g == 0) {
        return; /* the initial weights, which everybody has */
    }
    if (g != s->generation || s->source == OWNERS_NOBODY) {
        newer = s->source == OWNERS_NOBODY || g > s->generation;
    } else if (reading != s->is_reading) {
        newer = !reading;
    } else {
        newer = p > s->position;
    }
    if (newer) {
        s->source = who;
        s->is_reading = reading;
        s->generation = g;
        s->position = p;
    }
}

static void ask_all(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    uint64_t all = o->n == 64 ? UINT64_MAX : BIT(o->n) - 1;

    s->said_ms = o->now_ms;
    if ((all & ~s->heard) != 0) {
        (void)owners_say(o, out, all & ~s->heard, OWNERS_ASK, i);
    } else {
        owners_choose(o, i, out);
    }
}

void owners_ask(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];

    s->phase = OWNERS_GATHER;
    s->since_ms = o->now_ms;
    s->heard = s->shunned | BIT(o->self);
    s->source = OWNERS_NOBODY;
    s->is_reading = false;
    s->generation = s->position = 0;
    if (s->held) {
        owners_consider(s, o->self, false, s->at.generation, s->at.position);
    }
    owners_consider(s, o->self, true, s->seen.generation, s->seen.position);
    ask_all(o, i, out);
}

static void take_role(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    bool was_owner = s->phase != OWNERS_AWAY;

    owners_holders(o->opt.seed, i, o->member, o->n, &s->owner, &s->backup);
    s->phase = OWNERS_AWAY;
    s->follow = s->record = false;
    s->shipped = OWNERS_NOBODY;
    s->shunned = 0;
    s->wanted_ms = o->now_ms;
    memset(s->asked, 0, sizeof s->asked);
    if (s->owner == o->self) {
        o->n_taken_over += s->held && !was_owner;
        owners_ask(o, i, out);
    }
}

/* ---- views ------------------------------------------------------------ */

static int
check_members(const struct owners *o, const struct owners_member *m, uint32_t n)
{
    bool found = false;

    if (n == 0 || n > VIEW_MEMBERS_MAX) {
        return LOCO_EINVAL;
    }
    for (uint32_t k = 0; k < n; k++) {
        if (k > 0 && id_cmp(&m[k - 1].id, &m[k].id) >= 0) {
            return LOCO_EINVAL;
        }
        found = found || id_eq(&m[k].id, &o->opt.self);
    }
    return found ? 0 : LOCO_EINVAL;
}

/* was[k]: what new member k was in the view before; NOBODY, too where the peer
 * began anew. */
static void remap(struct owners_version *v, const uint32_t *was, uint32_t n)
{
    uint64_t task[VIEW_MEMBERS_MAX] = {0};

    for (uint32_t k = 0; k < n; k++) {
        task[k] = was[k] == OWNERS_NOBODY ? 0 : v->task[was[k]];
    }
    memcpy(v->task, task, sizeof task);
}

/* What member k of the view that we leave is in that one; began anew or not. */
static uint32_t renamed(const struct owners *o,
                        uint32_t k,
                        const struct owners_member *members,
                        uint32_t n)
{
    for (uint32_t i = 0; i < n && k < o->n; i++) {
        if (id_eq(&o->member[k].id, &members[i].id)) {
            return i;
        }
    }
    return OWNERS_NOBODY;
}

/* We are another worker, and what we did is in no table any more. */
static void begin_anew(struct owners *o, struct owners_out *out)
{
    if (o->task != 0) {
        owners_add(out, OWNERS_VOID)->task = o->task;
        o->task = 0;
    }
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        o->slice[i].acked_task = 0;
    }
}

static int restore(struct owners *o,
                   uint32_t slice,
                   struct owners_version *to,
                   const struct owners_version *at)
{
    if (o->epoch != 0 || slice >= o->opt.slices || at->generation == 0 ||
        at->size == 0 || at->size > VIEW_MEMBERS_MAX || at->count >= at->size) {
        return LOCO_EINVAL;
    }
    *to = *at;
    memset(to->task, 0, sizeof to->task); /* all are other workers now */
    o->restored = at->generation > o->restored ? at->generation : o->restored;
    return 0;
}

int owners_restore(struct owners *o,
                   uint32_t slice,
                   const struct owners_version *at)
{
    int rc = restore(o, slice, &o->slice[slice % OWNERS_SLICES_MAX].at, at);

    if (rc == 0) {
        o->slice[slice].held = true;
    }
    return rc;
}

int owners_restore_reading(struct owners *o,
                           uint32_t slice,
                           const struct owners_version *at)
{
    return restore(o, slice, &o->slice[slice % OWNERS_SLICES_MAX].seen, at);
}

int owners_view(struct owners *o,
                uint64_t epoch,
                const struct owners_member *members,
                uint32_t n,
                uint64_t now_ms,
                struct owners_out *out)
{
    uint32_t was[VIEW_MEMBERS_MAX];

    if (epoch <= o->epoch || epoch <= o->restored ||
        check_members(o, members, n) != 0) {
        return LOCO_EINVAL;
    }
    o->now_ms = now_ms;
    for (uint32_t k = 0; k < o->n_slots; k++) {
        owners_drop(o, k, out);
    }
    for (uint32_t k = 0; k < n; k++) {
        int old = owners_member_of(o, &members[k].id);
        bool same = old >= 0 && o->member[old].joined == members[k].joined;

        was[k] = same ? (uint32_t)old : OWNERS_NOBODY;
    }
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        struct owners_slice *s = &o->slice[i];

        remap(&s->at, was, n);
        remap(&s->seen, was, n);
        s->was_owner = renamed(o, s->owner, members, n);
        s->was_backup = renamed(o, s->backup, members, n);
    }
    memcpy(o->member, members, n * sizeof members[0]);
    o->n = n;
    o->before = o->epoch;
    o->epoch = epoch;
    o->self = (uint32_t)owners_member_of(o, &o->opt.self);
    if (was[o->self] == OWNERS_NOBODY) {
        begin_anew(o, out);
    }
    o->submit_ms = 0;
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        take_role(o, i, out);
    }
    owners_tick(o, now_ms, out);
    return 0;
}

void owners_reset(struct owners *o, struct owners_out *out)
{
    for (uint32_t k = 0; k < o->n_slots; k++) {
        owners_drop(o, k, out);
    }
    begin_anew(o, out);
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        if (o->slice[i].held) {
            owners_add(out, OWNERS_FORGET)->slice = i;
        }
    }
    memset(o->slice, 0, sizeof o->slice);
    o->epoch = o->before = o->restored = 0;
    o->n = 0;
    o->gathering = false;
}

/* ---- the log ---------------------------------------------------------- */

void owners_append(struct owners *o,
                   uint32_t i,
                   uint32_t slot,
                   uint32_t next_size,
                   struct owners_out *out)
{
    const struct owners_slot *k = &o->slot[slot];
    struct owners_version *v = &o->slice[i].at;
    struct owners_action *a = owners_add(out, OWNERS_APPLY);

    a->slice = i;
    a->slot = slot;
    a->peer = k->worker;
    a->task = k->task;
    a->size = v->size;
    a->count = v->count;
    a->next = next_size;
    v->position++;
    v->task[k->worker] = k->task;
    if (++v->count == v->size) {
        v->count = 0;
        v->size = next_size;
        v->flush++;
        if (o->opt.mark_every > 0 && v->flush % o->opt.mark_every == 0) {
            a = owners_add(out, OWNERS_MARK);
            a->slice = i;
            a->flush = v->flush;
        }
    }
    o->n_applied++;
}

uint64_t owners_round(const struct owners *o)
{
    uint64_t round = UINT64_MAX;

    for (uint32_t i = 0; i < o->opt.slices; i++) {
        const struct owners_slice *s = &o->slice[i];
        uint64_t at = s->held ? s->at.flush : 0;

        at = at > s->seen.flush ? at : s->seen.flush;
        round = at < round ? at : round;
    }
    return round;
}

/* ---- time ------------------------------------------------------------- */

static bool speaks(const struct owners_slice *s)
{
    return s->phase == OWNERS_GATHER || s->phase == OWNERS_FEED ||
           (s->phase == OWNERS_OPEN && s->shipped != OWNERS_NOBODY);
}

static bool waits(const struct owners_slice *s)
{
    return speaks(s) || s->phase == OWNERS_FETCH;
}

static void suspect(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];
    uint64_t who = s->phase == OWNERS_FETCH ? BIT(s->source) : BIT(s->backup);

    if (s->phase == OWNERS_GATHER) {
        who = (o->n == 64 ? UINT64_MAX : BIT(o->n) - 1) & ~s->heard;
    }
    s->since_ms = o->now_ms;
    owners_add(out, OWNERS_SUSPECT)->to = who;
}

/* Whether nothing comes of a reading: when it is due that this is said. */
static uint64_t unread_ms(const struct owners *o, uint32_t i)
{
    const struct owners_slice *s = &o->slice[i];

    return o->epoch != 0 && o->gathering && s->wanted && s->owner != o->self
               ? s->wanted_ms + 2ULL * o->opt.stuck_ms
               : UINT64_MAX;
}

static void say_again(struct owners *o, uint32_t i, struct owners_out *out)
{
    struct owners_slice *s = &o->slice[i];

    if (s->phase == OWNERS_GATHER) {
        ask_all(o, i, out);
    } else if (s->phase == OWNERS_FEED) {
        say_follow(o, i, out);
    } else {
        owners_say_log(o, i, out);
    }
}

void owners_tick(struct owners *o, uint64_t now_ms, struct owners_out *out)
{
    o->now_ms = now_ms;
    owners_retry(o, out);
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        struct owners_slice *s = &o->slice[i];

        if (waits(s) && now_ms >= s->since_ms + o->opt.stuck_ms) {
            suspect(o, i, out);
        }
        if (now_ms >= unread_ms(o, i)) {
            s->wanted_ms = now_ms;
            owners_add(out, OWNERS_SUSPECT)->to = BIT(s->owner);
        }
        if (speaks(s) && now_ms >= s->said_ms + o->opt.resend_ms) {
            say_again(o, i, out);
        }
    }
    if (o->task != 0 && o->epoch != 0 &&
        (o->submit_ms == 0 || now_ms >= o->submit_ms + o->opt.resend_ms)) {
        owners_say_submit(o, out);
    }
    owners_pump(o, out);
}

void owners_gap(struct owners *o, uint64_t now_ms)
{
    for (uint32_t i = 0; i < o->opt.slices; i++) {
        o->slice[i].since_ms = o->slice[i].wanted_ms = now_ms;
    }
    for (uint32_t k = 0; k < o->n_slots; k++) {
        o->slot[k].asked_ms = now_ms;
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t owners_deadline(const struct owners *o)
{
    uint64_t at = o->task != 0 && o->epoch != 0
                      ? o->submit_ms + o->opt.resend_ms
                      : UINT64_MAX;

    for (uint32_t i = 0; i < o->opt.slices; i++) {
        const struct owners_slice *s = &o->slice[i];

        at = waits(s) ? sooner(at, s->since_ms + o->opt.stuck_ms) : at;
        at = sooner(at, unread_ms(o, i));
        at = speaks(s) ? sooner(at, s->said_ms + o->opt.resend_ms) : at;
    }
    for (uint32_t k = 0; k < o->n_slots; k++) {
        const struct owners_slot *t = &o->slot[k];

        if (t->used && !t->here) {
            at = sooner(at, t->asked_ms + owners_patience_ms(o, t));
        }
    }
    return at;
}
