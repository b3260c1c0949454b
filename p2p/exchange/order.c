/* order.c - see order.h. */
#include "p2p/exchange/order.h"

#include <string.h>

#include "proto/base/rng.h"

#define BIT(i)     (1ULL << (i))
#define PERMS      64   /* random orders that are tried first */
#define SEARCH_MAX 4000 /* steps of the search */

void order_init(struct order_graph *g, uint32_t n)
{
    uint64_t all = n >= 64 ? UINT64_MAX : BIT(n) - 1;

    memset(g, 0, sizeof *g);
    g->n = n;
    for (uint32_t i = 0; i < n; i++) {
        g->edges[i] = all & ~BIT(i);
    }
}

void order_cut(struct order_graph *g, uint32_t i, uint32_t k)
{
    g->edges[i] &= ~BIT(k);
    g->edges[k] &= ~BIT(i);
}

void order_cut_one_way(struct order_graph *g, uint32_t i, uint32_t k)
{
    g->edges[i] &= ~BIT(k);
}

static bool is_edge(const struct order_graph *g, uint32_t i, uint32_t k)
{
    return (g->edges[i] >> k & 1) != 0;
}

bool order_closes(const struct order_graph *g, const uint8_t *ring, uint32_t n)
{
    for (uint32_t k = 0; k < n && n > 1; k++) {
        if (!is_edge(g, ring[k], ring[(k + 1) % n])) {
            return false;
        }
    }
    return true;
}

/* Depth first from ring[0]: the neighbour with the fewest ways on comes first
 * (Warnsdorff's rule). No recursion: tried[d] are the ways
 * that depth d has gone. */
static bool
search(const struct order_graph *g, uint64_t mask, uint8_t *ring, uint32_t n)
{
    uint64_t tried[VIEW_MEMBERS_MAX + 1] = {0};
    uint64_t used = BIT(ring[0]);
    uint32_t depth = 1;

    for (uint32_t step = 0; step < SEARCH_MAX; step++) {
        uint64_t may = g->edges[ring[depth - 1]] & mask & ~used;
        uint32_t best = 64, ways = 65;

        if (depth == n && is_edge(g, ring[n - 1], ring[0])) {
            return true;
        }
        for (uint64_t left = may & ~tried[depth - 1]; left != 0;
             left &= left - 1) {
            uint32_t i = (uint32_t)__builtin_ctzll(left);
            uint32_t w =
                (uint32_t)__builtin_popcountll(g->edges[i] & mask & ~used);

            if (w < ways) {
                ways = w;
                best = i;
            }
        }
        if (best < 64) {
            tried[depth - 1] |= BIT(best);
            tried[depth] = 0;
            ring[depth++] = (uint8_t)best;
            used |= BIT(best);
        } else if (depth == 1) {
            return false;
        } else {
            used &= ~BIT(ring[--depth]);
        }
    }
    return false;
}

bool order_ring(const struct order_graph *g,
                uint64_t mask,
                uint64_t seed,
                uint8_t ring[VIEW_MEMBERS_MAX])
{
    uint32_t perm[VIEW_MEMBERS_MAX], at[VIEW_MEMBERS_MAX], n = 0;

    for (uint32_t i = 0; i < g->n; i++) {
        if (mask >> i & 1) {
            at[n++] = i;
        }
    }
    if (n == 0) {
        return false;
    }
    for (uint64_t k = 0; k < PERMS; k++) {
        uint64_t words[] = {seed, k};

        rng_perm(perm, n, rng_mix(words, 2));
        for (uint32_t i = 0; i < n; i++) {
            ring[i] = (uint8_t)at[perm[i]];
        }
        if (order_closes(g, ring, n)) {
            return true;
        }
    }
    return search(g, mask, ring, n);
}

/* Who of the pairs without an edge has most of them; see order.h. */
static uint32_t worst(const struct order_graph *g,
                      uint64_t mask,
                      const uint64_t *first,
                      uint64_t seed)
{
    uint32_t best = 64, most = 0;

    for (uint64_t left = mask; left != 0; left &= left - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(left);
        uint64_t words[] = {seed, i}, other[] = {seed, best};
        uint32_t lacks =
            (uint32_t)__builtin_popcountll(mask & ~BIT(i) & ~g->edges[i]);

        if (lacks > most || (lacks == most && best < 64 &&
                             (first[i] > first[best] ||
                              (first[i] == first[best] &&
                               rng_mix(words, 2) > rng_mix(other, 2))))) {
            best = i;
            most = lacks;
        }
    }
    return most == 0 ? 64 : best;
}

uint64_t order_largest(const struct order_graph *g,
                       uint64_t mask,
                       const uint64_t first[VIEW_MEMBERS_MAX],
                       uint64_t seed)
{
    uint8_t ring[VIEW_MEMBERS_MAX];

    while (mask != 0 && !order_ring(g, mask, seed, ring)) {
        uint32_t out = worst(g, mask, first, seed);

        if (out >= 64) {
            return 0; /* cannot be: without missing edges there is a ring */
        }
        mask &= ~BIT(out);
    }
    return mask;
}

uint64_t order_clique(const struct order_graph *g,
                      uint64_t mask,
                      const uint64_t first[VIEW_MEMBERS_MAX],
                      uint64_t seed)
{
    uint32_t out;

    while ((out = worst(g, mask, first, seed)) < 64) {
        mask &= ~BIT(out);
    }
    return mask;
}

/* ---- sites ------------------------------------------------------------ */

#define NESTED_TRIES 32U /* other gateways each time */

struct groups {
    uint32_t n;
    uint64_t of[VIEW_MEMBERS_MAX]; /* members of each */
};

static uint32_t count(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

static void
split(uint64_t mask, const struct order_sites *s, struct groups *groups)
{
    groups->n = 0;
    while (mask != 0) {
        uint32_t first = (uint32_t)__builtin_ctzll(mask);
        uint64_t group = BIT(first);

        for (uint32_t i = first + 1; i < VIEW_MEMBERS_MAX; i++) {
            bool same = (mask >> i & 1) && s->site[first] != 0 &&
                        s->site[i] == s->site[first];

            if (same && (s->most == 0 || count(group) < s->most)) {
                group |= BIT(i);
            }
        }
        groups->of[groups->n++] = group;
        mask &= ~group;
    }
}

static bool
all_near(const uint64_t near[VIEW_MEMBERS_MAX], uint64_t group, uint32_t k)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        if ((group >> i & 1) && !(near[i] >> k & 1)) {
            return false;
        }
    }
    return (near[k] & group) == group;
}

void order_near(uint64_t mask,
                const uint64_t near[VIEW_MEMBERS_MAX],
                struct order_sites *s)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        uint64_t group = BIT(i);

        if (!(mask >> i & 1) || s->site[i] != 0) {
            continue;
        }
        for (uint32_t k = i + 1; k < VIEW_MEMBERS_MAX; k++) {
            if ((mask >> k & 1) && s->site[k] == 0 &&
                all_near(near, group, k) &&
                (s->most == 0 || count(group) < s->most)) {
                group |= BIT(k);
                s->site[k] = ORDER_SITE_MEASURED + i;
            }
        }
        s->site[i] = count(group) > 1 ? ORDER_SITE_MEASURED + i : 0;
    }
}

/* Of a site: one that leads already, later any. */
static uint32_t
gateway_of(uint64_t group, uint64_t lead, uint64_t seed, uint32_t try)
{
    uint64_t words[] = {seed, group, try};
    uint64_t from = try == 0 && (group & lead) != 0 ? group & lead : group;
    uint64_t skip = rng_mix(words, 3) % count(from);

    while (skip-- > 0) {
        from &= from - 1;
    }
    return (uint32_t)__builtin_ctzll(from);
}

/* A ring of a site, behind what is in `order`, from its gateway on. */
static bool put_site(const struct order_graph *g,
                     uint64_t group,
                     uint32_t gateway,
                     uint64_t seed,
                     uint8_t *order)
{
    uint8_t ring[VIEW_MEMBERS_MAX];
    uint32_t n = count(group), at = 0;

    if (!order_ring(g, group, seed, ring)) {
        return false;
    }
    while (ring[at] != gateway) {
        at++;
    }
    for (uint32_t k = 0; k < n; k++) {
        order[k] = ring[(at + k) % n];
    }
    return true;
}

static bool nest(const struct order_graph *g,
                 const struct groups *groups,
                 uint64_t lead,
                 uint64_t seed,
                 uint32_t try,
                 uint8_t *order,
                 bool *gateway)
{
    uint8_t ring[VIEW_MEMBERS_MAX];
    uint64_t gateways = 0;
    uint32_t n = 0;

    for (uint32_t k = 0; k < groups->n; k++) {
        gateways |= BIT(gateway_of(groups->of[k], lead, seed, try));
    }
    if (!order_ring(g, gateways, seed, ring)) {
        return false;
    }
    for (uint32_t k = 0; k < groups->n; k++) {
        uint64_t group = 0;

        for (uint32_t i = 0; i < groups->n; i++) {
            group = groups->of[i] >> ring[k] & 1 ? groups->of[i] : group;
        }
        if (!put_site(g, group, ring[k], seed + try, order + n)) {
            return false;
        }
        for (uint32_t i = 0; i < count(group); i++) {
            gateway[n + i] = i == 0;
        }
        n += count(group);
    }
    return true;
}

bool order_nested(const struct order_graph *g,
                  uint64_t mask,
                  const struct order_sites *s,
                  uint64_t seed,
                  uint8_t order[VIEW_MEMBERS_MAX],
                  bool gateway[VIEW_MEMBERS_MAX])
{
    struct groups groups;

    split(mask, s, &groups);
    if (groups.n < 2 || groups.n == count(mask)) {
        return false;
    }
    for (uint32_t try = 0; try < NESTED_TRIES; try++) {
        if (nest(g, &groups, s->lead, seed, try, order, gateway)) {
            return true;
        }
    }
    return false;
}
