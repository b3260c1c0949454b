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
 *   6  NO_VOTE   vote for no plan, nor count votes
 *   7  OTHER     vote for other bytes than they have
 *   8  NO_SUM    keep what they summed from every other honest member
 *   9  NO_SUMS   keep it from all
 *  10  SUMS      send each honest member other bytes than they summed
 *  11  KEYS      do as 8, and name other voters in the records of commits
 *  12  FALSE     where it is their turn, make a plan that is not true of one
 *                honest member, to which they show another one
 *  13  TWO       show another READY to the member whose turn it is than to
 *                the others, and do as 6
 *  14  ALONE     show it to that member alone, and do as 6
 *  15  STATE     do as 13, and the others' is of another state, too
 *  16  AFTER     say another READY to all when the plan is there, and do as 6
 *
 * From 6 on they deny in ballots that they voted.
 *
 * P: the run goes on: in no part of it as long as still_ms() is there no
 * commit, and each honest member has a part in a third of the rounds.
 */
#include <inttypes.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"

#define LOOK_MS  100
#define STILL_MS 60000
#define SLOW     5 /* times that, where several end attempts that show nobody */
#define LEAST    30 /* rounds that are needed to judge */

enum idle_kind {
    KIND_NO_PLAN = 1,
    KIND_NOW_THEN,
    KIND_NO_TURN,
    KIND_NO_DATA,
    KIND_ONE,
    KIND_NO_VOTE,
    KIND_OTHER,
    KIND_NO_SUM,
    KIND_NO_SUMS,
    KIND_SUMS,
    KIND_KEYS,
    KIND_FALSE,
    KIND_TWO,
    KIND_ALONE,
    KIND_STATE,
    KIND_AFTER,
    KINDS = KIND_AFTER,
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

static uint32_t still_ms(const struct sim *s)
{
    bool shows_nobody = kind_of(s) == KIND_NO_SUMS || kind_of(s) == KIND_SUMS;

    return shows_nobody && n_idle(s) > 1 ? SLOW * STILL_MS : STILL_MS;
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
           (kind_of(s) == KIND_NO_VOTE || kind_of(s) >= KIND_TWO ||
            (kind_of(s) == KIND_NOW_THEN && v->epoch % 2 == 0));
}

/* Of the honest members every other one. */
static bool is_second(const struct sim *s, uint32_t peer)
{
    uint32_t at = (peer + s->n - s->victim) % s->n;

    return !is_idle(s, peer) && (at - n_idle(s)) % 2 == 1;
}

/* A segment that is final: it has the sum of all contributions. */
static bool keeps_sum(void *self,
                      uint32_t from,
                      uint32_t to,
                      const struct segment *seg,
                      uint8_t *bytes,
                      size_t len)
{
    const struct sim *s = self;

    if (!s->idle.begun || !is_idle(s, from) || is_idle(s, to) ||
        seg->buffer != BUFFER_RING || !seg->final) {
        return false;
    }
    if (kind_of(s) == KIND_SUMS) {
        bytes[len / 2] ^= (uint8_t)to;
    }
    return kind_of(s) == KIND_NO_SUMS ||
           ((kind_of(s) == KIND_NO_SUM || kind_of(s) == KIND_KEYS) &&
            is_second(s, to));
}

static bool alter_vote(const struct sim *s,
                       uint32_t from,
                       uint32_t to,
                       const struct signer *pen,
                       struct vote *v)
{
    if (drops_vote(s, from, to, &v->body)) {
        v->body.epoch = ~v->body.epoch;
        return true;
    }
    if (kind_of(s) == KIND_OTHER && is_idle(s, from)) {
        v->body.result.b[0] ^= 1;
        return message_sign(pen, &vote_body_schema, &v->body, v->sig) == 0;
    }
    return false;
}

/* Who makes the plan of that attempt, by what `from` knows; NULL: unknown. */
static const struct peer_id *
maker_of(const struct sim *s, uint32_t from, uint64_t epoch, uint64_t round)
{
    const struct node *node = s->nodes[from];
    const struct ballot *b = node == NULL ? NULL : node_parts(node).ballot;

    return b == NULL || !b->have || epoch != b->cert.body.epoch
               ? NULL
               : &b->ids[view_coordinator(&b->cert.body, round)];
}

/* Whether that plan was made by its sender. */
static bool
is_maker(const struct sim *s, uint32_t from, const struct plan_body *p)
{
    const struct peer_id *maker = maker_of(s, from, p->epoch, p->round);

    return maker != NULL && id_eq(maker, &world_identity(s->world, from)->id);
}

/* Whether that READY is another one than the plan is made of. */
static bool is_other_ready(const struct sim *s,
                           uint32_t from,
                           uint32_t to,
                           const struct ready_body *r)
{
    const struct peer_id *maker = maker_of(s, from, r->epoch, r->round);

    if (kind_of(s) < KIND_TWO || !is_idle(s, from) || maker == NULL) {
        return false;
    }
    return kind_of(s) == KIND_AFTER
               ? node_parts(s->nodes[from]).round->has_plan
               : !id_eq(maker, &world_identity(s->world, to)->id);
}

static bool alter_ready(const struct sim *s,
                        uint32_t from,
                        uint32_t to,
                        const struct signer *pen,
                        struct ready *r)
{
    if (!is_other_ready(s, from, to, &r->body)) {
        return false;
    }
    if (kind_of(s) == KIND_ALONE) {
        r->body.epoch = ~r->body.epoch;
        return true;
    }
    r->body.first_step++;
    r->body.last_step++;
    r->body.state.b[0] ^= kind_of(s) == KIND_STATE;
    return message_sign(pen, &ready_body_schema, &r->body, r->sig) == 0;
}

/* What is not said, is said of an attempt that there is not. */
static bool alter_plan(const struct sim *s,
                       uint32_t from,
                       uint32_t to,
                       const struct signer *pen,
                       struct plan *p)
{
    uint32_t of = (s->victim + n_idle(s)) % s->n;
    const struct node *node = s->nodes[from];

    if (drops_plan(s, from, to, &p->body)) {
        p->body.epoch = ~p->body.epoch;
        return true;
    }
    if (kind_of(s) != KIND_FALSE || !is_idle(s, from) || to == of ||
        !is_maker(s, from, &p->body)) {
        return false;
    }
    for (uint32_t k = 0; k < p->body.n_members; k++) {
        const struct peer_id *id =
            &node_parts(node).ballot->ids[p->body.members[k].index];

        if (id_eq(id, &world_identity(s->world, of)->id)) {
            p->body.members[k].first_step++;
            p->body.members[k].last_step++;
        }
    }
    return message_sign(pen, &plan_body_schema, &p->body, p->sig) == 0;
}

/* Whoever reads who voted finds other keys there. */
static bool alter_commit(const struct sim *s, uint32_t from, struct commit *c)
{
    if (!is_idle(s, from) || kind_of(s) != KIND_KEYS) {
        return false;
    }
    for (uint32_t k = 0; k < c->n_votes; k++) {
        c->votes[k].public_key[3] ^= 1;
    }
    return true;
}

static bool alter_promise(const struct sim *s,
                          uint32_t from,
                          const struct signer *pen,
                          struct promise *p)
{
    p->body.said.closing = CLOSING_NONE;
    return is_idle(s, from) && kind_of(s) >= KIND_NO_VOTE &&
           message_sign(pen, &promise_body_schema, &p->body, p->sig) == 0;
}

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
    const struct msg_schema *schema = message_schema(message);
    union {
        struct promise promise;
        struct commit commit;
        struct plan plan;
        struct ready ready;
        struct vote vote;
    } m;
    bool altered = false;
    int n;

    if (!s->idle.begun ||
        (message != MESSAGE_READY && message != MESSAGE_PLAN &&
         message != MESSAGE_VOTE && message != MESSAGE_COMMIT &&
         message != MESSAGE_PROMISE) ||
        msg_decode(schema, bytes, len, &m) != 0) {
        return len;
    }
    switch (message) {
    case MESSAGE_READY:
        altered = alter_ready(s, from, to, &pen, &m.ready);
        break;
    case MESSAGE_PLAN:
        altered = alter_plan(s, from, to, &pen, &m.plan);
        break;
    case MESSAGE_VOTE:
        altered = alter_vote(s, from, to, &pen, &m.vote);
        break;
    case MESSAGE_COMMIT:
        altered = alter_commit(s, from, &m.commit);
        break;
    default:
        altered = alter_promise(s, from, &pen, &m.promise);
        break;
    }
    n = altered ? msg_encode(schema, &m, bytes, cap) : -1;
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
    } else if (now_ms - s->idle.round_ms > still_ms(s)) {
        check_fail(s->check, "P: no commit after round %" PRIu64 " for %u s",
                   s->idle.round, still_ms(s) / 1000);
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
    s->world_opt.tamper_bulk = keeps_sum;
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
