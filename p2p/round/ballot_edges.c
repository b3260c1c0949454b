/* ballot_edges.c - a view must be able to exchange data.
 *
 * Control goes over a third member where two have no link; data does not. With
 * a few missing edges rings go around them, and a plan leaves out in turn who
 * does not fit (round.c). Only a view in which no ring holds more than half of
 * the members could not go on: it is cut down to the largest ring, where the
 * later joined of a pair without an edge goes first, then the higher id. A
 * butterfly needs an edge between every two: what is said of a ring holds for
 * the largest set of members that are all joined, and as many others stay as
 * leave that set more than half of the view; they take turns with those in it.
 * Who is out is not taken in while that would not change, and every time that
 * it was wrong the next try comes later.
 */
#include "p2p/round/ballot_internal.h"

#include <string.h>

#include "p2p/exchange/order.h"

#define OUSTED_SHIFT_MAX 6 /* at most 64 rounds */

/* Whether there is an edge between members x and y of `v`. Of whom nothing is
 * known the best is believed. */
static bool is_edge(const struct ballot_edges *k,
                    const struct view_body *v,
                    uint32_t x,
                    uint32_t y)
{
    int i = view_index_key(k->old, v->members[x].public_key);
    int j = view_index_key(k->old, v->members[y].public_key);

    for (uint32_t e = 0; e < v->n_edges; e++) {
        uint32_t p = v->edges[e] & 0xff, q = v->edges[e] >> 8;

        if ((p == x && q == y) || (p == y && q == x)) {
            return false;
        }
    }
    return i < 0 || j < 0 || ((k->of[i] >> j & 1) && (k->of[j] >> i & 1));
}

static void graph_of(const struct ballot_edges *k,
                     const struct view_body *v,
                     uint32_t n,
                     struct order_graph *g)
{
    order_init(g, n);
    for (uint32_t x = 0; x < v->n_members; x++) {
        for (uint32_t y = x + 1; y < v->n_members; y++) {
            if (!is_edge(k, v, x, y)) {
                order_cut(g, x, y);
            }
        }
    }
}

uint64_t ballot_own_edges(const struct ballot *b)
{
    uint64_t mask = 0;

    if (!b->have) {
        return UINT64_MAX; /* not known */
    }
    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        if (members_edge(b->members, (uint32_t)b->self_index, i)) {
            mask |= BIT(i);
        }
    }
    return mask;
}

void ballot_edges_heard(const struct ballot *b, struct ballot_edges *k)
{
    uint32_t n = b->cert.body.n_members;

    *k = (struct ballot_edges){.old = &b->cert.body,
                               .exchange = b->opt.exchange};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++) {
            if (!b->have || i == j || members_edge(b->members, i, j)) {
                k->of[i] |= BIT(j);
            }
        }
    }
}

bool ballot_join_links(const struct join_body *j, const struct peer_id *id)
{
    for (uint32_t i = 0; i < j->n_linked; i++) {
        if (j->linked[i] == id_u64(id) >> 32) {
            return true;
        }
    }
    return false;
}

bool ballot_join_is_known(const struct ballot *b, const struct join_body *j)
{
    uint32_t n = 0, of = 0;

    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        if (view_is_full(&b->cert.body, i)) {
            n += ballot_join_links(j, &b->ids[i]);
            of++;
        }
    }
    return 2 * n > of;
}

static uint32_t n_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

/* The most members of `all` that can take part in one round. */
static uint64_t largest(enum exchange_kind exchange,
                        const struct order_graph *g,
                        uint64_t all,
                        const uint64_t first[VIEW_MEMBERS_MAX],
                        uint64_t seed)
{
    return exchange == EXCHANGE_BUTTERFLY ? order_clique(g, all, first, seed)
                                          : order_largest(g, all, first, seed);
}

bool ballot_join_fits(const struct ballot_edges *k,
                      const struct view_body *v,
                      const struct join_body *j)
{
    static const uint64_t even[VIEW_MEMBERS_MAX];
    uint32_t n = v->n_members;
    struct order_graph g;
    uint64_t all;

    if (n >= VIEW_MEMBERS_MAX) {
        return false;
    }
    graph_of(k, v, n + 1, &g);
    for (uint32_t x = 0; x < n; x++) {
        struct peer_id id = view_member_id(&v->members[x]);

        if (!ballot_join_links(j, &id)) {
            order_cut(&g, x, n);
        }
    }
    all = view_full(v) | BIT(n);
    return g.edges[n] != 0 &&
           2 * n_of(largest(k->exchange, &g, all, even, v->epoch)) > n_of(all);
}

/* Who of `all` stays beside `stay`, so that these remain more than half: who
 * joined first. */
static uint64_t with_others(uint64_t stay, const uint64_t *first, uint64_t all)
{
    const uint32_t none = VIEW_MEMBERS_MAX;
    uint32_t most = 2 * n_of(stay) - 1;

    while (n_of(stay) < most) {
        uint32_t best = none;

        for (uint32_t x = 0; x < VIEW_MEMBERS_MAX; x++) {
            if (((all & ~stay) >> x & 1) &&
                (best == none || first[x] < first[best])) {
                best = x;
            }
        }
        if (best == none) {
            break;
        }
        stay |= BIT(best);
    }
    return stay;
}

void ballot_prune(const struct ballot_edges *k, struct view_body *v)
{
    uint64_t first[VIEW_MEMBERS_MAX] = {0}, stay, full = view_full(v);
    uint32_t n = v->n_members;
    struct view_body all = *v;
    struct order_graph g;

    if (n_of(full) < 2) {
        return;
    }
    graph_of(k, v, n, &g);
    for (uint32_t x = 0; x < n; x++) {
        first[x] = v->members[x].joined << 8 | x;
    }
    stay = largest(k->exchange, &g, full, first, 0);
    if (2 * n_of(stay) > n_of(full)) {
        return;
    }
    if (k->exchange == EXCHANGE_BUTTERFLY) {
        stay = with_others(stay, first, full);
    }
    stay |= ~full; /* who is on probation is in no ring */
    v->n_members = v->n_edges = 0;
    for (uint32_t x = 0; x < n; x++) {
        if (stay >> x & 1) {
            v->members[v->n_members++] = all.members[x];
        }
    }
    for (uint32_t e = 0; e < all.n_edges; e++) {
        uint32_t x = all.edges[e] & 0xff, y = all.edges[e] >> 8;

        if ((stay >> x & 1) && (stay >> y & 1)) {
            v->edges[v->n_edges++] = (uint16_t)(n_of(stay & (BIT(x) - 1)) |
                                                n_of(stay & (BIT(y) - 1)) << 8);
        }
    }
}

/* ---- who is out ------------------------------------------------------- */

static const struct ballot_ousted *find(const struct ballot *b,
                                        const uint8_t key[32])
{
    for (int k = 0; k < BALLOT_OUSTED_MAX; k++) {
        if (b->ousted[k].times > 0 &&
            memcmp(b->ousted[k].public_key, key, 32) == 0) {
            return &b->ousted[k];
        }
    }
    return NULL;
}

void ballot_oust(struct ballot *b, const uint8_t key[32], uint64_t round)
{
    const struct ballot_ousted *known = find(b, key);
    struct ballot_ousted *o = &b->ousted[0];
    uint32_t times = known == NULL ? 1 : known->times + 1;

    for (int k = 0; k < BALLOT_OUSTED_MAX; k++) {
        if (&b->ousted[k] == known) {
            o = &b->ousted[k];
            break;
        }
        o = b->ousted[k].until_round < o->until_round ? &b->ousted[k] : o;
    }
    memcpy(o->public_key, key, 32);
    o->times = times;
    o->until_round =
        round + (1ULL << (times < OUSTED_SHIFT_MAX ? times : OUSTED_SHIFT_MAX));
}

bool ballot_is_ousted(const struct ballot *b,
                      const uint8_t key[32],
                      uint64_t round)
{
    const struct ballot_ousted *o = find(b, key);

    return o != NULL && round < o->until_round;
}
