/* crew_faults.c - what happens to a crew (crew.h): deaths, freezes, cuts, lost
 * connections, peers that join. */
#include "daemon/sim/crew.h"
#include "daemon/sim/world/internal.h"

void crew_thaw(void *data, uint64_t q)
{
    struct crew *s = data;

    if (world_alive(s->world, (uint32_t)q) &&
        world_frozen(s->world, (uint32_t)q)) {
        world_thaw(s->world, (uint32_t)q);
    }
    crew_note_fault(s);
}

void crew_drop_links(struct crew *s, uint32_t q)
{
    uint32_t other = (q + 1 + (uint32_t)crew_draw(s, s->n - 1)) % s->n;

    world_drop_bulk(s->world, q, other);
    world_drop_links(s->world, q, other);
}

static void heal(void *data, uint64_t arg)
{
    struct crew *s = data;

    (void)arg;
    world_heal(s->world);
    crew_note_fault(s);
}

static void strike(void *data, uint64_t arg)
{
    struct crew *s = data;
    uint32_t q = (uint32_t)crew_draw(s, s->starters);
    uint32_t fault = s->fault == CREW_ALL
                         ? CREW_KILL + (uint32_t)crew_draw(s, CREW_DROPS)
                         : s->fault;

    (void)arg;
    if (!world_alive(s->world, q) || world_frozen(s->world, q)) {
        return;
    }
    crew_note_fault(s);
    if ((fault == CREW_KILL && crew_n_alive(s) > s->alive_least) ||
        fault == CREW_RESTART) {
        world_kill_at_action(s->world, q, 1 + crew_draw(s, 60));
    } else if (fault == CREW_FREEZE) {
        world_freeze(s->world, q);
        world_call(s->world, world_now(s->world) + 500 + crew_draw(s, 12000),
                   crew_thaw, s, q);
    } else if (fault == CREW_CUT) {
        for (uint32_t k = 0; k < s->n; k++) {
            s->group[k] = (uint32_t)crew_draw(s, 2);
        }
        world_partition(s->world, s->group);
        world_call(s->world, world_now(s->world) + 2000 + crew_draw(s, 20000),
                   heal, s, 0);
    } else if (fault == CREW_DROPS) {
        crew_drop_links(s, q);
    }
}

void crew_schedule(struct crew *s)
{
    /* From the first steps to the mean at the end. */
    uint64_t span = 6000 + s->rounds * s->round_ms;

    for (uint32_t q = 0; q < s->starters; q++) {
        world_call(s->world, 100 + 50 * q, crew_start, s, q);
    }
    for (uint32_t k = 0; k < s->n_faults; k++) {
        world_call(s->world, 2000 + crew_draw(s, span), strike, s, k);
    }
    for (uint32_t q = s->starters; q < s->n; q++) {
        world_call(s->world, 4000 + crew_draw(s, span), crew_start, s, q);
    }
}
