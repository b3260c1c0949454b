/* links.c - members whose edges differ in speed: does a ring find the fast
 * ones?
 *
 * Every directed edge is fast, or, one in four, eight times slower; there is
 * always a ring of fast ones. Nobody is told: the first ring is drawn blindly,
 * and what the members see of each other's segments must lead to a good one.
 * Lines of members that differ are the matter of the butterfly, whose every
 * other seed has some (sim_rate).
 *
 * `slow-line`: all edges of one member are slow for half of the rounds. No ring
 * goes around it; the plans must become butterflies, in which it owns nothing,
 * faster than the ring could be, and rings again when the line is as good as
 * the others.
 */
#include <inttypes.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "proto/base/rng.h"

#define FAST_BYTES_PER_S 100000
#define SLOWER           8 /* times */
#define SLOW_LINE        4 /* times, all edges of one member */
#define LOOK_MS          200
#define FIRST_ROUNDS     3 /* of which the time is "before" */
#define LAST_ROUNDS      5

/* Rank of a peer in the ring of fast edges. */
static uint32_t rank_of(const struct sim *s, uint32_t peer)
{
    uint64_t words[] = {s->opt.seed, 0x72616e6b};
    uint32_t perm[VIEW_MEMBERS_MAX], at = 0;

    rng_perm(perm, s->n, rng_mix(words, 2));
    while (perm[at] != peer) {
        at++;
    }
    return at;
}

static bool is_fast(const struct sim *s, uint32_t from, uint32_t to)
{
    uint64_t words[] = {s->opt.seed, 0x65646765, from, to};

    return rng_mix(words, 4) % 4 != 0 ||
           (rank_of(s, from) + 1) % s->n == rank_of(s, to);
}

uint64_t sim_rate(void *self, uint32_t from, uint32_t to)
{
    const struct sim *s = self;
    uint64_t line[2];

    if (s->lines.differ) {
        return is_fast(s, from, to) ? FAST_BYTES_PER_S
                                    : FAST_BYTES_PER_S / SLOWER;
    }
    if (s->lines.slow_line) {
        return from == s->victim || to == s->victim
                   ? FAST_BYTES_PER_S / SLOW_LINE
                   : FAST_BYTES_PER_S;
    }
    if (s->local_opt.exchange == EXCHANGE_SITES) {
        return sim_sites_rate(s, from, to);
    }
    if (s->local_opt.exchange != EXCHANGE_BUTTERFLY || s->opt.seed % 2 == 0) {
        return s->world_opt.bytes_per_s;
    }
    for (uint32_t end = 0; end < 2; end++) {
        uint64_t words[] = {s->opt.seed, end == 0 ? from : to};

        line[end] = (1 + rng_mix(words, 2) % 8) << 20;
    }
    return line[0] < line[1] ? line[0] : line[1];
}

void sim_links_options(struct sim *s)
{
    struct local_options *l = &s->local_opt;

    s->lines.differ =
        s->n >= 3 && s->n <= VIEW_MEMBERS_MAX && l->exchange == EXCHANGE_RING;
    l->n_params = 24000;
    l->segment_elements = l->block > 1024 ? l->block : 1024;
    s->world_opt.latency_min_ms = 1; /* the speed is what matters here */
    s->world_opt.latency_max_ms = 8;
    s->world_opt.jitter_ms = 2;
    l->step_ms = 400; /* time for what was measured to be told */
}

void sim_links_setup(struct sim *s)
{
    s->quiet = true;
}

/* Of one round the longest exchange of any member, in ms; 0: not seen. */
static uint64_t exchange_ms(const struct sim *s, uint64_t round)
{
    uint64_t most = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        const struct timeline *t = node_timeline(s->nodes[q]);
        const struct timeline_attempt *a;

        for (uint32_t k = 0; (a = timeline_at(t, k)) != NULL; k++) {
            uint64_t ms = a->at_ms[TIMELINE_HASH] - a->at_ms[TIMELINE_REDUCE];

            if (a->round == round && a->outcome == TIMELINE_COMMITTED &&
                a->in_plan && ms > most) {
                most = ms;
            }
        }
    }
    return most;
}

static double mean_ms(const struct sim *s, uint64_t first, uint64_t n)
{
    double sum = 0;

    for (uint64_t k = 0; k < n; k++) {
        sum += (double)exchange_ms(s, first + k);
    }
    return sum / (double)n;
}

/* Slow edges in the last ring. */
static uint32_t slow_edges(const struct sim *s)
{
    const struct round *r = node_parts(s->nodes[0]).round;
    uint32_t slow = 0;

    for (uint32_t k = 0; k < r->order.n; k++) {
        uint32_t from = world_find(s->world, &r->order.peer[k]);
        uint32_t to =
            world_find(s->world, &r->order.peer[(k + 1) % r->order.n]);

        slow += !is_fast(s, from, to);
    }
    return slow;
}

/* ---- one slow line ---------------------------------------------------- */

static const struct round *first_round(const struct sim *s)
{
    return node_parts(s->nodes[(s->victim + 1) % s->n]).round;
}

/* Half of the rounds are over: the line heals. */
static void look(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct round *r = first_round(s);
    uint64_t last = s->rounds / 2;

    (void)arg;
    if (r->round <= last) {
        world_call(s->world, world_now(s->world) + LOOK_MS, look, s, 0);
        return;
    }
    s->lines.slow_line = false;
    s->lines.slow_kind = r->order.kind;
}

void sim_slow_line_options(struct sim *s)
{
    sim_links_options(s);
    s->lines.differ = false;
    s->lines.slow_line = true;
}

void sim_slow_line_setup(struct sim *s)
{
    s->quiet = true;
    s->lines.slow_rounds = s->rounds / 2;
    world_call(s->world, SIM_START_MS + LOOK_MS, look, s, 0);
}

/* Of one member with a line of FAST / SLOW_LINE, the others FAST: a ring. */
static double ring_ms(const struct sim *s)
{
    double bytes = (double)s->local_opt.n_params * 2; /* bf16 or fp16 */

    return 2.0 * (s->n - 1) / s->n * bytes * 1000 /
           (FAST_BYTES_PER_S / SLOW_LINE);
}

static void slow_line_judge(struct sim *s, struct sim_result *r)
{
    enum exchange_kind last = first_round(s)->order.kind;
    double ms;

    if (s->lines.slow_rounds < FIRST_ROUNDS + LAST_ROUNDS) {
        return;
    }
    ms = mean_ms(s, s->lines.slow_rounds - LAST_ROUNDS + 1, LAST_ROUNDS);
    sim_figure(r, "exchange_ms_slow", ms, SIM_MEAN);
    sim_figure(r, "ring_bound_ms", ring_ms(s), SIM_MEAN);
    if (s->lines.slow_kind != EXCHANGE_BUTTERFLY || ms > ring_ms(s)) {
        check_fail(s->check,
                   "L: with one slow line the plan is %s and takes %.0f ms, a "
                   "ring's bound is %.0f ms",
                   s->lines.slow_kind == EXCHANGE_BUTTERFLY ? "a butterfly"
                                                            : "a ring",
                   ms, ring_ms(s));
    }
    if (last != EXCHANGE_RING) {
        check_fail(s->check, "L: all lines are fast again, and the plan is "
                             "still a butterfly");
    }
}

void sim_links_judge(struct sim *s, struct sim_result *r)
{
    double first, last;

    if (s->lines.slow_rounds > 0) {
        slow_line_judge(s, r);
    }
    if (!s->lines.differ || s->rounds < FIRST_ROUNDS + LAST_ROUNDS) {
        return;
    }
    first = mean_ms(s, 1, FIRST_ROUNDS);
    last = mean_ms(s, s->rounds - LAST_ROUNDS + 1, LAST_ROUNDS);
    sim_figure(r, "exchange_ms_first", first, SIM_MEAN);
    sim_figure(r, "exchange_ms_last", last, SIM_MEAN);
    sim_figure(r, "slow_edges_last", slow_edges(s), SIM_MEAN);
    if (slow_edges(s) > 0) {
        check_fail(s->check,
                   "L: after %" PRIu64 " rounds the ring still has %u slow "
                   "edges, and one without is possible",
                   s->rounds, slow_edges(s));
    }
}
