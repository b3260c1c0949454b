/* scenarios_convicts.c - members that lied are left out of the views.
 *
 * The simulator tells members that a *culprit* lied, as if they had checked a
 * proof of it. The culprit lives on, trains and wants in again all the time.
 * Seeds take turns (convicts.kind):
 *
 *   1  ALL        all others are told at one moment, odd seeds the culprit too
 *   2  TIMES      one after another, up to 20 s apart
 *   3  TWO        two culprits, all others are told of both
 *   4  SILENT     its ballots end in nothing, and it makes no plan; another
 *                 member dies and comes back, so that there are ballots
 *   5  DEAF       the same, but its ballots leave out what most accusers
 *                 promised
 *   6  RESTARTS   it dies and comes back when it is convicted, and later;
 *                 an accuser does, too
 *   7  FOUNDING   it is out; then all die and come back
 *   8  PROBATION  it is a newcomer on probation
 *   9  FEW        half of all members (of an odd number one less; or
 *                 convicts.accusers) are told; with odd seeds one of them dies
 *                 and comes back
 *
 * X: when all others hold the proof the culprit is out of everybody's view
 * within OUT_MS, and in none later; nobody else that lives is. FEW: it stays in
 * all views, and of these there are no more than one for each accuser and some
 * for the death. L: where nobody dies rounds go on. E as ever.
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"

#define LOOK_MS   100
#define OUT_MS    15000
#define LATER_MS  40000 /* it wants in again for that time at least */
#define SPREAD_MS 20000 /* TIMES */
#define BACK_MS   2500  /* who dies comes back after that */
#define STAND_MS  20000 /* L: a round takes 1.5 s, a change of view 4 s */

enum kind {
    KIND_ALL,
    KIND_TIMES,
    KIND_TWO,
    KIND_SILENT,
    KIND_DEAF,
    KIND_RESTARTS,
    KIND_FOUNDING,
    KIND_PROBATION,
    KIND_FEW,
    KIND_COUNT
};

struct trial {
    enum kind kind;
    uint32_t n_culprits, culprit[2];
    uint64_t told;        /* peers that hold the proofs, for good (bits) */
    uint64_t all_ms;      /* since then all others do; 0: not yet */
    uint64_t round;       /* L: the newest, .. */
    uint64_t round_ms;    /* ..since then */
    uint64_t first_epoch; /* of FEW: when it began */
    bool out;             /* nobody had it in its view once */
    struct accept accept; /* while it is changed */
    struct promise promise;
    struct plan plan;
};

static bool is_culprit(const struct trial *t, uint32_t peer)
{
    for (uint32_t k = 0; k < t->n_culprits; k++) {
        if (t->culprit[k] == peer) {
            return true;
        }
    }
    return false;
}

/* ---- what it says ---------------------------------------------------------
 */

/* Whether the culprit's ballots leave out what that peer promised: it takes one
 * less than are more than half with it. */
static bool is_deaf_to(const struct sim *s, uint32_t peer)
{
    uint32_t behind = (peer + s->n - s->trial->culprit[0]) % s->n;

    return behind > s->n / 2;
}

static uint32_t tamper(void *self,
                       uint32_t from,
                       uint32_t to,
                       uint16_t message,
                       uint8_t *bytes,
                       uint32_t len,
                       uint32_t cap)
{
    struct sim *s = self;
    struct trial *t = s->trial;
    bool silent = t->kind == KIND_SILENT, deaf = t->kind == KIND_DEAF;
    int n = (int)len;

    if (t->told == 0 || !(silent || deaf)) {
        return len;
    }
    if (silent && from == t->culprit[0] && message == MESSAGE_ACCEPT &&
        msg_decode(&accept_schema, bytes, len, &t->accept) == 0) {
        t->accept.epoch++; /* of no view */
        n = msg_encode(&accept_schema, &t->accept, bytes, cap);
    } else if (silent && from == t->culprit[0] && message == MESSAGE_PLAN &&
               msg_decode(&plan_schema, bytes, len, &t->plan) == 0) {
        t->plan.body.epoch++;
        n = msg_encode(&plan_schema, &t->plan, bytes, cap);
    } else if (deaf && to == t->culprit[0] && message == MESSAGE_PROMISE &&
               is_deaf_to(s, from) &&
               msg_decode(&promise_schema, bytes, len, &t->promise) == 0 &&
               t->promise.body.mode == VIEW_MAJORITY) {
        t->promise.sig[0] ^= 1; /* it has not come */
        n = msg_encode(&promise_schema, &t->promise, bytes, cap);
    }
    return n < 0 ? len : (uint32_t)n;
}

/* ---- who is told ----------------------------------------------------------
 */

static void tell(struct sim *s, uint32_t peer)
{
    struct trial *t = s->trial;

    for (uint32_t k = 0; k < t->n_culprits && s->nodes[peer] != NULL; k++) {
        node_convict(s->nodes[peer],
                     &world_identity(s->world, t->culprit[k])->id);
    }
}

void sim_convicts_started(struct sim *s, uint32_t peer)
{
    if (s->trial != NULL && (s->trial->told >> peer & 1)) {
        tell(s, peer); /* its proofs are on disk */
    }
}

static void tell_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    struct trial *t = s->trial;

    t->told |= 1ULL << arg;
    tell(s, (uint32_t)arg);
    sim_fault(s);
}

/* ---- what must hold -------------------------------------------------------
 */

static const struct view_body *view_of(const struct sim *s, uint32_t peer)
{
    const struct ballot *b =
        s->nodes[peer] == NULL ? NULL : node_parts(s->nodes[peer]).ballot;

    return b == NULL || !b->have ? NULL : &b->cert.body;
}

static bool holds(const struct sim *s, const struct view_body *v, uint32_t peer)
{
    return view_index(v, &world_identity(s->world, peer)->id) >= 0;
}

/* Whether every other one was told. */
static bool all_told(const struct sim *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        if (!is_culprit(s->trial, q) && !(s->trial->told >> q & 1)) {
            return false;
        }
    }
    return true;
}

/* How many peers but culprits have one in their views. */
static uint32_t n_with_culprit(const struct sim *s)
{
    const struct trial *t = s->trial;
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        const struct view_body *v = is_culprit(t, q) ? NULL : view_of(s, q);

        for (uint32_t k = 0; v != NULL && k < t->n_culprits; k++) {
            n += holds(s, v, t->culprit[k]);
        }
    }
    return n;
}

static void look_at_all(struct sim *s)
{
    struct trial *t = s->trial;
    uint64_t now = world_now(s->world);
    uint32_t n = n_with_culprit(s);

    t->all_ms = t->all_ms == 0 && all_told(s) ? now : t->all_ms;
    if (t->all_ms == 0) {
        return;
    }
    t->out = t->out || n == 0;
    if (n > 0 && (t->out || now > t->all_ms + OUT_MS)) {
        check_fail(s->check,
                   t->out ? "X: %u peers have a culprit in their views again"
                          : "X: %u peers have a culprit in their views still",
                   n);
    }
}

/* An honest one that few accuse is where it was. */
static void look_at_few(struct sim *s)
{
    struct trial *t = s->trial;
    uint32_t most = (uint32_t)__builtin_popcountll(t->told) + 1 +
                    (s->opt.seed % 2 == 1 ? 6 : 0);

    for (uint32_t q = 0; q < s->n && t->told != 0; q++) {
        const struct view_body *v = view_of(s, q);

        if (v != NULL && !holds(s, v, t->culprit[0])) {
            check_fail(s->check, "X: half of the members put one out");
        } else if (v != NULL && v->epoch > t->first_epoch + most) {
            check_fail(
                s->check, "X: %" PRIu64 " views, because of %d that convict",
                v->epoch - t->first_epoch, __builtin_popcountll(t->told));
        }
        if (v != NULL && t->first_epoch == 0) {
            t->first_epoch = v->epoch;
        }
    }
}

/* Nobody who lives and lied in nothing is left out, where nobody dies. */
static void look_at_others(struct sim *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        const struct view_body *v =
            is_culprit(s->trial, q) ? NULL : view_of(s, q);

        for (uint32_t p = 0; p < s->n && v != NULL; p++) {
            if (p != q && !is_culprit(s->trial, p) &&
                p != s->trial->culprit[1] && !holds(s, v, p)) {
                check_fail(s->check, "X: peer %u, who is honest, is left out",
                           p);
            }
        }
    }
}

static void look_at_rounds(struct sim *s)
{
    struct trial *t = s->trial;
    uint64_t now = world_now(s->world);
    uint64_t round = sim_newest_round(s, t->culprit[0]);

    if (round > t->round || round == 0) {
        t->round = round;
        t->round_ms = now;
    } else if (now > t->round_ms + STAND_MS && round < s->rounds) {
        check_fail(s->check, "L: no round in %u ms", STAND_MS);
    }
}

static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    enum kind kind = s->trial->kind;

    (void)arg;
    if (kind == KIND_FEW) {
        look_at_few(s);
    } else {
        look_at_all(s);
    }
    if (kind == KIND_ALL || kind == KIND_TIMES || kind == KIND_TWO ||
        kind == KIND_PROBATION) {
        look_at_others(s);
    }
    if (kind != KIND_FOUNDING) {
        look_at_rounds(s);
    }
    if (!s->done) {
        world_call(s->world, world_now(s->world) + LOOK_MS, look_call, s, 0);
    }
}

/* ---- the scenario ---------------------------------------------------------
 */

static void strike_all_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    check_allow_forks(s->check);
    for (uint32_t q = 0; q < s->n; q++) {
        sim_strike_call(s, q);
    }
    (void)arg;
}

void options_convicts(struct sim *s)
{
    s->trial = world_alloc(sizeof *s->trial);
    s->world_opt.tamper = tamper;
    s->world_opt.tamper_self = s;
    s->restart_after_ms = BACK_MS;
    s->trial->kind = (enum kind)((s->opt.seed + KIND_COUNT - 1) % KIND_COUNT);
}

/* The settings are known. */
void sim_convicts_made(struct sim *s)
{
    struct trial *t = s->trial;

    if (t == NULL) {
        return;
    }
    if (s->trial_kind > 0) {
        t->kind = (enum kind)(s->trial_kind - 1);
    }
    if (t->kind == KIND_PROBATION) {
        s->starters = s->n - 1;
        s->victim = s->n - 1;
        s->local_opt.min_peers = s->n - 1;
        s->local_opt.probation_rounds = 1000;
        s->local_opt.shards_everywhere = false;
    }
    if (s->n < 5 && (t->kind == KIND_TWO || t->kind == KIND_SILENT ||
                     t->kind == KIND_DEAF)) {
        t->kind = KIND_ALL; /* those who are left are too few to convict */
    }
    t->n_culprits = t->kind == KIND_TWO ? 2 : 1;
    t->culprit[0] = s->victim;
    t->culprit[1] = t->kind == KIND_TWO ? (s->victim + 1) % s->n : s->victim;
}

/* Deaths beside the conviction. */
static void setup_deaths(struct sim *s, uint64_t at)
{
    const struct trial *t = s->trial;
    uint32_t next = (s->victim + 1) % s->n;

    if (t->kind == KIND_SILENT || t->kind == KIND_DEAF) {
        world_call(s->world, at + sim_draw(s, 0, 3000), sim_strike_call, s,
                   next);
    }
    if (t->kind == KIND_RESTARTS) {
        world_call(s->world, at + sim_draw(s, 0, 2000), sim_strike_call, s,
                   s->victim);
        world_call(s->world, at + 12000, sim_strike_call, s, s->victim);
        world_call(s->world, at + 24000, sim_strike_call, s, next);
    }
    if (t->kind == KIND_FOUNDING) {
        world_call(s->world, at + OUT_MS + 3000, strike_all_call, s, 0);
    }
    if (t->kind == KIND_FEW && s->opt.seed % 2 == 1) {
        world_call(s->world, at + sim_draw(s, 0, 9000), sim_strike_call, s,
                   next);
    }
}

void setup_convicts(struct sim *s)
{
    struct trial *t = s->trial;
    uint64_t at = sim_after_rounds(s, 4, 9);
    uint32_t few = s->accusers > 0 ? s->accusers : s->n / 2;

    if (t->kind == KIND_PROBATION) {
        world_call(s->world, at, sim_start_call, s, s->victim);
        at += 12000;
    }
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t q = (s->victim + k) % s->n;
        uint64_t more_ms = t->kind == KIND_TIMES || t->kind == KIND_FEW
                               ? sim_draw(s, 0, SPREAD_MS)
                               : sim_draw(s, 0, 200);

        if (is_culprit(t, q) ? t->kind == KIND_ALL && s->opt.seed % 2 == 1
                             : t->kind != KIND_FEW || k <= few) {
            world_call(s->world, at + more_ms, tell_call, s, q);
        }
    }
    setup_deaths(s, at);
    world_call(s->world, at, look_call, s, 0);
    s->calm_ms = at + SPREAD_MS + LATER_MS;
}

void sim_convicts_judge(struct sim *s)
{
    struct trial *t = s->trial;

    if (t != NULL && t->kind != KIND_FEW && !t->out) {
        check_fail(s->check, "X: the run ended before the culprit was out");
    }
}
