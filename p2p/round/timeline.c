/* timeline.c - see timeline.h. */
#include "p2p/round/timeline.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

size_t timeline_bytes(uint32_t cap)
{
    return cap * sizeof(struct timeline_attempt);
}

void timeline_init(struct timeline *t, void *memory, uint32_t cap)
{
    assert(cap >= 1);
    memset(t, 0, sizeof *t);
    t->cap = cap;
    t->row = memory;
}

static struct timeline_attempt *newest(struct timeline *t)
{
    return t->n == 0 ? NULL : &t->row[t->serial % t->cap];
}

struct timeline_attempt *timeline_running(struct timeline *t)
{
    struct timeline_attempt *a = newest(t);

    return a != NULL && a->outcome == TIMELINE_RUNNING ? a : NULL;
}

/* The phase that has not ended; at_ms of what was skipped stays NEVER. */
static void finish(struct timeline *t,
                   struct timeline_attempt *a,
                   enum timeline_outcome outcome,
                   uint64_t now_ms)
{
    a->outcome = outcome;
    if (outcome != TIMELINE_COMMITTED) {
        a->at_ms[TIMELINE_DONE] = now_ms;
    }
    t->changes++;
}

void timeline_begin(struct timeline *t,
                    uint64_t round,
                    uint64_t epoch,
                    const struct peer_id *ids,
                    uint32_t n,
                    uint32_t self,
                    uint64_t now_ms,
                    uint64_t wall_s)
{
    struct timeline_attempt *a = timeline_running(t);

    assert(n <= VIEW_MEMBERS_MAX && self < n);
    if (a != NULL) {
        finish(t, a,
               round > a->round ? TIMELINE_ELSEWHERE
               : a->has_plan    ? TIMELINE_ABORTED
                                : TIMELINE_RENEWED,
               now_ms);
    }
    t->serial++;
    t->changes++;
    t->n += t->n < t->cap;
    a = newest(t);
    memset(a, 0, sizeof *a);
    a->serial = t->serial;
    a->round = round;
    a->epoch = epoch;
    a->wall_s = wall_s;
    a->self = self;
    a->n = n;
    for (int i = 0; i < TIMELINE_PHASE_COUNT; i++) {
        a->at_ms[i] = TIMELINE_NEVER;
    }
    a->at_ms[TIMELINE_TRAIN] = now_ms;
    for (uint32_t i = 0; i < n; i++) {
        a->member[i] = (struct timeline_member){
            .id = ids[i],
            .ready_ms = TIMELINE_NEVER,
            .voted_ms = TIMELINE_NEVER,
        };
    }
}

void timeline_enter(struct timeline *t,
                    enum timeline_phase phase,
                    uint64_t now_ms)
{
    struct timeline_attempt *a = timeline_running(t);

    if (a == NULL || a->at_ms[phase] != TIMELINE_NEVER) {
        return;
    }
    for (int i = phase + 1; i < TIMELINE_PHASE_COUNT; i++) {
        if (a->at_ms[i] != TIMELINE_NEVER) {
            return;
        }
    }
    a->at_ms[phase] = now_ms;
    t->changes++;
}

void timeline_seen(struct timeline *t,
                   uint64_t ready,
                   uint64_t voted,
                   uint64_t now_ms)
{
    struct timeline_attempt *a = timeline_running(t);

    for (uint32_t i = 0; a != NULL && i < a->n; i++) {
        struct timeline_member *m = &a->member[i];

        if ((ready >> i & 1) && m->ready_ms == TIMELINE_NEVER) {
            m->ready_ms = now_ms;
            t->changes++;
        }
        if ((voted >> i & 1) && m->voted_ms == TIMELINE_NEVER) {
            m->voted_ms = now_ms;
            t->changes++;
        }
    }
}

void timeline_segment(
    struct timeline *t, bool sent, bool gather, uint64_t bytes, uint64_t now_ms)
{
    struct timeline_attempt *a = timeline_running(t);
    uint64_t since_ms;

    if (a == NULL) {
        return;
    }
    t->changes++;
    if (sent) {
        a->sent++;
        a->sent_bytes += bytes;
        return;
    }
    since_ms =
        a->received == 0 ? a->at_ms[TIMELINE_REDUCE] : a->last_segment_ms;
    if (since_ms != TIMELINE_NEVER && now_ms > since_ms) {
        *(gather ? &a->gather_ms : &a->scatter_ms) += now_ms - since_ms;
    }
    a->last_segment_ms = now_ms;
    a->received++;
    a->received_bytes += bytes;
}

void timeline_trouble(struct timeline *t, const char *why)
{
    struct timeline_attempt *a = timeline_running(t);

    if (a != NULL && a->why == NULL) {
        a->why = why;
        t->changes++;
    }
}

void timeline_blame(struct timeline *t,
                    const struct peer_id *id,
                    enum timeline_guilt guilt,
                    enum timeline_edge edge,
                    uint64_t now_ms)
{
    struct timeline_attempt *a = timeline_running(t);
    bool known = guilt >= TIMELINE_LEFT;

    for (uint32_t i = 0; a != NULL && i < a->n; i++) {
        if (!id_eq(&a->member[i].id, id)) {
            continue;
        }
        if (a->guilt == TIMELINE_NOBODY ||
            (known && a->guilt < TIMELINE_LEFT)) {
            a->guilt = guilt;
            a->culprit = i;
            a->edge = edge;
            a->edge_done = edge == TIMELINE_TO ? a->sent : a->received;
            a->culprit_ms = now_ms;
            t->changes++;
        }
        return;
    }
}

void timeline_leave(struct timeline *t, uint64_t now_ms)
{
    struct timeline_attempt *a = timeline_running(t);

    if (a != NULL) {
        finish(t, a, a->has_plan ? TIMELINE_ABORTED : TIMELINE_RENEWED, now_ms);
    }
}

void timeline_commit(struct timeline *t, uint64_t now_ms)
{
    struct timeline_attempt *a = timeline_running(t);

    if (a != NULL) {
        if (a->in_plan) {
            timeline_enter(t, TIMELINE_APPLY, now_ms);
        } else {
            a->at_ms[TIMELINE_DONE] = now_ms;
        }
        finish(t, a, TIMELINE_COMMITTED, now_ms);
    }
}

void timeline_applied(struct timeline *t, uint64_t round, uint64_t now_ms)
{
    struct timeline_attempt *a;

    for (uint32_t back = 0; back < 2 && back < t->n; back++) {
        a = &t->row[(t->serial - back) % t->cap];
        if (a->round == round && a->outcome == TIMELINE_COMMITTED &&
            a->at_ms[TIMELINE_DONE] == TIMELINE_NEVER) {
            a->at_ms[TIMELINE_DONE] = now_ms;
            t->changes++;
        }
    }
    a = timeline_running(t);
    if (a != NULL && a->round == round + 1 &&
        a->at_ms[TIMELINE_WAIT] == TIMELINE_NEVER) {
        a->at_ms[TIMELINE_TRAIN] = now_ms;
    }
}

const struct timeline_attempt *timeline_at(const struct timeline *t,
                                           uint32_t back)
{
    return back < t->n ? &t->row[(t->serial - back) % t->cap] : NULL;
}

uint64_t timeline_phase_ms(const struct timeline_attempt *a,
                           enum timeline_phase phase,
                           uint64_t now_ms)
{
    uint64_t begin = a->at_ms[phase];

    if (begin == TIMELINE_NEVER || phase == TIMELINE_DONE) {
        return 0;
    }
    for (int i = phase + 1; i < TIMELINE_PHASE_COUNT; i++) {
        if (a->at_ms[i] != TIMELINE_NEVER) {
            return a->at_ms[i] > begin ? a->at_ms[i] - begin : 0;
        }
    }
    return now_ms > begin ? now_ms - begin : 0;
}

uint64_t timeline_took_ms(const struct timeline_attempt *a, uint64_t now_ms)
{
    static const enum timeline_phase from[] = {TIMELINE_REDUCE, TIMELINE_PLAN,
                                               TIMELINE_WAIT, TIMELINE_TRAIN};
    uint64_t end_ms = a->at_ms[TIMELINE_DONE];

    end_ms = end_ms == TIMELINE_NEVER ? now_ms : end_ms;
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        uint64_t begin_ms = a->at_ms[from[i]];

        if (begin_ms != TIMELINE_NEVER) {
            return end_ms > begin_ms ? end_ms - begin_ms : 0;
        }
    }
    return 0;
}

uint32_t timeline_waited_for(const struct timeline_attempt *a,
                             uint64_t *waited_ms)
{
    uint64_t own_ms = a->member[a->self].ready_ms, last_ms = own_ms;
    uint32_t who = a->n;

    for (uint32_t i = 0; i < a->n && own_ms != TIMELINE_NEVER; i++) {
        uint64_t at_ms = a->member[i].ready_ms;

        if (at_ms != TIMELINE_NEVER && at_ms > last_ms) {
            last_ms = at_ms;
            who = i;
        }
    }
    *waited_ms = who < a->n ? last_ms - own_ms : 0;
    return who;
}

void timeline_copy(struct timeline *to, const struct timeline *from)
{
    uint64_t fresh = from->serial - to->serial;

    assert(to->cap == from->cap && to->serial <= from->serial);
    if (to->changes == from->changes) {
        return;
    }
    /* The newest row may have changed, and the one before it (APPLY). */
    for (uint64_t back = 0; back < fresh + 2 && back < from->n; back++) {
        uint64_t at = (from->serial - back) % from->cap;

        to->row[at] = from->row[at];
    }
    to->n = from->n;
    to->serial = from->serial;
    to->changes = from->changes;
}

/* " at segment 18/64", or nothing. */
static void edge_text(const struct timeline_attempt *a, char out[40])
{
    uint32_t all = a->edge == TIMELINE_TO ? a->to_send : a->to_receive;

    out[0] = '\0';
    if (a->edge != TIMELINE_NO_EDGE && all > 0) {
        (void)snprintf(out, 40, " at segment %u/%u", a->edge_done, all);
    }
}

void timeline_reason(const struct timeline_attempt *a,
                     char out[TIMELINE_REASON_MAX])
{
    static const char *const how[] = {
        [TIMELINE_SENT_NOTHING] = "stopped sending",
        [TIMELINE_TOOK_NOTHING] = "stopped taking what was sent",
        [TIMELINE_NO_VOTE] = "did not vote",
        [TIMELINE_NO_PLAN] = "made no plan",
        [TIMELINE_LINK_BROKE] = "broke the data connection",
        [TIMELINE_LEFT] = "left",
    };
    const struct timeline_member *m = &a->member[a->culprit];
    char who[ID_SHORT_MAX], at[40];

    if (a->guilt == TIMELINE_NOBODY) {
        (void)snprintf(out, TIMELINE_REASON_MAX, "%s",
                       a->why != NULL ? a->why
                                      : "another member asked for a new view");
        return;
    }
    id_short(&m->id, who);
    edge_text(a, at);
    if (a->guilt != TIMELINE_LOST) {
        (void)snprintf(out, TIMELINE_REASON_MAX, "peer %s %s%s", who,
                       how[a->guilt], at);
    } else if (a->edge == TIMELINE_NO_EDGE) {
        (void)snprintf(out, TIMELINE_REASON_MAX, "peer %s was lost: %s", who,
                       m->lost == NULL ? "no sign of life" : m->lost);
    } else {
        (void)snprintf(out, TIMELINE_REASON_MAX, "peer %s stopped %s%s: %s",
                       who, a->edge == TIMELINE_FROM ? "sending" : "taking", at,
                       m->lost == NULL ? "no sign of life" : m->lost);
    }
}

const char *timeline_phase_name(enum timeline_phase phase)
{
    static const char *const names[TIMELINE_PHASE_COUNT] = {
        [TIMELINE_TRAIN] = "train", [TIMELINE_WAIT] = "wait",
        [TIMELINE_PLAN] = "plan",   [TIMELINE_REDUCE] = "reduce",
        [TIMELINE_HASH] = "hash",   [TIMELINE_VOTE] = "vote",
        [TIMELINE_APPLY] = "apply", [TIMELINE_DONE] = "done",
    };

    return phase < TIMELINE_PHASE_COUNT ? names[phase] : "?";
}

const char *timeline_outcome_name(enum timeline_outcome outcome)
{
    static const char *const names[] = {
        [TIMELINE_RUNNING] = "running",     [TIMELINE_COMMITTED] = "committed",
        [TIMELINE_ABORTED] = "aborted",     [TIMELINE_RENEWED] = "renewed",
        [TIMELINE_ELSEWHERE] = "elsewhere",
    };

    return names[outcome];
}
