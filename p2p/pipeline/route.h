/* route.h - which host of the next stage gets a micro-batch.
 *
 * A pipeline (`stages: S`) has several hosts per stage. Two ways to choose:
 *
 *   random   NoLoCo 3.1 (arXiv:2506.10911): each hop of a micro-batch draws a
 *            permutation from the run's seed, so every host of a stage gets
 *            one micro-batch per slot and everybody knows all routes without a
 *            message. For hosts that are alike.
 *   dealt    Each stage's micro-batches of a step in proportion to what its
 *            hosts are known to take for one: all who know the same numbers
 *            know all routes without a message. For hosts that are not alike.
 *
 * The way back is the way forth: a gradient goes to the host that sent the
 * activations. Hosts are numbers: positions in the list of a stage's hosts,
 * sorted by id, of one epoch.
 *
 * route_moves() is the rebalancing of SWARM (arXiv:2301.11913): at most one
 * host changes its stage in a period, and all who see the same table agree
 * which.
 *
 * Pure functions; no allocation.
 */
#ifndef LOCO_P2P_PIPELINE_ROUTE_H
#define LOCO_P2P_PIPELINE_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/limits.h"

#define ROUTE_HOSTS_MAX  VIEW_MEMBERS_MAX /* of one stage */
#define ROUTE_STAGES_MAX 64
#define ROUTE_NONE       UINT32_MAX

/* ---- random ----------------------------------------------------------- */

struct route_draw {
    uint64_t seed; /* of the run */
    uint64_t epoch;
    uint64_t step; /* inner step */
    bool fixed;    /* host h always sends to h: evaluation, comparisons */
};

/* The host of `stage` that gets micro-batch `mb` from host `from` of the stage
 * before; n_from and n_to hosts, 1..ROUTE_HOSTS_MAX; stage >= 1. With as many
 * hosts on both sides each gets exactly one, else the numbers differ by one at
 * most. */
uint32_t route_next(const struct route_draw *d,
                    uint64_t mb,
                    uint32_t stage,
                    uint32_t n_from,
                    uint32_t n_to,
                    uint32_t from);

/* path[s] for all `stages`, beginning at host `entry` of stage 0; n_hosts
 * (stages). */
void route_path(const struct route_draw *d,
                uint64_t mb,
                const uint32_t *n_hosts,
                uint32_t stages,
                uint32_t entry,
                uint32_t *path);

/* ---- dealt ------------------------------------------------------------ */

/* No host gets more than so many times its even part. */
#define ROUTE_TIMES_MAX 8U

/* host[i] < n_hosts: who of `stage` gets micro-batch i of n; cost[h] > 0 is
 * what one takes at host h, in any unit. Each goes to the host that would be
 * done first with all it has; of equal ones, and within every n_hosts in a row,
 * the draw decides, so that in time everybody sends to everybody. n_hosts
 * 1..ROUTE_HOSTS_MAX. */
void route_deal(const struct route_draw *d,
                uint32_t stage,
                const uint32_t *cost,
                uint32_t n_hosts,
                uint32_t n,
                uint8_t *host);

/* ---- rebalancing ------------------------------------------------------ */

/* One host of the published table, in order of ids. */
struct route_queue {
    uint32_t stage;
    uint32_t waiting; /* micro-batches in its queue */
};

/* Who changes its stage now: the host with the shortest queue of the stage
 * that has the least waiting goes to the stage that has more waiting than all
 * others (of equal stages and hosts the lower number), unless it is its
 * stage's last one. A stage that nobody serves comes first, and takes a host
 * from the least busy stage that can spare one. ROUTE_NONE: nobody. */
uint32_t route_moves(const struct route_queue *q,
                     uint32_t n,
                     uint32_t stages,
                     uint32_t *to);

#endif
