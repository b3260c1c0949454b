/* pairs_nodes.c - whole nodes in a run of random pairs, under faults, until all
 * have made one mean of their replicas.
 *
 * What pairs.c leaves out: the manifest, shards and states from peers, joining,
 * checkpoints, and the end. Beside what crew.h says: the parameters of each
 * peer are finite and near the others' before the end; the turn of a process
 * only grows.
 */
#include <inttypes.h>

#include "daemon/sim/crew.h"
#include "daemon/sim/sim.h"
#include "train/sync/codec/codec.h"

static void on_after(struct crew *s, uint32_t peer, const struct event *event)
{
    struct crew_peer *p = &s->peers[peer];
    struct node_status status;

    if (event->type != EVENT_LOCAL) {
        return;
    }
    node_status(p->node, &status);
    if (status.round < p->round) {
        sim_fail(s->r, "peer %u went back from turn %" PRIu64 " to %" PRIu64,
                 peer, p->round, status.round);
    }
    p->round = status.round;
}

static void count_turns(struct crew *s)
{
    uint64_t with = 0, alone = 0, n = 0;
    struct node_status status;

    for (uint32_t q = 0; q < s->n; q++) {
        if (world_alive(s->world, q)) {
            node_status(s->peers[q].node, &status);
            with += status.rounds_committed;
            alone += status.rounds_aborted;
            n++;
        }
    }
    sim_figure(s->r, "peers_at_the_end", (double)n, SIM_MEAN);
    sim_figure(s->r, "turns_with_partner", (double)with, SIM_SUM);
    sim_figure(s->r, "turns_alone", (double)alone, SIM_SUM);
}

int sim_pairs_nodes_run(const struct sim_options *opt,
                        struct sim_result *result)
{
    struct crew s = {
        .name = "pairs-nodes",
        .round_ms = 1200,
        .limit_ms = 400000,
        .alive_least = 2,
        .after = on_after,
        .machines = {.piece_bytes = 512,
                     .n_params = 1003,
                     .codec = CODEC_BF16,
                     .block = 8,
                     .segment_elements = 64,
                     .pairs = true,
                     .period = 10,
                     .grace_ms = 3000,
                     .fork_after_ms = 30000,
                     .eval_every = 1,
                     .n_shards = 2,
                     .shard_bytes = 3000,
                     .step_ms = 100,
                     .work_ms = 5,
                     .tokens_per_step = 64,
                     .lr = 0.7F,
                     .mu = 0.5F},
    };
    int rc = crew_open(&s, opt, result);

    if (rc != 0) {
        return rc;
    }
    crew_run(&s);
    count_turns(&s);
    crew_close(&s);
    return result->violations > 0;
}
