/* scenarios_audit.c - an owner whose sums are wrong, and who sees it.
 *
 * A butterfly with audits. In two of four seeds the victim begins to sum wrong
 * by one bit a segment, and votes for it. In the odd seeds another member dies
 * and comes back with its disk, so that contributions are missing when somebody
 * asks for them. In every fourth seed segments are longer than a block.
 *
 * A slow victim may own no slice, and sums nothing then.
 *
 * A: where the victim's wrong blocks are many, each other member that lived
 * through it has found a wrong sum, or has the word of one that did and saw for
 * itself; where more than half hold that proof it is in no view of theirs.
 * Nobody ever convicts anybody else, and without a liar nobody is convicted (in
 * all scenarios, with sync.audit). All repeated some sums, but for one that may
 * own everything.
 */
#include "daemon/node/audit.h"
#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"

#define TO_LEAVE 3 /* rounds */
#define LOOK_MS  100

bool sim_has_in_view(const struct sim *s, uint32_t q, uint32_t peer)
{
    const struct ballot *b = node_parts(s->nodes[q]).ballot;

    return b->have &&
           view_index(&b->cert.body, &world_identity(s->world, peer)->id) >= 0;
}

/* When the liar is in no view of the others. */
static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    bool in = false;

    for (uint32_t q = 0; q < s->n; q++) {
        in |= q != s->victim && s->nodes[q] != NULL &&
              sim_has_in_view(s, q, s->victim);
    }
    if (!in) {
        s->liar_rounds = sim_newest_round(s, s->victim) - s->missum_round;
    } else if (!s->done) {
        world_call(s->world, world_now(s->world) + LOOK_MS, look_call, s, arg);
    }
}

static void missum_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    s->missum_round = sim_newest_round(s, s->victim);
    local_missum(s->local, s->victim, true);
    sim_fault(s);
    look_call(s, arg);
}

void options_audit(struct sim *s)
{
    s->audits = true;
    s->local_opt.audits = 1;
    s->missums = s->opt.seed % 4 < 2;
    if (s->opt.seed % 4 == 3) {
        s->local_opt.segment_elements *= 3;
    }
}

void setup_audit(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 6);

    s->calm_ms = at;
    if (s->missums) {
        world_call(s->world, at, missum_call, s, 0);
    }
    if (s->opt.seed % 2 == 1) {
        s->restart_after_ms = sim_draw(s, 1000, 12000);
        s->calm_ms += 5000 + s->restart_after_ms;
        world_call(s->world, at + sim_draw(s, 0, 5000), sim_strike_call, s,
                   (s->victim + 2) % s->n);
    }
}

/* So many of its blocks were wrong that the draws of the others miss them all
 * once in 160,000 runs: each draws one block of a round at least. */
static bool lied_enough(const struct sim *s)
{
    uint64_t n = s->local_opt.n_params, block = s->local_opt.block;

    return local_missums(s->local, s->victim) * (s->n - 1) >=
           12 * ((n + block - 1) / block);
}

/* Others that hold a proof against it since some rounds. */
static uint32_t n_accusers(const struct sim *s)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        const struct node_audit *a =
            s->nodes[q] == NULL ? NULL : node_parts(s->nodes[q]).audit;

        n += q != s->victim && a != NULL && a->n_convicted > 0 &&
             a->found.round + TO_LEAVE <= s->rounds;
    }
    return n;
}

static void check_node(struct sim *s, uint32_t q)
{
    const struct node_audit *a = node_parts(s->nodes[q]).audit;
    if (a->n_convicted > 0 &&
        (!s->missums || world_find(s->world, &a->convicted) != s->victim)) {
        check_fail(s->check, "A: peer %u convicts one that is honest", q);
    }
    if (q != s->victim && 2 * n_accusers(s) > s->n &&
        sim_has_in_view(s, q, s->victim)) {
        check_fail(s->check, "A: peer %u has the liar in its view", q);
    }
    if (!s->silence.on && a->n_convicted == 0 && q != s->victim &&
        s->lives[q] == 1 && lied_enough(s)) {
        check_fail(s->check, "A: peer %u saw no wrong sum", q);
    }
}

void check_audits(struct sim *s)
{
    uint32_t idle = 0;

    for (uint32_t q = 0; s->local_opt.audits > 0 && q < s->n; q++) {
        if (s->nodes[q] != NULL && world_alive(s->world, q)) {
            check_node(s, q);
            idle += s->lives[q] == 1 &&
                    node_parts(s->nodes[q]).audit->core.n_blocks == 0;
        }
    }
    if (s->audits && idle > 1) {
        check_fail(s->check, "A: %u peers repeated no sum", idle);
    }
}

void sim_audit_judge(const struct sim *s, struct sim_result *r)
{
    if (s->audits && s->liar_rounds > 0) {
        sim_figure(r, "liar_rounds", (double)s->liar_rounds, SIM_MAX);
    }
}
