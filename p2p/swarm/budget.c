/* budget.c - see budget.h. The figures are those of .github/SECURITY.md. */
#include "p2p/swarm/budget.h"

/* Not more than what a frame is charged beside its own bytes; a piece of
 * 256 KiB gives all of it back. */
#define SERVED_MOST     512
#define SERVED_PER_BYTE 512

/* A signature is some 120 us of a core: 200 a second are 24 ms. Bytes: 100 kB/s
 * a link, 1 MB/s all; what a newcomer is sent at once, a chain of views, is
 * 256 KiB and fits the burst. Fair shares of the 160 links that strangers may
 * hold: 80 signatures a second and 0.5 MB/s. */
static const struct budget_terms terms_of[BUDGET_KIND_COUNT] = {
    [BUDGET_SIGNATURES] = {.link = {100000, 2000000},
                           .fair = {2000000, 1},
                           .all = {5000, 1000000}},
    [BUDGET_BYTES] = {.link = {10, 3000000},
                      .fair = {320, 3000000},
                      .all = {1, 2000000}},
    [BUDGET_DIALS] = {.link = {1, 1}, .fair = {1, 1}, .all = {250000, 4000000}},
};

bool budget_overdrawn(const struct budget_meter *m,
                      const struct budget_price *price,
                      uint64_t now_ms)
{
    return m->paid_us >= now_ms * 1000 + price->burst_us;
}

void budget_charge(struct budget_meter *m,
                   const struct budget_price *price,
                   uint64_t n,
                   uint64_t now_ms)
{
    uint64_t now_us = now_ms * 1000;
    uint64_t most = now_us + price->burst_us + BUDGET_DEBT_US;

    m->paid_us = m->paid_us > now_us ? m->paid_us : now_us;
    if (n > (most - now_us) / price->each_us) {
        m->paid_us = most;
    } else {
        m->paid_us += n * price->each_us;
        m->paid_us = m->paid_us < most ? m->paid_us : most;
    }
}

void budget_link_init(struct budget_link *l, uint64_t now_ms)
{
    *l = (struct budget_link){0};
    for (int k = 0; k < BUDGET_KIND_COUNT; k++) {
        l->fair[k].paid_us = now_ms * 1000 + terms_of[k].fair.burst_us;
    }
}

bool budget_take(struct budget *all, enum budget_kind kind, uint64_t now_ms)
{
    const struct budget_price *price = &terms_of[kind].all;

    if (budget_overdrawn(&all->all[kind], price, now_ms)) {
        return false;
    }
    budget_charge(&all->all[kind], price, 1, now_ms);
    return true;
}

/* `bytes` fall off all shares alike. */
static void fall(struct budget_shares *s, uint64_t bytes)
{
    uint64_t n, each;

    for (s->owed += bytes; s->owed > 0; s->owed -= each * n) {
        uint64_t least = UINT64_MAX;

        n = 0;
        for (uint32_t i = 0; i < BUDGET_SHARES_MAX; i++) {
            uint64_t b = s->of[i].bytes;

            n += b > 0;
            least = b > 0 && b < least ? b : least;
        }
        if (n == 0) {
            s->owed = 0;
            return;
        }
        each = s->owed / n < least ? s->owed / n : least;
        for (uint32_t i = 0; i < BUDGET_SHARES_MAX; i++) {
            s->of[i].bytes -= s->of[i].bytes > 0 ? each : 0;
        }
        if (each == 0) {
            return; /* less than a byte for each: later */
        }
    }
}

static void pass(struct budget_shares *s, uint64_t bytes_per_s, uint64_t now_ms)
{
    uint64_t ms = now_ms - s->at_ms, thousands;

    ms = ms < UINT32_MAX ? ms : UINT32_MAX;
    thousands = bytes_per_s % 1000 * ms + s->thousand;
    s->thousand = (uint32_t)(thousands % 1000);
    s->at_ms = now_ms;
    fall(s, bytes_per_s / 1000 * ms + thousands / 1000);
}

bool budget_fill(struct budget_shares *s,
                 const struct peer_id *group,
                 uint64_t bytes_per_s,
                 uint64_t burst,
                 uint64_t n,
                 uint64_t now_ms)
{
    struct budget_share *mine = NULL, *least = &s->of[0];
    uint64_t all = 0;

    pass(s, bytes_per_s, now_ms);
    for (uint32_t i = 0; i < BUDGET_SHARES_MAX; i++) {
        struct budget_share *k = &s->of[i];

        all += k->bytes;
        least = k->bytes < least->bytes ? k : least;
        mine = k->bytes > 0 && id_eq(&k->group, group) ? k : mine;
    }
    if (mine == NULL) {
        mine = least; /* where no row is free, with what it holds */
        mine->group = *group;
    }
    if (all >= burst || mine->bytes >= burst - all) {
        return false;
    }
    mine->bytes += n;
    return true;
}

bool budget_allows(const struct budget *all,
                   const struct budget_link *l,
                   enum budget_kind kind,
                   uint64_t now_ms)
{
    const struct budget_terms *t = &terms_of[kind];

    return !budget_overdrawn(&l->own[kind], &t->link, now_ms) &&
           (!budget_overdrawn(&all->all[kind], &t->all, now_ms) ||
            !budget_overdrawn(&l->fair[kind], &t->fair, now_ms));
}

static uint64_t wait_ms(const struct budget_meter *m,
                        const struct budget_price *price,
                        uint64_t now_ms)
{
    return budget_overdrawn(m, price, now_ms)
               ? (m->paid_us - price->burst_us) / 1000 - now_ms + 1
               : 0;
}

uint64_t budget_wait_ms(const struct budget *all,
                        const struct budget_link *l,
                        enum budget_kind kind,
                        uint64_t now_ms)
{
    const struct budget_terms *t = &terms_of[kind];
    uint64_t own = wait_ms(&l->own[kind], &t->link, now_ms);
    uint64_t fair = wait_ms(&l->fair[kind], &t->fair, now_ms);
    uint64_t rest = wait_ms(&all->all[kind], &t->all, now_ms);

    rest = fair < rest ? fair : rest;
    return own > rest ? own : rest;
}

bool budget_is_overdrawn(const struct budget_link *l, uint64_t now_ms)
{
    for (int k = 0; k < BUDGET_KIND_COUNT; k++) {
        if (budget_overdrawn(&l->own[k], &terms_of[k].link, now_ms)) {
            return true;
        }
    }
    return false;
}

void budget_use(struct budget *all,
                struct budget_link *l,
                enum budget_kind kind,
                uint64_t n,
                uint64_t now_ms)
{
    const struct budget_terms *t = &terms_of[kind];

    budget_charge(&all->all[kind], &t->all, n, now_ms);
    budget_charge(&l->own[kind], &t->link, n, now_ms);
    budget_charge(&l->fair[kind], &t->fair, n, now_ms);
}

void budget_answered(struct budget *all,
                     struct budget_link *l,
                     uint64_t bytes,
                     uint64_t now_ms)
{
    const struct budget_price *fair = &terms_of[BUDGET_BYTES].fair;
    struct budget_meter *m = &l->fair[BUDGET_BYTES];
    uint64_t most = now_ms * 1000 + fair->burst_us + BUDGET_ANSWER_US;

    most = m->paid_us > most ? m->paid_us : most;
    budget_use(all, l, BUDGET_BYTES, bytes, now_ms);
    m->paid_us = m->paid_us < most ? m->paid_us : most;
}

void budget_served(struct budget_link *l, uint64_t bytes, uint64_t now_ms)
{
    struct budget_meter *m = &l->fair[BUDGET_BYTES];
    uint64_t owed = m->paid_us > now_ms * 1000 ? m->paid_us - now_ms * 1000 : 0;
    uint64_t n = bytes / SERVED_PER_BYTE < SERVED_MOST ? bytes / SERVED_PER_BYTE
                                                       : SERVED_MOST;
    uint64_t us = n * terms_of[BUDGET_BYTES].fair.each_us;

    m->paid_us -= us < owed ? us : owed;
}
