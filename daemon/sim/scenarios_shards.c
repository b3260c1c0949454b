/* scenarios_shards.c - a newcomer trains while its data shards still come.
 *
 * `late-shards`: the last peer comes with an empty disk. Its line is set so
 * that a shard takes `join.shard_tenths` tenths of a round; the run reads a
 * shard in `join.read_tenths`. Seeds take turns: the line is faster than the
 * reading; slower; faster, and the newcomer dies and comes back while it
 * fetches; faster, and so does one that serves it.
 *
 *   B  no machine makes a step on text that it does not have
 *   T  on a line faster than the reading the newcomer gives tokens before its
 *      last shard is here; on any line when all are
 *   W  as always (check_lease.c): no position is trained twice, none is lost
 */
#include <inttypes.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"

#define LOOK_MS    20
#define MEASURE_MS 10000 /* how long rounds take is measured for so long */
#define PERIOD     5     /* inner steps of a round */

static uint64_t line(void *self, uint32_t peer)
{
    const struct sim *s = self;

    return peer == s->n - 1 && s->shards.whole_ms == 0 ? s->shards.bytes_per_s
                                                       : 0;
}

void options_late_shards(struct sim *s)
{
    struct local_options *l = &s->local_opt;
    bool slow = s->opt.seed % 4 == 1;

    options_newcomer(s);
    s->world_opt.line = line;
    s->shards.tenths = 60;
    s->shards.read_tenths = slow ? 30 : 150;
    l->n_shards = LOCAL_SHARDS;
    l->shard_bytes = 400000;
    l->piece_bytes = 16384;
    l->step_ms = 200;
    l->shard_windows = 1; /* set when the settings are known */
}

void sim_shards_made(struct sim *s)
{
    struct local_options *l = &s->local_opt;

    if (s->shards.tenths > 0) {
        l->shard_windows = (s->n - 1) * PERIOD * s->shards.read_tenths / 10 + 1;
    }
}

static uint32_t n_missing(const struct node *n)
{
    const struct run_terms *t = node_parts(n).terms;
    uint32_t missing = 0;

    for (uint32_t i = 0; i < t->n_shards; i++) {
        missing += !t->shards[i].held;
    }
    return missing;
}

/* Whether the newcomer's contribution is in that commit. */
static bool gave(const struct sim *s, const struct node_commit *c)
{
    for (uint32_t k = 0; c != NULL && k < c->n; k++) {
        if (id_eq(&c->member[k], &world_identity(s->world, s->n - 1)->id)) {
            return c->weight[k] > 0;
        }
    }
    return false;
}

static void watch(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct node *n = sim_newcomer(s);
    uint64_t now = world_now(s->world);

    (void)arg;
    if (n != NULL && node_parts(n).data->configured) {
        const struct node_commit *last = node_last_commit(n);
        uint32_t missing = n_missing(n);

        if (missing == 0 && s->shards.whole_ms == 0) {
            s->shards.whole_ms = now;
            s->shards.whole_round = sim_round(s);
        }
        if (gave(s, last) && last->round != s->shards.last_round) {
            s->shards.last_round = last->round;
            s->shards.given += missing > 0;
            s->shards.given_after += missing == 0;
            if (s->shards.gave_ms == 0) {
                s->shards.gave_ms = now;
            }
        }
    }
    world_call(s->world, now + LOOK_MS, watch, s, 0);
}

static void come(void *data, uint64_t arg)
{
    struct sim *s = data;
    uint64_t rounds = sim_round(s) - s->shards.first_round, shard_ms;
    uint64_t now = world_now(s->world);

    (void)arg;
    if (rounds == 0) {
        check_fail(s->check, "T: no round in %d ms", MEASURE_MS);
        return;
    }
    shard_ms = MEASURE_MS / rounds * s->shards.tenths / 10;
    s->shards.bytes_per_s = s->local_opt.shard_bytes * 1000ULL / shard_ms;
    s->shards.came_ms = now;
    sim_start_call(s, s->n - 1);
    watch(s, 0);
    if (s->opt.seed % 4 >= 2) {
        uint32_t who = s->opt.seed % 4 == 2 ? s->n - 1 : 0;

        world_call(
            s->world,
            now + sim_draw(s, shard_ms / 2, shard_ms * s->local_opt.n_shards),
            sim_strike_call, s, who);
    }
}

static void measure(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    s->shards.first_round = sim_round(s);
    world_call(s->world, world_now(s->world) + MEASURE_MS, come, s, 0);
}

void setup_late_shards(struct sim *s)
{
    s->quiet = s->opt.seed % 4 < 2;
    s->restart_after_ms = 2000;
    s->victim = s->opt.seed % 4 == 2 ? s->n - 1 : 0;
    s->calm_ms = SIM_START_MS + 5000 + MEASURE_MS + 60000;
    world_call(s->world, SIM_START_MS + 5000, measure, s, 0);
}

void sim_shards_judge(struct sim *s, struct sim_result *r)
{
    uint64_t blind = local_blind_steps(s->local);

    if (blind > 0) {
        check_fail(s->check,
                   "B: %" PRIu64 " steps were made on text that was not there",
                   blind);
    }
    if (s->shards.came_ms == 0) {
        return;
    }
    sim_figure(r, "rounds_given_before_all", (double)s->shards.given, SIM_MAX);
    sim_figure(r, "rounds_given_after", (double)s->shards.given_after, SIM_MAX);
    if (s->shards.gave_ms > 0) {
        sim_figure(r, "gave_after_ms",
                   (double)(s->shards.gave_ms - s->shards.came_ms), SIM_MAX);
    }
    if (s->shards.whole_ms > 0) {
        sim_figure(r, "all_here_after_ms",
                   (double)(s->shards.whole_ms - s->shards.came_ms), SIM_MAX);
    }
    if (s->shards.whole_ms == 0 || s->shards.whole_round + 8 >= s->rounds) {
        check_fail(s->check, "T: the newcomer's shards were not all here "
                             "before the end");
    } else if (s->shards.given_after == 0 ||
               (s->opt.seed % 4 != 1 && s->shards.given == 0)) {
        check_fail(s->check,
                   "T: the newcomer gave tokens in %" PRIu64
                   " rounds before its last shard was here, in %" PRIu64
                   " after",
                   s->shards.given, s->shards.given_after);
    }
}
