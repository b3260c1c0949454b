/* scenarios_twin.c - one identity, two processes.
 *
 * The last peer has the identity of another one (peer seed mod (N - 1)) and an
 * empty disk. It starts while that one takes part. Beside what always must hold
 * (check.h):
 *
 *   O  the second process stops by itself within STOP_MS, with the exit code
 *      for it; the first one stays in all views, and no round fails (H)
 */
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"

#define STOP_MS 12000

static uint32_t second(const struct sim *s)
{
    return s->n - 1;
}

static uint32_t first(const struct sim *s)
{
    return (uint32_t)(s->opt.seed % second(s));
}

void options_twin(struct sim *s)
{
    s->world_opt.twin_of = first(s) + 1;
    s->local_opt.min_peers = s->n - 1;
    s->starters = s->n - 1;
    s->need = s->n - 1;
    s->quiet = true;
}

static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct peer_id *id = &world_identity(s->world, first(s))->id;

    (void)arg;
    if (!s->invited.was_refused) {
        check_fail(s->check, "O: the second process still runs");
    }
    for (uint32_t q = 0; q < second(s); q++) {
        const struct node *n = s->nodes[q];

        if (n == NULL || !sim_in_view(n, id)) {
            check_fail(s->check, "O: the first one is not in the view of %u",
                       q);
        }
    }
}

bool sim_twin_may_stop(struct sim *s, uint32_t peer, int rc)
{
    if (s->world_opt.twin_of == 0 || peer != second(s) ||
        rc != LOCO_EXIT_IDENTITY) {
        return false;
    }
    s->invited.was_refused = true;
    return true;
}

void check_twin(struct sim *s)
{
    if (s->world_opt.twin_of != 0 && !s->invited.was_refused) {
        check_fail(s->check, "O: the second process never stopped");
    }
}

void setup_twin(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, s->rounds / 4, s->rounds / 3);

    world_call(s->world, at, sim_start_call, s, second(s));
    world_call(s->world, at + STOP_MS, look_call, s, 0);
    s->calm_ms = at + STOP_MS;
}
