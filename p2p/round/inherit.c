/* inherit.c - see inherit.h. */
#include "p2p/round/inherit.h"

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- a member remembers ------------------------------------------------ */

static uint64_t epoch_of(const struct inherit *h, const struct hash32 *plan)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (hash32_eq(&h->ranges[i].plan, plan)) {
            return h->epochs[i];
        }
    }
    return 0; /* we were not in it */
}

void inherit_keep(struct inherit *h,
                  const struct plan_body *plan,
                  const struct hash32 *plan_hash,
                  const struct peer_id *members,
                  uint64_t final,
                  uint64_t attempt)
{
    uint64_t epochs[ROUND_RANGES_MAX] = {0};
    struct plan_range *last;
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_ranges; i++) {
        epochs[i] = epoch_of(h, &plan->ranges[i].plan);
    }
    h->attempt = attempt;
    while (n < plan->n_ranges &&
           (n == 0 ? final > 0 : plan->ranges[n - 1].upto < final)) {
        h->ranges[n] = plan->ranges[n];
        h->ranges[n].upto = least(plan->ranges[n].upto, final);
        h->epochs[n] = epochs[n];
        n++;
    }
    h->n = n;
    if (n < plan->n_ranges || n == ROUND_RANGES_MAX ||
        final < inherit_total(plan)) {
        return;
    }
    h->epochs[h->n] = plan->epoch;
    last = &h->ranges[h->n++];
    last->upto = final;
    last->plan = *plan_hash;
    last->n_contributors = plan->n_members;
    for (uint32_t k = 0; k < plan->n_members; k++) {
        last->contributors[k] = (struct contributor){
            .peer = members[k],
            .tokens = plan->members[k].tokens,
            .first_step = plan->members[k].first_step,
            .last_step = plan->members[k].last_step,
            .lease = plan->members[k].lease,
        };
    }
}

void inherit_move(struct inherit *h, uint64_t final, uint64_t attempt)
{
    h->attempt = attempt;
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->ranges[i].upto >= final) {
            h->ranges[i].upto = final;
            h->n = i + 1;
        }
    }
}

void inherit_claims(const struct inherit *h, struct ready_body *ready)
{
    uint64_t at = 0;

    ready->n_claims = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->ranges[i].upto > at) {
            ready->claims[ready->n_claims++] = (struct reduced_claim){
                .upto = h->ranges[i].upto, .plan = h->ranges[i].plan};
        }
        at = h->ranges[i].upto;
    }
}

/* ---- the coordinator chooses ------------------------------------------- */

static bool is_cut(uint64_t at, uint64_t elements, uint32_t block)
{
    return at == elements || (at < elements && at % block == 0);
}

bool inherit_claims_valid(const struct ready_body *ready,
                          uint64_t elements,
                          uint32_t block)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < ready->n_claims; i++) {
        if (ready->claims[i].upto <= at ||
            !is_cut(ready->claims[i].upto, elements, block)) {
            return false;
        }
        at = ready->claims[i].upto;
    }
    return true;
}

static const struct plan_range *range_of(const struct inherit *h,
                                         const struct hash32 *plan)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (hash32_eq(&h->ranges[i].plan, plan)) {
            return &h->ranges[i];
        }
    }
    return NULL;
}

/* Elements that are both claimed and in the ranges, from 0 on. */
static uint64_t common(const struct ready_body *ready,
                       const struct plan_body *plan)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < ready->n_claims && i < plan->n_ranges; i++) {
        if (!hash32_eq(&ready->claims[i].plan, &plan->ranges[i].plan)) {
            break;
        }
        at = least(ready->claims[i].upto, plan->ranges[i].upto);
        if (ready->claims[i].upto != plan->ranges[i].upto) {
            break;
        }
    }
    return at;
}

/* The claim as ranges, as far as we know who contributed. */
static void take(const struct inherit *h,
                 const struct ready_body *ready,
                 struct plan_body *plan)
{
    plan->n_ranges = 0;
    for (uint32_t i = 0; i < ready->n_claims; i++) {
        const struct plan_range *known = range_of(h, &ready->claims[i].plan);

        if (known == NULL) {
            return;
        }
        plan->ranges[i] = *known;
        plan->ranges[i].upto = ready->claims[i].upto;
        plan->n_ranges++;
    }
}

static uint64_t known_upto(const struct inherit *h,
                           const struct ready_body *ready)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < ready->n_claims; i++) {
        if (range_of(h, &ready->claims[i].plan) == NULL) {
            break;
        }
        at = ready->claims[i].upto;
    }
    return at;
}

static bool same_contribution(const struct contributor *a,
                              const struct contributor *b)
{
    return id_eq(&a->peer, &b->peer) && a->tokens == b->tokens &&
           a->first_step == b->first_step && a->last_step == b->last_step &&
           a->lease == b->lease;
}

static bool contributed(const struct plan_range *r, const struct contributor *c)
{
    for (uint32_t k = 0; k < r->n_contributors; k++) {
        if (same_contribution(&r->contributors[k], c)) {
            return true;
        }
    }
    return false;
}

static struct contributor offered(const struct ready_body *ready,
                                  const struct peer_id *peer)
{
    return (struct contributor){
        .peer = *peer,
        .tokens = ready->tokens,
        .first_step = ready->first_step,
        .last_step = ready->last_step,
        .lease = ready->lease,
    };
}

/* Whether this member's contribution is in all that it claims: only then can it
 * be in a plan that inherits it, and bring the bytes. */
static bool is_in_claims(const struct inherit *h,
                         const struct ready_body *ready,
                         const struct peer_id *peer)
{
    struct contributor c = offered(ready, peer);

    for (uint32_t i = 0; i < ready->n_claims; i++) {
        const struct plan_range *known = range_of(h, &ready->claims[i].plan);

        if (known == NULL) {
            break;
        }
        if (!contributed(known, &c)) {
            return false;
        }
    }
    return true;
}

uint64_t inherit_choose(const struct inherit *h,
                        const struct ready_body *readies,
                        const struct peer_id *ids,
                        const struct view_member *members,
                        uint64_t ready,
                        struct plan_body *plan)
{
    const struct ready_body *best = NULL;

    plan->n_ranges = 0;
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        if ((ready >> i & 1) && is_in_claims(h, &readies[i], &ids[i]) &&
            known_upto(h, &readies[i]) >
                (best == NULL ? 0 : known_upto(h, best))) {
            best = &readies[i];
        }
    }
    if (best != NULL) {
        take(h, best, plan);
    }
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        for (uint32_t k = 0; (ready >> i & 1) && k < plan->n_ranges; k++) {
            struct contributor c = offered(&readies[i], &ids[i]);

            if (members[i].joined > epoch_of(h, &plan->ranges[k].plan) ||
                !contributed(&plan->ranges[k], &c)) {
                ready &= ~(1ULL << i);
            }
        }
    }
    return ready;
}

void inherit_holds(const struct ready_body *readies, struct plan_body *plan)
{
    for (uint32_t k = 0; k < plan->n_members; k++) {
        plan->members[k].holds = common(&readies[plan->members[k].index], plan);
    }
}

/* ---- a member checks ---------------------------------------------------- */

uint64_t inherit_total(const struct plan_body *plan)
{
    return plan->n_ranges == 0 ? 0 : plan->ranges[plan->n_ranges - 1].upto;
}

static bool same_contributors(const struct plan_range *a,
                              const struct plan_range *b)
{
    if (a->n_contributors != b->n_contributors) {
        return false;
    }
    for (uint32_t k = 0; k < a->n_contributors; k++) {
        if (!same_contribution(&a->contributors[k], &b->contributors[k])) {
            return false;
        }
    }
    return true;
}

bool inherit_fits(const struct inherit *h,
                  const struct plan_body *plan,
                  const struct peer_id *self,
                  uint32_t rank,
                  uint64_t elements,
                  uint32_t block)
{
    const struct plan_member *own =
        rank < plan->n_members ? &plan->members[rank] : NULL;
    struct ready_body mine = {0};
    struct contributor as = {0};
    uint64_t at = 0, most = 0;

    if (own != NULL) {
        as.peer = *self;
        as.tokens = own->tokens;
        as.first_step = own->first_step;
        as.last_step = own->last_step;
        as.lease = own->lease;
    }
    for (uint32_t i = 0; i < plan->n_ranges; i++) {
        const struct plan_range *r = &plan->ranges[i];
        const struct plan_range *known = range_of(h, &r->plan);

        if (r->upto <= at || !is_cut(r->upto, elements, block) ||
            r->n_contributors == 0 ||
            (own != NULL && known != NULL && !same_contributors(known, r)) ||
            (own != NULL && !contributed(r, &as))) {
            return false;
        }
        at = r->upto;
    }
    for (uint32_t k = 0; k < plan->n_members; k++) {
        uint64_t holds = plan->members[k].holds;

        if (holds > at || !is_cut(holds, elements, block)) {
            return false;
        }
        most = holds > most ? holds : most;
    }
    inherit_claims(h, &mine);
    return most == at && (own == NULL || own->holds == common(&mine, plan));
}

uint64_t inherit_share(const struct plan_body *plan,
                       bool in_members,
                       const struct peer_id *peer,
                       uint64_t first_step,
                       uint64_t last_step,
                       uint64_t elements)
{
    uint64_t share = 0, at = 0;

    for (uint32_t i = 0; i < plan->n_ranges; i++) {
        const struct plan_range *r = &plan->ranges[i];
        bool found = false;

        for (uint32_t k = 0; k < r->n_contributors; k++) {
            const struct contributor *c = &r->contributors[k];

            found =
                found || (id_eq(&c->peer, peer) && c->first_step < last_step &&
                          first_step < c->last_step);
        }
        if (r->upto <= at || r->upto > elements) {
            return 0; /* no range of such a vector */
        }
        share += found ? r->upto - at : 0;
        at = r->upto;
    }
    return share + (in_members ? elements - at : 0);
}
