/* scenarios_rollback.c - one member's contributions ruin the model.
 *
 * What the *vandal* packs is plus and minus 1000 per element, until it has
 * ruined the model or (odd seeds) for some time more; nothing limits it. Of
 * every four seeds two have a machine that finds every state bad, too, for
 * good; of every eight the last four have no vandal. With seeds of three one
 * peer dies and comes back.
 * With rollback.misjudge so many members find every state bad, and there is no
 * vandal: half of them are too few to go back and too many to go on, until they
 * lose patience.
 *
 * R: with a vandal some round was taken back; without one none was, whatever
 * one member says. In the end nobody's model is ruined. E as ever.
 */
#include "daemon/node/inspect.h"
#include "daemon/node/judge.h"
#include "daemon/sim/sim_internal.h"

#define LOOK_MS 100

static bool has_vandal(const struct sim *s)
{
    return s->opt.seed % 8 < 4 && s->misjudge == 0;
}

/* From the first ruined commit on it goes on for so long. */
static void vandal_call(void *data, uint64_t more_ms)
{
    struct sim *s = data;
    uint64_t now = world_now(s->world);
    bool ruined = local_is_ruined(s->local, s->victim);

    local_ruin(s->local, s->victim, !ruined || more_ms > 0);
    if (!ruined) {
        world_call(s->world, now + LOOK_MS, vandal_call, s, more_ms);
    } else if (more_ms > 0) {
        world_call(s->world, now + more_ms, vandal_call, s, 0);
    } else {
        sim_fault(s);
    }
}

static void misjudge_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    local_misjudge(s->local, (uint32_t)arg, true);
}

void options_rollback(struct sim *s)
{
    s->local_opt.rollback_microbits = 500000;
    s->local_opt.norm_clip = 0;
}

void setup_rollback(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 6);
    uint32_t misjudge = s->misjudge;

    s->rollbacks = true;
    s->calm_ms = at;
    if (has_vandal(s)) {
        world_call(s->world, at, vandal_call, s,
                   s->opt.seed % 2 == 0 ? 0 : sim_draw(s, 2000, 9000));
    }
    if (s->misjudge == 0 && s->opt.seed % 4 >= 2 && s->n >= 4) {
        misjudge = 1; /* fewer than a third */
    }
    for (uint32_t i = 1; i <= misjudge; i++) {
        world_call(s->world, at - sim_draw(s, 100, 3000), misjudge_call, s,
                   (s->victim + i) % s->n);
    }
    if (s->misjudge == 0 && s->opt.seed % 3 == 0) {
        s->restart_after_ms = sim_draw(s, 3000, 12000);
        world_call(s->world, at + sim_draw(s, 0, 5000), sim_strike_call, s,
                   (s->victim + 2) % s->n);
        s->calm_ms += 5000 + s->restart_after_ms;
    }
}

void check_rollbacks(struct sim *s)
{
    uint64_t n = 0;

    for (uint32_t q = 0; s->rollbacks && q < s->n; q++) {
        if (s->nodes[q] == NULL) {
            continue;
        }
        n += node_parts(s->nodes[q]).judge->n_rollback;
        if (local_is_ruined(s->local, q)) {
            check_fail(s->check, "R: the model of peer %u is ruined", q);
        }
    }
    if (s->rollbacks && (n > 0) != has_vandal(s)) {
        check_fail(s->check, n > 0 ? "R: a good round was taken back"
                                   : "R: no round was taken back");
    }
}
