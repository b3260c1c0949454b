/* scenarios_idle.c - members that offer work, and then follow no plan.
 *
 * From a round on the victim and those after it, less than a third of all or
 * idle.liars, say READY as ever. Seeds take turns at what they do not do:
 *
 *   1  NO_PLAN   hear no plan: they contribute to none, vote for none and
 *                witness none
 *   2  NOW_THEN  do so, and keep their votes, in every other view
 *   3  NO_TURN   hear no plan, and make none where it is their turn
 *   4  NO_DATA   send no data
 *   5  ONE       send no data to the honest member behind them
 *
 * and, where idle.kind says so:
 *
 *   6  NO_VOTE   vote for no plan, nor count votes, and deny in ballots that
 *                they did: this stops a run (p2p/round/STRANGERS.md)
 *
 * P: the run goes on: in no part of it as long as STILL_MS is there no commit,
 * and each honest member has a part in a third of the rounds.
 */
#include <inttypes.h>

#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"

#define LOOK_MS  100
#define STILL_MS 60000
#define LEAST    30 /* rounds that are needed to judge */

enum idle_kind {
    KIND_NO_PLAN = 1,
    KIND_NOW_THEN,
    KIND_NO_TURN,
    KIND_NO_DATA,
    KIND_ONE,
    KIND_NO_VOTE,
    KINDS = KIND_ONE, /* that take turns */
};

static enum idle_kind kind_of(const struct sim *s)
{
    return s->idle.kind > 0 ? (enum idle_kind)s->idle.kind
                            : (enum idle_kind)((s->opt.seed - 1) % KINDS + 1);
}

static uint32_t n_idle(const struct sim *s)
{
    return s->idle.liars > 0 ? s->idle.liars : (s->n - 1) / 3;
}

static bool is_idle(const struct sim *s, uint32_t peer)
{
    return (peer + s->n - s->victim) % s->n < n_idle(s);
}

/* Whether that PLAN is not heard, or not sent. */
static bool drops_plan(const struct sim *s,
                       uint32_t from,
                       uint32_t to,
                       const struct plan_body *p)
{
    switch (kind_of(s)) {
    case KIND_NO_PLAN:
        return is_idle(s, to) && !is_idle(s, from);
    case KIND_NOW_THEN:
        return is_idle(s, to) && p->epoch % 2 == 0;
    case KIND_NO_TURN:
        return is_idle(s, to) || is_idle(s, from);
    default:
        return false;
    }
}

/* A vote of a member that does not vote, or one that it does not count. */
static bool drops_vote(const struct sim *s,
                       uint32_t from,
                       uint32_t to,
                       const struct vote_body *v)
{
    return (is_idle(s, from) || is_idle(s, to)) &&
           (kind_of(s) == KIND_NO_VOTE ||
            (kind_of(s) == KIND_NOW_THEN && v->epoch % 2 == 0));
}

static bool denies(const struct sim *s, uint32_t from)
{
    return is_idle(s, from) && kind_of(s) == KIND_NO_VOTE;
}

/* What is not said, is said of an attempt that there is not. */
static uint32_t keep(void *self,
                     uint32_t from,
                     uint32_t to,
                     uint16_t message,
                     uint8_t *bytes,
                     uint32_t len,
                     uint32_t cap)
{
    struct sim *s = self;
    struct signer pen = signer_keyed(world_identity(s->world, from));
    struct promise promise;
    struct plan plan;
    struct vote vote;
    int n = -1;

    if (!s->idle.begun) {
        return len;
    }
    if (message == MESSAGE_PLAN &&
        msg_decode(&plan_schema, bytes, len, &plan) == 0 &&
        drops_plan(s, from, to, &plan.body)) {
        plan.body.epoch = ~plan.body.epoch;
        n = msg_encode(&plan_schema, &plan, bytes, cap);
    } else if (message == MESSAGE_VOTE &&
               msg_decode(&vote_schema, bytes, len, &vote) == 0 &&
               drops_vote(s, from, to, &vote.body)) {
        vote.body.epoch = ~vote.body.epoch;
        n = msg_encode(&vote_schema, &vote, bytes, cap);
    } else if (message == MESSAGE_PROMISE && denies(s, from) &&
               msg_decode(&promise_schema, bytes, len, &promise) == 0) {
        promise.body.said.closing = CLOSING_NONE;
        n = message_sign(&pen, &promise_body_schema, &promise.body,
                         promise.sig) != 0
                ? -1
                : msg_encode(&promise_schema, &promise, bytes, cap);
    }
    return n < 0 ? len : (uint32_t)n;
}

static bool keeps_data(void *self, uint32_t from, uint32_t to, bool bulk)
{
    const struct sim *s = self;
    uint32_t n = s->n - n_idle(s), k = (from + s->n - s->victim) % s->n;
    uint32_t behind = (s->victim + n_idle(s) + k % n) % s->n;

    return s->idle.begun && bulk && is_idle(s, from) && !is_idle(s, to) &&
           (kind_of(s) == KIND_NO_DATA ||
            (kind_of(s) == KIND_ONE && to == behind));
}

static void judge_commit(struct sim *s, const struct node_commit *c)
{
    bool in[VIEW_MEMBERS_MAX] = {false};

    for (uint32_t k = 0; k < c->n; k++) {
        in[world_find(s->world, &c->member[k])] = true;
    }
    s->idle.n_rounds++;
    for (uint32_t q = 0; q < s->n; q++) {
        s->idle.n_with[q] += in[q];
    }
}

static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct node_commit *c = sim_newest_but(s, s->victim);
    uint64_t now_ms = world_now(s->world);

    (void)arg;
    if (c != NULL && c->round > s->idle.round) {
        s->idle.round = c->round;
        s->idle.round_ms = now_ms;
        judge_commit(s, c);
    } else if (now_ms - s->idle.round_ms > STILL_MS) {
        check_fail(s->check, "P: no commit after round %" PRIu64 " for %u s",
                   s->idle.round, STILL_MS / 1000);
    }
    if (s->idle.round >= s->rounds) {
        s->idle.begun = false; /* they come to the same end */
        world_heal(s->world);
    } else if (!s->done) {
        world_call(s->world, now_ms + LOOK_MS, look_call, s, 0);
    }
}

static void begin_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    s->idle.begun = true;
    s->idle.round_ms = world_now(s->world);
    sim_fault(s);
    world_heal(s->world); /* looks again what is cut */
    look_call(s, arg);
}

void options_idle(struct sim *s)
{
    s->world_opt.tamper = keep;
    s->world_opt.tamper_self = s;
    s->world_opt.cut = keeps_data;
    s->world_opt.cut_self = s;
}

void setup_idle(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 6);

    s->calm_ms = at;
    world_call(s->world, at, begin_call, s, 0);
}

void check_idle(struct sim *s)
{
    for (uint32_t q = 0; q < s->n && s->idle.n_rounds >= LEAST; q++) {
        if (!is_idle(s, q) && 3 * s->idle.n_with[q] < s->idle.n_rounds) {
            check_fail(s->check, "P: peer %u has a part in %u of %u rounds", q,
                       s->idle.n_with[q], s->idle.n_rounds);
        }
    }
}
