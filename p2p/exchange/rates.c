/* rates.c - see rates.h. */
#include "p2p/exchange/rates.h"

#include <string.h>

#define HALVINGS 12 /* of the span in which the best rate is searched */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void take(struct rates *r, uint32_t i, uint32_t k, uint64_t rate)
{
    r->edge[i][k] = rate;
    r->up[i] = rate > r->up[i] ? rate : r->up[i];
    r->down[k] = rate > r->down[k] ? rate : r->down[k];
    r->fastest = rate > r->fastest ? rate : r->fastest;
    r->n_up[i]++;
    r->n_down[k]++;
}

void rates_init(struct rates *r,
                const struct bandwidth *map,
                const struct peer_id *ids,
                uint32_t n,
                uint64_t now_ms)
{
    memset(r, 0, sizeof *r);
    r->n = n;
    for (uint32_t i = 0; i < n && map != NULL; i++) {
        for (uint32_t k = 0; k < n; k++) {
            struct bandwidth_rate e =
                bandwidth_edge(map, &ids[i], &ids[k], now_ms);

            if (i != k && e.confidence >= RATES_CONFIDENCE &&
                e.bytes_per_s > 0) {
                take(r, i, k, e.bytes_per_s);
            }
        }
    }
}

uint64_t rates_guess(const struct rates *r, uint32_t i, uint32_t k)
{
    uint64_t rate = r->fastest;

    if (r->edge[i][k] > 0) {
        return r->edge[i][k];
    }
    /* A few slow edges may be the fault of their other ends. */
    rate = r->n_up[i] >= RATES_ENOUGH(r->n) ? least(rate, r->up[i]) : rate;
    return r->n_down[k] >= RATES_ENOUGH(r->n) ? least(rate, r->down[k]) : rate;
}

uint64_t rates_ring(const struct rates *r, const uint8_t *ring, uint32_t n)
{
    uint64_t slowest = r->fastest;

    for (uint32_t k = 0; k < n && n > 1; k++) {
        slowest = least(slowest, rates_guess(r, ring[k], ring[(k + 1) % n]));
    }
    return slowest;
}

/* A ring of which no edge is slower than `rate`. */
static bool ring_of(const struct rates *r,
                    const struct order_graph *g,
                    uint64_t mask,
                    uint64_t seed,
                    uint64_t rate,
                    uint8_t ring[VIEW_MEMBERS_MAX])
{
    struct order_graph fast = *g;

    for (uint32_t i = 0; i < g->n; i++) {
        for (uint32_t k = 0; k < g->n; k++) {
            if (i != k && rates_guess(r, i, k) < rate) {
                order_cut_one_way(&fast, i, k);
            }
        }
    }
    return order_ring(&fast, mask, seed, ring);
}

bool rates_order(const struct rates *r,
                 const struct order_graph *g,
                 uint64_t mask,
                 uint64_t seed,
                 uint8_t ring[VIEW_MEMBERS_MAX])
{
    uint32_t n = (uint32_t)__builtin_popcountll(mask);
    uint64_t now = rates_ring(r, ring, n);
    uint64_t low = now + now / RATES_GAIN + 1, high = r->fastest + 1;
    uint8_t found[VIEW_MEMBERS_MAX];

    if (n < 3 || low >= high || !ring_of(r, g, mask, seed, low, found)) {
        return false; /* of two there is one ring */
    }
    memcpy(ring, found, n);
    for (int step = 0; step < HALVINGS && high - low > low / 64; step++) {
        uint64_t middle = low + (high - low) / 2;

        if (ring_of(r, g, mask, seed, middle, found)) {
            memcpy(ring, found, n);
            low = middle;
        } else {
            high = middle;
        }
    }
    return true;
}

void rates_lines(const struct rates *r,
                 struct butterfly_rate lines[VIEW_MEMBERS_MAX])
{
    for (uint32_t i = 0; i < r->n; i++) {
        lines[i] = (struct butterfly_rate){.up = r->up[i], .down = r->down[i]};
    }
}
