/* arrivals.c - see arrivals.h. */
#include "p2p/swarm/arrivals.h"

#include <assert.h>
#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/rng.h"

/* 50 a second are 3 % of a core; 150 at once are a swarm that is founded. Of
 * one group 5 a second, 20 at once: a laboratory. Known: each peer 10 a
 * second, 40 at once: a member comes with several connections. For an hour: an
 * address of the internet may be another one's tomorrow. */
void arrivals_options_default(struct arrivals_options *opt)
{
    *opt = (struct arrivals_options){
        .all = {20000, 3000000},
        .group = {200000, 4000000},
        .known = {100000, 4000000},
        .waiting_max = ARRIVALS_WAITING_MAX,
        .known_ms = 3600000,
    };
}

void arrivals_init(struct arrivals *a, const struct arrivals_options *opt)
{
    assert(opt->waiting_max > 0 && opt->waiting_max <= ARRIVALS_WAITING_MAX);
    memset(a, 0, sizeof *a);
    a->opt = *opt;
    a->rng = opt->seed;
}

/* ---- groups and known addresses ----------------------------------------- */

/* Its row. Of those for whom nobody waits the one goes that owes least. */
static uint32_t group_take(struct arrivals *a, const uint8_t ip[16])
{
    bool limited = !prefix_is_private(ip);
    uint8_t net[16] = {0};
    uint32_t least = ARRIVALS_GROUPS_MAX;

    memcpy(net, ip, limited ? prefix_bytes(ip) : sizeof net);
    for (uint32_t i = 0; i < ARRIVALS_GROUPS_MAX; i++) {
        const struct arrivals_group *g = &a->groups[i];

        if (g->used && memcmp(g->ip, net, sizeof net) == 0) {
            return i;
        }
        if (g->n_waiting == 0 &&
            (least == ARRIVALS_GROUPS_MAX ||
             g->paid.paid_us < a->groups[least].paid.paid_us)) {
            least = i;
        }
    }
    assert(least < ARRIVALS_GROUPS_MAX); /* there are more than places */
    a->groups[least] =
        (struct arrivals_group){.used = true, .limited = limited};
    memcpy(a->groups[least].ip, net, sizeof net);
    return least;
}

static bool is_known_at(const struct arrivals_known *k,
                        const uint8_t ip[16],
                        uint64_t now_ms)
{
    return k->until_ms > now_ms && memcmp(k->ip, ip, sizeof k->ip) == 0;
}

static bool
is_known(const struct arrivals *a, const uint8_t ip[16], uint64_t now_ms)
{
    for (uint32_t i = 0; i < ARRIVALS_KNOWN_MAX; i++) {
        if (is_known_at(&a->known[i], ip, now_ms)) {
            return true;
        }
    }
    return false;
}

/* Its row, or that of whoever was linked longest ago. */
void arrivals_know(struct arrivals *a,
                   const struct peer_id *who,
                   const uint8_t ip[16],
                   uint64_t now_ms)
{
    struct arrivals_known *k = &a->known[0];

    for (uint32_t i = 0; i < ARRIVALS_KNOWN_MAX; i++) {
        struct arrivals_known *other = &a->known[i];

        if (other->until_ms > 0 && id_eq(&other->who, who)) {
            k = other;
            break;
        }
        k = other->until_ms < k->until_ms ? other : k;
    }
    if (k->until_ms == 0 || !id_eq(&k->who, who)) {
        *k = (struct arrivals_known){.who = *who};
    }
    memcpy(k->ip, ip, sizeof k->ip);
    k->until_ms = now_ms + a->opt.known_ms;
}

/* A budget, where somebody is known at that address and has something left. */
static struct arrivals_known *
known_may(struct arrivals *a, const uint8_t ip[16], uint64_t now_ms)
{
    for (uint32_t i = 0; i < ARRIVALS_KNOWN_MAX; i++) {
        struct arrivals_known *k = &a->known[i];

        if (is_known_at(k, ip, now_ms) &&
            !budget_overdrawn(&k->paid, &a->opt.known, now_ms)) {
            return k;
        }
    }
    return NULL;
}

static bool group_may(const struct arrivals *a,
                      const struct arrivals_group *g,
                      uint64_t now_ms)
{
    return !budget_overdrawn(&a->all, &a->opt.all, now_ms) &&
           (!g->limited || !budget_overdrawn(&g->paid, &a->opt.group, now_ms));
}

/* One without a limit pays as well: who was let in longest ago comes first. */
static void
group_pays(struct arrivals *a, struct arrivals_group *g, uint64_t now_ms)
{
    budget_charge(&a->all, &a->opt.all, 1, now_ms);
    budget_charge(&g->paid, &a->opt.group, 1, now_ms);
}

/* ---- places ------------------------------------------------------------- */

static uint32_t size_of_group(const struct arrivals *a, uint32_t place)
{
    const struct arrivals_place *p = &a->places[place];

    return p->used ? a->groups[p->group].n_waiting : 0;
}

/* Where one of the largest group waits. One lot: this is what a connection
 * costs while all places are taken. */
static int one_of_largest(struct arrivals *a)
{
    uint32_t most = 0, n_alike = 0, i = 0;
    uint64_t lot;

    for (uint32_t k = 0; k < a->opt.waiting_max; k++) {
        uint32_t n = size_of_group(a, k);

        n_alike = n > most ? 1 : n_alike + (n == most);
        most = n > most ? n : most;
    }
    for (lot = rng_below(&a->rng, n_alike);; i++) {
        if (size_of_group(a, i) == most && lot-- == 0) {
            return (int)i;
        }
    }
}

static int place_take(struct arrivals *a)
{
    int place = 0;

    if (a->n_waiting < a->opt.waiting_max) {
        while (a->places[place].used) {
            place++;
        }
        return place;
    }
    place = one_of_largest(a);
    arrivals_gone(a, place);
    return place;
}

int arrivals_come(struct arrivals *a, const uint8_t ip[16], uint64_t now_ms)
{
    struct arrivals_known *k = known_may(a, ip, now_ms);
    uint32_t group;
    int place;

    if (k != NULL) {
        budget_charge(&k->paid, &a->opt.known, 1, now_ms);
        return ARRIVALS_ENTER;
    }
    group = group_take(a, ip);
    if (a->n_waiting == 0 && group_may(a, &a->groups[group], now_ms)) {
        group_pays(a, &a->groups[group], now_ms);
        return ARRIVALS_ENTER;
    }
    a->groups[group].n_waiting++; /* before one of the largest goes */
    place = place_take(a);
    a->n_waiting++;
    a->places[place] = (struct arrivals_place){
        .used = true,
        .known = is_known(a, ip, now_ms),
        .group = group,
        .since_ms = now_ms,
    };
    memcpy(a->places[place].ip, ip, sizeof a->places[place].ip);
    return place;
}

void arrivals_said(struct arrivals *a, int place)
{
    a->places[place].said = a->places[place].used;
}

void arrivals_gone(struct arrivals *a, int place)
{
    struct arrivals_place *p = &a->places[place];

    if (p->used) {
        p->used = false;
        a->n_waiting--;
        a->groups[p->group].n_waiting--;
    }
}

int arrivals_late(struct arrivals *a, uint64_t now_ms)
{
    for (uint32_t i = 0; i < a->opt.waiting_max && a->n_waiting > 0; i++) {
        const struct arrivals_place *p = &a->places[i];

        if (p->used && now_ms - p->since_ms >= a->opt.patience_ms) {
            arrivals_gone(a, (int)i);
            return (int)i;
        }
    }
    return ARRIVALS_NONE;
}

/* ---- turns -------------------------------------------------------------- */

/* The budget of who is known where it came from, if that has something. */
static struct arrivals_known *
pays_as_known(struct arrivals *a, const struct arrivals_place *p, uint64_t now)
{
    return p->used && p->known ? known_may(a, p->ip, now) : NULL;
}

/* Whether the first is to go before the second, both being strangers. */
static bool is_before(struct arrivals *a,
                      const struct arrivals_place *p,
                      const struct arrivals_place *q,
                      uint32_t *n_alike)
{
    uint64_t paid = a->groups[p->group].paid.paid_us;
    uint64_t other = a->groups[q->group].paid.paid_us;

    if (paid != other) {
        *n_alike = paid < other ? 1 : *n_alike;
        return paid < other;
    }
    return a->by_lot ? rng_below(&a->rng, ++*n_alike) == 0
                     : p->since_ms < q->since_ms;
}

int arrivals_next(struct arrivals *a, uint64_t now_ms)
{
    bool any = !budget_overdrawn(&a->all, &a->opt.all, now_ms);
    const uint8_t *spent = NULL; /* who is known there has nothing left */
    int best = ARRIVALS_NONE;
    uint32_t n_alike = 1;

    for (uint32_t i = 0; i < a->opt.waiting_max && a->n_waiting > 0; i++) {
        const struct arrivals_place *p = &a->places[i];

        if (!p->used || !p->said) {
            continue;
        }
        /* A crowd at one known address is looked up once. */
        if (p->known &&
            (spent == NULL || memcmp(spent, p->ip, sizeof p->ip) != 0)) {
            if (pays_as_known(a, p, now_ms) != NULL) {
                return (int)i;
            }
            spent = p->ip;
        }
        if (any && group_may(a, &a->groups[p->group], now_ms) &&
            (best == ARRIVALS_NONE ||
             is_before(a, p, &a->places[best], &n_alike))) {
            best = (int)i;
        }
    }
    return best;
}

void arrivals_enter(struct arrivals *a, int place, uint64_t now_ms)
{
    const struct arrivals_place *p = &a->places[place];
    struct arrivals_known *k = pays_as_known(a, p, now_ms);

    assert(p->used);
    if (k != NULL) {
        budget_charge(&k->paid, &a->opt.known, 1, now_ms);
    } else {
        group_pays(a, &a->groups[p->group], now_ms);
        a->by_lot = !a->by_lot;
    }
    arrivals_gone(a, place);
}
