/* scenarios_work.c - members whose work is made up, and who sees it.
 *
 * A butterfly with audits of work. Seeds take turns (work.kind):
 *
 *   1  LIE       the victim contributes something else in each round
 *   2  MUTE      the same, and it announces no moments any more
 *   3  ACCUSERS  two of five find bad whatever they draw
 *   4  BOTH      the victim lies, and two friends find honest work bad and the
 *                victim's as they read it
 *   5  HONEST    nobody lies; another member dies and comes back
 *   6  ALL       nobody lies; each audits in each round, so that all leave out
 *                the same ones and some have to come back
 *   7  WITHHELD  the same, and the victim keeps its READYs from the others
 *   8  IDLE      the same, and the first member of the view trains nothing
 *   9  GAPS      nobody lies; the victim misses every second commit, as its
 *                READY comes to nobody or a step takes long, by turns
 *  10  FORGE     READYs of the victim for every second round come to nobody;
 *                its other leases begin with moments of its own choice
 *  11  NEWCOMER  nobody lies; one more comes, on probation for three rounds
 *  12  BACK      nobody lies; all find a state bad once, and it is taken back
 *  13  BOSSES    leases of the victim begin with moments of its own choice in
 *                every second round, and two coordinators leave out half of the
 *                others by turns
 *  14  ANEW      each lease of the victim begins with moments of no step
 *  15  FORGET    as LIE; when most convict it each other one dies and comes
 *                back, one after the other
 *
 * With work.liars more members lie as the victim does (LIE, FORGET), or so
 * many accuse (ACCUSERS): those behind it.
 *
 * W: nobody honest is ever convicted, nor found silent by most. A liar that
 * more than half of the others convicted is in no view of theirs, and is
 * convicted in time (LIE, FORGET). Whoever convicts has what proves it on disk,
 * and is told that again when it comes back. One that
 * announces nothing, or begins anew in each round, is in a third of the rounds
 * at most, and one whose moments lead nowhere in a fifth, as it is heard in
 * every second one alone, or in a third where it is heard in all; an honest one
 * that misses every second one is in a quarter at least, and a newcomer in half
 * of all that follow those of its probation. Somebody made leases again, and
 * took a state back where all asked for that. Where all leave rounds out,
 * somebody came back; and rounds are made as ever (E).
 *
 * Figures: commits with the liar after its first lie (work_with), how many of
 * the others convict it at the end (work_holders), and rounds until most
 * convicted the last liar (work_rounds), summed over liars (work_rounds_all).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/node/judge.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/conviction.h"
#include "p2p/round/view.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define LOOK_MS    100
#define TO_LEAVE   4   /* rounds */
#define LEAST      40  /* rounds that are needed to judge */
#define ENOUGH     120 /* ..in which liars are convicted */
#define TO_FORGET  70  /* ..in which all others die and come back */
#define HANG_MS    8000
#define IN_TIME_MS 500  /* a step: what all drew comes in time for all */
#define GAP_MS     9000 /* between two that die */

enum kind {
    KIND_LIE = 1,
    KIND_MUTE,
    KIND_ACCUSERS,
    KIND_BOTH,
    KIND_HONEST,
    KIND_ALL,
    KIND_WITHHELD,
    KIND_IDLE,
    KIND_GAPS,
    KIND_FORGE,
    KIND_NEWCOMER,
    KIND_BACK,
    KIND_BOSSES,
    KIND_ANEW,
    KIND_FORGET,
    KIND_COUNT = KIND_FORGET
};

static bool lies(const struct sim *s)
{
    return s->work.kind == KIND_LIE || s->work.kind == KIND_MUTE ||
           s->work.kind == KIND_BOTH || s->work.kind == KIND_FORGET;
}

/* Its lies can be seen, and nobody helps it. */
static bool is_plain(const struct sim *s)
{
    return s->work.kind == KIND_LIE || s->work.kind == KIND_FORGET;
}

static uint32_t n_liars(const struct sim *s)
{
    return s->work.liars > 1 && is_plain(s) ? s->work.liars : 1;
}

/* The victim, or one of those behind it that do the same. */
static bool is_liar(const struct sim *s, uint32_t q)
{
    return (q + s->n - s->victim) % s->n < n_liars(s);
}

/* The victim is to be in few rounds. */
static bool hides(const struct sim *s)
{
    return s->work.kind == KIND_MUTE || s->work.kind == KIND_FORGE ||
           s->work.kind == KIND_BOSSES || s->work.kind == KIND_ANEW;
}

static bool forges(const struct sim *s)
{
    return s->work.kind == KIND_FORGE || s->work.kind == KIND_BOSSES;
}

/* Each leaves out rounds to make leases again. */
static bool all_audit(const struct sim *s)
{
    return s->work.kind >= KIND_ALL && s->work.kind <= KIND_IDLE;
}

/* A READY of the victim for that round comes to nobody. */
static bool is_lost(const struct sim *s, uint64_t round)
{
    return s->work.kind == KIND_WITHHELD ||
           (s->work.kind == KIND_GAPS && round % 4 == 1) ||
           (s->work.kind == KIND_FORGE && round % 2 == 1);
}

static bool is_friend(const struct sim *s, uint32_t q)
{
    uint32_t behind = (q + s->n - s->victim) % s->n;
    uint32_t n =
        s->work.kind == KIND_ACCUSERS && s->work.liars > 0 ? s->work.liars : 2;

    return (s->work.kind == KIND_ACCUSERS || s->work.kind == KIND_BOTH) &&
           behind >= 1 && behind <= n;
}

static const struct node_work *work_of(const struct sim *s, uint32_t q)
{
    return s->nodes[q] == NULL ? NULL : node_parts(s->nodes[q]).work;
}

uint32_t sim_work_every(const struct sim *s)
{
    return all_audit(s) ? 1 : s->work.every;
}

/* Place of a peer in a view of all. */
static uint32_t rank_of(const struct sim *s, uint32_t peer)
{
    const struct identity *id = world_identity(s->world, peer);
    uint32_t rank = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        rank += memcmp(world_identity(s->world, q)->public, id->public, 32) < 0;
    }
    return rank;
}

/* Places behind the victim: 1 and 2 coordinate, and do not hear one half of
 * those behind them, then the other. */
static bool
is_left_out(const struct sim *s, uint32_t from, uint32_t to, uint64_t round)
{
    const uint32_t at = s->n - rank_of(s, s->victim);
    const uint32_t boss = (rank_of(s, to) + at) % s->n;
    const uint32_t who = (rank_of(s, from) + at) % s->n;

    return s->work.kind == KIND_BOSSES && (boss == 1 || boss == 2) && who > 2 &&
           (who + round) % 2 == 0;
}

/* That READY is of no attempt. */
static uint32_t withhold(void *self,
                         uint32_t from,
                         uint32_t to,
                         uint16_t message,
                         uint8_t *bytes,
                         uint32_t len,
                         uint32_t cap)
{
    const struct sim *s = self;
    struct ready m;
    int n;

    if (!s->work.begun || message != MESSAGE_READY ||
        msg_decode(&ready_schema, bytes, len, &m) != 0 ||
        !((from == s->victim && is_lost(s, m.body.round)) ||
          is_left_out(s, from, to, m.body.round))) {
        return len;
    }
    m.body.epoch = ~m.body.epoch;
    n = msg_encode(&ready_schema, &m, bytes, cap);
    return n < 0 ? len : (uint32_t)n;
}

/* The first one of a view of all. */
static uint32_t first_peer(const struct sim *s)
{
    uint32_t first = 0;

    for (uint32_t q = 1; q < s->n; q++) {
        if (memcmp(world_identity(s->world, q)->public,
                   world_identity(s->world, first)->public, 32) < 0) {
            first = q;
        }
    }
    return first;
}

/* Others that convict the victim. */
static uint32_t n_holders_of(const struct sim *s, uint32_t liar)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        n += q != liar && (s->work.held[q] >> liar & 1);
    }
    return n;
}

/* Of the liar that fewest convict. */
static uint32_t n_holders(const struct sim *s)
{
    uint32_t n = s->n;

    for (uint32_t k = 0; k < n_liars(s); k++) {
        uint32_t of = n_holders_of(s, (s->victim + k) % s->n);

        n = of < n ? of : n;
    }
    return n;
}

/* ---- evidence -------------------------------------------------------------
 */

void sim_work_started(struct sim *s, uint32_t peer)
{
    for (uint32_t q = 0; peer < VIEW_MEMBERS_MAX && q < VIEW_MEMBERS_MAX; q++) {
        if (s->work.held[peer] >> q & 1) {
            node_convict(s->nodes[peer], &world_identity(s->world, q)->id);
        }
    }
}

void sim_work_convicted(void *self,
                        uint32_t peer,
                        const uint8_t *bytes,
                        size_t len)
{
    struct sim *s = self;
    const struct signer signer = signer_keyed(world_identity(s->world, peer));
    struct conviction *c = world_alloc(sizeof *c);
    char errmsg[ERRMSG_SIZE] = "it is not well formed";
    int rv = msg_decode(&conviction_schema, bytes, len, c);

    rv = rv != 0 ? rv : conviction_check(c, &s->run_id, &signer, errmsg);
    if (rv != 0) {
        check_fail(s->check, "W: what peer %u writes down convicts nobody: %s",
                   peer, errmsg);
    } else {
        struct peer_id id = view_member_id(&c->view.members[c->accused]);
        uint32_t who = world_find(s->world, &id);

        if (peer < VIEW_MEMBERS_MAX && who < VIEW_MEMBERS_MAX) {
            s->work.held[peer] |= 1ULL << who;
        }
    }
    free(c);
}

static void forgot_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    s->work.restarted = true;
}

/* Others die and come back. */
static void forget_all(struct sim *s)
{
    uint64_t now = world_now(s->world);
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        if (!is_liar(s, q)) {
            world_call(s->world, now + ++n * GAP_MS, sim_strike_call, s, q);
        }
    }
    world_call(s->world, now + (n + 2) * GAP_MS, forgot_call, s, 0);
}

/* Who convicted somebody wrote down what proves it, of each. */
static void look_at_evidence(struct sim *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        const struct node_work *w = work_of(s, q);
        int files = __builtin_popcountll(s->work.held[q]);

        if (w != NULL && !is_liar(s, q) && w->n_convicted > (uint64_t)files) {
            check_fail(s->check, "W: peer %u convicts %u, and wrote %d down", q,
                       (uint32_t)w->n_convicted, files);
        }
    }
}

/* No liar is in a view of those that came back with what convicts it. */
static void look_at_views(struct sim *s)
{
    for (uint32_t q = 0; s->work.restarted && q < s->n; q++) {
        for (uint32_t k = 0; k < n_liars(s) && !is_liar(s, q); k++) {
            uint32_t liar = (s->victim + k) % s->n;

            if ((s->work.held[q] >> liar & 1) && sim_has_in_view(s, q, liar)) {
                check_fail(s->check,
                           "W: peer %u came back and has the liar in its view",
                           q);
            }
        }
    }
}

/* How many states were taken back, by all. */
static uint64_t n_back(const struct sim *s)
{
    uint64_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        n +=
            s->nodes[q] == NULL ? 0 : node_parts(s->nodes[q]).judge->n_rollback;
    }
    return n;
}

/* All find each state bad until one was taken back. */
static void misjudge(const struct sim *s)
{
    for (uint32_t q = 0; s->work.kind == KIND_BACK && q < s->n; q++) {
        local_misjudge(s->local, q, n_back(s) == 0);
    }
}

/* Most convict a liar by that round. */
static void note_known(struct sim *s, uint64_t round)
{
    for (uint32_t k = 0; lies(s) && k < n_liars(s); k++) {
        if (s->work.known[k] == 0 &&
            2 * n_holders_of(s, (s->victim + k) % s->n) > s->n - 1) {
            s->work.known[k] = (uint32_t)(round - s->work.begun_round);
        }
    }
}

/* Count the rounds that the victim has a part in. */
static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct node_commit *c = sim_newest_but(s, s->victim);

    (void)arg;
    misjudge(s);
    if (c != NULL && c->round > s->work.round) {
        bool in = false;

        for (uint32_t k = 0; k < c->n; k++) {
            in |= world_find(s->world, &c->member[k]) == s->victim;
        }
        s->work.round = c->round;
        s->work.n_rounds++;
        s->work.n_with += in;
        if (s->work.kind == KIND_GAPS && c->round % 4 == 2) {
            local_hang(s->local, s->victim, HANG_MS);
        }
        note_known(s, c->round);
        if (lies(s) && s->work.known_round == 0 &&
            2 * n_holders(s) > s->n - 1) {
            s->work.known_round = c->round;
            if (s->work.kind == KIND_FORGET) {
                forget_all(s);
            }
        }
    }
    look_at_evidence(s);
    look_at_views(s);
    if (!s->done) {
        world_call(s->world, world_now(s->world) + LOOK_MS, look_call, s, 0);
    }
}

static void turn_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    for (uint32_t k = 0; k < n_liars(s); k++) {
        local_lie(s->local, (s->victim + k) % s->n, lies(s));
    }
    s->work.begun_round = sim_newest_round(s, s->n);
    local_mute(s->local, s->victim, s->work.kind == KIND_MUTE);
    local_idle(s->local, s->victim, s->work.kind == KIND_IDLE);
    local_forge(s->local, s->victim, forges(s));
    local_anew(s->local, s->victim, s->work.kind == KIND_ANEW);
    s->work.begun = true;
    for (uint32_t q = 0; q < s->n; q++) {
        local_accuse(s->local, q, is_friend(s, q));
    }
    sim_fault(s);
    look_call(s, arg);
}

void options_work(struct sim *s)
{
    s->work.on = true;
    s->local_opt.audits = 2;
    s->world_opt.tamper = withhold;
    s->world_opt.tamper_self = s;
    if (s->work.kind == 0) {
        s->work.kind = 1 + (uint32_t)(s->opt.seed % KIND_COUNT);
    }
    if (all_audit(s)) {
        s->local_opt.step_ms = IN_TIME_MS;
    }
}

int sim_work_made(struct sim *s, struct sim_result *result)
{
    if (s->work.on && (s->n > VIEW_MEMBERS_MAX || s->work.liars >= s->n)) {
        (void)snprintf(result->violation, sizeof result->violation,
                       "work: --peers is at most %d, and work.liars below it",
                       VIEW_MEMBERS_MAX);
        return LOCO_EINVAL;
    }
    if (s->work.kind == KIND_NEWCOMER) {
        s->starters = s->n - 1;
        s->need = s->n;
        s->local_opt.min_peers = s->starters;
        s->local_opt.probation_rounds = 3;
    }
    if (s->work.kind == KIND_FORGET) {
        s->restart_after_ms = 2500;
    }
    if (s->work.kind == KIND_BACK) {
        s->local_opt.rollback_microbits = 500000;
    }
    return 0;
}

void setup_work(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 6);

    s->victim = s->work.kind == KIND_IDLE ? first_peer(s) : s->victim;
    s->victim = s->work.kind == KIND_NEWCOMER ? s->n - 1 : s->victim;
    s->calm_ms = at;
    world_call(s->world, at, turn_call, s, 0);
    if (s->work.kind == KIND_NEWCOMER) {
        world_call(s->world, at, sim_start_call, s, s->victim);
    }
    if (s->work.kind == KIND_HONEST) {
        s->restart_after_ms = sim_draw(s, 1000, 12000);
        s->calm_ms += 5000 + s->restart_after_ms;
        world_call(s->world, at + sim_draw(s, 0, 5000), sim_strike_call, s,
                   (s->victim + 2) % s->n);
    }
}

static void check_peer(struct sim *s, uint32_t q, const struct node_work *w)
{
    bool liar = (lies(s) || hides(s)) && is_liar(s, q);

    if (w->n_convicted > 0 &&
        (!lies(s) || !is_liar(s, world_find(s->world, &w->convicted)))) {
        check_fail(s->check, "W: peer %u convicts one that is honest", q);
    }
    if (!liar && s->lives[q] == 1 && 2 * sim_n_finding(s, q) > s->n) {
        check_fail(s->check,
                   "W: most find peer %u silent, which is honest (victim %u)",
                   q, s->victim);
    }
    if (!liar && w->n_convicted > 0 && s->work.known_round > 0 &&
        s->work.known_round + TO_LEAVE < s->work.round &&
        sim_has_in_view(s, q, s->victim)) {
        check_fail(s->check, "W: peer %u has the liar in its view", q);
    }
}

void check_work(struct sim *s)
{
    for (uint32_t q = 0; s->local_opt.audits > 1 && q < s->n; q++) {
        const struct node_work *w = work_of(s, q);

        if (w != NULL && world_alive(s->world, q)) {
            s->work.read += (uint32_t)w->core.n_read;
            s->work.back += (uint32_t)w->n_back;
            check_peer(s, q, w);
        }
    }
    if (is_plain(s) && s->work.on && s->work.n_rounds >= ENOUGH &&
        s->work.known_round == 0) {
        check_fail(s->check, "W: after %u rounds only %u convict a liar",
                   s->work.n_rounds, n_holders(s));
    }
    if (s->work.kind == KIND_FORGET && s->work.known_round > 0 &&
        s->work.round > s->work.known_round + TO_FORGET && !s->work.restarted) {
        check_fail(s->check, "W: the others did not die and come back");
    }
    if (s->work.on && s->rounds >= 100 && s->work.read == 0) {
        check_fail(s->check, "W: nobody made a lease again");
    }
    if (all_audit(s) && s->rounds >= 100 && s->work.back == 0 &&
        s->local_opt.step_ms >= IN_TIME_MS) {
        check_fail(s->check, "W: nobody came back");
    }
    if (s->work.kind == KIND_BACK && s->work.n_rounds >= LEAST &&
        n_back(s) == 0) {
        check_fail(s->check, "W: no state was taken back");
    }
    if (s->work.kind == KIND_NEWCOMER && s->work.n_rounds >= LEAST &&
        2 * s->work.n_with < s->work.n_rounds) {
        check_fail(s->check, "W: a newcomer is in %u of %u", s->work.n_with,
                   s->work.n_rounds);
    }
    if (s->work.kind == KIND_GAPS && s->work.n_rounds >= LEAST &&
        4 * s->work.n_with < s->work.n_rounds) {
        check_fail(s->check, "W: who misses some rounds is in %u of %u",
                   s->work.n_with, s->work.n_rounds);
    }
    if (hides(s) && s->work.n_rounds >= LEAST &&
        (s->work.kind == KIND_FORGE ? 5 : 3) * s->work.n_with >
            s->work.n_rounds) {
        check_fail(s->check, "W: whose moments lead nowhere is in %u of %u",
                   s->work.n_with, s->work.n_rounds);
    }
}

/* Rounds until most convicted a liar, of all liars. */
static double sum_known(const struct sim *s)
{
    double sum = 0;

    for (uint32_t k = 0; k < n_liars(s); k++) {
        sum += s->work.known[k];
    }
    return sum;
}

void sim_work_judge(const struct sim *s, struct sim_result *r)
{
    if (s->work.on) {
        sim_figure(r, "work_read", (double)s->work.read, SIM_SUM);
        sim_figure(r, "work_back", (double)s->work.back, SIM_SUM);
        sim_figure(r, "work_with", (double)s->work.n_with, SIM_MAX);
        sim_figure(r, "work_holders", (double)n_holders(s), SIM_MIN);
        if (s->work.known_round > 0) {
            sim_figure(r, "work_rounds",
                       (double)(s->work.known_round - s->work.begun_round),
                       SIM_MAX);
            sim_figure(r, "work_rounds_all", sum_known(s), SIM_SUM);
        }
    }
}
