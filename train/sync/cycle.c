/* cycle.c - see cycle.h. */
#include "train/sync/cycle.h"

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* The first step after k at which the stream begins a turn. */
static uint64_t next_begin(const struct stream *s, uint64_t k)
{
    uint64_t interval = s->period / s->fragments;
    uint64_t early = s->overlap == s->period ? 0 : s->overlap;

    return ((k + early) / interval + 1) * interval - early;
}

static int too_long(char *errmsg)
{
    return errmsg_invalid(
        errmsg,
        "the periods of this method meet again only after more "
        "than %d rounds; take sync.period_u and sync.period_v "
        "as multiples of sync.period, and fewer fragments",
        CYCLE_TURNS_MAX);
}

int cycle_init(struct cycle *c, const struct method *m, char *errmsg)
{
    uint64_t k = 0;

    *c = (struct cycle){.steps = 1};
    c->n_streams = method_streams(m, c->streams);
    if (m->overlap > 0 && c->n_streams > 1) {
        return errmsg_invalid(errmsg,
                              "a round that overlaps with training carries the "
                              "parameters only; set sync.overlap to 0, or "
                              "sync.period_u and sync.period_v to 0");
    }
    for (size_t s = 0; s < c->n_streams; s++) {
        uint64_t period = c->streams[s].period;

        /* Periods have 32 bits: three of them fit, one after the other, only
         * while the product so far is small. */
        period /= gcd(c->steps, period);
        if (c->steps > UINT64_MAX / 2 / period) {
            return too_long(errmsg);
        }
        c->steps *= period;
    }
    for (;;) {
        uint64_t next = UINT64_MAX;

        for (size_t s = 0; s < c->n_streams; s++) {
            uint64_t at = next_begin(&c->streams[s], k);

            next = at < next ? at : next;
        }
        if (next > c->steps) {
            return 0;
        }
        if (c->n == CYCLE_TURNS_MAX) {
            return too_long(errmsg);
        }
        c->at[c->n++] = k = next;
    }
}

uint64_t cycle_step(const struct cycle *c, uint64_t round)
{
    return round == 0
               ? 0
               : (round - 1) / c->n * c->steps + c->at[(round - 1) % c->n];
}

bool cycle_due(const struct cycle *c,
               uint64_t round,
               size_t s,
               struct stream_turn *turn)
{
    return round > 0 &&
           stream_begins(&c->streams[s], cycle_step(c, round), turn);
}
