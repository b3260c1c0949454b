/* stages_faults.c - what happens to the hosts of stages; stages.c has the list.
 */
#include <inttypes.h>

#include "daemon/sim/stages.h"
#include "daemon/sim/world/internal.h"

static void kill_one(struct stages *s, uint32_t q)
{
    bool kept = s->peers[q].seen.round >= 2; /* a checkpoint is written */

    if (s->c.fault == STAGES_RESTART || s->c.fault == STAGES_ALL
            ? kept
            : stages_held_without(s, q)) {
        world_kill_at_action(s->c.world, q, 1 + crew_draw(&s->c, 60));
    }
}

static void strike(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint32_t q = (uint32_t)crew_draw(&s->c, s->c.starters);
    uint32_t fault =
        s->c.fault == STAGES_ALL
            ? STAGES_KILL + (uint32_t)crew_draw(&s->c, STAGES_DROPS)
            : s->c.fault;

    (void)arg;
    if (!world_alive(s->c.world, q) || world_frozen(s->c.world, q)) {
        return;
    }
    crew_note_fault(&s->c);
    if (fault == STAGES_KILL || fault == STAGES_RESTART) {
        kill_one(s, q);
    } else if (fault == STAGES_FREEZE) {
        world_freeze(s->c.world, q);
        world_call(s->c.world,
                   world_now(s->c.world) + 500 + crew_draw(&s->c, 12000),
                   crew_thaw, &s->c, q);
    } else if (fault == STAGES_DROPS) {
        crew_drop_links(&s->c, q);
    }
}

/* All hosts of a stage, or all but one, within a moment. */
static void strike_stage(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint32_t stage = 1 + (uint32_t)crew_draw(&s->c, s->stages), kept = 0;

    if (s->peers[0].seen.round == 0 && arg < 200) { /* not begun yet */
        world_call(s->c.world, world_now(s->c.world) + CREW_POLL_MS,
                   strike_stage, s, arg + 1);
        return;
    }
    for (uint32_t q = 0; q < s->c.n; q++) {
        if (!world_alive(s->c.world, q) || s->peers[q].seen.stage != stage) {
            continue;
        }
        if (s->c.fault == STAGES_LOST || kept > 0) {
            world_kill_at_action(s->c.world, q, 1 + crew_draw(&s->c, 30));
        } else {
            kept++;
        }
    }
}

/* ---- one that stays behind -------------------------------------------- */

static void kill_call(void *data, uint64_t q)
{
    struct stages *s = data;

    if (world_alive(s->c.world, (uint32_t)q)) {
        world_kill_at_action(s->c.world, (uint32_t)q, 1 + crew_draw(&s->c, 60));
    }
}

/* The live hosts of that stage (from 1), if they are two: by id. */
static bool two_hosts(const struct stages *s, uint32_t stage, uint32_t q[2])
{
    uint32_t n = 0, first;

    for (uint32_t k = 0; k < s->c.n && stages_n_hosts(s, stage) == 2; k++) {
        if (world_alive(s->c.world, k) && s->peers[k].seen.stage == stage) {
            q[n++] = k;
        }
    }
    if (n == 2 && id_cmp(&world_identity(s->c.world, q[0])->id,
                         &world_identity(s->c.world, q[1])->id) > 0) {
        first = q[0];
        q[0] = q[1];
        q[1] = first;
    }
    return n == 2;
}

/* The lower id may go on alone, as one half of the view; then it dies, early
 * enough not to have come to the end of the run: who finds no view then is no
 * longer asked for one (p2p/pipeline/PIPELINE.md). */
static void strand(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint64_t now = world_now(s->c.world),
             dies_ms = 6000 + crew_draw(&s->c, 6000);
    uint32_t q[2];

    if (s->peers[0].seen.round == 0 ||
        !two_hosts(s, 1 + (uint32_t)crew_draw(&s->c, s->stages), q)) {
        if (arg < 200) {
            world_call(s->c.world, now + CREW_POLL_MS, strand, s, arg + 1);
        }
        return;
    }
    crew_note_fault(&s->c);
    world_freeze(s->c.world, q[1]);
    world_call(s->c.world, now + dies_ms, kill_call, s, q[0]);
    world_call(s->c.world, now + dies_ms + crew_draw(&s->c, 12000), crew_thaw,
               &s->c, q[1]);
}

/* ---- a trainer that hangs --------------------------------------------- */

#define HANG_MS     180000
#define HANG_ROUNDS 3 /* that the others make of it at least */

static void hang_over(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint64_t made = stages_newest_round(s) - s->hung_at;

    (void)arg;
    crew_note_fault(&s->c);
    if (made < HANG_ROUNDS && stages_newest_round(s) < s->c.rounds) {
        sim_fail(s->c.r,
                 "H: %" PRIu64 " rounds in %d s in which a trainer hung", made,
                 HANG_MS / 1000);
    }
}

/* Of a host that its stage can do without. */
static void hang_one(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint32_t q = (uint32_t)crew_draw(&s->c, s->c.n);

    if (s->peers[0].seen.round == 0 ||
        stages_n_hosts(s, s->peers[q].seen.stage) < 2) {
        if (arg < 200) {
            world_call(s->c.world, world_now(s->c.world) + CREW_POLL_MS,
                       hang_one, s, arg + 1);
        }
        return;
    }
    s->hung_at = stages_newest_round(s);
    s->hung_peer = q + 1;
    local_hang(s->c.local, q, HANG_MS);
    world_call(s->c.world, world_now(s->c.world) + HANG_MS, hang_over, s, 0);
}

/* The hosts of some stage turn out to be slow. */
static void slow_stage(void *data, uint64_t arg)
{
    struct stages *s = data;
    uint32_t stage = 1 + (uint32_t)(s->c.opt.seed % s->stages);

    if (s->peers[0].seen.round == 0 && arg < 200) { /* not begun yet */
        world_call(s->c.world, world_now(s->c.world) + CREW_POLL_MS, slow_stage,
                   s, arg + 1);
        return;
    }
    for (uint32_t q = 0; q < s->c.n; q++) {
        if (s->peers[q].seen.stage == stage) {
            local_slow(s->c.local, q, 12);
        }
    }
}

void stages_schedule(struct crew *c)
{
    struct stages *s = c->self;
    uint64_t span = 8000 + s->c.rounds * 2500;

    for (uint32_t q = 0; q < s->c.starters; q++) {
        world_call(s->c.world,
                   100 + (s->c.fault == STAGES_AT_ONCE ? 0 : 400ULL * q),
                   crew_start, &s->c, q);
    }
    for (uint32_t k = 0; k < s->c.n_faults; k++) {
        world_call(s->c.world, 4000 + crew_draw(&s->c, span), strike, s, k);
    }
    for (uint32_t q = s->c.starters; q < s->c.n; q++) {
        world_call(s->c.world, 8000 + crew_draw(&s->c, span), crew_start, &s->c,
                   q);
    }
    if (s->c.fault == STAGES_LOST || s->c.fault == STAGES_STARVED) {
        world_call(s->c.world, 6000 + crew_draw(&s->c, span / 2), strike_stage,
                   s, 0);
    }
    if (s->c.fault == STAGES_UNEQUAL) {
        world_call(s->c.world, 2000, slow_stage, s, 0);
    }
    if (s->c.fault == STAGES_HANG) {
        world_call(s->c.world, 4000 + crew_draw(&s->c, span / 2), hang_one, s,
                   0);
    }
    if (s->c.fault == STAGES_STRANDED) {
        world_call(s->c.world, 4000 + crew_draw(&s->c, 4000), strand, s, 0);
    }
}
