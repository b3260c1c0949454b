/* scenarios_faults.c - faults of whole nodes that are more than one blow: two
 * at once, short ones, the same again and again, and their price in rounds.
 *
 *   kill-two        two neighbours of a ring, or two opposite, at once
 *   half-restart    half of all at once; they come back
 *   pause           too short to be noticed: nobody may be lost by it
 *   freeze-edge     about as long as the others wait
 *   stuck           the trainer of one hangs for a minute, its protocols do not
 *   drain           one leaves with a goodbye: no round is lost by it
 *   split-three     three parts
 *   one-way         bytes of one half do not reach the other
 *   flap            a line that comes and goes every 5 s
 *   far             200 to 500 ms from a message to its answer
 *   join-crowd      all newcomers within a second
 *   join-leave-join one that comes, goes and comes again
 *   goodput         one dies every 60, 15 or 5 s: what is left of the rounds
 */
#include <inttypes.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"

#define LOOK_MS 200

/* ---- several die ------------------------------------------------------ */

/* Neighbours in the last ring for odd seeds, else as far apart as can be. */
static uint32_t other_victim(const struct sim *s)
{
    const struct round *r = node_parts(s->nodes[s->victim]).round;
    const struct peer_id *self = &world_identity(s->world, s->victim)->id;

    for (uint32_t k = 0; k < r->order.n; k++) {
        if (id_eq(&r->order.peer[k], self) && r->order.n > 1) {
            uint32_t by = s->opt.seed % 2 == 1 ? 1 : r->order.n / 2;

            return world_find(s->world, &r->order.peer[(k + by) % r->order.n]);
        }
    }
    return (s->victim + 1) % s->n;
}

void sim_faults_died(struct sim *s, uint32_t peer)
{
    if (s->faults.two_die && peer == s->victim) {
        uint32_t other = other_victim(s);

        s->faults.two_die = false;
        s->faults.victim_too = other;
        world_call(s->world, world_now(s->world), sim_kill_call, s, other);
    }
}

void options_kill_two(struct sim *s)
{
    s->local_opt.min_peers = s->n > 3 ? s->n - 2 : 1;
}

/* Two of four, or of a first view of fewer than five, are half of it. */
void setup_kill_two(struct sim *s)
{
    /* Who comes back to nobody founds nothing: it has to be shown that there is
     * nobody, by a bootstrap that answers. And a newcomer whose bootstraps do
     * not answer for 10 s stops: they are back in time. */
    bool back = s->n == 2 || s->opt.seed % 3 == 0;

    s->faults.two_die = true;
    s->restart_after_ms = back ? sim_draw(s, 100, 5000) : 0;
    s->fork_fine = s->n <= 6 && !back;
    if (s->n <= 6) {
        check_allow_forks(s->check);
    }
    world_call(s->world, SIM_START_MS, sim_arm_call, s, 0);
    s->calm_ms = SIM_START_MS + 10000;
}

static void half_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    check_allow_forks(s->check);
    for (uint32_t k = 0; k < s->n / 2; k++) {
        world_kill(s->world, ((uint32_t)arg + k) % s->n);
    }
    sim_fault(s);
}

void setup_half_restart(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, s->rounds / 2);

    s->restart_after_ms = sim_draw(s, 1000, 60000);
    world_call(s->world, at, half_call, s, s->victim);
    s->calm_ms = at + s->restart_after_ms;
}

/* ---- stopped for a while ---------------------------------------------- */

/* Shorter than anybody waits for a sign of life. */
void setup_pause(struct sim *s)
{
    s->quiet = true;
    s->freeze_ms = sim_draw(s, 50, 1000);
    s->epochs_max = 1;
    s->calm_ms = SIM_START_MS + 10000;
}

void setup_freeze_edge(struct sim *s)
{
    s->freeze_ms = sim_draw(s, 1000, 6000);
    s->calm_ms = SIM_START_MS + 10000;
    if (s->n <= 3) {
        check_allow_forks(s->check);
    }
}

/* ---- a trainer that hangs --------------------------------------------- */

#define STUCK_MS     60000
#define STUCK_TWO_MS 180000 /* a view of two waits longer before it goes on */
#define STUCK_ROUNDS 8      /* that the others must make of it: one each 7 s */

static void stuck_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint64_t made;

    if (arg > 0) {
        s->heard_at = sim_newest_round(s, s->n);
        local_hang(s->local, s->victim, (uint32_t)arg);
        return;
    }
    sim_fault(s);
    made = sim_newest_round(s, s->n) - s->heard_at;
    if (made < STUCK_ROUNDS && sim_newest_round(s, s->n) < s->rounds) {
        check_fail(s->check,
                   "L: only %" PRIu64 " rounds while the trainer of one "
                   "member hung",
                   made);
    }
}

void setup_stuck(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, s->rounds / 4);
    uint32_t ms = s->n == 2 ? STUCK_TWO_MS : STUCK_MS;

    s->quiet = true;
    world_call(s->world, at, stuck_call, s, ms);
    world_call(s->world, at + ms, stuck_call, s, 0);
    s->calm_ms = at + ms;
}

/* ---- one leaves ------------------------------------------------------- */

#define DRAIN_MS 20000 /* within which it must be gone */

static void drained_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    /* Where it was the run itself it has come back. */
    if (world_alive(s->world, s->victim) && s->lives[s->victim] == arg) {
        check_fail(s->check,
                   "L: peer %u has not left %d s after it was told to",
                   s->victim, DRAIN_MS / 1000);
    }
}

static void drain_call(void *data, uint64_t arg)
{
    struct event ev = {.type = EVENT_LOCAL, .local = {.type = LOCAL_DRAIN}};
    struct sim *s = data;

    if (world_actions(s->world, s->victim) < s->at) {
        world_call(s->world, world_now(s->world) + 5, drain_call, s, arg);
        return;
    }
    ev.now_ms = world_now(s->world);
    world_post(s->world, s->victim, &ev);
    world_call(s->world, world_now(s->world) + DRAIN_MS, drained_call, s,
               s->lives[s->victim]);
    s->calm_ms = world_now(s->world) + DRAIN_MS;
}

/* A plan may have been on its way to it. */
void setup_drain(struct sim *s)
{
    s->faults.aborts_max = 1;
    s->epochs_max = 3;
    s->calm_ms = SIM_START_MS + 10000;
    world_call(s->world, SIM_START_MS, drain_call, s, 0);
}

/* ---- cuts ------------------------------------------------------------- */

static void heal_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    s->faults.one_way = false;
    world_heal(s->world);
    sim_fault(s);
}

static void split_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    world_partition(s->world, s->group);
}

/* Healed before round.fork_after_ms, or after some rounds of a fork, or after
 * many. */
static uint64_t cut_ms(struct sim *s)
{
    switch (s->opt.seed % 3) {
    case 0:
        return sim_draw(s, 1000, 25000);
    case 1:
        return sim_draw(s, 35000, 60000);
    default:
        return sim_draw(s, 120000, 180000);
    }
}

void setup_split_three(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, 8);

    check_allow_forks(s->check);
    for (uint32_t i = 0; i < s->n; i++) {
        s->group[i] = i < 3 ? i : (uint32_t)sim_draw(s, 0, 2);
    }
    s->calm_ms = at + cut_ms(s);
    world_call(s->world, at, split_call, s, 0);
    world_call(s->world, s->calm_ms, heal_call, s, 0);
}

static bool one_way_cut(void *self, uint32_t from, uint32_t to, bool bulk)
{
    const struct sim *s = self;

    (void)bulk;
    return s->faults.one_way && s->group[from] < s->group[to];
}

void options_one_way(struct sim *s)
{
    s->world_opt.cut = one_way_cut;
    s->world_opt.cut_self = s;
}

static void one_way_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint32_t none[VIEW_MEMBERS_MAX] = {0};

    (void)arg;
    s->faults.one_way = true;
    world_partition(s->world, none);
}

void setup_one_way(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, 8);

    check_allow_forks(s->check);
    for (uint32_t i = 0; i < s->n; i++) {
        s->group[i] = (i + (uint32_t)s->opt.seed) % s->n < s->n / 2;
    }
    s->calm_ms = at + cut_ms(s);
    world_call(s->world, at, one_way_call, s, 0);
    world_call(s->world, s->calm_ms, heal_call, s, 0);
}

#define FLAP_MS 5000
#define FLAPS   8

/* Another line each time: never long enough for a fork. */
static void flap_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    if (arg % 2 == 0) {
        world_heal(s->world);
    } else {
        for (uint32_t i = 0; i < s->n; i++) {
            s->group[i] = i == arg / 2 % s->n || sim_draw(s, 0, 2) == 0;
        }
        world_partition(s->world, s->group);
    }
    sim_fault(s);
    if (arg > 0) {
        world_call(s->world, world_now(s->world) + FLAP_MS, flap_call, s,
                   arg - 1);
    }
}

void setup_flap(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, 8);

    s->calm_ms = at + 2 * FLAPS * FLAP_MS;
    world_call(s->world, at, flap_call, s, 2 * FLAPS - 1);
}

void options_far(struct sim *s)
{
    s->world_opt.latency_min_ms = 100;
    s->world_opt.latency_max_ms = 200;
    s->world_opt.jitter_ms = 50;
}

void setup_far(struct sim *s)
{
    s->quiet = true;
}

/* ---- newcomers -------------------------------------------------------- */

void options_crowd(struct sim *s)
{
    s->starters = s->n > 3 ? 3 : 1;
    s->local_opt.min_peers = s->starters;
    s->local_opt.shards_everywhere = false;
}

void setup_join_crowd(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 4);

    s->quiet = true;
    for (uint32_t i = s->starters; i < s->n; i++) {
        world_call(s->world, at + sim_draw(s, 0, 1000), sim_start_call, s, i);
    }
    s->calm_ms = at + 1000;
}

void options_come_and_go(struct sim *s)
{
    s->starters = s->n - 1;
    s->local_opt.min_peers = s->starters;
    s->local_opt.shards_everywhere = false;
}

/* Twice it is gone before long, and back before anybody has noticed. */
void setup_join_leave_join(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, s->rounds / 2);

    for (int k = 0; k < 2; k++) {
        world_call(s->world, at, sim_start_call, s, s->n - 1);
        at += sim_draw(s, 50, 4000);
        world_call(s->world, at, sim_kill_call, s, s->n - 1);
        at += sim_draw(s, 10, 1000);
    }
    world_call(s->world, at, sim_start_call, s, s->n - 1);
    s->calm_ms = at;
}

/* ---- rounds that are left --------------------------------------------- */

#define GOODPUT_CALM 12 /* rounds without faults, the first two not counted */

static const struct {
    uint64_t every_ms, percent; /* of the rounds of a calm time, at least */
} deaths[] = {{60000, 80}, {15000, 60}, {5000, 30}};

static void goodput_kill(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint32_t who = (uint32_t)sim_draw(s, 0, s->n - 1);

    if (s->faults.end_ms > 0) {
        return;
    }
    world_kill(s->world, who); /* nothing, where it is dead still */
    world_call(s->world,
               world_now(s->world) + sim_draw(s, arg / 2, arg * 3 / 2),
               goodput_kill, s, arg);
}

static void goodput_look(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint64_t round = sim_newest_round(s, s->n), now = world_now(s->world);

    s->faults.first_ms =
        s->faults.first_ms == 0 && round >= 2 ? now : s->faults.first_ms;
    if (s->faults.second_ms == 0 && round >= GOODPUT_CALM) {
        s->faults.second_ms = now;
        world_call(s->world, now, goodput_kill, s, deaths[arg].every_ms);
    }
    if (round + 2 >= s->rounds) {
        s->faults.end_ms = now;
        s->calm_ms = now;
        return;
    }
    world_call(s->world, now + LOOK_MS, goodput_look, s, arg);
}

void setup_goodput(struct sim *s)
{
    uint64_t row = s->opt.seed % (sizeof deaths / sizeof deaths[0]);

    check_allow_forks(s->check);
    s->faults.goodput = true;
    s->restart_after_ms = 2000;
    s->calm_ms = SIM_START_MS + s->rounds * 60000; /* until told otherwise */
    world_call(s->world, SIM_START_MS, goodput_look, s, row);
}

void sim_faults_judge(struct sim *s, struct sim_result *r)
{
    uint64_t row = s->opt.seed % (sizeof deaths / sizeof deaths[0]);
    double calm, churn, percent;

    if (!s->faults.goodput || s->faults.end_ms == 0 ||
        s->rounds <= GOODPUT_CALM + 2) {
        return;
    }
    calm =
        (double)(s->faults.second_ms - s->faults.first_ms) / (GOODPUT_CALM - 2);
    churn = (double)(s->faults.end_ms - s->faults.second_ms) /
            (double)(s->rounds - 2 - GOODPUT_CALM);
    percent = 100 * calm / churn;
    sim_figure(r,
               row == 0   ? "goodput_percent_60_s"
               : row == 1 ? "goodput_percent_15_s"
                          : "goodput_percent_5_s",
               percent, SIM_MIN);
    if (percent < (double)deaths[row].percent) {
        check_fail(s->check,
                   "L: %.0f %% of the rounds are left where one of %u dies "
                   "every %" PRIu64 " s",
                   percent, s->n, deaths[row].every_ms / 1000);
    }
}
