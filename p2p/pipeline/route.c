/* route.c - see route.h; algorithms page, 7 and 8.6. */
#include "p2p/pipeline/route.h"

#include <string.h>

#include "proto/base/rng.h"

#define ROUTE_TAG 0x524F555445U /* "ROUTE" */
#define DEAL_TAG  0x4445414CU   /* "DEAL" */

uint32_t route_next(const struct route_draw *d,
                    uint64_t mb,
                    uint32_t stage,
                    uint32_t n_from,
                    uint32_t n_to,
                    uint32_t from)
{
    const uint64_t words[6] = {d->seed, d->epoch, d->step,
                               mb,      stage,    ROUTE_TAG};
    uint32_t perm[ROUTE_HOSTS_MAX];

    if (d->fixed) {
        return from % n_to;
    }
    rng_perm(perm, n_from > n_to ? n_from : n_to, rng_mix(words, 6));
    return perm[from] % n_to;
}

void route_path(const struct route_draw *d,
                uint64_t mb,
                const uint32_t *n_hosts,
                uint32_t stages,
                uint32_t entry,
                uint32_t *path)
{
    path[0] = entry;
    for (uint32_t s = 1; s < stages; s++) {
        path[s] = route_next(d, mb, s, n_hosts[s - 1], n_hosts[s], path[s - 1]);
    }
}

/* A permutation of n, its own for every `number`. */
static void deal_perm(const struct route_draw *d,
                      uint32_t stage,
                      uint32_t number,
                      uint32_t n,
                      uint32_t *perm)
{
    const uint64_t words[6] = {d->seed, d->epoch, d->step,
                               number,  stage,    DEAL_TAG};

    rng_perm(perm, n, rng_mix(words, 6));
}

/* Who would be done first, `order` among equals. */
static uint32_t first_done(const uint32_t *order,
                           const uint32_t *cost,
                           const uint32_t *count,
                           uint32_t n_hosts,
                           uint32_t most)
{
    uint32_t best = ROUTE_NONE;
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < n_hosts; i++) {
        uint32_t h = order[i];
        uint64_t load = (count[h] + 1ULL) * cost[h];

        if (count[h] < most && load < least) {
            least = load;
            best = h;
        }
    }
    return best;
}

void route_deal(const struct route_draw *d,
                uint32_t stage,
                const uint32_t *cost,
                uint32_t n_hosts,
                uint32_t n,
                uint8_t *host)
{
    uint32_t most = ROUTE_TIMES_MAX * ((n + n_hosts - 1) / n_hosts);
    uint32_t order[ROUTE_HOSTS_MAX], perm[ROUTE_HOSTS_MAX];
    uint32_t count[ROUTE_HOSTS_MAX] = {0};

    deal_perm(d, stage, 0, n_hosts, order);
    for (uint32_t from = 0; from < n; from += n_hosts) {
        uint32_t some = n - from < n_hosts ? n - from : n_hosts;

        deal_perm(d, stage, 1 + from, some, perm);
        for (uint32_t i = 0; i < some; i++) {
            uint32_t h = first_done(order, cost, count, n_hosts, most);

            count[h]++;
            host[from + perm[i]] = (uint8_t)h;
        }
    }
}

/* Micro-batches waiting and hosts of each stage. */
struct route_sums {
    uint64_t waiting[ROUTE_STAGES_MAX];
    uint32_t hosts[ROUTE_STAGES_MAX];
};

static void sum_up(const struct route_queue *q,
                   uint32_t n,
                   uint32_t stages,
                   struct route_sums *sums)
{
    memset(sums, 0, sizeof *sums);
    for (uint32_t i = 0; i < n; i++) {
        if (q[i].stage < stages) {
            sums->waiting[q[i].stage] += q[i].waiting;
            sums->hosts[q[i].stage]++;
        }
    }
}

/* The stage that a host should go to: the first that nobody serves (whatever
 * waits for it waits elsewhere), else the one with most waiting. */
static uint32_t neediest(const struct route_sums *sums, uint32_t stages)
{
    uint32_t most = 0;

    for (uint32_t s = 0; s < stages; s++) {
        if (sums->hosts[s] == 0) {
            return s;
        }
        if (sums->waiting[s] > sums->waiting[most]) {
            most = s;
        }
    }
    return most;
}

/* The stage that gives one: the one with least waiting. Where a stage starves
 * the least of those that can spare a host; else, if it cannot, nobody does. */
static uint32_t
giver(const struct route_sums *sums, uint32_t stages, bool starving)
{
    uint32_t least = ROUTE_NONE;

    for (uint32_t s = 0; s < stages; s++) {
        if (sums->hosts[s] > (starving ? 1U : 0U) &&
            (least == ROUTE_NONE || sums->waiting[s] < sums->waiting[least])) {
            least = s;
        }
    }
    return least == ROUTE_NONE || sums->hosts[least] < 2 ? ROUTE_NONE : least;
}

uint32_t route_moves(const struct route_queue *q,
                     uint32_t n,
                     uint32_t stages,
                     uint32_t *to)
{
    struct route_sums sums;
    uint32_t least, most, best = ROUTE_NONE;
    bool starving;

    if (stages == 0 || stages > ROUTE_STAGES_MAX) {
        return ROUTE_NONE;
    }
    sum_up(q, n, stages, &sums);
    most = neediest(&sums, stages);
    starving = sums.hosts[most] == 0;
    least = giver(&sums, stages, starving);
    if (least == ROUTE_NONE ||
        (!starving && sums.waiting[most] <= sums.waiting[least])) {
        return ROUTE_NONE;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (q[i].stage == least &&
            (best == ROUTE_NONE || q[i].waiting < q[best].waiting)) {
            best = i;
        }
    }
    *to = most;
    return best;
}
