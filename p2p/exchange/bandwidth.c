/* bandwidth.c - see bandwidth.h. */
#include "p2p/exchange/bandwidth.h"

#include <assert.h>
#include <string.h>

#include "proto/base/rng.h"

#define WINDOW       16 /* places that an edge may have */
#define PER_SAMPLE   (BANDWIDTH_CONFIDENCE / 8 + 1)
#define FORGET_SHIFT 2 /* a new sample counts a quarter */

size_t bandwidth_bytes(uint32_t cap)
{
    return cap * sizeof(struct bandwidth_row);
}

void bandwidth_init(struct bandwidth *b,
                    void *memory,
                    uint32_t cap,
                    uint32_t sample_us)
{
    assert(cap >= WINDOW);
    b->sample_us = sample_us > 0 ? sample_us : BANDWIDTH_SAMPLE_US;
    b->cap = cap;
    b->row = memory;
    memset(memory, 0, bandwidth_bytes(cap));
}

static uint32_t place_of(const struct bandwidth *b,
                         const struct peer_id *from,
                         const struct peer_id *to)
{
    uint64_t words[] = {id_u64(from), id_u64(to)};

    return (uint32_t)(rng_mix(words, 2) % b->cap);
}

static struct bandwidth_row *find(const struct bandwidth *b,
                                  const struct peer_id *from,
                                  const struct peer_id *to)
{
    uint32_t at = place_of(b, from, to);

    for (uint32_t i = 0; i < WINDOW; i++) {
        struct bandwidth_row *r = &b->row[(at + i) % b->cap];

        if (r->used && id_eq(&r->from, from) && id_eq(&r->to, to)) {
            return r;
        }
    }
    return NULL;
}

static struct bandwidth_row *find_or_make(struct bandwidth *b,
                                          const struct peer_id *from,
                                          const struct peer_id *to)
{
    struct bandwidth_row *r = find(b, from, to), *best = NULL;
    uint32_t at = place_of(b, from, to);

    for (uint32_t i = 0; r == NULL && i < WINDOW; i++) {
        struct bandwidth_row *c = &b->row[(at + i) % b->cap];

        if (best == NULL || (!c->used && best->used) ||
            (c->used == best->used && c->at_ms < best->at_ms)) {
            best = c;
        }
    }
    if (r == NULL) {
        r = best;
        memset(r, 0, sizeof *r);
        r->used = true;
        r->from = *from;
        r->to = *to;
    }
    return r;
}

/* Confidence as it is after `age_ms` without a sample. */
static uint32_t faded(uint32_t confidence, uint64_t age_ms)
{
    uint64_t halvings = age_ms / BANDWIDTH_HALF_MS;

    return halvings >= 8 ? 0 : confidence >> halvings;
}

static bool differs(uint64_t rate, uint64_t told)
{
    uint64_t apart = rate > told ? rate - told : told - rate;

    return apart > told / 8;
}

static void sample(struct bandwidth_row *r, uint64_t rate, uint64_t now_ms)
{
    uint32_t confidence = faded(r->confidence, now_ms - r->at_ms);

    rate = rate < BANDWIDTH_RATE_MAX ? rate : BANDWIDTH_RATE_MAX;
    if (confidence == 0) {
        r->bytes_per_s = rate; /* what was known is too old to count */
    } else if (rate >= r->bytes_per_s) {
        r->bytes_per_s += (rate - r->bytes_per_s) >> FORGET_SHIFT;
    } else {
        r->bytes_per_s -= (r->bytes_per_s - rate) >> FORGET_SHIFT;
    }
    confidence += PER_SAMPLE;
    r->confidence =
        (uint8_t)(confidence < BANDWIDTH_CONFIDENCE ? confidence
                                                    : BANDWIDTH_CONFIDENCE);
    r->at_ms = now_ms;
    r->news = r->news || differs(r->bytes_per_s, r->told_bytes_per_s);
}

void bandwidth_note(struct bandwidth *b,
                    const struct peer_id *from,
                    const struct peer_id *to,
                    uint64_t bytes,
                    uint64_t busy_us,
                    uint64_t now_ms)
{
    struct bandwidth_row *r;

    if (bytes == 0 || busy_us == 0 || bytes > BANDWIDTH_RATE_MAX) {
        return; /* it was here before its header was read: says nothing */
    }
    r = find_or_make(b, from, to);
    r->bytes += bytes;
    r->busy_us += busy_us;
    if (r->busy_us >= b->sample_us || r->bytes >= BANDWIDTH_SAMPLE_BYTES) {
        /* At most 10^12 + 4 Mi bytes: times 10^6 is below 2^64. */
        sample(r, r->bytes * 1000000U / r->busy_us, now_ms);
        r->bytes = r->busy_us = 0;
    }
}

void bandwidth_told(struct bandwidth *b,
                    const struct peer_id *from,
                    const struct peer_id *to,
                    uint64_t bytes_per_s,
                    uint32_t confidence,
                    uint64_t now_ms)
{
    struct bandwidth_row *r;

    if (id_eq(from, to) || bytes_per_s > BANDWIDTH_RATE_MAX ||
        confidence == 0 || confidence > BANDWIDTH_CONFIDENCE) {
        return;
    }
    r = find_or_make(b, from, to);
    r->bytes_per_s = bytes_per_s;
    r->confidence = (uint8_t)confidence;
    r->at_ms = now_ms;
}

struct bandwidth_rate bandwidth_edge(const struct bandwidth *b,
                                     const struct peer_id *from,
                                     const struct peer_id *to,
                                     uint64_t now_ms)
{
    const struct bandwidth_row *r = find(b, from, to);
    struct bandwidth_rate rate = {0};

    if (r != NULL && r->confidence > 0) {
        rate.age_ms = now_ms > r->at_ms ? now_ms - r->at_ms : 0;
        rate.confidence = faded(r->confidence, rate.age_ms);
        rate.bytes_per_s = rate.confidence > 0 ? r->bytes_per_s : 0;
    }
    return rate;
}

uint32_t bandwidth_news(struct bandwidth *b,
                        const struct peer_id *to,
                        const struct bandwidth_row **out,
                        uint32_t max)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < b->cap && n < max; i++) {
        struct bandwidth_row *r = &b->row[i];

        if (r->used && r->news && id_eq(&r->to, to)) {
            r->news = false;
            r->told_bytes_per_s = r->bytes_per_s;
            out[n++] = r;
        }
    }
    return n;
}

void bandwidth_tell_anew(struct bandwidth *b)
{
    for (uint32_t i = 0; i < b->cap; i++) {
        b->row[i].news = b->row[i].used && b->row[i].confidence > 0;
    }
}
