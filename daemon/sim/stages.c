/* stages.c - whole nodes (daemon/node/node.h) in a run with stages, under
 * faults; see stages.h for what must hold.
 *
 * fault 0 none, 1 kill (at any action of the victim), 2 kill and restart, 3
 * freeze, 4 links drop, 5 peers join, 6 unequal machines (rebalancing), 7 all
 * hosts of a stage die and come back with their checkpoints, 8 all hosts of a
 * stage but one die and newcomers take their places, 9 all start at once, 10
 * any of these, 11 the trainer of one hangs for minutes though its process
 * lives, 12 one of a stage's two hosts is frozen, the other goes on alone, dies
 * and comes back while the first still stands where it was.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim.h"
#include "daemon/sim/stages.h"
#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"
#include "train/sync/codec/codec.h"

#define LIMIT_MS 900000

/* ---- processes -------------------------------------------------------- */

static void on_start(struct crew *c, uint32_t peer)
{
    struct stages *s = c->self;
    struct stages_peer *p = &s->peers[peer];

    p->moves = 0;
    p->packed = 0;
    memset(&p->seen, 0, sizeof p->seen);
    p->seen_ms = world_now(c->world);
}

uint32_t stages_n_hosts(const struct stages *s, uint32_t stage)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->c.n; q++) {
        n += world_alive(s->c.world, q) && s->peers[q].seen.stage == stage;
    }
    return n;
}

uint64_t stages_newest_round(const struct stages *s)
{
    uint64_t round = 0;

    for (uint32_t q = 0; q < s->c.n; q++) {
        round = s->peers[q].seen.round > round ? s->peers[q].seen.round : round;
    }
    return round;
}

bool stages_held_without(const struct stages *s, uint32_t peer)
{
    const struct stages_peer *p = &s->peers[peer];

    for (uint32_t q = 0; q < s->c.n; q++) {
        const struct stages_peer *o = &s->peers[q];

        if (q != peer && world_alive(s->c.world, q) &&
            o->seen.stage == p->seen.stage &&
            node_parts(s->c.peers[q].node).held->loaded &&
            (o->seen.round >= p->seen.round || o->packed >= p->seen.round)) {
            return true;
        }
    }
    return false;
}

/* Only who held a stage's state can bring it back, and a run begins with as
 * many as it asks for. A host that came back without a checkpoint counts for
 * nothing here before it has fetched the state: no protocol could go on if the
 * only one that has it died for good just before. */
static bool must_return(const struct stages *s, uint32_t peer)
{
    return s->c.fault == STAGES_RESTART || s->c.fault == STAGES_LOST ||
           s->c.fault == STAGES_ALL || s->c.fault == STAGES_STRANDED ||
           s->peers[peer].seen.stage == 0 || !stages_held_without(s, peer) ||
           stages_newest_round(s) == 0;
}

/* Whether somebody of another stage has not made all steps of the run: only
 * those miss it. */
static bool is_missed(const struct stages *s, uint32_t stage)
{
    for (uint32_t q = 0; q < s->c.n; q++) {
        const struct pipeline *p;

        if (!world_alive(s->c.world, q) || s->peers[q].seen.stage == stage) {
            continue;
        }
        p = &node_parts(s->c.peers[q].node).pipe->core;
        if (p->round < s->c.rounds || p->state != PIPELINE_FINISHED) {
            return true;
        }
    }
    return false;
}

static uint64_t on_died(struct crew *c, uint32_t peer)
{
    struct stages *s = c->self;
    uint64_t back_ms = 1000 + crew_draw(c, 8000);
    uint32_t stage = s->peers[peer].seen.stage;

    if (stage > 0 && !stages_held_without(s, peer)) {
        stages_newest_died(s, stage);
    }
    if (stage > 0 && stages_n_hosts(s, stage) == 0 && c->fault == STAGES_LOST &&
        stages_newest_round(s) < c->rounds && is_missed(s, stage)) {
        s->lost_stage = stage; /* else nobody waits for it */
    }
    if (c->fault == STAGES_LOST) {
        back_ms += 15000;
    }
    return must_return(s, peer) ? back_ms : 0;
}

/* ---- one run ---------------------------------------------------------- */

/* What each machine is like. */
static struct local_options machines_of(struct stages *s)
{
    return (struct local_options){
        .piece_bytes = 512,
        .n_params = 403,
        .codec = CODEC_BF16,
        .block = 8,
        .segment_elements = 64,
        .stages = s->stages,
        .micro_batches = 3,
        .pipe_slots = 2 + (uint32_t)(s->c.opt.seed % 3),
        .cut_elements = 40,
        .cut_segment = 16,
        .forward_ms = 10,
        .eval_micros = 3 + (uint32_t)(s->c.opt.seed % 5) * 9,
        .eval_every = s->eval_every,
        .period = 4,
        .min_peers = s->c.fault == STAGES_ALL ? s->stages : s->c.starters,
        .grace_ms = 3000,
        .fork_after_ms = 30000,
        .n_shards = 2,
        .shard_bytes = 3000,
        .step_ms = 20,
        .work_ms = 5,
        .tokens_per_step = 64,
        .lr = 0.7F,
        .mu = 0.5F};
}

static void judge(void *self)
{
    struct stages *s = self;

    if (s->lost_stage != 0 && !s->starved) {
        sim_fail(s->c.r, "D: nobody said that stage %u has no host",
                 s->lost_stage);
    }
    if (s->c.fault == STAGES_UNEQUAL && s->c.rounds > 8 && s->n_moves == 0) {
        sim_fail(s->c.r, "R: nobody went to the stage that has most to do");
    }
    for (uint64_t r = 0; s->c.fault == STAGES_PLAIN && s->eval_every > 0 &&
                         r <= s->c.rounds && r < 64;
         r += s->eval_every) {
        if ((s->evaluated >> r & 1) == 0) {
            sim_fail(s->c.r, "G: round %" PRIu64 " is not evaluated", r);
        }
    }
    sim_figure(s->c.r, "micro_batches", (double)s->n_counts, SIM_SUM);
    sim_figure(s->c.r, "carried_over", (double)s->n_carried, SIM_SUM);
    sim_figure(s->c.r, "evaluated_rounds",
               (double)__builtin_popcountll(s->evaluated), SIM_SUM);
    sim_figure(s->c.r, "moves", (double)s->n_moves, SIM_SUM);
    sim_figure(s->c.r, "peers_at_the_end", (double)crew_n_alive(&s->c),
               SIM_MEAN);
}

static void print_peers(void *self)
{
    const struct stages *s = self;
    struct node_status t;

    for (uint32_t q = 0; q < s->c.n; q++) {
        const struct node *n = s->c.peers[q].node;
        struct node_parts in;

        if (n == NULL) {
            fprintf(stderr, "  peer %2u dead\n", q);
            continue;
        }
        node_status(n, &t);
        in = node_parts(n);
        fprintf(stderr,
                "  peer %2u stage %u %-9s round %" PRIu64 " epoch %" PRIu64
                " members %u alive %u pipe %d round %" PRIu64
                " step %u attempt %u layout %" PRIx64
                " phase %d packed %d %s\n",
                q, t.stage, node_state_name(t.state), t.round, t.epoch,
                t.peers_in_round, t.peers_alive, (int)in.pipe->core.state,
                in.pipe->core.round, in.pipe->core.step, in.pipe->core.attempt,
                in.pipe->core.layout, (int)in.round->phase, in.training->packed,
                t.reason);
    }
}

/* Which peers are there from the start, and what strikes how often. */
static void settle(struct stages *s)
{
    struct crew *c = &s->c;
    bool later = c->fault == STAGES_JOIN || c->fault == STAGES_STARVED ||
                 c->fault == STAGES_ALL;
    bool longer = c->fault == STAGES_UNEQUAL || c->fault == STAGES_HANG ||
                  c->fault == STAGES_STRANDED;

    c->starters = later && c->n > s->stages + 1 ? c->n - 2 : c->n;
    if (longer && c->opt.rounds == 0) {
        c->rounds = 20;
    }
    if (c->fault == STAGES_PLAIN || c->fault == STAGES_JOIN ||
        c->fault >= STAGES_UNEQUAL) {
        c->n_faults = c->fault == STAGES_ALL ? c->n_faults : 0;
    }
    c->machines = machines_of(s);
}

static void release(struct stages *s)
{
    crew_close(&s->c);
    free(s->peers);
    free(s->counts);
    free(s->states);
    free(s->work);
    free(s->commits);
    free(s->move_rounds);
}

int sim_stages_run(const struct sim_options *opt, struct sim_result *result)
{
    struct stages s = {.c = {.name = "stages",
                             .salt = 0x73746167,
                             .rng = opt->seed ^ 0x73746167,
                             .round_ms = 1200,
                             .least_ms = 8000,
                             .limit_ms = LIMIT_MS,
                             .latency_max_ms = 40,
                             .bytes_per_s = 200000,
                             .record = true,
                             .self = &s,
                             .schedule = stages_schedule,
                             .starts = on_start,
                             .after = stages_check_step,
                             .back_ms = on_died,
                             .finished = stages_finished,
                             .look = stages_check_all,
                             .judge = judge,
                             .print = print_peers,
                             .stepped = stages_stepped}};
    struct crew *c = &s.c;
    const struct sim_setting table[] = {
        {"eval", "", 0, 1e4, .u32 = &s.eval_every},
        {"fault", "", 0, STAGES_FAULTS - 1, .u32 = &c->fault},
        {"faults", "", 0, 1e4, .u32 = &c->n_faults},
        {"stages", "", 2, ROUTE_STAGES_MAX, .u32 = &s.stages},
    };
    int rc;

    crew_begin(c, opt, result);
    s.stages = 2 + (uint32_t)crew_draw(c, c->n > 5 ? 2 : 1);
    c->fault = (uint32_t)crew_draw(c, STAGES_FAULTS);
    s.eval_every = 2;
    c->n_faults = 1 + c->n / 3;
    rc = sim_settings(opt, table, sizeof table / sizeof table[0], result);
    if (rc != 0 || c->n < s.stages) {
        return rc != 0 ? rc : LOCO_EINVAL;
    }
    settle(&s);
    s.peers = world_alloc(c->n * sizeof *s.peers);
    s.move_rounds = world_alloc(c->n * 64 * sizeof *s.move_rounds);
    rc = crew_make(c);
    if (rc != 0) {
        return rc;
    }
    stages_watch_work(&s);
    crew_run(c);
    release(&s);
    return result->violations > 0;
}
