/* routing.c - which micro-batches of a step come by this host, and
 * whence and where to: from the agreed hosts, and from what they said in the
 * HELLOs of this attempt that a micro-batch takes them.
 *
 * Where the hosts of every stage are alike, each of stage 0 enters as many and
 * each hop is a random permutation. Else the micro-batches of a step, as many
 * as before, are dealt out in each stage as its hosts can take them
 * (route_deal). Draws are numbered for each host by itself, so the tokens that
 * it enters are in the order of before, only more or fewer of them.
 */
#include "p2p/pipeline/internal.h"

#include <string.h>

#define BIT(k) (1ULL << (k))

/* Hosts are alike when the slowest takes less than 5/4 of the fastest: what
 * is measured varies by itself. */
#define ALIKE_OF   5U
#define ALIKE_THAN 4U

/* Hosts of each stage that take part, as positions in p->host. */
struct stages {
    uint32_t n[ROUTE_STAGES_MAX];
    uint8_t host[ROUTE_STAGES_MAX][PIPELINE_HOSTS_MAX];
};

static void list_stages(const struct pipeline *p, struct stages *s)
{
    for (uint32_t i = 0; i < p->opt.stages; i++) {
        s->n[i] = 0;
    }
    for (uint32_t k = 0; k < p->n; k++) {
        if (p->layout & BIT(k)) {
            uint32_t stage = p->host[k].stage;

            s->host[stage][s->n[stage]++] = (uint8_t)k;
        }
    }
}

/* ---- what a micro-batch takes ----------------------------------------- */

/* The middle one of those that are known; 0: none is. */
static uint32_t
middle(const struct pipeline *p, const struct stages *s, uint32_t stage)
{
    uint32_t sorted[PIPELINE_HOSTS_MAX], n = 0;

    for (uint32_t i = 0; i < s->n[stage]; i++) {
        uint32_t cost = p->cost_us[s->host[stage][i]], at = n;

        if (cost == 0) {
            continue;
        }
        for (n++; at > 0 && sorted[at - 1] > cost; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = cost;
    }
    return n == 0 ? 0 : sorted[n / 2];
}

/* Of each host of a stage. Who does not know it counts as the middle one, and
 * nobody as more than ROUTE_TIMES_MAX times as fast or slow: one word does not
 * take everything. True: they are not alike. */
static bool costs_of(const struct pipeline *p,
                     const struct stages *s,
                     uint32_t stage,
                     uint32_t *cost)
{
    uint32_t mid = middle(p, s, stage);
    uint32_t low = mid / ROUTE_TIMES_MAX + 1;
    uint32_t high =
        mid < UINT32_MAX / ROUTE_TIMES_MAX ? mid * ROUTE_TIMES_MAX : UINT32_MAX;
    uint32_t least = UINT32_MAX, most = 0;

    for (uint32_t i = 0; i < s->n[stage]; i++) {
        uint32_t c = p->cost_us[s->host[stage][i]];

        c = mid == 0 ? 1 : c == 0 ? mid : c < low ? low : c > high ? high : c;
        cost[i] = c;
        least = c < least ? c : least;
        most = c > most ? c : most;
    }
    if ((uint64_t)most * ALIKE_THAN < (uint64_t)least * ALIKE_OF) {
        for (uint32_t i = 0; i < s->n[stage]; i++) {
            cost[i] = 1;
        }
        return false;
    }
    return true;
}

static bool are_unequal(const struct pipeline *p, const struct stages *s)
{
    uint32_t cost[PIPELINE_HOSTS_MAX];

    for (uint32_t i = 0; i < p->opt.stages && !p->opt.fixed; i++) {
        if (costs_of(p, s, i, cost)) {
            return true;
        }
    }
    return false;
}

/* ---- routes ----------------------------------------------------------- */

/* A redraw leaves room for all that one host may enter. */
static uint32_t draw_of(const struct pipeline *p, uint32_t turn)
{
    return p->redraw * p->opt.micro_batches * ROUTE_TIMES_MAX + turn;
}

static void add(struct pipeline *p,
                uint32_t number,
                uint32_t turn,
                uint8_t from,
                uint8_t to)
{
    p->micro[p->n_micro++] = (struct pipeline_micro){
        .number = number,
        .draw = draw_of(p, turn),
        .from = from,
        .to = to,
        .asked = to != PIPELINE_NOBODY && p->asked[0][number] == to,
    };
}

/* The way of one micro-batch; counted if it comes by here. */
static void add_route(struct pipeline *p,
                      const struct stages *s,
                      const struct route_draw *draw,
                      uint32_t turn,
                      uint32_t entry)
{
    uint32_t own = p->host[p->self].stage;
    uint32_t path[ROUTE_STAGES_MAX];

    route_path(draw, turn, s->n, p->opt.stages, entry, path);
    if (s->host[own][path[own]] == p->self) {
        add(p, turn * s->n[0] + entry, turn,
            own > 0 ? s->host[own - 1][path[own - 1]] : PIPELINE_NOBODY,
            own + 1 < p->opt.stages ? s->host[own + 1][path[own + 1]]
                                    : PIPELINE_NOBODY);
    }
}

/* Who has each micro-batch in that stage, as positions in p->host; there may
 * be no such stage. */
static void deal(const struct pipeline *p,
                 const struct stages *s,
                 const struct route_draw *draw,
                 uint32_t stage,
                 uint8_t host[PIPELINE_MICRO_MAX])
{
    uint32_t cost[PIPELINE_HOSTS_MAX];
    uint32_t n = s->n[0] * p->opt.micro_batches;

    if (stage >= p->opt.stages) { /* after the last, before the first */
        memset(host, (int)PIPELINE_NOBODY, n);
        return;
    }
    (void)costs_of(p, s, stage, cost);
    route_deal(draw, stage, cost, s->n[stage], n, host);
    for (uint32_t i = 0; i < n; i++) {
        host[i] = s->host[stage][host[i]];
    }
}

static void list_dealt(struct pipeline *p,
                       const struct stages *s,
                       const struct route_draw *draw)
{
    uint8_t from[PIPELINE_MICRO_MAX], here[PIPELINE_MICRO_MAX];
    uint8_t to[PIPELINE_MICRO_MAX];
    uint32_t own = p->host[p->self].stage, turn = 0;

    deal(p, s, draw, own - 1, from);
    deal(p, s, draw, own, here);
    deal(p, s, draw, own + 1, to);
    for (uint32_t i = 0; i < s->n[0] * p->opt.micro_batches; i++) {
        if (here[i] == p->self) {
            add(p, i, turn++, from[i], to[i]);
        }
    }
}

void pipeline_list_routes(struct pipeline *p)
{
    const struct route_draw draw = {.seed = p->opt.seed,
                                    .epoch = p->round,
                                    .step = p->step,
                                    .fixed = p->opt.fixed};
    struct stages s;

    list_stages(p, &s);
    p->n_micro = 0;
    if (are_unequal(p, &s)) {
        list_dealt(p, &s, &draw);
        return;
    }
    for (uint32_t turn = 0; turn < p->opt.micro_batches; turn++) {
        for (uint32_t entry = 0; entry < s.n[0]; entry++) {
            add_route(p, &s, &draw, turn, entry);
        }
    }
}
