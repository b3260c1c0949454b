/* scenarios_slow.c - a newcomer whose line is slow: fetching the state takes
 * longer than a round.
 *
 * `slow-join`: the last peer comes half way. Its line is set so that the whole
 * state takes `join.state_tenths` tenths of a round; seeds take turns with 1.5,
 * 3, 8 and 12 rounds. The bytes of a round take a share of that, by the wire
 * type: where they come slower than rounds are made, nobody on such a line can
 * follow.
 *
 *   S  where it can follow, it does: it is in a view in the time that its line
 *      needs for the state and for all rounds made meanwhile, with some rounds
 *      to spare; and it fetches one state
 *   W  nobody waits: while it is outside, rounds take as long as before
 *   R  where it cannot follow, it says so
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"

#define LOOK_MS      20
#define MEASURE_MS   40000 /* how long rounds take is measured for so long */
#define SPARE_ROUNDS 8     /* to be proven, to be let in */
#define SPARE_SHARE  0.05  /* of a round: messages of each */

static const uint32_t turns[] = {15, 30, 80, 120};

/* Slow until it is in: what a round with a slow member takes is another matter.
 */
static uint64_t line(void *self, uint32_t peer)
{
    const struct sim *s = self;

    return s->slow.entered_ms == 0 && peer == s->n - 1 ? s->slow.bytes_per_s
                                                       : 0;
}

void options_slow_join(struct sim *s)
{
    struct local_options *l = &s->local_opt;

    options_newcomer(s);
    s->slow.tenths = turns[s->opt.seed % (sizeof turns / sizeof turns[0])];
    s->world_opt.line = line;
    l->shards_everywhere = true; /* here only the state is large */
    l->step_ms = 800;            /* a round is long against a message */
    l->hash_ms /= 10;            /* and only the line is slow */
    l->n_params = 16 * CODEC_PIECE;
    l->piece_bytes = 4096;
    l->segment_elements = l->block > 1024 ? l->block : 1024;
}

/* Rounds that the bytes of one take on the newcomer's line. */
static double share(const struct sim *s)
{
    double state = (double)local_state_bytes(s->local);
    uint32_t parts = s->local_opt.fragments > 1 ? s->local_opt.fragments : 1;

    return (double)local_vector_bytes(s->local) / parts / state *
           s->slow.tenths / 10.0;
}

/* Rounds until it is there: while it fetches k of them, k * share are made. */
static double needed(const struct sim *s)
{
    return s->slow.tenths / 10.0 / (1 - share(s) - SPARE_SHARE);
}

static void note_state(struct sim *s, const struct node *n)
{
    const struct transfer *t = node_parts(n).transfer;

    if (t->active && t->object.buffer == BUFFER_STATE &&
        t->generation != s->slow.generation) {
        s->slow.generation = t->generation;
        s->slow.n_states++;
    }
}

static void watch(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct node *n = sim_newcomer(s);
    struct node_status t;

    (void)arg;
    if (n == NULL || s->slow.entered_ms != 0) {
        return;
    }
    note_state(s, n);
    node_status(s->nodes[0], &t);
    if (t.last_round_ms > s->slow.longest_ms) {
        s->slow.longest_ms = t.last_round_ms;
    }
    node_status(n, &t);
    s->slow.told = s->slow.told || strstr(t.reason, "too slow") != NULL;
    if (node_parts(n).ballot->have) {
        s->slow.entered_ms = world_now(s->world);
        s->slow.entered_round = sim_round(s);
        return;
    }
    world_call(s->world, world_now(s->world) + LOOK_MS, watch, s, 0);
}

static void come(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint64_t rounds = sim_round(s) - s->slow.first_round;

    (void)arg;
    if (rounds == 0) {
        check_fail(s->check, "S: no round in %d ms", MEASURE_MS);
        return;
    }
    s->slow.round_ms = MEASURE_MS / rounds;
    s->slow.bytes_per_s = local_state_bytes(s->local) * 10000 /
                          (s->slow.tenths * s->slow.round_ms);
    s->slow.came_round = sim_round(s);
    sim_start_call(s, s->n - 1);
    watch(s, 0);
}

static void measure(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    s->slow.first_round = sim_round(s);
    world_call(s->world, world_now(s->world) + MEASURE_MS, come, s, 0);
}

void setup_slow_join(struct sim *s)
{
    s->quiet = true;
    s->calm_ms = SIM_START_MS + 5000 + MEASURE_MS;
    world_call(s->world, SIM_START_MS + 5000, measure, s, 0);
}

void sim_slow_judge(struct sim *s, struct sim_result *r)
{
    double took = (double)s->slow.entered_round - (double)s->slow.came_round;

    if (s->slow.bytes_per_s == 0) {
        return;
    }
    sim_figure(r, "share_percent", 100 * share(s), SIM_MAX);
    sim_figure(r, "states_fetched", s->slow.n_states, SIM_MAX);
    sim_figure(r, "longest_round_ms", (double)s->slow.longest_ms, SIM_MAX);
    sim_figure(r, "round_ms", (double)s->slow.round_ms, SIM_MAX);
    if (s->slow.entered_ms != 0) {
        sim_figure(r, "joined_after_rounds", took, SIM_MAX);
    }
    if (s->slow.longest_ms > 2 * s->slow.round_ms) {
        check_fail(s->check,
                   "W: a round took %" PRIu64 " ms while the newcomer was "
                   "outside, before it came %" PRIu64 " ms",
                   s->slow.longest_ms, s->slow.round_ms);
    }
    if (share(s) <= 0.8) {
        double most = needed(s) + SPARE_ROUNDS;

        sim_figure(r, "needed_rounds", needed(s), SIM_MAX);
        if (s->slow.entered_ms == 0 || took > most || s->slow.n_states > 1) {
            check_fail(s->check,
                       "S: the newcomer, whose state takes %u tenths of a "
                       "round and each round %.2f of one, %s %.0f rounds "
                       "(%.0f would do) and fetched %u states",
                       s->slow.tenths, share(s),
                       s->slow.entered_ms == 0 ? "is outside, after"
                                               : "was let in after",
                       s->slow.entered_ms == 0
                           ? (double)(s->rounds - s->slow.came_round)
                           : took,
                       most, s->slow.n_states);
        }
    }
    if (share(s) <= 0.8 && s->slow.told) {
        check_fail(s->check, "R: the newcomer says that its line is too slow, "
                             "and it is not");
    }
    if (share(s) > 1.1 && !s->slow.told) {
        check_fail(s->check, "R: the newcomer does not say that its line is "
                             "too slow for the run");
    }
}
