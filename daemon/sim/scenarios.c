/* scenarios.c - faults of whole nodes: what happens to the peers, and when.
 * See sim.h; what must hold all the while is in check.h. */
#include <inttypes.h>

#include "daemon/sim/sim_internal.h"

/* ---- one victim ---------------------------------------------------------- */

static void setup_kill(struct sim *s)
{
    if (s->opt.seed % 4 == 0) {
        local_forget(s->local, (s->victim + 1) % s->n);
    }
    world_call(s->world, SIM_START_MS, sim_arm_call, s, 0);
    s->calm_ms = SIM_START_MS + 10000;
    /* The first view of three may hold two: one of them is no majority. */
    s->fork_fine = s->n <= 3;
    if (s->n <= 3) {
        check_allow_forks(s->check);
    }
}

static void setup_restart(struct sim *s)
{
    uint64_t lo = 100, hi = 20000;

    setup_kill(s);
    s->fork_fine = false;
    s->restart_after_ms = sim_draw(s, lo, hi);
}

/* The disks of about half of all take their time for what was promised: a
 * ballot of 2 s has a promise and a signature in its way. */
static void setup_slow_disks(struct sim *s)
{
    uint32_t most_ms = (uint32_t)sim_draw(s, 10, 1500);

    setup_restart(s);
    for (uint32_t i = 0; i < s->n; i++) {
        if (sim_draw(s, 0, 1) == 1) {
            world_slow_disk(s->world, i, most_ms);
        }
    }
}

static void setup_freeze(struct sim *s)
{
    s->freeze_ms = 20000;
    s->calm_ms = SIM_START_MS + 10000;
    if (s->n <= 3) {
        check_allow_forks(s->check);
    }
}

/* A founder of the run may die before the run exists: let it found with the
 * others that are left. */
static void options_victim(struct sim *s)
{
    if (s->n > 2) {
        s->local_opt.min_peers = s->n - 1;
    } else {
        s->local_opt.min_peers = 1;
    }
}

static void options_overlap(struct sim *s)
{
    options_victim(s);
    s->local_opt.fragments = 3;
    s->local_opt.overlap = 2;
}

static void options_single_round(struct sim *s)
{
    options_victim(s);
    s->local_opt.single_round = true;
    s->local_opt.period = 1;
}

static void options_quorum(struct sim *s)
{
    options_victim(s);
    s->local_opt.quorum = 1;
}

static void options_trainers(struct sim *s)
{
    options_victim(s);
    s->local_opt.trainers = 3;
    s->local_opt.merge_every = 4;
}

/* One machine is slow, so that it is in the middle of a task again and again;
 * seeds take turns in whether it is the victim. In every third seed all but one
 * are slow, differently: the run ends while they are in the middle of tasks. */
static void setup_quorum(struct sim *s)
{
    uint32_t one;

    setup_restart(s);
    one = (s->victim + (uint32_t)(s->opt.seed % 2)) % s->n;
    for (uint32_t q = 0; s->opt.seed % 3 == 0 && q < s->n; q++) {
        local_slow(s->local, q, q == one ? 1 : 5 + q % 4);
    }
    if (s->opt.seed % 3 != 0) {
        local_slow(s->local, one, 7);
    }
}

static void setup_slow(struct sim *s)
{
    s->quiet = true;
    local_slow(s->local, s->victim, 20);
}

static void setup_plain(struct sim *s)
{
    s->quiet = true;
}

static void options_join(struct sim *s)
{
    s->local_opt.min_peers = s->n > 2 ? s->n - 1 : 1;
    s->local_opt.shards_everywhere = false;
    s->starters = s->n - 1;
}

static void options_versions(struct sim *s)
{
    s->invited.mixed = true;
    s->quiet = true;
}

static void setup_join(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, s->rounds / 3, s->rounds / 2);

    s->quiet = true;
    world_call(s->world, at, sim_start_call, s, s->n - 1);
    s->calm_ms = at;
}

/* Rounds of one short step, and newcomers one after another: a ballot for a
 * view and a plan for a round are nearly always in flight together. */
static void options_fast_join(struct sim *s)
{
    options_join(s);
    s->starters = s->n > 3 ? 2 : 1;
    s->local_opt.min_peers = s->starters;
    s->local_opt.period = 1;
    s->local_opt.step_ms = 20;
    s->local_opt.work_ms = 1;
    s->world_opt.latency_min_ms = 1;
    s->world_opt.latency_max_ms = 12;
    s->world_opt.jitter_ms = 4;
}

static void setup_fast_join(struct sim *s)
{
    uint64_t at = SIM_START_MS + 4000;

    s->quiet = true;
    for (uint32_t i = s->starters; i < s->n; i++) {
        at += sim_draw(s, 0, 2000);
        world_call(s->world, at, sim_start_call, s, i);
    }
    s->calm_ms = at;
}

/* ---- cuts --------------------------------------------------------------- */

/* The side that may go on: more than half, or half with the lowest id. */
static uint32_t majority_group(const struct sim *s)
{
    uint32_t lowest = 0, n[2] = {0, 0};

    for (uint32_t i = 0; i < s->n; i++) {
        n[s->group[i]]++;
        if (id_cmp(&world_identity(s->world, i)->id,
                   &world_identity(s->world, lowest)->id) < 0) {
            lowest = i;
        }
    }
    return n[0] == n[1] ? s->group[lowest] : n[1] > n[0];
}

static void heal_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint64_t cut_ms = world_now(s->world) - s->split_ms;
    uint32_t major = majority_group(s);
    struct node_status t;

    (void)arg;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!world_alive(s->world, i)) {
            continue;
        }
        node_status(s->nodes[i], &t);
        if (s->group[i] == major && t.fork) {
            check_fail(s->check, "G: peer %u of the majority says fork", i);
        }
        if (s->group[i] != major && !t.fork && t.state != NODE_FINISHED &&
            (t.epoch > 0 || t.round > 0) && /* the run had begun there */
            cut_ms > s->local_opt.fork_after_ms + 30000) {
            check_fail(s->check,
                       "G: peer %u has been cut off for %" PRIu64
                       " ms and does not say fork",
                       i, cut_ms);
        }
    }
    world_heal(s->world);
    sim_fault(s);
}

static void split_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    check_allow_forks(s->check);
    s->split_ms = world_now(s->world);
    world_partition(s->world, s->group);
}

/* Odd seeds heal before round.fork_after_ms, even ones long after. */
static void split(struct sim *s, uint32_t n_minor)
{
    uint64_t at = sim_after_rounds(s, 1, s->rounds / 2);
    uint64_t cut_ms = s->opt.seed % 2 == 1 ? sim_draw(s, 1000, 25000)
                                           : sim_draw(s, 62000, 90000);

    for (uint32_t i = 0; i < n_minor; i++) {
        uint32_t k;

        do {
            k = (uint32_t)sim_draw(s, 0, s->n - 1);
        } while (s->group[k] != 0);
        s->group[k] = 1;
    }
    world_call(s->world, at, split_call, s, 0);
    world_call(s->world, at + cut_ms, heal_call, s, 0);
    s->calm_ms = at + cut_ms;
}

static void setup_split_half(struct sim *s)
{
    split(s, s->n / 2);
}

static void setup_split_one(struct sim *s)
{
    split(s, s->n > 1 ? 1 : 0);
}

/* ---- a pair without an edge ---------------------------------------------- */

static bool is_pair(const uint32_t *edge, uint32_t from, uint32_t to)
{
    return (from == edge[0] && to == edge[1]) ||
           (from == edge[1] && to == edge[0]);
}

static bool edge_cut(void *self, uint32_t from, uint32_t to, bool bulk)
{
    const struct sim *s = self;

    return (bulk ? s->no_bulk : s->no_link) &&
           (is_pair(s->edge, from, to) ||
            (s->two_edges && is_pair(s->edge + 2, from, to)));
}

static void options_edge(struct sim *s)
{
    s->world_opt.cut = edge_cut;
    s->world_opt.cut_self = s;
    s->edge[0] = (uint32_t)sim_draw(s, 0, s->n - 1);
    s->edge[1] = (s->edge[0] + 1 + (uint32_t)sim_draw(s, 0, s->n - 2)) % s->n;
}

/* Two pairs of different peers. */
static void options_edges(struct sim *s)
{
    options_edge(s);
    s->two_edges = s->n >= 4;
    for (uint32_t k = 2; k < 4 && s->two_edges; k++) {
        do {
            s->edge[k] = (uint32_t)sim_draw(s, 0, s->n - 1);
        } while (s->edge[k] == s->edge[0] || s->edge[k] == s->edge[1] ||
                 (k == 3 && s->edge[3] == s->edge[2]));
    }
}

/* They never had one: the first view has all, and no attempt fails. */
static void setup_no_edge(struct sim *s)
{
    s->no_link = s->no_bulk = true;
    s->quiet = true;
    s->epochs_max = 2;
}

/* It breaks in the middle of the run. */
static void edge_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint32_t none[64] = {0};

    s->no_bulk = true;
    s->no_link = arg != 0;
    world_partition(s->world, none);
    sim_fault(s);
}

static void setup_lose_edge(struct sim *s)
{
    s->calm_ms = sim_after_rounds(s, 1, s->rounds / 3);
    s->epochs_max = 6;
    world_call(s->world, s->calm_ms, edge_call, s, 1);
}

/* Of four in a butterfly no three can then exchange data: one has to stay out,
 * or there is no round any more. */
static void setup_lose_edges(struct sim *s)
{
    setup_lose_edge(s);
    s->epochs_max = 16;
}

static void setup_lose_bulk(struct sim *s)
{
    s->calm_ms = sim_after_rounds(s, 1, s->rounds / 3);
    s->epochs_max = 8;
    world_call(s->world, s->calm_ms, edge_call, s, 0);
}

/* ---- a member that is alive and moves no data --------------------------- */

#define HANG_MS     60000
#define HANG_ROUNDS 4 /* that the others must make of it meanwhile */

static bool hang_cut(void *self, uint32_t from, uint32_t to, bool bulk)
{
    const struct sim *s = self;

    return bulk && s->no_bulk && (from == s->victim || to == s->victim);
}

static void options_hang(struct sim *s)
{
    s->world_opt.cut = hang_cut;
    s->world_opt.cut_self = s;
    s->world_opt.transport_timeout_ms = 0; /* silent for ever */
}

static void hang_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint32_t none[64] = {0};
    uint64_t made;

    s->no_bulk = arg != 0;
    world_partition(s->world, none);
    sim_fault(s);
    if (s->no_bulk) {
        s->heard_at = sim_newest_round(s, s->victim);
        return;
    }
    made = sim_newest_round(s, s->victim) - s->heard_at;
    if (made < HANG_ROUNDS && sim_newest_round(s, s->victim) < s->rounds) {
        check_fail(s->check,
                   "L: only %" PRIu64 " rounds in a minute in which one member "
                   "moved no data",
                   made);
    }
}

static void setup_hang(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, s->rounds / 4);

    world_call(s->world, at, hang_call, s, 1);
    world_call(s->world, at + HANG_MS, hang_call, s, 0);
    s->calm_ms = at + HANG_MS;
}

/* ---- the others die ----------------------------------------------------- */

static void massacre_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    check_allow_forks(s->check);
    for (uint32_t i = 0; i < s->n; i++) {
        if (i != (uint32_t)arg) {
            world_kill(s->world, i);
        }
    }
    sim_fault(s);
}

static void setup_lone(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, s->rounds / 2);

    world_call(s->world, at, massacre_call, s, s->victim);
    s->calm_ms = at;
    s->fork_fine = true;
}

static void setup_all_restart(struct sim *s)
{
    setup_lone(s);
    s->fork_fine = false;
    s->restart_after_ms = sim_draw(s, 1000, 60000);
    s->calm_ms += s->restart_after_ms;
}

/* ---- noise -------------------------------------------------------------- */

static void calm_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    world_lossy(s->world, 0);
    world_spiky(s->world, 0, 0);
    world_heal(s->world);
    for (uint32_t i = 0; i < s->n; i++) {
        local_slow(s->local, i, 1);
        world_kill_at_action(s->world, i, 0);
        if (world_frozen(s->world, i)) {
            world_thaw(s->world, i);
        }
        if (!world_alive(s->world, i)) {
            sim_start(s, i);
        }
    }
    sim_fault(s);
    s->restart_after_ms = 0;
}

static void setup_lossy(struct sim *s)
{
    world_lossy(s->world, 10000);
    world_spiky(s->world, 20000, 1500);
    s->calm_ms = SIM_START_MS + 40000;
    world_call(s->world, s->calm_ms, calm_call, s, 0);
}

static void cut_some(struct sim *s)
{
    check_allow_forks(s->check);
    for (uint32_t i = 0; i < s->n; i++) {
        s->group[i] = (uint32_t)sim_draw(s, 0, 1);
    }
    s->split_ms = world_now(s->world);
    world_partition(s->world, s->group);
}

/* One random fault. */
static void trouble(struct sim *s)
{
    uint32_t a = (uint32_t)sim_draw(s, 0, s->n - 1);
    uint32_t b = (uint32_t)sim_draw(s, 0, s->n - 1);

    switch (sim_draw(s, 0, 10)) {
    case 0:
        world_kill(s->world, a);
        break;
    case 1:
        world_kill_at_action(s->world, a, sim_draw(s, 1, 50));
        break;
    case 2:
        world_freeze(s->world, a);
        break;
    case 3:
        world_thaw(s->world, a);
        break;
    case 4:
        cut_some(s);
        break;
    case 5:
        world_heal(s->world);
        break;
    case 6:
        world_drop_links(s->world, a, b);
        break;
    case 7:
        if (a != b) {
            world_drop_bulk(s->world, a, b);
        }
        break;
    case 8:
        local_slow(s->local, a, (uint32_t)sim_draw(s, 1, 8));
        break;
    case 9:
        local_forget(s->local, a);
        break;
    default:
        world_fail_save(s->world, a);
        break;
    }
}

#define CHURN_MS 120000

static void churn_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    if (world_now(s->world) >= SIM_START_MS + CHURN_MS) {
        return;
    }
    trouble(s);
    world_call(s->world, world_now(s->world) + sim_draw(s, 200, 8000),
               churn_call, s, 0);
}

static void setup_churn(struct sim *s)
{
    check_allow_forks(s->check);
    s->restart_after_ms = 7000;
    s->calm_ms = SIM_START_MS + CHURN_MS + 1;
    world_spiky(s->world, 5000, 1000);
    world_call(s->world, SIM_START_MS + 5000, churn_call, s, 0);
    world_call(s->world, s->calm_ms, calm_call, s, 0);
}

static void drops_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint32_t a = (uint32_t)sim_draw(s, 0, s->n - 1);
    uint32_t b = (a + 1 + (uint32_t)sim_draw(s, 0, s->n - 2)) % s->n;

    if (sim_draw(s, 0, 1) == 0) {
        world_drop_links(s->world, a, b);
    } else {
        world_drop_bulk(s->world, a, b);
    }
    sim_fault(s);
    if (arg > 1) {
        world_call(s->world, world_now(s->world) + sim_draw(s, 100, 4000),
                   drops_call, s, arg - 1);
    }
}

static void setup_drops(struct sim *s)
{
    s->calm_ms = sim_after_rounds(s, 1, 3);
    world_call(s->world, s->calm_ms, drops_call, s, 8);
}

/* ---- poison ------------------------------------------------------------- */

static void poison_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    local_poison(s->local, s->victim, arg != 0);
    sim_fault(s);
}

/* With a butterfly the others go on without it. */
static void poison_judge(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint64_t most = sim_newest_round(s, s->victim);

    if (s->local_opt.exchange == EXCHANGE_BUTTERFLY && most < arg) {
        check_fail(s->check,
                   "J: only %" PRIu64 " rounds in a minute, because of one "
                   "peer whose contributions are no numbers",
                   most);
    }
}

static void setup_poison(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 0, 1);

    s->calm_ms = at + 60000;
    world_call(s->world, at, poison_call, s, 1);
    world_call(s->world, s->calm_ms, poison_judge, s, 5);
    world_call(s->world, s->calm_ms, poison_call, s, 0);
}

/* ---- home routers --------------------------------------------------------*/

/* The first two can be dialled, the others cannot. */
static void setup_nat(struct sim *s)
{
    for (uint32_t i = 2; i < s->n; i++) {
        world_set_nat(s->world, i, WORLD_NAT_SYMMETRIC);
    }
    s->nat = s->quiet = true;
}

/* One of the two relays dies in the middle and comes back. */
static void setup_nat_relay_dies(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, s->rounds / 2);

    setup_nat(s);
    s->quiet = false;
    s->restart_after_ms = sim_draw(s, 5000, 20000);
    s->calm_ms = at + s->restart_after_ms;
    world_call(s->world, at, sim_strike_call, s, s->opt.seed % 2);
}

/* A router is set up, or moved: one peer can be dialled from some time on. Long
 * enough for the next test of reachability and the next try without relay. */
static void open_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    world_set_nat(s->world, (uint32_t)arg, WORLD_OPEN);
    sim_fault(s);
}

static void setup_nat_opens(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 20);

    setup_nat(s);
    s->direct = true;
    s->calm_ms = at;
    world_call(s->world, at, open_call, s, 2);
}

static void options_thousand(struct sim *s)
{
    s->local_opt.min_peers = 8;
    s->world_opt.latency_max_ms = 120;
    s->need = s->n < 8 ? s->n : 8;
}

const struct scenario scenarios[] = {
    {"plain", "nothing happens", 4, 8, NULL, setup_plain, false},
    {"kill-each", "one peer dies before its k-th action", 5, 6, options_victim,
     setup_kill, true},
    {"freeze", "one peer is stopped for 20 s at its k-th action", 4, 12,
     options_victim, setup_freeze, true},
    {"restart", "one peer dies and comes back with its disk", 4, 12,
     options_victim, setup_restart, true},
    {"slow-disks",
     "disks take seconds for promises; one peer dies and comes back", 4, 12,
     options_victim, setup_slow_disks, true},
    {"overlap",
     "as restart, but each round carries a third of the model while training "
     "goes on",
     4, 18, options_overlap, setup_restart, true},
    {"quorum",
     "rounds average only the members that are ready; one machine is slow", 4,
     24, options_quorum, setup_quorum, true},
    {"trainers",
     "as restart, with three models that train apart and merge after four and "
     "after eight rounds",
     4, 16, options_trainers, setup_restart, true},
    {"single-round",
     "as restart, but a contribution is of use to one round only", 4, 20,
     options_single_round, setup_restart, true},
    {"join", "one more peer comes half way, with an empty disk", 4, 12,
     options_join, setup_join, false},
    {"fast-join", "newcomers one after another while rounds are short", 6, 200,
     options_fast_join, setup_fast_join, false},
    {"join-many-sources", "a newcomer fetches from several peers at once", 5,
     16, options_newcomer, setup_many_sources, false},
    {"slow-join", "a newcomer whose line takes 1.5 to 12 rounds for the state",
     5, 150, options_slow_join, setup_slow_join, false},
    {"late-shards", "a newcomer trains while its data shards still come", 5,
     150, options_late_shards, setup_late_shards, false},
    {"bad-source",
     "a newcomer fetches from several peers, and one of them serves wrong "
     "pieces",
     5, 16, options_newcomer, setup_bad_source, false},
    {"source-dies",
     "a newcomer fetches from several peers, and one of them dies", 5, 16,
     options_newcomer, setup_source_dies, false},
    {"joiner-restarts", "a newcomer dies while it fetches, and comes back", 5,
     16, options_newcomer, setup_joiner_restarts, false},
    {"liar", "a member tells a newcomer of a commit that nobody made", 5, 80,
     options_liar, setup_liar, false},
    {"probation", "many identities of one network want in, and one of another",
     29, 40, options_probation, setup_probation, false},
    {"rollback", "a member's contributions ruin the model, some find it so", 5,
     40, options_rollback, setup_rollback, false},
    {"audit", "the owner of a slice sums wrong, others repeat some sums", 5, 40,
     options_audit, setup_audit, false},
    {"work", "the work of a member is made up, others make it again", 5, 150,
     options_work, setup_work, false},
    {"silence", "the owner of a slice sums wrong, and nobody can repeat it", 5,
     60, options_silence, setup_silence, false},
    {"astray", "contributions go another way, and others name them for it", 8,
     60, options_astray, setup_astray, false},
    {"idle", "members offer work and follow no plan", 8, 60, options_idle,
     setup_idle, false},
    {"convicts", "members that lied, and that others hold a proof against, go",
     5, 60, options_convicts, setup_convicts, false},
    {"liars", "a member lies in ballots, and another dies and comes back", 5,
     150, options_liars, setup_liars, false},
    {"strangers", "a peer of nobody says that all others are wrong", 5, 12,
     options_strangers, setup_strangers, false},
    {"claims", "a thousand peers name views of their own to a newcomer", 5, 24,
     options_claims, setup_claims, false},
    {"urls", "shards can be downloaded; a newcomer comes, and downloads fail",
     5, 16, options_urls, setup_urls, false},
    {"init", "round 0 begins from a file; a newcomer comes late, or in time", 5,
     16, options_init, setup_init, false},
    {"invited",
     "a run for invited peers; a peer without an invitation tries to join", 5,
     40, options_invited, setup_invited, false},
    {"versions", "every second peer runs the previous release", 5, 12,
     options_versions, NULL, false},
    {"twin", "a second process with the identity of a peer comes half way", 5,
     30, options_twin, setup_twin, false},
    {"split-2-2", "two halves are cut and healed", 4, 30, NULL,
     setup_split_half, false},
    {"split-3-1", "one peer is cut off and healed", 4, 30, NULL,
     setup_split_one, false},
    {"no-edge", "two peers that can never connect", 4, 12, options_edge,
     setup_no_edge, false},
    {"lose-edge", "two peers lose sight of each other, not of the others", 4,
     20, options_edge, setup_lose_edge, false},
    {"lose-edges", "two pairs of peers lose sight of each other", 4, 20,
     options_edges, setup_lose_edges, false},
    {"lose-bulk", "two peers can no longer exchange data", 4, 20, options_edge,
     setup_lose_bulk, false},
    {"hang", "a live member moves no data for a minute", 5, 60, options_hang,
     setup_hang, false},
    {"kill-two", "two peers die at once, at the k-th action of one", 6, 6,
     options_kill_two, setup_kill_two, true},
    {"half-restart", "half of all die at once and come back", 6, 16, NULL,
     setup_half_restart, false},
    {"pause", "one peer is stopped for less than a second", 4, 12, NULL,
     setup_pause, true},
    {"freeze-edge", "one peer is stopped for about as long as others wait", 4,
     12, options_victim, setup_freeze_edge, true},
    {"stuck", "the trainer of one peer hangs for a minute", 5, 60, NULL,
     setup_stuck, false},
    {"drain", "one peer is told to leave at its k-th action", 5, 12, NULL,
     setup_drain, true},
    {"split-three", "three parts are cut from each other and healed", 6, 40,
     NULL, setup_split_three, false},
    {"one-way", "one half does not reach the other", 4, 40, options_one_way,
     setup_one_way, false},
    {"flap", "lines come and go every 5 s", 5, 30, NULL, setup_flap, false},
    {"far", "messages take 100 to 250 ms", 4, 8, options_far, setup_far, false},
    {"join-crowd", "all newcomers come within a second", 12, 16, options_crowd,
     setup_join_crowd, false},
    {"join-leave-join", "a newcomer dies twice on its way", 5, 16,
     options_come_and_go, setup_join_leave_join, false},
    {"goodput", "one peer dies every 60, 15 or 5 s: rounds that are left", 8,
     200, NULL, setup_goodput, false},
    {"lone-survivor", "all die but one", 4, 12, NULL, setup_lone, false},
    {"all-restart", "all die but one and come back", 4, 12, NULL,
     setup_all_restart, false},
    {"two-peers", "one of two dies before its k-th action", 2, 8,
     options_victim, setup_kill, true},
    {"slow", "one peer computes 20 times slower", 4, 8, NULL, setup_slow,
     false},
    {"drops", "connections break now and then", 4, 12, NULL, setup_drops,
     false},
    {"lossy", "1% of the messages are lost, 2% late, for 40 s", 4, 20, NULL,
     setup_lossy, false},
    {"poison", "one peer's contributions are not finite for a minute", 4, 20,
     options_victim, setup_poison, false},
    {"rounds-churn", "everything at once for two minutes, then calm", 6, 60,
     NULL, setup_churn, false},
    {"nat", "all but two peers are behind NAT: nobody can dial them", 5, 12,
     NULL, setup_nat, false},
    {"nat-relay-dies",
     "as nat, and one of the two public peers dies and comes back", 6, 20, NULL,
     setup_nat_relay_dies, false},
    {"nat-punch",
     "all but two peers are behind NAT, some of which let two that meet "
     "through",
     6, 80, options_nat_punch, setup_nat_punch, false},
    {"nat-opens", "a relayed pair can connect directly after some time", 4, 400,
     NULL, setup_nat_opens, false},
    {"links", "some edges are eight times slower than others", 6, 30,
     sim_links_options, sim_links_setup, false},
    {"slow-line", "one member's line is slow for half of the rounds", 4, 60,
     sim_slow_line_options, sim_slow_line_setup, false},
    {"sites-gateway", "the elected member of a site dies in a round", 6, 16,
     sim_sites_options, sim_sites_setup, false},
    {"thousand", "a large swarm in which some peers train", 1000, 3,
     options_thousand, NULL, false},
    {NULL, NULL, 0, 0, NULL, NULL, false},
};
