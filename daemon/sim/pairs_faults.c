/* pairs_faults.c - what happens to the crowd, and when; see pairs.h. */
#include <stdlib.h>

#include "daemon/sim/pairs.h"

#define START_STEP_MS 10 /* one peer after the other */
#define CUT_MS        20000
#define BACK_MS       6000 /* a peer comes back, or wakes, after about this */

bool pairs_cut(void *self, uint32_t from, uint32_t to, bool bulk)
{
    const struct pairs *s = self;

    (void)bulk;
    return s->is_cut && s->group[from] != s->group[to];
}

static void cut(void *data, uint64_t heal)
{
    struct pairs *s = data;

    s->is_cut = heal == 0;
    if (heal == 0) {
        uint32_t *none = calloc(s->opt.peers, sizeof *none);

        for (uint32_t q = 0; q < s->opt.peers; q++) {
            s->group[q] = (uint32_t)pairs_draw(s, 2);
        }
        world_partition(s->world, none); /* pairs_cut() says who is cut */
        free(none);
    } else {
        world_heal(s->world);
    }
}

static void wake(void *data, uint64_t q)
{
    struct pairs *s = data;

    if (world_alive(s->world, (uint32_t)q) &&
        world_frozen(s->world, (uint32_t)q)) {
        world_thaw(s->world, (uint32_t)q);
        s->peers[q].froze_ms = world_now(s->world);
    }
}

static void come_back(void *data, uint64_t q)
{
    struct pairs *s = data;

    if (!world_alive(s->world, (uint32_t)q)) {
        pairs_start(s, q);
    }
}

static uint32_t n_alive(const struct pairs *s)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->opt.peers; q++) {
        n += pairs_healthy(s, q);
    }
    return n;
}

static void kill(struct pairs *s, uint32_t q, bool back)
{
    if (n_alive(s) <= 2 && !back) {
        return;
    }
    /* Between any two actions of a step. */
    world_kill_at_action(s->world, q, 1 + pairs_draw(s, 40));
    if (back) {
        world_call(s->world,
                   world_now(s->world) + BACK_MS + pairs_draw(s, BACK_MS),
                   come_back, s, q);
    }
}

static void freeze(struct pairs *s, uint32_t q)
{
    world_freeze(s->world, q);
    world_call(s->world, world_now(s->world) + 500 + pairs_draw(s, 2 * BACK_MS),
               wake, s, q);
}

static void drop(struct pairs *s, uint32_t q)
{
    const struct pair *p = &s->peers[q].pair;
    uint32_t other = p->phase > PAIR_OPEN
                         ? world_find(s->world, &p->peer)
                         : (uint32_t)pairs_draw(s, s->opt.peers);

    if (other < s->opt.peers && other != q) {
        world_drop_bulk(s->world, q, other);
        if (pairs_draw(s, 2) == 0) {
            world_drop_links(s->world, q, other);
        }
    }
}

static void strike(void *data, uint64_t arg)
{
    struct pairs *s = data;
    uint32_t q = (uint32_t)pairs_draw(s, s->opt.peers), fault = s->opt.fault;

    (void)arg;
    if (!pairs_healthy(s, q)) {
        return;
    }
    if (fault == PAIRS_ALL) {
        static const uint32_t some[] = {PAIRS_KILL, PAIRS_RESTART, PAIRS_FREEZE,
                                        PAIRS_DROPS};

        fault = some[pairs_draw(s, 4)];
    }
    if (fault == PAIRS_KILL || fault == PAIRS_RESTART) {
        kill(s, q, fault == PAIRS_RESTART);
    } else if (fault == PAIRS_FREEZE) {
        freeze(s, q);
    } else if (fault == PAIRS_DROPS) {
        drop(s, q);
    }
}

static void lossy(void *data, uint64_t per_million)
{
    struct pairs *s = data;

    world_lossy(s->world, (uint32_t)per_million);
}

void pairs_schedule(struct pairs *s)
{
    uint64_t at = 1000, span = s->opt.train_ms * s->opt.rounds;
    uint32_t fault = s->opt.fault;

    for (uint32_t q = 0; q < s->opt.peers; q++) {
        world_call(s->world, at, pairs_start, s, q);
        at += START_STEP_MS;
    }
    at += 3000;
    for (uint32_t k = 0; k < s->opt.faults && fault != PAIRS_PLAIN; k++) {
        world_call(s->world, at + pairs_draw(s, span), strike, s, k);
    }
    for (uint32_t q = 0; q < s->opt.peers && fault >= PAIRS_SLOW; q++) {
        s->peers[q].slow =
            fault != PAIRS_DROPS && pairs_draw(s, 8) == 0 ? 3 : 1;
    }
    if (fault == PAIRS_CUT || fault == PAIRS_ALL) {
        uint64_t from = at + pairs_draw(s, span / 2 + 1);

        world_call(s->world, from, cut, s, 0);
        world_call(s->world, from + CUT_MS + pairs_draw(s, CUT_MS), cut, s, 1);
    }
    if (fault == PAIRS_LOSSY || fault == PAIRS_ALL) {
        world_call(s->world, at, lossy, s, 50000);
        world_call(s->world, at + span, lossy, s, 0);
    }
    /* Everybody three times as slow, and as late as may be in every turn. */
    s->end_ms = at + 4 * span + s->opt.rounds * 4ULL * s->opt.grace_ms + 120000;
}
