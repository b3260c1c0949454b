/* lease_share.c - the ledger of leases after the commit of a plan: the
 * coordinator computes it for the plan, and every member that follows the plan
 * computes it again. See lease.h. */
#include "p2p/round/internal.h"
#include "p2p/round/lease.h"

#define SPENT_MAX ((ROUND_RANGES_MAX + 1) * VIEW_MEMBERS_MAX)

struct spent_list {
    uint32_t n;
    struct lease_spent at[SPENT_MAX];
};

/* A contribution that is in the commit twice, in ranges and beside them, is
 * spent once. */
static void spent_add(struct spent_list *l, const struct lease_spent *s)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->at[i].holder == s->holder && l->at[i].lease == s->lease) {
            return;
        }
    }
    if (s->lease > 0) {
        l->at[l->n++] = *s;
    }
}

static void
spent_of(const struct round *r, const struct plan_body *p, struct spent_list *l)
{
    l->n = 0;
    for (uint32_t k = 0; k < p->n_members; k++) {
        const struct plan_member *m = &p->members[k];

        spent_add(l, &(struct lease_spent){
                         .holder = id_u64(&r->ballot->ids[m->index]),
                         .lease = m->lease,
                         .steps = m->last_step - m->first_step,
                     });
    }
    for (uint32_t i = 0; i < p->n_ranges; i++) {
        for (uint32_t k = 0; k < p->ranges[i].n_contributors; k++) {
            const struct contributor *c = &p->ranges[i].contributors[k];

            spent_add(l, &(struct lease_spent){
                             .holder = id_u64(&c->peer),
                             .lease = c->lease,
                             .steps = c->last_step - c->first_step,
                         });
        }
    }
}

/* The ledger after `p`; false: the ledger before it is not known here. */
static bool ledger_after(const struct round *r,
                         const struct plan_body *p,
                         struct ledger *after)
{
    const struct round_record *base = r->opt.record;
    struct spent_list spent;
    uint64_t holders[VIEW_MEMBERS_MAX];
    struct text_span texts[VIEW_MEMBERS_MAX] = {{0}};
    struct lease_commit c = {
        .quota = r->terms.lease_quota,
        .view = round_view(r),
        .holders = holders,
        .texts = texts,
        .first = hash32_eq(&round_view(r)->commit, &r->base),
        .spent = spent.at,
    };

    if (base == NULL || !base->known || !hash32_eq(&base->hash, &r->base)) {
        return false;
    }
    for (uint32_t i = 0; i < c.view->n_members; i++) {
        holders[i] = id_u64(&r->ballot->ids[i]);
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        texts[p->members[k].index] = p->members[k].text;
    }
    spent_of(r, p, &spent);
    c.n_spent = spent.n;
    *after = base->commit.plan.body.ledgers[0];
    lease_settle(after, &c);
    return true;
}

bool round_ledger_make(const struct round *r, struct plan_body *p)
{
    p->n_ledgers = r->terms.lease_quota > 0;
    return p->n_ledgers == 0 || ledger_after(r, p, &p->ledgers[0]);
}

bool round_ledger_valid(const struct round *r, const struct plan_body *p)
{
    struct ledger own;

    if (p->n_ledgers != (r->terms.lease_quota > 0)) {
        return false;
    }
    if (p->n_ledgers == 0 || !r->has_state) {
        return true; /* whoever takes part has the state */
    }
    return ledger_after(r, p, &own) && ledger_eq(&own, &p->ledgers[0]);
}
