/* scenarios_nat.c - routers through which two peers can punch a hole.
 *
 * The first two peers can be dialled, the others not. The last one is behind a
 * symmetric NAT, with every third seed the one before it, too; the others are
 * behind cones. With every second seed one of the two that can be dialled,
 * where all others meet, dies in the middle and comes back. With every fifth
 * seed half of the meetings are in vain, and with another fifth what they make
 * is gone again within HOLE_LASTS_MS. Beside what always must hold (check.h,
 * and N of nodes.c):
 *
 *   P  in the end two peers behind cones have a direct link, by a meeting, or
 *      any link where holes fail or die; none with a peer behind a symmetric
 *      NAT has; nobody dialled an address that no relay saw; no more dials
 *      were made than back-off allows
 */
#include "daemon/sim/sim_internal.h"

#include <inttypes.h>

/* Dials of one pair, both ends together: links at 0, 1, 3, 7, .. minutes, and
 * data connections. A relay that dies takes some with it. */
#define DIALS_OF_A_PAIR 12
#define DIALS_MORE      24
#define HOLE_LASTS_MS   20000

static bool strikes(const struct sim *s)
{
    return s->opt.seed % 2 == 1;
}

enum holes { HOLES_LAST, HOLES_FAIL, HOLES_DIE };

static enum holes holes_of(const struct sim *s)
{
    return s->opt.seed % 5 == 1   ? HOLES_FAIL
           : s->opt.seed % 5 == 2 ? HOLES_DIE
                                  : HOLES_LAST;
}

void options_nat_punch(struct sim *s)
{
    s->world_opt.holes_fail_per_million =
        holes_of(s) == HOLES_FAIL ? 500000 : 0;
    s->world_opt.hole_lasts_ms = holes_of(s) == HOLES_DIE ? HOLE_LASTS_MS : 0;
}

void setup_nat_punch(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 1, s->rounds / 2);
    uint32_t n_symmetric = s->opt.seed % 3 == 0 ? 2 : 1;

    for (uint32_t i = 2; i < s->n; i++) {
        world_set_nat(s->world, i,
                      i + n_symmetric < s->n ? WORLD_NAT_CONE
                                             : WORLD_NAT_SYMMETRIC);
    }
    s->nat = s->punch = true;
    s->quiet = !strikes(s) && holes_of(s) != HOLES_DIE;
    if (strikes(s)) {
        s->restart_after_ms = sim_draw(s, 5000, 20000);
        s->calm_ms = at + s->restart_after_ms;
        world_call(s->world, at, sim_strike_call, s, s->opt.seed / 2 % 2);
    }
}

/* How `a` is linked to `b`: NULL, it is not. */
static const struct node_peer *
link_of(struct sim *s, uint32_t a, uint32_t b, struct node_peer rows[])
{
    const struct peer_id *id = &world_identity(s->world, b)->id;
    uint32_t n = node_swarm(s->nodes[a], rows, s->n, world_now(s->world));

    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].linked && id_eq(&rows[i].id, id)) {
            return &rows[i];
        }
    }
    return NULL;
}

static void judge_pair(struct sim *s, uint32_t a, uint32_t b)
{
    struct node_peer rows[VIEW_MEMBERS_MAX];
    const struct node_peer *l = link_of(s, a, b, rows);
    bool cones = world_nat(s->world, a) == WORLD_NAT_CONE &&
                 world_nat(s->world, b) == WORLD_NAT_CONE;

    if (l == NULL && cones) {
        check_fail(s->check, "P: peers %u and %u have no link", a, b);
    } else if (cones && holes_of(s) == HOLES_LAST &&
               (l->relayed || !l->punched)) {
        check_fail(s->check, "P: peers %u and %u, behind cones: %s", a, b,
                   l->relayed ? "a relayed link"
                              : "a link that was not punched");
    } else if (!cones && l != NULL && !l->relayed) {
        check_fail(s->check,
                   "P: peers %u and %u have a direct link through a symmetric "
                   "NAT",
                   a, b);
    }
}

void sim_nat_judge(struct sim *s, struct sim_result *r)
{
    const struct world_stats *stats = world_stats(s->world);
    uint64_t pairs = 0, most;

    if (!s->punch) {
        return;
    }
    for (uint32_t a = 2; a < s->n; a++) {
        for (uint32_t b = a + 1; b < s->n; b++, pairs++) {
            if (world_alive(s->world, a) && world_alive(s->world, b)) {
                judge_pair(s, a, b);
            }
        }
    }
    most = pairs * (DIALS_OF_A_PAIR + (strikes(s) ? DIALS_MORE : 0));
    if (stats->punches > most) {
        check_fail(s->check, "P: %" PRIu64 " dials, more than %" PRIu64,
                   stats->punches, most);
    }
    if (stats->nowhere > 0) {
        check_fail(s->check, "P: %" PRIu64 " dials of addresses of nobody",
                   stats->nowhere);
    }
    if ((stats->broken > 0) != (holes_of(s) == HOLES_DIE)) {
        check_fail(s->check, "P: %" PRIu64 " holes died", stats->broken);
    }
    sim_figure(r, "broken", (double)stats->broken, SIM_SUM);
    sim_figure(r, "punches", (double)stats->punches, SIM_MAX);
    sim_figure(r, "punched", (double)stats->punched, SIM_SUM);
    sim_figure(r, "relayed", (double)stats->relayed, SIM_SUM);
}
